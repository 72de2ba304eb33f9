"""Memories of steps: identities, bytes, refusals; and pooling."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from asking import after_level
from hypothesis import given, settings
from hypothesis import strategies as st
from literal_sketch import LiteralShelf
from scipy.stats import ks_2samp
from small_problems import blocked_mdp, random_mdp
from test_episodes import explore, zero_q

import s4q
from s4q.collectors import CountCollector, EpisodeCollector
from s4q.core.messages import Explore, Transitions
from s4q.core.optimism import QLevel
from s4q.learners import sketch, sorted_rows, step_memory
from s4q.learners.distinct_rows import DistinctRows, bits_of
from s4q.learners.one_hot_fit import OneHotFits
from s4q.learners.shelf import Shelf, least_bytes
from s4q.learners.state_table import StateTable
from s4q.learners.step_memory import HeldFit, StepMemory
from s4q.problems import FiniteMDP

PROBLEMS = {
    "dense": random_mdp(4, 2, 3, 3, seed=5, terminal=True, low=-1.0),
    "dense, two levels": random_mdp(5, 3, 4, 2, seed=7),
    "one level": random_mdp(6, 2, 2, 1, seed=8),
    "one-hot": s4q.problems.river_swim(4, 5),
    "one-hot, ends early": s4q.problems.from_gymnasium("FrozenLake-v1", horizon=6),
    "blocks": blocked_mdp(),
}
KINDS = {"episodes": EpisodeCollector, "counts": CountCollector}


def half_of(mdp: FiniteMDP, pool: bool, episodes: int) -> int:
    """Half of the bytes that all steps of so many episodes take."""
    learner = s4q.S4Q(mdp, memory="all", pool=pool)
    s4q.run(learner, EpisodeCollector(mdp, seed=2), episodes)
    assert isinstance(learner.memory, StepMemory)
    return learner.memory.held_bytes // 2


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("kind", KINDS)
def test_held_moments_equal_those_of_the_same_steps_streamed(name: str, kind: str) -> None:
    """Added in three parts, with repetitions stored once, against all steps in one go."""
    mdp = PROBLEMS[name]
    pool = mdp.spec.stationary
    policy = s4q.UniformPolicy(mdp.n_actions)
    memory = StepMemory(mdp.spec, pool, None)
    rng = np.random.default_rng(0)
    value = s4q.LinearQ.from_arrays(rng.random(zero_q(mdp).theta.shape) / 3)
    collector = KINDS[kind](mdp, seed=2)
    pieces = [
        collector.collect(
            explore(mdp, policy, (np.inf, 0.0), 20, keep=20, done=done, progress=np.zeros(mdp.horizon))
        ).kept
        for done in (0, 20, 40)
    ]
    for kept in pieces:
        memory.add(kept, 20)
    assert memory.n_episodes == 60
    fit = memory.source()
    for level in reversed(range(mdp.horizon)):
        target = after_level(value, level)
        streamed = s4q.Moments.zeros(mdp.spec.n_blocks, mdp.spec.block_dim)
        for kept in pieces:
            for i in np.flatnonzero((kept.levels == level) | pool):
                streamed = streamed + kept.rows(slice(i, i + 1)).moments(mdp.spec, level, target)
        held = fit.moments(level, target)
        assert held.n == streamed.n
        np.testing.assert_allclose(held.gram, streamed.gram, atol=1e-10)
        np.testing.assert_allclose(held.moment, streamed.moment, atol=1e-10)
        if mdp.spec.well_specified:
            np.testing.assert_allclose(held.moment_sq, streamed.moment_sq, atol=1e-10)
        else:  # only the bonus of exact features reads them
            assert np.isnan(held.moment_sq).all()
        assert held.sum_y2 == pytest.approx(streamed.sum_y2)
        np.testing.assert_allclose(memory.grams[0 if pool else level], streamed.gram, atol=1e-10)


def test_equal_steps_and_equal_states_are_stored_once() -> None:
    mdp = PROBLEMS["one-hot"]
    memory = StepMemory(mdp.spec, True, None)
    answer = EpisodeCollector(mdp).collect(explore(mdp, s4q.UniformPolicy(2), (np.inf, 0.0), 1000, keep=1000))
    memory.add(answer.kept, 1000)
    assert len(memory.states) == 4
    assert len(memory.shelves[0]) <= 20  # at most 4 x 2 pairs with up to 3 next states
    assert memory.states.vectors.shape == (4, 1, 1)  # one vector for both actions
    assert memory.source().moments(0, zero_q(mdp).levels[1]).n == memory.shelves[0].weights.sum() == 5000


def test_actions_share_a_vector_until_they_do_not() -> None:
    """What is held does not depend on whether the collector said so, nor on when the actions begin to differ."""
    table = StateTable.empty(2, 2)
    shared, blocks = np.array([[[0.1, 0.2]], [[0.3, 0.4]]]), np.array([[0, 1], [0, 1]])
    assert table.add(np.repeat(shared, 2, axis=1), blocks).tolist() == [0, 1]
    assert (table.vectors.shape, table.blocks.shape) == ((2, 1, 2), (1, 2))
    apart = np.array([[[0.1, 0.2], [0.1, 0.2]], [[0.1, 0.2], [0.5, 0.5]]])
    assert table.add(apart, blocks).tolist() == [0, 2]
    assert (table.vectors.shape, table.blocks.shape) == ((3, 2, 2), (1, 2))
    assert table.add(shared, blocks).tolist() == [0, 1]
    assert table.add(shared, blocks[:, ::-1]).tolist() == [3, 4]
    assert (table.vectors.shape, table.blocks.shape) == ((5, 2, 2), (5, 2))
    vectors, chosen = table.chosen(np.array([2, 4]), np.array([1, 0]))
    assert (vectors.tolist(), chosen.tolist()) == ([[0.5, 0.5], [0.3, 0.4]], [1, 1])
    rows = table.keep(np.array([False, True, False, True, False]))
    assert rows[[1, 3]].tolist() == [0, 1]
    assert table.add(shared, blocks).tolist() == [2, 0]


def test_rows_with_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("s4q.learners.distinct_rows._hashes", lambda bits: np.full(len(bits), 7, dtype=np.uint64))
    rng = np.random.default_rng(0)
    table, rows = np.zeros((0, 2), dtype=np.uint64), None
    for _ in range(5):
        piece = bits_of(rng.integers(0, 3, size=(6, 2)))
        held = table
        rows = DistinctRows(lambda places, held=held: held[places], len(held))
        places, new = rows.locate(piece)
        table = np.concatenate([table, piece[new]])
        np.testing.assert_array_equal(table[places], piece)
        assert len({tuple(row) for row in table.tolist()}) == len(table)
    assert len(table) > 6


def bytes_of_arrays(memory: StepMemory) -> int:
    """Of everything but the sums, counted from the arrays themselves; an index of 16 bytes for each row and state."""
    total = memory.states.vectors.nbytes + memory.states.blocks.nbytes + 16 * len(memory.states)
    for shelf in memory.shelves:
        arrays = [shelf.states, shelf.actions, shelf.next_states, shelf.rewards, shelf.ended, shelf.weights]
        total += sum(array.nbytes for array in arrays) + 16 * len(shelf)
        total += 0 if shelf.settled is None else shelf.settled.nbytes
    return total if len(memory.states) else 0


@given(
    name=st.sampled_from(sorted(PROBLEMS)),
    kind=st.sampled_from(sorted(KINDS)),
    held=st.integers(2000, 20_000),
    pool=st.booleans(),
    budget=st.integers(1, 200),
)
@settings(max_examples=12, deadline=None)
def test_the_bound_holds(name: str, kind: str, held: int, pool: bool, budget: int) -> None:
    """Bytes at every shard and phase; the budget is reached in the middle of phases and shards."""
    mdp = PROBLEMS[name]
    learner = s4q.S4Q(mdp, memory_bytes=held, pool=pool and mdp.spec.stationary)
    memory = learner.memory
    assert isinstance(memory, StepMemory)
    sizes = (mdp.horizon * 2 * mdp.dim + len(memory.shelves) * mdp.dim * mdp.spec.block_dim) * 8

    def look(run: s4q.Run) -> None:
        assert memory.held_bytes == bytes_of_arrays(memory) <= held
        assert memory.nbytes <= held + sizes
        assert run.nbytes >= memory.nbytes
        assert memory.n_episodes == run.episodes

    run = s4q.run(learner, KINDS[kind](mdp, seed=1), budget, callback=look, stop=lambda so_far: bool(look(so_far)))
    assert (run.episodes, run.replay_episodes) == (budget, 0)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("preset", ["practical", "realisable"])
def test_within_the_budget_a_sketch_has_the_bits_of_all_steps(name: str, kind: str, preset: str) -> None:
    mdp = PROBLEMS[name]
    runs = []
    for options in ({"memory": "all"}, {"memory": "sketch", "memory_bytes": 10**6}):
        learner = s4q.S4Q(mdp, preset, **options)  # type: ignore[arg-type]
        runs.append(s4q.run(learner, KINDS[kind](mdp, seed=3), 60))
        assert isinstance(learner.memory, StepMemory)
        assert learner.memory.n_thinnings == 0
    assert runs[0].q.same_as(runs[1].q)
    assert (runs[0].regret, runs[0].phases) == (runs[1].regret, runs[1].phases)
    assert runs[0].phases > 3


def test_steps_are_never_replayed() -> None:
    """All data kept, no Regress asked; a budget changes nothing in that."""
    mdp = s4q.problems.low_rank(6, 2, 3, 3)
    for options in ({"memory": "all"}, {"memory_bytes": 10_000}):
        learner, collector = s4q.S4Q(mdp, **options), CountCollector(mdp, seed=0)  # type: ignore[arg-type]
        left = 3000
        while left:
            request = learner.ask(left)
            assert isinstance(request, Explore)
            assert request.keep == request.n_episodes
            answer = collector.collect(request)
            learner.tell(request, answer)
            left -= answer.n_episodes
        assert learner.memory.n_episodes == 3000


def test_policies_need_no_steps() -> None:
    """memory="policies" with `practical` is the paper's replay from the first episode on."""
    mdp = s4q.problems.chain()
    learner = s4q.S4Q(mdp, memory="policies")
    request = learner.ask(100)
    assert isinstance(request, Explore)
    assert request.keep == 0
    run = s4q.run(learner, CountCollector(mdp, seed=0), 3000)
    assert run.replay_episodes > 0
    assert learner.memory.n_episodes <= run.main_episodes


def test_all_steps_are_fitted_with_the_newest_targets() -> None:
    """The fit of each level is ridge regression of all held steps on the final target of the level after."""
    mdp = s4q.problems.low_rank(6, 2, 3, 3)
    learner = s4q.S4Q(mdp, "realisable", memory="all")
    collector, fits = EpisodeCollector(mdp, seed=0), 0
    pieces: list[Transitions] = []
    while learner.n_episodes < 400:
        request = learner.ask(400 - learner.n_episodes)
        answer = collector.collect(request)
        pieces.append(answer.kept)
        phases = learner.phases
        learner.tell(request, answer)
        if learner.phases == phases:
            continue
        everything = Transitions.concatenate(pieces)
        for level in range(3):
            steps = everything.rows(everything.levels == level)
            moments = steps.moments(mdp.spec, level, after_level(learner.q, level))
            ridge = ((1 / 3 + (2 - level) / 3) / 2 / mdp.spec.radius[level]) ** 2
            theta = np.linalg.solve(moments.gram[0] + ridge * np.eye(3), moments.moment[0])
            if np.linalg.norm(theta) <= mdp.spec.radius[level]:
                fits += 1
                np.testing.assert_allclose(learner.q.theta[level, 0], theta, atol=1e-8)
    assert fits > 20


class Logged:
    """What a memory is told and what it answers, beside the oracle."""

    def __init__(self, mdp: FiniteMDP, patch: pytest.MonkeyPatch) -> None:
        self.mdp, self.spec = mdp, mdp.spec
        self.shelves: list[LiteralShelf] = []
        self.features: dict[tuple, tuple[np.ndarray, np.ndarray]] = {}  # of states, by their keys
        self.targets: list[QLevel | None] = [None] * mdp.horizon
        self.n_thinned_fits = self.n_thinnings = self.n_new_rows = self.n_together = 0
        add, sample, moments, together = StepMemory.add, StepMemory._sample, HeldFit.moments, HeldFit.all_levels
        offsets = np.random.default_rng(4)

        def told(memory: StepMemory, kept: Transitions, n: int) -> None:
            self.add(memory, kept)
            add(memory, kept, n)

        def thinned(memory: StepMemory, number: int, n_kept: int) -> None:
            self.thin(number, n_kept, offset := float(offsets.random()))
            with pytest.MonkeyPatch.context() as inner:
                inner.setattr(StepMemory, "_offset", lambda *_: offset)
                sample(memory, number, n_kept)

        def asked(fit: HeldFit, level: int, target: QLevel | None) -> s4q.Moments:
            answer = moments(fit, level, target)
            self.compare(level, target, answer)
            return answer

        def asked_for_all(fit: HeldFit, constants: Any, ridge: np.ndarray) -> OneHotFits | None:
            answer = together(fit, constants, ridge)
            if answer is not None:
                self.n_together += 1
                for level in reversed(range(self.spec.horizon)):
                    target = answer.levels[level + 1] if level + 1 < self.spec.horizon else None
                    self.compare_fit(level, target, answer.levels[level], float(ridge[level]))
            return answer

        patch.setattr(StepMemory, "add", told)
        patch.setattr(HeldFit, "all_levels", asked_for_all)
        patch.setattr(StepMemory, "_sample", thinned)
        patch.setattr(HeldFit, "moments", asked)

    def long(self, vector: np.ndarray, block: int) -> np.ndarray:
        phi = np.zeros(self.mdp.dim)
        k = self.spec.block_dim
        phi[block * k : (block + 1) * k] = vector
        return phi

    def add(self, memory: StepMemory, kept: Transitions) -> None:
        if not self.shelves:
            self.shelves = [LiteralShelf(self.mdp.dim) for _ in memory.shelves]
        following = kept.next_vectors
        for i in range(len(kept.levels)):
            here = self.key(np.atleast_2d(kept.vectors[i]), kept.blocks[i : i + 1])
            nowhere = kept.ended[i] or (not memory.pool and kept.levels[i] == self.spec.horizon - 1)
            after = () if nowhere else self.key(following[i], kept.next_blocks[i])
            self.features[after] = (following[i], kept.next_blocks[i])
            state = self.key(kept.state_vectors[kept.states[i]], kept.state_blocks[kept.states[i]])
            reward = float(kept.rewards[i])
            key = (state, int(kept.actions[i]), reward, bool(kept.ended[i]), after)
            shelf = self.shelves[0 if memory.pool else int(kept.levels[i])]
            long = self.long(kept.vectors[i], int(kept.blocks[i]))
            shelf.add(long, here[0][0], key, reward, bool(kept.ended[i]), after, int(kept.weights[i]))

    def key(self, vectors: np.ndarray, blocks: np.ndarray) -> tuple:
        return tuple(
            (int(b), *v.tolist())
            for b, v in zip(blocks, np.broadcast_to(vectors, (len(blocks), vectors.shape[-1])), strict=True)
        )

    def worth(self, target: QLevel | None, after: tuple) -> float:
        """max over actions of the clipped optimistic value, number by number."""
        if target is None:
            return 0.0
        best = -np.inf
        for vector, block in zip(*self.features[after], strict=True):
            linear = float(vector @ target.theta[block])
            if target.whitener is not None:
                norm = float(np.linalg.norm(target.whitener[block] @ vector))
                width = float(target.width[block])
                if target.second is not None and norm > 0:
                    n = max(0.0, 1 / norm**2 - target.ridge)
                    variance = min(max(float(vector @ target.second[block]) - linear**2, 0.0), target.ceiling)
                    sigma = np.sqrt((n * variance + target.noise) / max(n, 1.0))
                    width += target.kappa * (sigma + target.lower_order * norm)
                linear += width * norm
            best = max(best, linear)
        return min(max(best, target.clip[0]), target.clip[1])

    def ys(self, shelf: LiteralShelf, level: int, target: QLevel | None) -> list[float]:
        found: dict[tuple, float] = {}
        for row in shelf.rows:
            if row.after not in found:
                end = -self.spec.reward_min * (self.spec.horizon - 1 - level)
                found[row.after] = end if row.ended else self.worth(target, row.after)
        return [row.reward + found[row.after] for row in shelf.rows]

    def thin(self, number: int, n_kept: int, offset: float) -> None:
        self.n_thinnings += 1
        shelf = self.shelves[number]
        for level in range(self.spec.horizon) if len(self.shelves) == 1 else [number]:
            shelf.settle(level, self.ys(shelf, level, self.targets[level]))
        for row in shelf.rows:
            row.new = 0.0
        shelf.thin(n_kept, offset)

    def compare_fit(self, level: int, target: QLevel | None, fit: QLevel, ridge: float) -> None:
        """theta and second of one-hot features: sums over counts."""
        shelf = self.shelves[0]
        assert not shelf.thinned
        new = self.ys(shelf, level, target)
        (sums, squares), _ = shelf.fit(level, new, new)
        for ours, theirs in ((fit.theta, sums), (fit.second, squares)):
            wanted = theirs / (np.diag(shelf.gram) + ridge)
            np.testing.assert_allclose(np.ravel(ours), wanted, rtol=1e-6, atol=1e-9)
        self.targets[level] = target

    def compare(self, level: int, target: QLevel | None, answer: s4q.Moments) -> None:
        shelf = self.shelves[0 if len(self.shelves) == 1 else level]
        new, old = self.ys(shelf, level, target), self.ys(shelf, level, self.targets[level])
        sums, sum_y2 = shelf.fit(level, new, old)
        assert answer.n == shelf.n
        unit = max(shelf.n, 1) * max(self.spec.value_bound) ** 2
        pairs = [(answer.moment, sums[0]), (answer.sum_y2, sum_y2)]
        if shelf.thinned or self.spec.well_specified:
            pairs.append((answer.moment_sq, sums[1]))
        else:  # only the bonus of exact features reads them, and a sketch, which begins with them
            assert np.isnan(answer.moment_sq).all()
        for ours, theirs in pairs:
            np.testing.assert_allclose(np.ravel(ours), np.ravel(theirs), rtol=1e-6, atol=1e-7 * unit)
        self.targets[level] = target
        self.n_thinned_fits += shelf.thinned
        self.n_new_rows += shelf.thinned and any(row.new > 0 for row in shelf.rows)
        if shelf.thinned and (level == 0 or len(self.shelves) > 1):
            for row in shelf.rows:
                row.new = 0.0


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("pool", [False, True])
def test_the_sketch_equals_plain_loops(name: str, pool: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sum of every fit, through many thinnings."""
    mdp = PROBLEMS[name]
    pool = pool and mdp.spec.stationary
    learner = s4q.S4Q(mdp, memory_bytes=half_of(mdp, pool, 60), pool=pool, trigger=0.3)
    log = Logged(mdp, monkeypatch)
    s4q.run(learner, EpisodeCollector(mdp, seed=2), 60)
    assert log.n_thinnings > 3
    assert log.n_thinned_fits >= 5
    assert (log.n_together > 0) == (pool and name.startswith("one-hot"))


def test_steps_that_came_between_a_thinning_and_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Logged(MANY, monkeypatch)
    short_phases(MANY, 13_000)
    assert log.n_thinnings > 3
    assert log.n_new_rows > 10


MANY = random_mdp(40, 3, 4, 2, seed=7)


def short_phases(mdp: FiniteMDP, held: int) -> None:
    """Phases of one episode, so that fits come more often than thinnings."""
    learner = s4q.S4Q(mdp, memory_bytes=held, trigger=1e-3)
    s4q.run(learner, EpisodeCollector(mdp, seed=2), 120)


def dropped_correction(*_: Any) -> Any:
    return 0.0


def twice(gram: np.ndarray, sampled: np.ndarray, change: np.ndarray, _: Any) -> np.ndarray:
    return 2 * sketch.extrapolated(gram, sampled, change)


def regression_alone(gram: np.ndarray, sampled: np.ndarray, change: np.ndarray, _: Any) -> np.ndarray:
    return sketch.extrapolated(gram, 0 * sampled, change)


def wrong_value(fit: HeldFit) -> None:
    fit.levels = [replace(new, target=old.target) for new, old in zip(fit.levels, fit._memory.levels, strict=True)]
    SETTLE(fit)


def unsettled(fit: HeldFit) -> None:
    fit._memory.levels = list(fit.levels)


def same_weights(shelf: Shelf, which: np.ndarray, weights: np.ndarray) -> None:
    KEEP(shelf, which, shelf.weights)


SETTLE, KEEP = HeldFit.settle, Shelf.keep
PLANTED: dict[str, tuple[Any, str, Callable]] = {
    "no extrapolation": (sorted_rows, "extrapolated", dropped_correction),
    "extrapolated twice": (sorted_rows, "extrapolated", twice),
    "the regression alone": (sorted_rows, "extrapolated", regression_alone),
    "a wrong old value": (HeldFit, "settle", wrong_value),
    "new steps counted twice": (HeldFit, "settle", unsettled),
    "weights not divided": (Shelf, "keep", same_weights),
    "sampled by leverage alone": (sketch, "_UNIFORM", 0.0),  # type: ignore[dict-item]
    "arrival before block": (step_memory, "systematic_sample", lambda p, u: sketch.systematic_sample(p[::-1], u)[::-1]),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_the_oracle_of_the_sketch_notices(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, wrong = PLANTED[planted]
    Logged(MANY, monkeypatch)
    monkeypatch.setattr(where, name, wrong)
    with pytest.raises(AssertionError):
        short_phases(MANY, 13_000)


def one_informed_level() -> FiniteMDP:
    """Stationary, and only the first step shows anything: every other state ends the episode."""
    transitions = np.zeros((3, 2, 3))
    transitions[0, :, 1:] = [[0.3, 0.7], [0.6, 0.4]]
    transitions[1:] = np.eye(3)[1:, None, :]
    return FiniteMDP(
        transitions, [[0.3, 0.6], [0, 0], [0, 0]], [1, 0, 0], horizon=3, terminal=[False, True, True], value_bound=1.0
    )


@pytest.mark.slow
def test_pooled_and_per_level_fits_agree_where_only_one_level_has_data() -> None:
    """The parameter of the first level has the same law either way; a planted shift of 0.05 is noticed."""
    mdp = one_informed_level()
    fits: dict[bool, list[float]] = {True: [], False: []}
    for pool in fits:
        for seed in range(500):
            learner = s4q.S4Q(mdp, "realisable", pool=pool, trigger=2.0)
            run = s4q.run(learner, EpisodeCollector(mdp, seed=seed), 60)
            fits[pool].append(float(run.q.theta[0, 1, 0]))
    assert ks_2samp(fits[True], fits[False]).pvalue > 1e-3
    assert ks_2samp(np.array(fits[True]) + 0.05, fits[False]).pvalue < 1e-6


def test_pooling_is_refused_with_the_reason() -> None:
    changing = s4q.problems.low_rank()
    with pytest.raises(
        ValueError, match="pool=True needs a stationary problem, but dynamics, rewards or features depend"
    ):
        s4q.S4Q(changing, pool=True)
    still = s4q.problems.chain()
    with pytest.raises(ValueError, match='preset "paper" has no proof for pooled steps'):
        s4q.S4Q(still, "paper", pool=True)
    assert s4q.S4Q(still).constants.pool
    assert s4q.S4Q(still, "realisable").constants.pool
    assert not s4q.S4Q(still, "tight").constants.pool
    assert not s4q.S4Q(changing).constants.pool
    with pytest.raises(ValueError, match='bonus_from must be "own"'):
        s4q.S4Q(still, bonus_from="previous")


def test_pooled_policies_of_practical_share_one_gram() -> None:
    mdp = s4q.problems.chain()
    shared, apart = s4q.S4Q(mdp), s4q.S4Q(mdp, pool=False)
    for learner in (shared, apart):
        s4q.run(learner, CountCollector(mdp), 5)
    distinct = [len({id(level.whitener) for level in learner.q.levels}) for learner in (shared, apart)]
    assert distinct == [1, 10]
    assert shared.q.nbytes < apart.q.nbytes


@pytest.mark.parametrize("times", [1.0, 1.1, 1.5])
@pytest.mark.parametrize("pool", [False, True])
def test_the_smallest_budgets_keep_a_step_a_level(times: float, pool: bool) -> None:
    """No level may be left without a step to correct its sums by."""
    mdp = s4q.problems.river_swim(4, 5)
    learner = s4q.S4Q(mdp, memory_bytes=int(times * least_bytes(mdp.spec, pool)), pool=pool)
    with np.errstate(all="raise"):
        s4q.run(learner, EpisodeCollector(mdp, seed=1), 60)
    memory = learner.memory
    assert isinstance(memory, StepMemory)
    assert memory.n_thinnings > 3
    assert all(len(shelf) >= 1 for shelf in memory.shelves)
    assert memory.max_bytes is not None
    assert memory.held_bytes <= memory.max_bytes


def test_steps_of_the_last_level_lead_nowhere() -> None:
    """Their next states are never evaluated, so that they are not held."""
    mdp = s4q.problems.low_rank(30, 2, 4, 2, seed=0)
    learner = s4q.S4Q(mdp, memory="all")
    s4q.run(learner, EpisodeCollector(mdp, seed=0), 40)
    assert isinstance(learner.memory, StepMemory)
    last = learner.memory.shelves[1]
    assert np.array_equal(last.next_states, last.states)
    assert not np.array_equal(learner.memory.shelves[0].next_states, learner.memory.shelves[0].states)


def test_an_answer_without_steps_changes_nothing() -> None:
    mdp = s4q.problems.river_swim(4, 3)
    memory = StepMemory(mdp.spec, True, 5000)
    request = explore(mdp, s4q.UniformPolicy(2), (np.inf, 0.0), 1, keep=1, done=0, progress=np.zeros(3))
    kept = EpisodeCollector(mdp).collect(request).kept
    assert kept is not None
    memory.add(kept, 1)
    before = memory.held_bytes
    memory.add(kept.rows(slice(0)), 1)
    assert (memory.held_bytes, memory.n_episodes) == (before, 2)
