"""Rows about what a proof assumes of the problem: without one of them the statements that need it are not claimed."""

import numpy as np

from s4q.problems import FiniteMDP
from s4q.theory.evidence import Evidence, PhaseEvidence
from s4q.theory.lemmas import claim
from s4q.theory.parts import Part
from s4q.theory.structure import check_structure

EXACT = 1e-7  # errors and lengths below this share of the value bound are rounding


def features_exact(e: Evidence) -> list[Part]:
    """The largest error of the best fit of a backup T_h V', over v_h; V' any value in [0, v_{h+1}] of the features.

    Only where exact features are declared, or needed by the preset.
    """
    if not (e.constants.spec.well_specified or e.constants.preset == "realisable"):
        return []
    residuals = check_structure(e.mdp, restarts=1).merged_residual
    shares = residuals / np.array(e.constants.spec.value_bound)
    return [Part(claim(share, EXACT), None, h) for h, share in enumerate(shares.tolist())]


def radius_fits(e: Evidence) -> list[Part]:
    """The norm of the true parameter of every target of the run, over the radius of its ball."""
    if not e.constants.spec.well_specified or e.constants.preset == "practical":
        return []
    balls = e.prescribed.ball()
    parts = []
    for p in e.phases:
        for h in range(e.mdp.horizon):
            size = _needed(e.mdp, p, h)
            ratio = size / balls[h] if balls.ndim == 2 else np.sqrt((size**2).sum()) / balls[h]
            parts.append(Part(claim(ratio, 1 + EXACT), p.record.phase, h))
    return parts


def _needed(mdp: FiniteMDP, p: PhaseEvidence, h: int) -> np.ndarray:
    """The norm of the true parameter in each block, (n_blocks,).

    In blocks of length 1 a parameter need not be longer than what makes Q reach its clip.
    """
    size = np.linalg.norm(p.best[h], axis=1)
    if mdp.spec.block_dim == 1:
        shortest = np.full(mdp.spec.n_blocks, np.inf)
        lengths = np.abs(mdp.features.vectors[h][..., 0])
        np.minimum.at(shortest, mdp.features.blocks[h][lengths > 0], lengths[lengths > 0])
        size = np.minimum(size, mdp.spec.value_bound[h] / shortest)
    return np.asarray(size)


def value_bound_holds(e: Evidence) -> list[Part]:
    """Q* at reachable pairs over the value bound, in shifted rewards."""
    spec, parts = e.constants.spec, []
    for h, bound in enumerate(spec.value_bound):
        here = e.mdp.reachable[h]
        if here.any():
            shifted = e.mdp.q_star[h][here] - (spec.horizon - h) * spec.reward_min
            parts.append(Part(claim(float(shifted.max()) / bound, 1 + EXACT), None, h))
    return parts


def features_bounded(e: Evidence) -> list[Part]:
    """The longest feature vector. EqnBoundedFeatures."""
    lengths = np.linalg.norm(e.mdp.features.vectors, axis=-1).max(axis=(1, 2))
    return [Part(claim(float(length), 1 + EXACT), None, h) for h, length in enumerate(lengths)]
