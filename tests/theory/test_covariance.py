"""Expected covariances against sums written out, and against what a long run saw."""

import numpy as np
import pytest
from small_problems import blocked_mdp, cliff, random_mdp, random_policy

import s4q
from s4q import FiniteMDP
from s4q.core.blocks import dense
from s4q.theory.definitions import controllers, expected_covariances, expected_grams


def literal_gram(mdp: FiniteMDP, occupancy: np.ndarray, h: int) -> np.ndarray:
    """sum of probability phi phi^T over long vectors, (d, d)."""
    total = np.zeros((mdp.dim, mdp.dim))
    for s in range(mdp.n_states):
        for a in range(mdp.n_actions):
            phi = dense(mdp.features.vectors[h, s, a], mdp.features.blocks[h, s, a], mdp.spec.n_blocks)
            total += occupancy[h, s, a] * np.outer(phi, phi)
    return total


def long_gram(gram: np.ndarray) -> np.ndarray:
    """(n_blocks, k, k) as (d, d)."""
    n_blocks, k, _ = gram.shape
    total = np.zeros((n_blocks * k, n_blocks * k))
    for b in range(n_blocks):
        total[b * k : (b + 1) * k, b * k : (b + 1) * k] = gram[b]
    return total


@pytest.mark.parametrize("mdp", [random_mdp(4, 3, 2, 3, seed=1, terminal=True), blocked_mdp(), cliff()])
def test_grams_of_policies_and_mixtures(mdp: FiniteMDP) -> None:
    one, other = random_policy(mdp, 0), random_policy(mdp, 1, deterministic=True)
    mixture = s4q.Mixture([one, other], [0.3, 0.7])
    for controller in (one, other, mixture):
        grams = expected_grams(mdp, controller)
        assert grams.shape == (mdp.horizon, *mdp.spec.gram_shape)
        for h, gram in enumerate(grams):
            np.testing.assert_allclose(long_gram(gram), literal_gram(mdp, mdp.occupancies(controller), h), atol=1e-14)
    expected = 0.3 * expected_grams(mdp, one) + 0.7 * expected_grams(mdp, other)
    np.testing.assert_allclose(expected_grams(mdp, mixture), expected, atol=1e-14)


def recorded(mdp: FiniteMDP, episodes: int, seed: int = 0, preset: str = "realisable") -> s4q.Run:
    learner = s4q.S4Q(mdp, preset, pool=False)  # type: ignore[arg-type]
    return s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=seed), episodes, record=True)


def test_covariances_of_a_run_add_up_phase_by_phase() -> None:
    mdp = s4q.problems.low_rank()
    record = recorded(mdp, 10**5).record
    assert record is not None
    phases = [*record.phases, *([record.unfinished] if record.unfinished else [])]
    sums = expected_covariances(mdp, record)
    assert len(sums) == len(phases) > 5
    for p in range(len(phases)):
        literal = sum((q.n_episodes * expected_grams(mdp, q.q) for q in phases[:p]), np.zeros(sums[0].shape))
        np.testing.assert_allclose(sums[p], literal, rtol=1e-12)
    for (phase, occupancies), later in zip(controllers(mdp, record), phases[1:], strict=True):
        assert phase is later
        n = sum(q.n_episodes for q in phases if q.phase < phase.phase)
        grams = np.stack([literal_gram(mdp, occupancies, h) for h in range(mdp.horizon)])
        np.testing.assert_allclose(n * grams, sums[phase.phase - 1][:, 0], rtol=1e-9)


def test_what_a_long_run_saw_is_near_what_is_expected() -> None:
    mdp = s4q.problems.low_rank()
    record = recorded(mdp, 10**9).record
    assert record is not None
    sums = expected_covariances(mdp, record)
    for phase, total in zip(record.phases, sums, strict=False):
        # Entries are sums of terms in [0, 1], so six standard deviations are at most 3 sqrt n.
        n_before = sum(q.n_episodes for q in record.phases if q.phase < phase.phase)
        assert np.abs(phase.cov_ref - total).max() <= 3 * n_before**0.5
        off = phase.increment - phase.n_episodes * expected_grams(mdp, phase.q)
        assert np.abs(off).max() <= 3 * phase.n_episodes**0.5


def test_runs_it_is_not_made_for_are_refused() -> None:
    walk = s4q.problems.river_swim(3, 4)
    run = s4q.run(s4q.S4Q(walk, "realisable"), s4q.collectors.CountCollector(walk, seed=0), 100, record=True)
    assert run.record is not None
    with pytest.raises(ValueError, match="pool=False"):
        expected_covariances(walk, run.record)
    other = recorded(s4q.problems.low_rank(), 100).record
    assert other is not None
    with pytest.raises(ValueError, match="other sizes"):
        expected_covariances(walk, other)
