"""Expected covariances: what the Gram matrices of a run would be if every policy had played its exact mean."""

from collections.abc import Iterator

import numpy as np

from s4q.core.blocks import Array
from s4q.core.least_squares import gram_of
from s4q.core.policies import Mixture, Policy
from s4q.learners.main_loop import PhaseRecord, Record
from s4q.problems import FiniteMDP, planning


def expected_grams(mdp: FiniteMDP, controller: Policy | Mixture) -> Array:
    """G_pi,h = E_pi[phi phi^T] of every level, (H, n_blocks, k, k).

    >>> from s4q.core.policies import UniformPolicy
    >>> from s4q.problems import chain
    >>> expected_grams(chain(3, 2), UniformPolicy(2))[0].ravel().tolist()  # one-hot pairs: their probabilities
    [0.5, 0.5, 0.0, 0.0, 0.0, 0.0]
    """
    return grams_of_occupancies(mdp, mdp.occupancies(controller))


def grams_of_occupancies(mdp: FiniteMDP, occupancies: Array) -> Array:
    """sum over pairs of the occupancy times phi phi^T, (H, n_blocks, k, k); occupancies (H, S, A)."""
    return np.stack([gram_of_pairs(mdp, h, occupancy) for h, occupancy in enumerate(occupancies)])


def gram_of_pairs(mdp: FiniteMDP, h: int, occupancy: Array) -> Array:
    """The same at one level, (n_blocks, k, k); occupancy (S, A)."""
    vectors, blocks = mdp.features.vectors[h].reshape(-1, mdp.spec.block_dim), mdp.features.blocks[h].ravel()
    visited = np.flatnonzero(occupancy.ravel())
    weights = occupancy.ravel()[visited]
    if mdp.spec.block_dim == 1:  # one bincount, whatever the number of blocks
        sums = np.bincount(blocks[visited], weights * vectors[visited, 0] ** 2, minlength=mdp.spec.n_blocks)
        return np.asarray(sums[:, None, None])
    scaled = vectors[visited] * np.sqrt(weights)[:, None]
    return gram_of(scaled, blocks[visited], mdp.spec.n_blocks)


def expected_covariances(mdp: FiniteMDP, record: Record) -> Array:
    """Sbar^(p) less its ridge: sum over j < p of n_j G_{pi_j}, for every phase p that began; (P, H, n_blocks, k, k).

    Entry p - 1 is phase p's; the first is 0. Add `record.phases[p - 1].ridge` where the ridge is wanted. The expected
    covariance of the paper (before eqn:ExpectedUncertaintyParam), with n_j the trajectories of phase j's main loop.

    >>> import s4q
    >>> mdp = s4q.problems.low_rank()
    >>> learner, collector = s4q.S4Q(mdp, "realisable"), s4q.collectors.CountCollector(mdp, seed=0)
    >>> result = s4q.run(learner, collector, 10**4, record=True)
    >>> sums = expected_covariances(mdp, result.record)
    >>> sums.shape[1:], bool(sums[0].any()), len(sums) >= result.phases
    ((3, 1, 5, 5), False, True)
    """
    return np.stack(cumulative_grams(mdp, record)[:-1])


def cumulative_grams(mdp: FiniteMDP, record: Record) -> list[Array]:
    """sum over j <= p of n_j G_{pi_j} for p = 0, 1, ..., P: one more than `expected_covariances`."""
    sums = [np.zeros((mdp.horizon, *mdp.spec.gram_shape))]
    for phase in phases_of(mdp, record):
        sums.append(sums[-1] + phase.n_episodes * expected_grams(mdp, phase.q))
    return sums


def controllers(mdp: FiniteMDP, record: Record) -> Iterator[tuple[PhaseRecord, Array]]:
    """Every phase from the second on, with the occupancies (H, S, A) of the controller its fit was made with.

    That is the mixture of the earlier phases' policies with weights m_j / m_tot; phase 1 fits nothing.
    """
    total, n_total = np.zeros(mdp.rewards.shape), 0
    for phase in phases_of(mdp, record):
        if n_total:
            yield phase, total / n_total
        total = total + phase.n_episodes * mdp.occupancies(phase.q)
        n_total += phase.n_episodes


def optimal_occupancies(mdp: FiniteMDP) -> Array:
    """Those of an optimal policy, (H, S, A); ties go to the lowest action."""
    return planning.occupancies(mdp.transitions, mdp.start, planning.greedy(mdp.q_star))


def phases_of(mdp: FiniteMDP, record: Record) -> tuple[PhaseRecord, ...]:
    """All phases that began, the unfinished one last; refuses a run that the exact quantities are not made for."""
    if not isinstance(record, Record):
        raise ValueError(f"record must be the `record` of a run(..., record=True); got {type(record).__name__}")
    if not isinstance(mdp, FiniteMDP):
        raise ValueError(f"mdp must be a FiniteMDP, the one the run was played on; got {type(mdp).__name__}")
    if record.constants.pool:
        raise ValueError("record is of a run with pooled steps, whose levels share one covariance; run with pool=False")
    theirs, ours = record.constants.spec, mdp.spec
    same = (theirs.horizon, theirs.n_actions, *theirs.gram_shape) == (ours.horizon, ours.n_actions, *ours.gram_shape)
    if not same:
        raise ValueError(f"record is of a run on a problem of other sizes than {mdp}; pass the one it was made on")
    return record.phases if record.unfinished is None else (*record.phases, record.unfinished)
