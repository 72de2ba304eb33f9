"""Requests that make no sense are refused by name, by every collector, before anything is played."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import s4q
from s4q import Explore, Mixture, QLevel, Regress
from s4q.collectors import BatchCollector, CountCollector, EpisodeCollector, FiniteBatch, GymCollector
from s4q.features import OneHot

MDP = s4q.problems.river_swim(4, horizon=3)  # 8 blocks of length 1
LAKE = OneHot(16, n_actions=4)
MAKERS: dict[str, Callable[[], Any]] = {
    "counts": lambda: CountCollector(MDP),
    "episodes": lambda: EpisodeCollector(MDP),
    "batches": lambda: BatchCollector(FiniteBatch(MDP), MDP.features, MDP.spec),
    "gym": lambda: GymCollector(gym.make("FrozenLake-v1"), LAKE, s4q.Spec.of(LAKE, horizon=3, reward_range=(0, 1))),
}
UNIFORM, ONE = s4q.UniformPolicy(2), Mixture([s4q.UniformPolicy(2)], [1.0])


def explore(whitener: Any, threshold: Any = (1.0, 0.0), **more: Any) -> Explore:
    return Explore(0, UNIFORM, whitener, threshold, 5, **more)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("shape", [(5, 5), (2, 8, 1, 1), (3, 9, 1, 1), (3, 8, 2, 2), (1, 8, 1, 1)])
def test_a_whitener_of_another_problem(kind: str, shape: tuple[int, ...]) -> None:
    collector = MAKERS[kind]()
    for act in (collector.collect, lambda request: collector.play(request, s4q.core.messages.Shard(0, 5))):
        with pytest.raises(ValueError, match=r"whitener must have shape \(H, n_blocks, k, k\).*got "):
            act(explore(np.ones(shape)))


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("request_like", ["x", None, ONE])
def test_no_request_at_all(kind: str, request_like: Any) -> None:
    with pytest.raises(ValueError, match="request must be a Regress, an Explore or an Evaluate; got"):
        MAKERS[kind]().collect(request_like)


GOOD = np.ones((3, 8, 1, 1))
BAD: list[tuple[Callable[[], Any], str]] = [
    (lambda: explore(None), "whitener is needed.*got None"),
    (lambda: explore(np.full((3, 8, 1, 1), np.nan)), "whitener must be finite"),
    (lambda: explore(GOOD, 1.0), r"threshold must be \(a, b\).*got 1.0"),
    (lambda: explore(GOOD, (-1.0, 0.0)), r"threshold must be \(a, b\)"),
    (lambda: explore(GOOD, pool=True), "whitener must be one for all levels"),
    (lambda: explore(GOOD, progress=np.zeros(2)), "progress must have shape"),
    (lambda: Explore(0, "greedy", GOOD, (1.0, 0.0), 5), "policy must be a policy"),  # type: ignore[arg-type]
    (lambda: Explore(-1, UNIFORM, GOOD, (1.0, 0.0), 5), "id is the number of the request.*got -1"),
    (lambda: Regress(0, 2, UNIFORM, None, 5), r"mixture must be a Mixture.*got UniformPolicy"),  # type: ignore[arg-type]
    (lambda: Regress(0, 2, ONE, None, 5, done=-1), "done .*got -1"),
    (lambda: s4q.Evaluate(0, None, 5), "policy must be a policy"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_nonsense_is_refused_when_it_is_written(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_request_keeps_what_it_was_made_of() -> None:
    """Collectors remember what they made of a whitener, so it must not change under them."""
    mine = np.ones((3, 8, 1, 1))
    request = explore(mine)
    collector = CountCollector(MDP, seed=3)
    before = collector.collect(request)
    mine *= 5.0
    np.testing.assert_array_equal(collector.collect(request).progress, before.progress)
    with pytest.raises(ValueError, match="read-only"):
        request.whitener[0] = 1.0


def test_kept_steps_of_another_problem_change_nothing() -> None:
    """The learner stands as before, and the right answer is still taken."""
    learner = s4q.S4Q(MDP)
    request = learner.ask(5)
    answer = CountCollector(MDP, seed=0).collect(request)
    assert isinstance(answer, s4q.Visits)
    assert answer.kept is not None
    n = len(answer.kept.levels)
    for name, wrong in (
        ("rewards", np.full(n, np.nan)),
        ("state_blocks", answer.kept.state_blocks + 8),
        ("levels", np.full(n, 3)),
        ("actions", np.full(n, 2)),
        ("states", np.full(n, 10**6)),
        ("next_states", np.full(n, 10**6)),
        ("weights", np.zeros(n, dtype=np.int64)),
        ("state_vectors", np.ones((len(answer.kept.state_blocks), 2, 2))),
    ):
        with pytest.raises(ValueError, match=f"kept.{name} must"):
            learner.tell(request, replace(answer, kept=replace(answer.kept, **{name: wrong})))
    with pytest.raises(ValueError, match="asked for the steps of all episodes"):
        learner.tell(request, replace(answer, kept=None))
    assert learner.n_episodes == 0
    learner.tell(request, answer)
    assert learner.n_episodes == answer.n_episodes
    assert repr(QLevel(np.zeros((1, 2)))) == "QLevel(1 block of 2)"
