"""`realisable` is optimistic at every reachable (level, s, a) of every phase, in at least 1 - delta of the seeds."""

import numpy as np
import pytest

import s4q
from s4q.learners.presets import Constants
from s4q.problems import FiniteMDP

SEEDS = range(200)
DELTA = 0.05


def is_optimistic(mdp: FiniteMDP, seed: int, episodes: int, pool: bool | None = None) -> bool:
    """Does every Q of the run lie above Q* wherever one can get?"""
    worst = [0.0]

    def look(run: s4q.Run) -> None:
        gap = (mdp.q_values(run.q) - mdp.q_star)[mdp.reachable]
        worst[0] = min(worst[0], float(gap.min()))

    learner = s4q.S4Q(mdp, preset="realisable", delta=DELTA, pool=pool)
    s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=seed), episodes, callback=look)
    assert learner.phases > 5
    assert learner.constants.pool == (mdp.spec.stationary if pool is None else pool)
    return worst[0] > -1e-9


def noisy_walk() -> FiniteMDP:
    """A stationary walk of three cells with Bernoulli rewards and one-hot features."""
    transitions = np.array([[[0.7, 0.3, 0.0]] * 2, [[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]], [[0.0, 0.6, 0.4]] * 2])
    rewards = np.array([[0.5, 0.4], [0.3, 0.5], [0.5, 0.6]]) / 4
    return FiniteMDP(transitions, rewards, [1.0, 0.0, 0.0], horizon=4, reward_range=(0.0, 0.25))


CASES = {
    "one block": (s4q.problems.low_rank(), None, 10**5),
    "pooled, a radius per block": (noisy_walk(), True, 10**5),
    "a radius per block": (noisy_walk(), False, 10**5),
}


def share_optimistic(case: str, seeds: range) -> float:
    mdp, pool, episodes = CASES[case]
    return float(np.mean([is_optimistic(mdp, seed, episodes, pool) for seed in seeds]))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_realisable_is_optimistic(case: str) -> None:
    assert share_optimistic(case, SEEDS) >= 1 - DELTA


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_sixteenth_of_the_width_is_not(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    width = Constants.width
    monkeypatch.setattr(Constants, "width", lambda *arguments: width(*arguments) / 16)
    assert share_optimistic(case, SEEDS) < 1 - DELTA
