"""Statistics of the sketch: what its sampling and its correction are worth. Formulas stand in `test_step_memory`."""

from typing import Any

import numpy as np
import pytest

import s4q
from s4q.collectors import CountCollector, EpisodeCollector
from s4q.core.messages import Explore, Transitions
from s4q.learners import sketch
from s4q.learners.shelf import Shelf
from s4q.learners.sketch import allowances, extrapolated, inclusion_probabilities, systematic_sample
from s4q.learners.sorted_rows import SortedRows
from s4q.learners.step_memory import HeldFit, StepMemory


def steps_of(mdp: s4q.FiniteMDP, n: int, seed: int) -> Transitions:
    """The steps of n episodes of the uniform policy."""
    white = np.broadcast_to(np.eye(mdp.spec.block_dim), (mdp.horizon, *mdp.spec.gram_shape))
    request = Explore(0, s4q.UniformPolicy(mdp.n_actions), white, (np.inf, 0.0), n, keep=n)
    kept = EpisodeCollector(mdp, seed=seed).collect(request).kept
    assert kept is not None
    return kept


def any_value(mdp: s4q.FiniteMDP, seed: int) -> s4q.LinearQ:
    """A value that is not linear in the features: a maximum with a bonus and a clip."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=mdp.spec.theta_shape) / 2
    white = np.broadcast_to(np.eye(mdp.spec.block_dim), (mdp.horizon, *mdp.spec.gram_shape))
    clip = np.tile([0.0, 1.0], (mdp.horizon, 1))
    return s4q.LinearQ.from_arrays(theta, white, rng.uniform(0, 0.3, mdp.horizon), clip)


def fitted(memory: StepMemory, value: s4q.LinearQ) -> list[s4q.Moments]:
    """The sums of all levels with the targets of a value; the memory goes on from them."""
    fit = memory.source()
    targets = [*value.levels[1:], None]
    found = [fit.moments(h, targets[h]) for h in reversed(range(len(targets)))]
    fit.settle()
    return found[::-1]


MDP = s4q.problems.low_rank(40, 3, 4, 3, seed=1)


@pytest.mark.parametrize("ridge", [0.0, 1e-6, 1.0])
def test_nothing_dropped_is_exact(ridge: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty changes of the value, each corrected from the one before, against sums over all steps."""
    monkeypatch.setattr(sketch, "_RIDGE", ridge)
    exact, corrected = (StepMemory(MDP.spec, False, None) for _ in range(2))
    for memory in (exact, corrected):
        memory.add(steps_of(MDP, 300, seed=0), 300)
    for number in range(MDP.horizon):
        corrected._settle_new(number)
    for seed in range(20):
        value = any_value(MDP, seed)
        for one, other in zip(fitted(exact, value), fitted(corrected, value), strict=True):
            np.testing.assert_allclose(other.moment, one.moment, atol=1e-10 * one.n)
            np.testing.assert_allclose(other.moment_sq, one.moment_sq, atol=1e-10 * one.n)
            assert other.sum_y2 == pytest.approx(one.sum_y2, abs=1e-8 * one.n)


def test_the_plain_regression_is_not_exact() -> None:
    """Planted: G (G_s + mu)^-1 S_w alone, where nothing was dropped."""
    gram, change = np.diag([5.0, 0.0])[None], np.array([[[1.0, 1.0]]])
    assert np.abs(extrapolated(gram, gram, change)).max() == 0
    alone = np.einsum("bij,mbj->mbi", gram @ np.linalg.inv(gram + 1e-6 * np.eye(2)), change)
    assert np.abs(alone - change).max() > 0.9


def held_rows(memory: StepMemory) -> dict[tuple, float]:
    """Weights of the steps of level 0, by the step."""
    shelf, states = memory.shelves[0], memory.states
    columns = zip(shelf.states, shelf.actions, shelf.next_states, shelf.rewards, shelf.weights, strict=True)
    return {(states.vectors[s].tobytes(), a, states.vectors[t].tobytes(), r): w for s, a, t, r, w in columns}


def test_the_error_is_a_sum_over_what_thinnings_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """m - sum phi y = sum over thinnings t, rows j of (w' - w) phi_j [(V - V_t)(s'_j) - phi_j . (B - B_t)]."""
    memory, exact = StepMemory(MDP.spec, False, 60_000), StepMemory(MDP.spec, False, None)
    changes: list[tuple[np.ndarray, int]] = []  # what a thinning did to the weights of a row, and after which fit
    rows: list[tuple[np.ndarray, np.ndarray, float]] = []  # phi, features of the next state, reward
    slopes, values = [np.zeros(4)], [None]  # B after each fit, and its value of level 1
    keep = Shelf.keep

    def noted(shelf: Shelf, which: np.ndarray, weights: np.ndarray) -> None:
        if shelf is memory.shelves[0]:
            for i in range(len(shelf)):
                phi = memory.states.chosen(shelf.states[i : i + 1], shelf.actions[i : i + 1])[0][0]
                after = memory.states.phi(shelf.next_states[i : i + 1]).vectors[0]
                rows.append((phi, after, shelf.rewards[i]))
                changes.append(((weights[i] if which[i] else 0.0) - shelf.weights[i], len(values) - 1))
        keep(shelf, which, weights)

    monkeypatch.setattr(Shelf, "keep", noted)
    for seed in range(8):
        kept = steps_of(MDP, 150, seed)
        memory.add(kept, 150)
        exact.add(kept, 150)
        value = any_value(MDP, seed)
        shelf, before = memory.shelves[0], memory.levels[0].target
        held = SortedRows(MDP.spec, memory.states, shelf)
        gap = held.targets(0, value.levels[1]) - held.targets(0, before)
        phi, weights = held.vectors, held.weights
        ours, theirs = fitted(memory, value)[0], fitted(exact, value)[0]
        sampled = (phi * weights[:, None]).T @ phi
        thinned = shelf.settled is not None
        slope = np.linalg.solve(sampled + 1e-6 * np.eye(4), phi.T @ (weights * gap)) if thinned else np.zeros(4)
        slopes.append(slopes[-1] + slope)
        values.append(value.levels[1])
        error = np.zeros(4)
        for (delta, at), (one, after, _) in zip(changes, rows, strict=True):
            f = worth(values[-1], after) - worth(values[at], after)
            error += delta * one * (f - one @ (slopes[-1] - slopes[at]))
        np.testing.assert_allclose(ours.moment[0] - theirs.moment[0], error, atol=1e-9 * theirs.n)
    assert memory.n_thinnings > 4
    assert np.abs(error).max() > 1e-3


def worth(level: Any, vectors: np.ndarray) -> float:
    if level is None:
        return 0.0
    best = max(float(v @ level.theta[0] + level.width[0] * np.linalg.norm(v)) for v in vectors)
    return min(max(best, level.clip[0]), level.clip[1])


def design(n: int, dim: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Features of uneven directions, weights, a function that is not linear in them, and leverages."""
    rng = np.random.default_rng(seed)
    phi = rng.dirichlet(np.full(dim, 0.5), size=n)
    f = np.maximum(phi @ rng.normal(size=dim), 0.1) + 0.2 * rng.normal(size=n)
    gram = phi.T @ phi
    return phi, np.ones(n), f, np.einsum("ni,ij,nj->n", phi, np.linalg.inv(gram), phi)


def whitened(phi: np.ndarray) -> np.ndarray:
    return np.linalg.inv(np.linalg.cholesky(phi.T @ phi))


@pytest.mark.parametrize("divided", [True, False])
def test_the_sample_is_unbiased(divided: bool) -> None:
    """2000 offsets: no coordinate of the sum is off by more than luck; planted: weights not divided by the chance."""
    phi, w, f, lev = design(2000, 6, seed=0)
    chances = inclusion_probabilities(w, lev, 300)
    assert chances.sum() == pytest.approx(300)
    white, found = whitened(phi), []
    for offset in np.random.default_rng(1).random(2000):
        kept = systematic_sample(chances, offset)
        weights = w[kept] / (chances[kept] if divided else 1.0)
        found.append(white @ ((phi[kept] * weights[:, None]).T @ f[kept] - phi.T @ f))
    z = np.mean(found, axis=0) / (np.std(found, axis=0) / np.sqrt(len(found)))
    assert (np.abs(z).max() < 4.5) == divided


def regression_errors(n: int, n_kept: int, offsets: int) -> tuple[np.ndarray, float]:
    """Errors of the corrected sum in the metric of G^-1, (offsets, d), and the mean square that coins would have."""
    dim = 6
    phi, w, f, lev = design(n, dim, seed=2)
    chances, white, gram = inclusion_probabilities(w, lev, n_kept), whitened(phi), phi.T @ phi
    residual = f - phi @ np.linalg.solve(gram, phi.T @ f)
    errors = []
    rng = np.random.default_rng(3)
    for _ in range(offsets):
        kept, order = np.zeros(n, dtype=bool), rng.permutation(n)  # rows in any order: offsets alone are few samples
        kept[order] = systematic_sample(chances[order], rng.random())
        weights = w[kept] / chances[kept]
        sampled, change = (phi[kept] * weights[:, None]).T @ phi[kept], (phi[kept] * weights[:, None]).T @ f[kept]
        total = change + extrapolated(gram[None], sampled[None], change[None, None])[0, 0]
        errors.append(white @ (total - phi.T @ f))
    return np.array(errors), float(((1 / chances - 1) * lev * residual**2).sum())


def test_the_error_has_the_size_that_theory_says() -> None:
    """Mean square over sum (1/p - 1) l r^2, the formula for independent coins; systematic sampling is near it."""
    errors, coins = regression_errors(4000, 400, 400)
    ratio = float((errors**2).sum(axis=1).mean()) / coins
    assert 0.85 < ratio < 1.15
    mean = errors.mean(axis=0)
    luck = errors.var(axis=0).sum() / len(errors)  # of the mean itself
    assert (mean @ mean - luck) < 0.02 * float((errors**2).sum(axis=1).mean())


def test_the_regression_takes_away_what_is_linear() -> None:
    """Planted: the plain weighted sum has a far larger error."""
    phi, w, f, lev = design(4000, 6, seed=2)
    chances, white, errors = inclusion_probabilities(w, lev, 400), whitened(phi), []
    for offset in np.random.default_rng(3).random(400):
        kept = systematic_sample(chances, offset)
        errors.append(white @ ((phi[kept] / chances[kept][:, None]).T @ f[kept] - phi.T @ f))
    plain = (np.array(errors) ** 2).sum(axis=1).mean()
    assert plain > 1.5 * (regression_errors(4000, 400, 400)[0] ** 2).sum(axis=1).mean()


def test_weights_do_not_compound() -> None:
    """After each of 100 thinnings w l <= 1.25 max L / rows and w <= 5 max W / rows, rows the fewest ever kept."""
    rng = np.random.default_rng(0)
    phi, weights, gram = np.zeros((0, 4)), np.zeros(0), np.zeros((4, 4))
    most_l = most_w = 0.0
    for t in range(100):
        new = rng.normal(size=(60, 4)) * rng.uniform(0.05, 1.0, size=(60, 1)) * (1 + 5 * (t == 50))
        phi, weights, gram = np.concatenate([phi, new]), np.concatenate([weights, np.ones(60)]), gram + new.T @ new
        if len(phi) <= 300:
            continue
        lev = np.einsum("ni,ij,nj->n", phi, np.linalg.inv(gram), phi)
        most_l, most_w = max(most_l, float(weights @ lev)), max(most_w, float(weights.sum()))
        chances = inclusion_probabilities(weights, lev, 270)
        kept = systematic_sample(chances, rng.random())
        phi, weights, lev = phi[kept], weights[kept] / chances[kept], lev[kept]
        large = weights > 1.0  # those that stand for others
        assert np.all((weights * lev)[large] <= 1.25 * most_l / 270 * (1 + 1e-9))
        assert np.all(weights <= 5 * most_w / 270 * (1 + 1e-9))
        assert abs(kept.sum() - 270) <= 1
    assert weights.max() > 5


def test_a_value_that_looks_at_the_sample_breaks_it() -> None:
    """Why nothing is proved: V = 1 exactly where s' was sampled. Its error is far beyond that of a V chosen before."""
    n, n_kept = 4000, 400
    phi, w, _, lev = design(n, 6, seed=2)
    chances, white, gram = inclusion_probabilities(w, lev, n_kept), whitened(phi), phi.T @ phi
    kept = systematic_sample(chances, 0.37)
    f = kept.astype(float)
    weights = w[kept] / chances[kept]
    sampled, change = (phi[kept] * weights[:, None]).T @ phi[kept], (phi[kept] * weights[:, None]).T @ f[kept]
    total = change + extrapolated(gram[None], sampled[None], change[None, None])[0, 0]
    error = float(np.sum((white @ (total - phi.T @ f)) ** 2))
    residual = f - phi @ np.linalg.solve(gram, phi.T @ f)
    assert error > 10 * float(((1 / chances - 1) * lev * residual**2).sum())


def test_chances_and_allowances_add_up() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        n = int(rng.integers(2, 30))
        weights, lev = rng.uniform(0.1, 5, n) ** 3, rng.uniform(0, 1, n) ** 4
        n_kept = int(rng.integers(0, n))
        chances = inclusion_probabilities(weights, lev, n_kept)
        assert chances.sum() == pytest.approx(n_kept)
        assert chances.max() <= 1.0
        counts = [int(systematic_sample(chances, offset).sum()) for offset in rng.random(5)]
        assert all(abs(count - n_kept) <= 1 for count in counts)
        sizes = rng.integers(0, 20, size=5).tolist()
        total = int(rng.integers(0, 100))
        kept = allowances(sizes, total)
        assert sum(kept) == min(max(total, sum(size > 0 for size in sizes)), sum(sizes))
        assert all(one > 0 for one, size in zip(kept, sizes, strict=True) if size)
        cap = max(kept)
        assert all(one == size or one >= cap - 1 for one, size in zip(kept, sizes, strict=True))


class Shadow:
    """Keeps all steps beside a sketch, and compares the sums of every fit with the same targets."""

    def __init__(self, mdp: s4q.FiniteMDP, patch: pytest.MonkeyPatch) -> None:
        self.all = StepMemory(mdp.spec, False, None)
        self.errors: list[float] = []
        add, moments = StepMemory.add, HeldFit.moments

        def told(memory: StepMemory, kept: Transitions, n: int) -> None:
            add(self.all, kept, n)
            add(memory, kept, n)

        def asked(fit: HeldFit, level: int, target: Any) -> s4q.Moments:
            ours, exact = moments(fit, level, target), moments(self.all.source(), level, target)
            gap = (ours.moment - exact.moment)[0]
            scale = np.sqrt(gap @ np.linalg.solve(exact.gram[0] + 1e-6 * np.eye(len(gap)), gap))
            if fit._memory.n_thinnings and level == 0:
                self.errors.append(float(scale))
            return ours

        patch.setattr(StepMemory, "add", told)
        patch.setattr(HeldFit, "moments", asked)


@pytest.mark.slow
def test_errors_do_not_grow_from_phase_to_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the metric of Sigma^-1: the median of the last third is at most twice that of the middle third."""
    shadow = Shadow(MDP, monkeypatch)
    s4q.run(s4q.S4Q(MDP, memory_bytes=30_000, trigger=0.05), EpisodeCollector(MDP, seed=0), 4000)
    errors = shadow.errors
    third = len(errors) // 3
    assert third > 10
    assert np.median(errors[-third:]) < 2 * np.median(errors[third:-third])


def regret(seed: int, **options: Any) -> float:
    mdp = s4q.problems.low_rank(40, 4, 6, 4, seed=seed)
    run = s4q.run(s4q.S4Q(mdp, **options), CountCollector(mdp, seed=seed), 20_000)
    assert run.regret is not None
    return run.regret


@pytest.mark.slow
def test_a_small_sketch_costs_little_regret(monkeypatch: pytest.MonkeyPatch) -> None:
    """On linear MDPs within 1.2 times that of all steps; planted: the sample is fitted alone, without the sums."""
    seeds = range(4)
    everything = sum(regret(seed, memory="all") for seed in seeds)
    assert sum(regret(seed, memory_bytes=50_000) for seed in seeds) < 1.2 * everything
    corrected = SortedRows.corrected

    def sample_alone(rows: SortedRows, before: Any, new: np.ndarray, old: np.ndarray) -> Any:
        sum_y2 = corrected(rows, before, new, old)[1]
        seen = rows.sums(rows.weights * np.stack([new, new**2]))
        whole, sample = rows._grams  # type: ignore[misc]
        return seen + extrapolated(whole.gram, sample.gram, seen), sum_y2

    monkeypatch.setattr(SortedRows, "corrected", sample_alone)
    assert sum(regret(seed, memory_bytes=50_000) for seed in seeds) > 3 * everything
