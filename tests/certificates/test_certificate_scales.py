"""Certificates do not depend on the scale of exact features: 200 random problems at four scales, marked slow."""

from dataclasses import replace

import numpy as np
import pytest

import s4q
from s4q import FiniteMDP
from s4q.features import TableFeatures

SCALES = (1.0, 0.5, 0.2, 0.05)
EPISODES = 3000
DELTA = 0.05


def random_problem(seed: int, scale: float) -> FiniteMDP:
    """Dense low-rank features turned by a random rotation, one-hot features, or a stationary problem (pooled)."""
    rng = np.random.default_rng([77, seed])
    horizon, n_states, n_actions = int(rng.integers(1, 4)), int(rng.integers(3, 9)), int(rng.integers(2, 4))
    start, pairs = rng.dirichlet(np.ones(n_states)), (n_states, n_actions)
    if seed % 3 == 0:
        dim = int(rng.integers(2, 6))
        phi = rng.dirichlet(np.full(dim, 0.3), size=(horizon, *pairs))
        mu = rng.dirichlet(np.full(n_states, 0.3), size=(horizon, dim))
        theta = rng.random((horizon, dim)) ** 3 / horizon
        turn = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
        moves, rewards = np.einsum("hsad,hdt->hsat", phi, mu), np.einsum("hsad,hd->hsa", phi, theta)
        features: object = phi @ turn * scale
    else:
        levels = (horizon,) if seed % 3 == 1 else (1,)
        moves = rng.dirichlet(np.full(n_states, 0.2), size=(*levels, *pairs))
        rewards = rng.random((*levels, *pairs)) ** 3 / horizon
        moves, rewards = (np.broadcast_to(x, (horizon, *x.shape[1:])) for x in (moves, rewards))
        table = TableFeatures.one_hot(horizon, *pairs)
        features = TableFeatures(table.vectors * scale, table.blocks, table.n_blocks)
    return FiniteMDP(moves, rewards, start, features, reward_range=(0.0, 1 / horizon), well_specified=True)


def certified(mdp: FiniteMDP, spec: s4q.Spec, seed: int) -> tuple[float, bool]:
    """The gap of a run's certificate, and whether both of its bounds hold."""
    learner = s4q.S4Q(spec, "realisable", delta=DELTA)
    run = s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=seed), EPISODES, record=True)
    found = s4q.certify(run.record)
    holds = mdp.v_star <= found.upper and (found.policy is None or found.lower <= mdp.value(found.policy))
    return found.gap, holds


def radius_of_unit_features(mdp: FiniteMDP) -> s4q.Spec:
    """The planted error: the radius that features of norm 1 would need."""
    small = tuple(np.sqrt(mdp.spec.block_dim) * v for v in mdp.spec.value_bound)
    return replace(mdp.spec, radius=small, block_radius=small)


@pytest.mark.slow
def test_certificates_hold_and_do_not_depend_on_the_scale():
    invalid = dict.fromkeys(SCALES, 0)
    for seed in range(200):
        gaps = []
        for scale in SCALES:
            mdp = random_problem(seed, scale)
            gap, holds = certified(mdp, mdp.spec, seed)
            invalid[scale] += not holds
            gaps.append(gap)
            assert gap < mdp.spec.value_bound[0]  # none is saved by being vacuous
        assert gaps == pytest.approx([gaps[0]] * len(SCALES), rel=0.01), seed
    assert all(n <= 10 for n in invalid.values()), invalid


@pytest.mark.slow
def test_the_radius_of_unit_features_would_be_wrong_for_short_ones():
    invalid = 0
    for seed in range(60):
        mdp = random_problem(seed, 0.05)
        invalid += not certified(mdp, radius_of_unit_features(mdp), seed)[1]
    assert invalid > 2 * DELTA * 60, invalid


def test_a_wide_dense_problem_is_not_certified_below_its_value():
    """One-hot features written as one block of 64; all pairs pay 1 at once.

    A ball of sqrt(64) v holds Q* itself, but not the targets 1 + V' with an optimistic V' of up to 1.
    """
    rng = np.random.default_rng(0)
    phi = np.eye(64).reshape(32, 2, 64)
    moves = rng.dirichlet(np.full(32, 0.1), size=(2, 32, 2))
    rewards = np.stack([np.ones((32, 2)), np.zeros((32, 2))])
    mdp = FiniteMDP(moves, rewards, np.full(32, 1 / 32), phi, horizon=2, value_bound=1.0, well_specified=True)
    assert mdp.spec.radius == pytest.approx((16.0, 1.0))
    run = s4q.run(s4q.S4Q(mdp, "realisable"), s4q.collectors.CountCollector(mdp, seed=0), 3000, record=True)
    assert mdp.v_star == 1.0
    assert s4q.certify(run.record).upper >= 1.0
