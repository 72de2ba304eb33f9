"""Algorithm 2: S4Q equals the literal nested loops, given the same episodes, in all modes."""

from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from literal_constants import LiteralConstants, realisable_ridge
from literal_s4q import LiteralRun, in_blocks, literal_s4q
from shared_dice import SharedDiceCollector
from small_problems import blocked_mdp, random_mdp

import s4q
from s4q.core.messages import Explore, Regression, Visits
from s4q.learners.best_policy import BestPolicy
from s4q.problems import FiniteMDP


def with_spec(mdp: FiniteMDP, **changes: object) -> FiniteMDP:
    """The same tables with other numbers declared, true or not: no test here asks whether they are."""
    other = copy(mdp)
    other.spec = replace(mdp.spec, **changes)  # type: ignore[arg-type]
    return other


PROBLEMS: dict[str, FiniteMDP] = {
    "plain": random_mdp(5, 3, 3, 3, seed=1),
    "one level": random_mdp(4, 2, 3, 1, seed=2),
    "ends early": random_mdp(4, 2, 2, 3, seed=6, terminal=True, low=-2.0),
    "one-hot": s4q.problems.chain(3, 3),
    "per-action blocks": blocked_mdp(),
    "exact features": s4q.problems.low_rank(6, 2, 2, 2),
    "every level its own bounds": with_spec(
        blocked_mdp(4), value_bound=(2.1, 1.3, 0.8), radius=(3.0, 2.2, 1.4), block_radius=(1.9, 1.1, 0.6)
    ),
    "every level its own bounds, exact": with_spec(
        blocked_mdp(5),
        value_bound=(1.9, 1.6, 0.7),
        radius=(2.5, 1.2, 1.9),
        block_radius=(1.7, 1.0, 0.4),
        well_specified=True,
    ),
}
MODES: dict[str, dict[str, object]] = {
    # Those with the most formulas of their own come first.
    "numbers per level": {
        "preset": "realisable",
        "ridge": (0.3, 0.6, 1.2),
        "bonus_width": (0.2, 0.1, 0.3),
        "trigger": 2.03,
    },
    "paper, its own trigger": {"preset": "paper", "ridge": 1e-3},
    "tight, few replays": {"preset": "tight", "c_replay": 0.3, "trigger": 0.02},
    "previous, doubling, few replays": {
        "preset": "realisable",
        "bonus_from": "previous",
        "epochs": "doubling",
        "c_replay": 2.0,
        "trigger": 0.97,
        "delta": 0.3,
    },
    "practical, numbers per level": {
        "preset": "practical",
        "ridge": (1e-3, 1e-2, 3e-2),
        "bonus_width": (0.7, 1.5, 0.2),
        "memory": "sketch",
    },
    "practical, no bonus": {"preset": "practical", "bonus_width": (0.0, 0.3, 0.0)},
    "paper, its own ridge, all steps": {"preset": "paper", "trigger": 0.004, "memory": "all"},
    "realisable": {"preset": "realisable", "trigger": 2.03},
    "realisable, trigger d": {"preset": "realisable"},
    "own, doubling": {"preset": "realisable", "epochs": "doubling", "c_replay": 4.0, "trigger": 1.47},
    "previous, single": {"preset": "realisable", "bonus_from": "previous", "trigger": 1.47},
    "previous, few replays": {"preset": "realisable", "bonus_from": "previous", "c_replay": 0.3, "trigger": 0.97},
    "own, few replays": {"preset": "realisable", "c_replay": 0.3, "trigger": 0.97},
    "growing trigger": {"preset": "realisable", "trigger": (0.53, 0.4)},
    "every phase one episode": {"preset": "realisable", "trigger": 1e-9},
    "paper": {"preset": "paper", "ridge": 0.5, "trigger": 0.97},
    "paper, its own ridge": {"preset": "paper", "trigger": 0.01},
    "tight": {"preset": "tight", "ridge": 0.5, "trigger": 0.97},
    "tight, own, known length": {"preset": "tight", "bonus_from": "own", "trigger": 0.02, "max_episodes": 500},
    "numbers": {"preset": "realisable", "ridge": 0.3, "bonus_width": 0.2, "trigger": 2.03},
    "not pooled": {"preset": "realisable", "pool": False, "trigger": 2.03},
    "realisable, all steps": {"preset": "realisable", "memory": "all", "trigger": 1.47},
    "paper, sketch": {"preset": "paper", "ridge": 0.5, "trigger": 0.97, "memory": "sketch"},
    "paper, single, many replays": {"preset": "paper", "epochs": "single", "c_replay": 1.5, "trigger": 0.01},
    "tight, its own trigger": {"preset": "tight", "ridge": 1e-3, "delta": 0.9},
    "tight, doubling, few replays": {"preset": "tight", "epochs": "doubling", "c_replay": 1.5, "trigger": 0.02},
    "own, many replays": {"preset": "realisable", "c_replay": 2.5, "trigger": 1.47},
    "ridge per level, previous": {"preset": "tight", "ridge": (0.9, 0.3, 0.6), "trigger": 0.97},
    "practical": {"preset": "practical", "ridge": 1e-3},
    "practical, policies": {"preset": "practical", "ridge": 1e-3, "memory": "policies"},
    "practical, policies, own trigger": {
        "preset": "practical",
        "ridge": 1e-2,
        "memory": "policies",
        "trigger": 1.47,
    },
    "practical, all steps": {"preset": "practical", "memory": "all"},
    "practical, not pooled": {"preset": "practical", "ridge": 1e-3, "memory": "all", "pool": False},
}


def both(mdp: FiniteMDP, mode: str, budget: int, piece: int = 5) -> tuple[s4q.S4Q, s4q.Run, LiteralRun]:
    chosen = options(mdp, mode)
    learner = s4q.S4Q(mdp, **chosen)  # type: ignore[arg-type]
    run = s4q.run(learner, SharedDiceCollector(mdp, seed=3, piece=piece), episodes=budget)
    return learner, run, literal_s4q(mdp, budget, 3, LiteralConstants(mdp.spec, **chosen))


def options(mdp: FiniteMDP, mode: str) -> dict[str, object]:
    """Those of a mode; numbers per level for as many levels as there are."""
    per_level = ("ridge", "bonus_width")
    return {
        name: value[: mdp.horizon] if name in per_level and isinstance(value, tuple) else value
        for name, value in MODES[mode].items()
    }


def close(a: object, b: object) -> None:
    # The root of a rounded "directions seen" is no closer than this.
    np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-7)  # type: ignore[arg-type]


def unclipped(mdp: FiniteMDP, q: s4q.LinearQ) -> np.ndarray:
    return np.stack([q.optimistic(h, mdp.features.level(h)) for h in range(mdp.horizon)])


def assert_equal(mdp: FiniteMDP, learner: s4q.S4Q, run: s4q.Run, literal: LiteralRun) -> None:
    """Phases, counters, Sigma_ref, trigger, bonus, memory."""
    finished = [phase for phase in literal.phases if phase.finished]
    assert run.phases == len(finished)
    assert run.episodes == literal.n_replayed + literal.n_main
    assert (run.replay_episodes, run.main_episodes) == (literal.n_replayed, literal.n_main)
    entries = learner.memory.entries if isinstance(learner.memory, s4q.PolicyReplayMemory) else []
    assert learner.memory.n_episodes == sum(m for _, m in literal.memory) + len(literal.cached)
    assert len(entries) == len(literal.memory)
    for entry, phase, (table, m) in zip(entries, literal.parents, literal.memory, strict=True):
        assert entry.n_episodes == m
        close(entry.policy.theta.reshape(mdp.horizon, -1), phase.theta)
        close(unclipped(mdp, entry.policy), phase.unclipped)
        np.testing.assert_array_equal(mdp.policy_table(entry.policy), table)
    last = literal.phases[-1]
    n_blocks, n_grams = mdp.spec.n_blocks, len(learner._loop.cov_ref)
    close(unclipped(mdp, learner.q), last.unclipped)
    close(learner._loop.cov_ref, np.stack([in_blocks(g, n_blocks) for g in last.cov_ref[:n_grams]]))
    close(learner._loop.progress, last.progress)
    close(learner._loop.increment, np.stack([in_blocks(g, n_blocks) for g in last.increment[:n_grams]]))
    assert learner._loop.n_episodes == last.n
    close(learner._loop.ridge, last.ridge)
    close(learner._loop.residuals, last.residuals)
    if last is not literal.phases[0]:
        assert learner.last_phase is not None
        assert (learner.last_phase.phase, learner.last_phase.n_episodes) == (len(finished), finished[-1].n)
    request = learner.ask(9)
    if isinstance(request, Explore) and not last.finished:
        close(request.threshold, last.threshold)
        close(request.start(), last.progress)
        assert request.policy is learner.q


# Half of all pairs, every mode with half of the problems; the search below meets the others.
PAIRS = [(mode, name) for i, mode in enumerate(MODES) for j, name in enumerate(PROBLEMS) if (i + j) % 2 == 0]


@pytest.mark.parametrize(("mode", "name"), PAIRS)
def test_s4q_equals_nested_loops(mode: str, name: str) -> None:
    mdp = PROBLEMS[name]
    assert_equal(mdp, *both(mdp, mode, budget=160))


@pytest.mark.parametrize("mode", ["practical", "practical, not pooled", "practical, policies", "practical, all steps"])
@pytest.mark.parametrize(("size", "seed"), [(4, 0), (4, 2), (5, 1), (6, 1)])
def test_groups_of_states_as_in_nested_loops(mode: str, size: int, seed: int) -> None:
    mdp = s4q.problems.aggregated_deep_sea(size, seed=seed)
    assert_equal(mdp, *both(mdp, mode, budget=160))


def test_a_policy_whose_returns_refute_the_newest_promise_is_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that, or with the best policy in place of every new one, the oracle disagrees."""
    mdp = s4q.problems.aggregated_deep_sea(6, seed=1)
    found = both(mdp, "practical, all steps", 160)
    assert sum(phase.origin != number for number, phase in enumerate(found[2].phases, 1)) > 2
    assert_equal(mdp, *found)
    for always in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr(BestPolicy, "refutes", lambda self, phase, answer=always: answer)
            with pytest.raises(AssertionError):
                assert_equal(mdp, *both(mdp, "practical, all steps", 160))


@given(
    budget=st.integers(1, 200),
    piece=st.integers(1, 30),
    name=st.sampled_from(sorted(PROBLEMS)),
    mode=st.sampled_from(sorted(MODES)),
)
@settings(max_examples=60)
def test_every_budget_wherever_it_ends(budget: int, piece: int, name: str, mode: str) -> None:
    """The budget may end in the first phase, inside an S3Q call, between two, or at a trigger."""
    mdp = PROBLEMS[name]
    assert_equal(mdp, *both(mdp, mode, budget, piece))


def test_the_oracle_notices_planted_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trigger that is late by one episode, a Sigma_ref that is not scaled to m_tot, a bonus from the wrong phase."""
    mdp = PROBLEMS["plain"]
    crossed = Explore.crossed
    with monkeypatch.context() as patch:
        patch.setattr(Explore, "crossed", lambda self, progress, n: n > 1 and crossed(self, progress, n))
        with pytest.raises(AssertionError):
            assert_equal(mdp, *both(mdp, "every phase one episode", 100))
    with monkeypatch.context() as patch:
        patch.setattr(s4q.S3Q, "grams", property(lambda self: self._best_grams * 0.7))
        with pytest.raises(AssertionError):
            assert_equal(mdp, *both(mdp, "own, few replays", 400))
    with monkeypatch.context() as patch:
        patch.setattr(s4q.S4Q, "_end_phase", end_phase_without_the_increment)
        with pytest.raises(AssertionError):
            assert_equal(mdp, *both(mdp, "previous, single", 400))


def end_phase_without_the_increment(learner: s4q.S4Q) -> None:
    learner.memory.append(learner.q, learner._loop.n_episodes)
    learner._gram = learner._loop.cov_ref
    learner._next_id += 1
    learner._begin_phase()


def test_the_first_phase_needs_no_s3q_and_is_greedy_for_the_bonus() -> None:
    mdp = PROBLEMS["plain"]
    learner = s4q.S4Q(mdp, "realisable")
    request = learner.ask(10**6)
    assert isinstance(request, Explore)
    assert request.n_episodes == 10**6
    roots = [np.sqrt(realisable_ridge(mdp.spec, h)) for h in range(3)]
    np.testing.assert_allclose(request.whitener, [np.eye(3)[None] / root for root in roots], rtol=1e-12)  # no data
    assert not np.any(learner.q.theta)
    assert learner.memory.n_episodes == 0


def test_policies_with_equal_parameters_are_merged() -> None:
    memory = s4q.PolicyReplayMemory()
    one, same, other = (s4q.LinearQ.from_arrays(np.full((1, 1, 1), x)) for x in (0.5, 0.5, 0.7))
    for policy, n in ((one, 3), (other, 1), (same, 2)):
        memory.append(policy, n)
    assert [(entry.policy, entry.n_episodes) for entry in memory.entries] == [(one, 5), (other, 1)]
    assert memory.nbytes == one.nbytes + other.nbytes
    with pytest.raises(ValueError, match="memory is empty"):
        s4q.PolicyReplayMemory().controller()
    with pytest.raises(ValueError, match=r"n_episodes .*got 0"):
        memory.append(one, 0)


def test_tell_is_strict_and_a_refusal_loses_nothing() -> None:
    mdp = PROBLEMS["plain"]
    learner, collector = s4q.S4Q(mdp, "realisable", trigger=100.0), s4q.collectors.EpisodeCollector(mdp)
    request = learner.ask(10)
    answer = collector.collect(request)
    bad = Visits(answer.grams * np.nan, answer.progress, answer.n_episodes, 0.0, None, None, 0)
    with pytest.raises(ValueError, match=r"answer.grams must be finite"):
        learner.tell(request, bad)
    short = Visits(answer.grams[:1], answer.progress, answer.n_episodes, 0.0, None, None, 0)
    with pytest.raises(ValueError, match=r"must have shapes"):
        learner.tell(request, short)
    with pytest.raises(ValueError, match=r"does not answer"):
        learner.tell(request, Regression(s4q.Moments.zeros(1, 3), np.array([1]), 0))
    learner.tell(request, answer)
    later = learner.ask(10)
    assert isinstance(later, Explore) == isinstance(request, Explore)
    with pytest.raises(ValueError, match=r"not the open one"):
        learner.tell(request, answer)


@pytest.mark.parametrize("preset", ["realisable", "practical", "paper"])
@pytest.mark.parametrize("kind", [s4q.collectors.CountCollector, s4q.collectors.EpisodeCollector])
def test_a_run_stopped_after_every_shard_has_the_bits_of_the_whole(preset: str, kind: type) -> None:
    mdp = s4q.problems.low_rank(6, 2, 3, 3)
    options = {"ridge": 1.0, "trigger": 2.0} if preset == "paper" else {}
    whole, pieces = (s4q.S4Q(mdp, preset, **options) for _ in range(2))  # type: ignore[arg-type]
    s4q.run(whole, kind(mdp, seed=1), 20_000)
    collector, left, stops = kind(mdp, seed=1), 20_000, 0
    while left:
        left -= s4q.run(pieces, collector, left, stop=lambda _: True).episodes
        stops += 1
    assert stops > 30
    assert whole.phases == pieces.phases
    assert whole.q.same_as(pieces.q)
    assert whole.memory.n_episodes == pieces.memory.n_episodes
    if preset != "practical":
        entries = [learner.memory.entries for learner in (whole, pieces)]
        assert [e.n_episodes for e in entries[0]] == [e.n_episodes for e in entries[1]]
        for one, other in zip(*entries, strict=True):
            assert one.policy.same_as(other.policy)
    np.testing.assert_array_equal(whole._loop.cov_ref, pieces._loop.cov_ref)


@pytest.mark.parametrize("mode", MODES)
def test_no_dice_are_used_twice(mode: str) -> None:
    """Every shard of a run has an address of its own."""
    mdp = PROBLEMS["plain"]
    learner, collector = s4q.S4Q(mdp, **options(mdp, mode)), s4q.collectors.EpisodeCollector(mdp)  # type: ignore[arg-type]
    seen: set[tuple[int, int]] = set()
    left = 3000
    while left:
        request = learner.ask(left)
        shard = next(iter(collector.shards(request)))
        assert (request.id, shard.index) not in seen
        seen.add((request.id, shard.index))
        answer = collector.play(request, shard, request.start() if isinstance(request, Explore) else None)
        learner.tell(request, answer)
        left -= answer.n_episodes


@pytest.mark.slow
def test_state_grows_with_phases_only_and_phases_like_the_log() -> None:
    """The same bytes a phase at K and at 1000 K; a factor 1000 in K adds about as many phases each time."""
    mdp = s4q.problems.low_rank()
    runs = {}
    for episodes in (10**6, 10**9, 10**12):
        learner = s4q.S4Q(mdp, "realisable")
        runs[episodes] = s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=0), episodes)
        per_policy = learner.memory.entries[0].policy.nbytes
        assert runs[episodes].nbytes - learner.memory.nbytes < 20 * per_policy
        assert learner.memory.nbytes == per_policy * len(learner.memory) <= per_policy * runs[episodes].phases
    first, second, third = (run.phases for run in runs.values())
    assert second - first <= first + 5
    assert third - second <= 1.5 * (second - first) + 3


def test_curve_of_s4q_tells_main_loop_from_replay() -> None:
    mdp = s4q.problems.low_rank()
    run = s4q.run(s4q.S4Q(mdp, "realisable"), s4q.collectors.CountCollector(mdp, seed=0), 10**7)
    assert len(run.curve) == run.phases + 1
    for point in run.curve:
        assert point.main_episodes + point.replay_episodes == point.episodes
        assert point.optimistic_value is not None
        assert point.optimistic_value >= mdp.v_star - 1e-9
    assert run.curve[0].replay_episodes == 0
    regrets = np.array([point.regret for point in run.curve])
    assert np.all(np.diff(regrets) >= 0)
    assert run.curve[-1].optimistic_value < run.curve[0].optimistic_value  # type: ignore[operator]


def test_replay_is_charged_at_the_price_of_the_policies_replayed() -> None:
    """Exact: main-loop and replay episodes per policy times the policy's gap."""
    mdp = s4q.problems.low_rank()
    learner, collector = s4q.S4Q(mdp), s4q.collectors.CountCollector(mdp, seed=2)
    expected, left = 0.0, 10**5
    while left:
        request = learner.ask(left)
        answer = collector.collect(request)
        if isinstance(request, Explore):
            expected += answer.n_episodes * (mdp.v_star - mdp.value(request.policy))
        else:
            gaps = [mdp.v_star - mdp.value(policy) for policy in request.mixture.policies]
            expected += float(answer.episodes_per_policy @ np.array(gaps))
        learner.tell(request, answer)
        left -= answer.n_episodes
    run = s4q.run(s4q.S4Q(mdp), s4q.collectors.CountCollector(mdp, seed=2), 10**5)
    assert run.regret == pytest.approx(expected, rel=1e-12)
    assert run.episodes == 10**5
