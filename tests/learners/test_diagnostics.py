"""Diagnostics: each sign of trouble shows on a problem that has it, and a healthy run shows none."""

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_problems import random_mdp

import s4q
from s4q.collectors import CountCollector, EpisodeCollector
from s4q.core.messages import Transitions
from s4q.learners.diagnostics import Finding
from s4q.learners.level_sums import LevelSums
from s4q.learners.signs import Signs
from s4q.problems import FiniteMDP


def names(findings: list[Finding]) -> set[str]:
    for finding in findings:
        assert finding.suggestion in str(finding)
    return {finding.name for finding in findings}


def test_a_healthy_run_has_nothing_to_report() -> None:
    mdp = s4q.problems.river_swim(6, 12)
    learner = s4q.S4Q(mdp)
    s4q.run(learner, CountCollector(mdp, seed=0), 5000)
    assert learner.diagnose() == []


def test_no_phase_has_ended() -> None:
    mdp = s4q.problems.low_rank()
    learner = s4q.S4Q(mdp, "paper")
    s4q.run(learner, CountCollector(mdp), 1000)
    assert names(learner.diagnose()) == {"no phase has ended"}


def test_no_preset_is_suggested_that_is_in_use() -> None:
    mdp = s4q.problems.chain()
    for preset, says in (("practical", "smaller trigger"), ("realisable", "use the preset practical")):
        learner = s4q.S4Q(mdp, preset, trigger=1e9)  # type: ignore[arg-type]
        s4q.run(learner, CountCollector(mdp), 10)
        [found] = learner.diagnose()
        assert says in found.suggestion
    crowded = s4q.S4Q(mdp, memory="policies", c_replay=50.0, trigger=0.5)
    s4q.run(crowded, CountCollector(mdp), 20_000)
    assert 'Keep steps instead (memory="sketch"), or' in str(crowded.diagnose())


def test_returns_above_the_value_bound_say_so() -> None:
    lake = s4q.problems.from_gymnasium("FrozenLake-v1", 30, value_bound=None)
    spec = s4q.Spec.of(lake.features, horizon=30, reward_range=(0, 1), value_bound=0.01, stationary=True)
    learner = s4q.S4Q(spec)
    s4q.run(learner, EpisodeCollector(lake), 3000)
    assert "value bound too small" in names(learner.diagnose())
    [found] = [one for one in learner.diagnose() if one.name == "not optimistic"]
    assert "value_bound is too small" in found.suggestion


def test_replay_takes_over_and_q_is_still_at_the_bound() -> None:
    mdp = s4q.problems.chain()
    learner = s4q.S4Q(mdp, "realisable", pool=False)
    s4q.run(learner, CountCollector(mdp), 20_000)
    assert {"replay takes over", "still at the bound"} <= names(learner.diagnose())


@pytest.mark.parametrize("kind", [CountCollector, EpisodeCollector])
def test_not_optimistic_when_features_cannot_represent_the_values(kind: type) -> None:
    """One feature for all pairs says nothing of where one is; without a bonus worth its name Q promises too little."""
    rewards = np.zeros((3, 2, 2))
    rewards[2, 1] = 1.0
    transitions = np.zeros((3, 2, 2, 2))
    transitions[..., 1] = 1.0
    features = np.array([[[0.2], [0.2]], [[1.0], [1.0]]])
    mdp = FiniteMDP(transitions, rewards, [1.0, 0.0], features, value_bound=1.0, reward_noise="none")
    learner = s4q.S4Q(mdp, "realisable", bonus_width=1e-3, trigger=50.0, ridge=1e-3)
    s4q.run(learner, kind(mdp), 3000)
    assert "not optimistic" in names(learner.diagnose())


def test_large_residuals_of_features_that_cannot_tell_states_apart() -> None:
    rng = np.random.default_rng(0)
    mdp = random_mdp(6, 2, 2, 2, seed=3)
    blind = FiniteMDP(mdp.transitions, (rng.random(mdp.rewards.shape) < 0.5) * 1.0, mdp.start, np.full((6, 2, 1), 0.5))
    learner = s4q.S4Q(blind)
    s4q.run(learner, CountCollector(blind), 5000)
    assert "large residuals" in names(learner.diagnose())


def test_a_level_that_is_never_reached() -> None:
    transitions = np.zeros((2, 1, 2))
    transitions[:, 0, 1] = 1.0
    mdp = FiniteMDP(transitions, [[0.5], [0.0]], [1.0, 0.0], horizon=3, terminal=[False, True])
    learner = s4q.S4Q(mdp, pool=False)
    s4q.run(learner, CountCollector(mdp), 500)
    assert "a level was never reached" in names(learner.diagnose())


def test_the_record_of_a_phase_adds_up() -> None:
    mdp = s4q.problems.low_rank()
    learner = s4q.S4Q(mdp, "realisable")
    seen: list[int] = []
    s4q.run(learner, EpisodeCollector(mdp), 3000, callback=lambda _: seen.append(learner.last_phase.n_episodes))  # type: ignore[union-attr]
    assert sum(seen) == learner.memory.n_episodes
    record = learner.last_phase
    assert record is not None
    assert record.phase == learner.phases == len(seen)
    assert record.return_sum_sq is not None
    assert record.return_sum_sq >= record.return_sum**2 / record.n_episodes - 1e-9
    assert record.start_value_sum is not None
    assert record.start_value_sum / record.n_episodes <= mdp.spec.value_bound[0] + 1e-12
    traces = np.trace(record.increment[:, 0], axis1=1, axis2=2)
    assert np.all(traces <= record.n_episodes + 1e-9)


def test_healthy_runs_have_no_findings() -> None:
    for mdp, episodes in ((s4q.problems.low_rank(), 10**5), (s4q.problems.combination_lock(), 2_000)):
        learner = s4q.S4Q(mdp)
        s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=0), episodes)
        assert learner.diagnose() == []


def test_a_value_bound_that_is_too_small_is_named() -> None:
    mdp = FiniteMDP(np.ones((1, 2, 1)), [[0.2, 0.7]], [1.0], horizon=3)
    learner = s4q.S4Q(replace(mdp.spec, value_bound=(0.1,) * 3), "realisable")
    s4q.run(learner, CountCollector(mdp, seed=0), 10**5)
    assert [found.name for found in learner.diagnose() if "value_bound is too small" in found.suggestion]


def test_before_the_first_episode() -> None:
    assert [found.name for found in s4q.S4Q(s4q.problems.chain()).diagnose()] == ["nothing was played"]


PLANTED = {
    "value bound too small",
    "features do not tell actions apart",
    "levels are not alike",
    "lost optimism",
    "stuck",
    "more features than the episodes can cover",
    "not optimistic",
}

ZOO: dict[str, Callable[[int], FiniteMDP]] = {
    "chain": lambda _: s4q.problems.chain(),
    "combination lock": lambda _: s4q.problems.combination_lock(),
    "DeepSea": lambda _: s4q.problems.deep_sea(8),
    "dense random": lambda seed: s4q.problems.dense_random(seed=seed),
    "harmless error": lambda _: s4q.problems.harmless_error(),
    "low rank": lambda seed: s4q.problems.low_rank(seed=seed),
    "Bellman closed": lambda seed: s4q.problems.bellman_closed(seed=seed),
    "padded": lambda _: s4q.problems.padded_features(),
    "perturbed": lambda _: s4q.problems.perturbed_low_rank(),
    "RiverSwim": lambda _: s4q.problems.river_swim(6, 20),
    "stochastic lock": lambda _: s4q.problems.stochastic_lock(),
    "FrozenLake": lambda _: s4q.problems.from_gymnasium("FrozenLake-v1", 30),
    "CliffWalking": lambda _: s4q.problems.from_gymnasium("CliffWalking-v1", 30),
    "four rooms": lambda _: s4q.problems.four_rooms(),
    "slippery grid": lambda _: s4q.problems.slippery_grid(),
}


def diagnosed(
    mdp: FiniteMDP,
    episodes: int,
    spec: s4q.Spec | None = None,
    *,
    kind: type = CountCollector,
    seed: int = 0,
    **given: Any,
) -> list[Finding]:
    """The findings at the end of a run."""
    learner = s4q.S4Q(spec or mdp, **given)
    s4q.run(learner, kind(mdp, seed=seed), episodes)
    return learner.diagnose()


def test_groups_that_hide_what_matters_are_told_of_once_the_treasure_is_found() -> None:
    """The policy gets 0.99 where Q, a mean over unlike states, promises less: the features do not fit."""
    found = diagnosed(s4q.problems.aggregated_deep_sea(), 10_000)
    assert "not optimistic" in names(found)
    assert any("features do not represent the values" in one.suggestion for one in found)


@pytest.mark.parametrize("name", ["DeepSea", "low rank"])
def test_the_planted_troubles_are_not_found_where_there_are_none(name: str) -> None:
    for kind, episodes in ((CountCollector, 3000), (EpisodeCollector, 500)):
        assert not names(diagnosed(ZOO[name](0), episodes, kind=kind)) & PLANTED


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_the_planted_troubles_are_not_found_on_any_healthy_problem(name: str) -> None:
    large = name in ("four rooms", "slippery grid")  # many features: each run takes long
    for seed in range(1 if large else 3):
        mdp = ZOO[name](seed)
        assert not names(diagnosed(mdp, 10_000, seed=seed)) & PLANTED
        if not large:
            assert not names(diagnosed(mdp, 1000, kind=EpisodeCollector, seed=seed)) & PLANTED
    for preset in ("realisable", "tight", "paper"):
        assert not names(diagnosed(mdp, 5000, preset=preset)) & PLANTED


@pytest.mark.slow
def test_an_agent_with_features_that_are_not_exact_has_nothing_to_report() -> None:
    gym = pytest.importorskip("gymnasium")
    kinds = s4q.features
    fourier = kinds.Fourier(low=[-2.4, -3, -0.21, -3], high=[2.4, 3, 0.21, 3], order=2, clip=True)
    agent = s4q.Agent(gym.make("CartPole-v1"), kinds.PerAction(fourier, 2), horizon=50, reward_range=(0, 1), seed=0)
    assert agent.learn(100).learner.diagnose() == []
    agent = s4q.Agent(gym.make("MountainCar-v0"), horizon=100, reward_range=(-1, 0), seed=0)
    assert not names(agent.learn(30).learner.diagnose()) & PLANTED


SMALL_BOUNDS = ["chain", "DeepSea", "low rank", "Bellman closed", "RiverSwim"]
MATTERS = [name for name in ZOO if name not in ("FrozenLake", "aggregated DeepSea")]  # 0.3 times 30; nothing is found


def assert_small_bound_is_named(name: str) -> None:
    mdp = ZOO[name](0)
    spec = replace(mdp.spec, value_bound=tuple(0.3 * bound for bound in mdp.spec.value_bound))
    for kind, episodes in ((CountCollector, 2000), (EpisodeCollector, 500)):
        found = diagnosed(mdp, episodes, spec, kind=kind)
        assert "value bound too small" in names(found)
        wrong = [one for one in found if one.name in PLANTED and "value_bound is too small" not in one.suggestion]
        assert not wrong


@pytest.mark.parametrize("name", SMALL_BOUNDS)
def test_three_tenths_of_the_value_bound_are_too_small(name: str) -> None:
    assert_small_bound_is_named(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MATTERS if name not in SMALL_BOUNDS])
def test_three_tenths_of_the_value_bound_are_too_small_everywhere(name: str) -> None:
    assert_small_bound_is_named(name)


@pytest.mark.parametrize("kind", [CountCollector, EpisodeCollector])
def test_returns_show_that_one_bound_for_all_levels_is_too_small(kind: type) -> None:
    """Three tenths of the bound, as a user declares it: one number, which no reward alone contradicts."""
    for mdp in (s4q.problems.dense_random(seed=0), s4q.problems.river_swim(6, 40)):
        low = 0.3 * mdp.spec.value_bound[0]
        spec = replace(mdp.spec, value_bound=tuple(min(low, bound) for bound in mdp.spec.value_bound))
        [found] = [one for one in diagnosed(mdp, 300, spec, kind=kind, seed=1) if one.name == "value bound too small"]
        assert "an episode returned at least" in found.says


def test_one_return_above_the_bound_is_enough_for_an_agent() -> None:
    """The mean return stays below the bound: only the squares of returns can tell."""
    gym = pytest.importorskip("gymnasium")
    agent = s4q.Agent(gym.make("FrozenLake-v1"), horizon=30, value_bound=0.9, seed=0).learn(200)
    record = agent.learner.last_phase
    assert record is not None
    assert record.return_sum < 0.9 * record.n_episodes
    [found] = [one for one in agent.learner.diagnose() if one.name == "value bound too small"]
    assert "an episode returned at least 1, more than the value bound 0.9" in found.says


def test_numbers_are_in_the_units_of_the_user() -> None:
    """Every step costs 1 and the episode ends after the first or, one time in two, the second."""
    transitions = np.array([[[0.5, 0.5]], [[0.0, 1.0]]])
    mdp = FiniteMDP(transitions, [[-1.0], [0.0]], [1.0, 0.0], horizon=4, terminal=[False, True], reward_range=(-1, 0))
    assert mdp.spec.value_bound[0] == 4.0
    found = diagnosed(mdp, 200, replace(mdp.spec, value_bound=(1.2, 4.0, 4.0, 4.0)), kind=EpisodeCollector)
    [found] = [one for one in found if one.name == "value bound too small"]
    assert "more than the value bound -2.8" in found.says
    assert -2.8 < float(found.says.split("at least ")[1].split(",")[0]) <= -1.0


SETTLED = s4q.problems.dense_random(6, 2, 8, seed=1)


def doctored(learner: s4q.S4Q, promised: float, got: float, n_episodes: int = 10**5) -> s4q.S4Q:
    """The same learner after one phase more, with this promise and this mean return."""
    learner, last = copy(learner), learner.last_phase
    assert last is not None
    sums = {"start_value_sum": promised * n_episodes, "return_sum": got * n_episodes, "return_sum_sq": None}
    learner.last_phase = replace(last, phase=last.phase + 1, n_episodes=n_episodes, **sums)  # type: ignore[arg-type]
    learner._n_main += n_episodes
    return learner


@pytest.fixture(scope="module")
def settled() -> s4q.S4Q:
    """A learner that has found the best policy of SETTLED."""
    learner = s4q.S4Q(SETTLED)
    s4q.run(learner, CountCollector(SETTLED, seed=0), 10_000)
    return learner


def test_lost_optimism_is_a_promise_below_what_an_earlier_policy_got(settled: s4q.S4Q) -> None:
    assert settled.diagnose() == []
    assert doctored(settled, SETTLED.v_star, SETTLED.v_star).diagnose() == []
    low = 0.8 * SETTLED.v_star
    [found] = doctored(settled, low, low).diagnose()
    assert found.name == "lost optimism"
    assert f"promises {low:.4g} and got {low:.4g} over 100,000 episodes" in found.says
    assert "bonus_width" in found.suggestion
    # The same promise of a few episodes only: their start states may be others.
    assert doctored(settled, low, low, n_episodes=30).diagnose() == []


def test_a_return_above_the_bound_is_not_forgotten(settled: s4q.S4Q) -> None:
    """Ten episodes that returned 2 and one that returned 9, then a phase that returned 1 each time."""
    last = settled.last_phase
    assert last is not None
    first = replace(last, n_episodes=11, return_sum=29.0, return_sum_sq=121.0)
    dull = replace(last, n_episodes=10, return_sum=10.0, return_sum_sq=10.0)
    signs = Signs().with_phase(first, bound=8.0).with_phase(dull, bound=8.0)
    assert signs.largest_return == 121 / 29 <= 9
    learner = copy(settled)
    learner._signs = replace(signs, largest_return=8.5)
    assert "an episode returned at least 8.5, more than the value bound 8" in str(learner.diagnose()[0])


def test_a_lucky_start_is_no_lost_optimism() -> None:
    """Two equal arms that pay 1 with probability 1/2. No promise of 1/2 may be called too small."""
    mdp = FiniteMDP(np.ones((1, 2, 1)), [[0.5, 0.5]], [1.0], horizon=1)
    for seed in range(20):
        found = diagnosed(mdp, 300, kind=EpisodeCollector, seed=seed, bonus_width=1.0)
        assert "lost optimism" not in names(found)


def test_stuck_when_a_long_phase_does_not_keep_its_promise(settled: s4q.S4Q) -> None:
    [found] = doctored(settled, 1.1 * SETTLED.v_star, SETTLED.v_star).diagnose()
    assert found.name == "stuck"
    assert "add features, or declare stationary=False" in found.suggestion
    assert doctored(settled, 1.1 * SETTLED.v_star, SETTLED.v_star, n_episodes=5000).diagnose() == []  # not a long phase


def test_stuck_when_the_trigger_is_too_large() -> None:
    mdp = s4q.problems.dense_random(seed=0)
    [found] = [one for one in diagnosed(mdp, 5000, trigger=1e8) if one.name == "stuck"]
    assert "The trigger is too large" in found.suggestion


def level_dependent(what: str) -> FiniteMDP:
    """Eight levels, the last four of which differ from the first four."""
    base, horizon = s4q.problems.dense_random(6, 2, 8, seed=1), 8
    moves, pays = base.transitions[0], base.rewards[0]
    late = [h >= 4 for h in range(horizon)]
    transitions = np.stack([moves[:, ::-1] if what == "next states" and after else moves for after in late])
    rewards = np.stack([1 - pays if what == "rewards" and after else pays for after in late])
    return FiniteMDP(transitions, rewards, base.start)


@pytest.mark.parametrize("kind", [CountCollector, EpisodeCollector])
@pytest.mark.parametrize("what", ["rewards", "next states"])
def test_levels_that_are_not_alike_though_declared_stationary(what: str, kind: type) -> None:
    mdp = level_dependent(what)
    assert not mdp.spec.stationary
    false = replace(mdp.spec, stationary=True)
    found = [one for one in diagnosed(mdp, 500, false, kind=kind) if one.name == "levels are not alike"]
    assert len(found) == 1
    assert f"leave open of the {what}" in found[0].says
    assert "levels are not alike" not in names(diagnosed(mdp, 500, kind=kind))
    same = s4q.problems.dense_random(6, 2, 8, seed=1)
    for seed in range(2):
        assert "levels are not alike" not in names(diagnosed(same, 500, kind=kind, seed=seed))


def test_a_lock_declared_stationary() -> None:
    """The right action changes from level to level."""
    mdp = s4q.problems.combination_lock()
    assert "levels are not alike" in names(diagnosed(mdp, 3000, replace(mdp.spec, stationary=True)))


def literal_share(levels: Any, values: Any, shrinkage: float) -> float:
    """The share of the squares about the mean that the level explains, one level after the other."""
    left, between = 0.0, 0.0
    mean = sum(values) / len(values)
    for h in set(levels):
        here = [value - mean for level, value in zip(levels, values, strict=True) if level == h]
        between += sum(here) ** 2 / (len(here) + shrinkage)
        left += sum(value**2 for value in here)
    return between / left


@pytest.mark.parametrize("pieces", [1, 3])
def test_the_share_of_the_level_is_that_of_a_literal_analysis_of_variance(pieces: int) -> None:
    rng = np.random.default_rng(0)
    n, spec = 3000, s4q.problems.chain(3, 4).spec
    levels, blocks = rng.integers(0, 4, n), rng.integers(0, spec.n_blocks, n)
    rewards = rng.random(n) + (levels == 2) * (blocks == 1)
    table = np.arange(spec.n_blocks).reshape(-1, 2)  # a state for every two blocks, one for each action
    steps = Transitions(
        state_vectors=np.ones((len(table), 2, 1)),
        state_blocks=table,
        levels=levels,
        states=blocks // 2,
        actions=blocks % 2,
        rewards=rewards,
        next_states=np.zeros(n, int),
        ended=np.zeros(n, bool),
        weights=np.ones(n, int),
    )
    sums = LevelSums.of(spec)
    for rows in np.array_split(np.arange(n), pieces):
        sums.add(steps.rows(rows), spec.horizon)
    gram = np.bincount(blocks, minlength=spec.n_blocks)[:, None, None] * 1.0
    effect = sums.strongest(gram, 1e-9, exact=True)
    assert effect is not None
    assert (effect.outcome, effect.block) == ("rewards", 1)
    here = blocks == 1
    assert effect.share == pytest.approx(literal_share(levels[here].tolist(), rewards[here].tolist(), 30), rel=1e-6)
    unplanted = replace(steps, rewards=rng.random(n))
    without = LevelSums.of(spec)
    without.add(unplanted, spec.horizon)
    assert without.strongest(gram, 1e-9, exact=True) is None


@pytest.mark.parametrize("kind", [CountCollector, EpisodeCollector])
def test_features_that_are_the_same_for_all_actions(kind: type) -> None:
    river = s4q.problems.river_swim(6, 12)
    blind = np.repeat(np.eye(6)[:, None], 2, axis=1)
    mdp = FiniteMDP(river.transitions[0], river.rewards[0], river.start, blind, horizon=12)
    assert "features do not tell actions apart" in names(diagnosed(mdp, 300, kind=kind))
    seeing = blind.copy()
    seeing[0, 1] *= 0.5  # two actions differ at one state: enough
    mdp = FiniteMDP(river.transitions[0], river.rewards[0], river.start, seeing, horizon=12)
    assert "features do not tell actions apart" not in names(diagnosed(mdp, 300, kind=kind))


def test_more_features_than_the_episodes_can_cover() -> None:
    mdp = s4q.problems.dense_random(150, 2, 5, seed=0)
    assert not [one for one in diagnosed(mdp, 30) if one.name.startswith("more features")]  # a table cannot have fewer
    learner = s4q.S4Q(replace(mdp.spec, well_specified=False))
    s4q.run(learner, CountCollector(mdp, seed=0), 30)
    [found] = [one for one in learner.diagnose() if one.name.startswith("more features")]
    assert "30 episodes for 300 features are 0.1 episodes per feature" in found.says
    assert "fewer features" in found.suggestion
    small = s4q.problems.dense_random(5, 2, 5, seed=0)
    assert not [one for one in diagnosed(small, 30) if one.name.startswith("more features")]


@pytest.mark.slow
def test_a_sketch_that_holds_few_steps_is_found() -> None:
    """With 300 bytes it holds 2 steps for 12 features, and the regret is many times that of the default budget."""
    mdp = s4q.problems.river_swim(6, 12)
    regrets = {}
    for budget in (300, None):
        learner = s4q.S4Q(mdp, memory_bytes=budget)
        regrets[budget] = s4q.run(learner, CountCollector(mdp), 2000).regret or 0.0
        found = [one for one in learner.diagnose() if one.name == "the sketch is small"]
        assert len(found) == (budget is not None)
        assert all("within 300 bytes" in one.says and "memory_bytes" in one.suggestion for one in found)
        assert ("a sample of" in repr(learner.memory)) == (budget is not None)
    assert regrets[300] > 5 * regrets[None]
