"""Theorem 2 on an S3Q run without bonus: at the end of an epoch, what it says and what is true."""

from typing import NamedTuple

import numpy as np

from s4q.core.blocks import Array
from s4q.core.linear_q import LinearQ
from s4q.core.policies import Mixture, Policy
from s4q.learners.widths import TIGHT, Theory
from s4q.problems import FiniteMDP
from s4q.theory.bounds import expected_sum, s3q_radius, theorem2_gap, theorem2_values, uncertainty
from s4q.theory.covariance import expected_grams, optimal_occupancies
from s4q.theory.lemmas import Claim, between, claim, sandwich
from s4q.theory.structure import bellman_errors, comparator_errors


class Theorem2(NamedTuple):
    """Its parts, and what follows for the greedy policy."""

    errors: Claim  # (a): |err + Delta| <= U at every reachable pair
    value: Claim  # (b): where E(Vbest - V*) lies
    gap: Claim  # V* - V^greedy


def theorem2(
    mdp: FiniteMDP,
    controller: Policy | Mixture,
    q: LinearQ,
    *,
    n: int,
    epoch: int,
    delta: float,
    ridge: float = 1.0,
    theory: Theory = TIGHT,
    grams: Array | None = None,
) -> Theorem2:
    """Theorem 2 for the fit q of an epoch of n episodes a level; with probability 1 - delta for all epochs jointly.

    grams (H, n_blocks, k, k): those of the epoch (`S3Q.grams`). With them the radius is the sharp one for exact
    features in balls that no backup leaves, else the excess-risk radius of `theory`.

    >>> import s4q
    >>> mdp, uniform = s4q.problems.low_rank(), s4q.UniformPolicy(4)
    >>> learner = s4q.S3Q(mdp, uniform, epoch_size=1000)
    >>> result = s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=0), 3000)
    >>> all(part.holds() for part in theorem2(mdp, uniform, result.q, n=1000, epoch=1, delta=0.05))
    True
    """
    expected = n * expected_grams(mdp, controller)
    levels = []
    for h in range(mdp.horizon):
        own = None if grams is None else grams[h]
        alpha = s3q_radius(mdp.spec, h, n=n, epoch=epoch, delta=delta, ridge=ridge, theory=theory, gram=own)
        radius = np.full(mdp.spec.n_blocks, alpha)
        levels.append(uncertainty(mdp.features.level(h), expected[h] if own is None else own, ridge, radius))
    u, errors, comparators = np.stack(levels), bellman_errors(mdp, q), comparator_errors(mdp, controller, q)
    best, greedy = optimal_occupancies(mdp), mdp.occupancies(q)
    terr = max(abs(expected_sum(meets, comparators)) for meets in (best, greedy))
    here = np.repeat(mdp.reachable[:, :, None], mdp.n_actions, axis=2)
    low, high = theorem2_values(best, greedy, u, terr)
    promised = float(mdp.start @ mdp.spec.to_user_units(0, q.value(0, mdp.features.level(0))))
    return Theorem2(
        sandwich(errors[here], comparators[here], u[here], np.zeros(int(here.sum()))),
        between(low, promised - mdp.v_star, high),
        claim(mdp.v_star - mdp.value(q), theorem2_gap(best, greedy, u, terr)),
    )
