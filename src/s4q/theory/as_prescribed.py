"""Rows about the learner: what it did with the collector's sums against what `prescribed` says. All deterministic."""

from collections.abc import Iterator

import numpy as np

from s4q.core.blocks import Array
from s4q.learners.fit_record import FitRecord
from s4q.theory.evidence import Evidence, PhaseEvidence
from s4q.theory.lemmas import Claim, claim
from s4q.theory.parts import Part

SAME = 1e-6  # two ways to compute one number agree to this


def relative_error(ratio: Array | float, tolerance: float = SAME) -> Claim:
    """|ratio - 1| of a number over the prescribed one."""
    return claim(np.abs(np.asarray(ratio) - 1), tolerance)


def ridge(e: Evidence) -> list[Part]:
    """The ridge that the learner used against the prescribed one."""
    return [
        Part(relative_error(float(used) / float(p.ridge[h])), p.record.phase, h)
        for p in e.phases
        for h, used in enumerate(p.record.ridge)
    ]


def width(e: Evidence) -> list[Part]:
    """The width of the bonus against the prescribed one."""
    parts = []
    for p, h in _levels(e):
        used, lam = p.record.q.levels[h].width, float(p.ridge[h])
        if used is None:
            parts.append(Part(relative_error(0.0), p.record.phase, h))
        elif e.constants.preset == "practical":  # the part that does not come from the spread of the targets
            bound = e.mdp.spec.value_bound[h] * np.sqrt(lam)
            parts.append(Part(relative_error(used / bound), p.record.phase, h))
        else:
            meant = e.prescribed.width(h, p.record.phase, p.n_before, p.covariance[h], lam)
            parts.append(Part(relative_error(used / meant), p.record.phase, h))
    return parts


def ball(e: Evidence) -> list[Part]:
    """The radius of the learner's balls against the prescribed one."""
    used, meant = e.constants.radius(), e.prescribed.ball()
    if used.shape != meant.shape:
        return [Part(relative_error(0.0))]
    both = np.isinf(used) & np.isinf(meant)
    ratio = np.where(both, 1.0, used / np.where(both, 1.0, meant))
    return [Part(relative_error(np.ravel(ratio[h])), None, h) for h in range(len(ratio))]


def bonus_matrix(e: Evidence) -> list[Part]:
    """|phi|^2 in the metric of the learner's bonus against that of (Gram + prescribed ridge)^-1, at reachable pairs."""
    parts = []
    for p, h in _levels(e):
        white, here = p.record.q.levels[h].whitener, e.mdp.reachable[h]
        if white is None or not here.any():
            continue
        vectors, blocks = e.mdp.features.vectors[h][here], e.mdp.features.blocks[h][here]
        vectors, blocks = vectors.reshape(-1, vectors.shape[-1]), blocks.ravel()
        seen = np.einsum("nij,nj->ni", white[blocks], vectors)
        values, axes = np.linalg.eigh(p.covariance[h])
        turned = np.einsum("nji,nj->ni", axes[blocks], vectors)
        meant = (turned**2 / (np.maximum(values, 0.0) + float(p.ridge[h]))[blocks]).sum(axis=1)
        some = meant > 0
        ratio = (seen**2).sum(axis=1)[some] / meant[some]
        parts.append(Part(relative_error(ratio, 1e-3), p.record.phase, h))  # ill-conditioned at 10^18 episodes
    return parts


def sigma_ref(e: Evidence) -> list[Part]:
    """Sigma_ref less the fit's Gram matrix scaled to m_tot trajectories, relative to its largest entry."""
    parts = []
    for p in e.phases:
        for h in range(e.mdp.horizon):
            meant = p.fits[h].gram * (p.n_before / p.n_level) if p.fits else np.zeros_like(p.record.cov_ref[h])
            size = float(np.abs(meant).max()) or 1.0
            parts.append(Part(claim(np.abs(p.record.cov_ref[h] - meant).max() / size, SAME), p.record.phase, h))
    return parts


def fits(e: Evidence) -> list[Part]:
    """theta less the constrained least squares of the collector's sums, in the norm of Sigma and relative to it.

    lem:EquivalenceWithLeastSquares on the run itself, with a solver of the audit's own.
    """
    parts, balls = [], e.prescribed.ball()
    for p, h in _levels(e):
        theta, bound = p.record.q.theta[h], e.mdp.spec.value_bound[h]
        if p.fits:
            found = refit_error(theta, p.fits[h], float(p.ridge[h]), balls[h], bound)
        else:  # the fit of no samples is 0
            found = claim(np.abs(theta).max(), SAME * bound)
        parts.append(Part(found, p.record.phase, h))
    return parts


def refit_error(theta: Array, fit: FitRecord, lam: float, radius: Array, value_bound: float) -> Claim:
    """|theta - constrained least squares| in the norm of Sigma, relative to its size or to that of small values."""
    meant, sigma = constrained(fit.gram, fit.moment, lam, radius), fit.gram + lam * np.eye(theta.shape[-1])
    scale = _length(meant, sigma) + 1e-3 * value_bound * np.sqrt(np.einsum("bii->", sigma))
    return claim(_length(theta - meant, sigma) / scale, SAME)


def constrained(gram: Array, moment: Array, lam: float, radius: Array | float) -> Array:
    """argmin of theta (gram + lam I) theta - 2 moment . theta over a ball, or (n_blocks,) over a ball per block.

    It is the ridge fit with a larger ridge; that is found by bisection.

    >>> constrained(np.ones((1, 1, 1)), np.full((1, 1), 4.0), 1.0, 0.5).tolist()
    [[0.5]]
    """
    balls = np.asarray(radius, dtype=np.float64)
    values, axes = np.linalg.eigh(gram)
    along = np.einsum("bji,bj->bi", axes, moment)

    def at(more: Array) -> Array:
        return np.asarray(along / (np.maximum(values, 0.0) + lam + more))

    def length(x: Array) -> Array:
        return np.asarray(np.sqrt((x**2).sum(axis=None if balls.ndim == 0 else 1, keepdims=True)))

    limit = balls.reshape((1, 1) if balls.ndim == 0 else (-1, 1))
    low = np.zeros_like(limit)
    outside = length(at(low)) > limit
    if outside.any():
        high = np.where(outside, length(along) / limit, 0.0)  # |moment| / more is below the radius there
        for _ in range(2000):
            middle = (low + high) / 2
            long = length(at(middle)) > limit
            low, high = np.where(long, middle, low), np.where(long, high, middle)
            if np.all(high - low <= 1e-15 * (high + lam)):
                break
        low = np.where(outside, high, 0.0)
    return np.asarray(np.einsum("bij,bj->bi", axes, at(low)))


def _length(x: Array, sigma: Array) -> float:
    return float(np.sqrt(max(np.einsum("bi,bij,bj->", x, sigma, x), 0.0)))


def _levels(e: Evidence) -> Iterator[tuple[PhaseEvidence, int]]:
    return ((p, h) for p in e.phases for h in range(e.mdp.horizon))
