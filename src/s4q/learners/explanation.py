"""Where the constants of a run come from, and what they mean in numbers of episodes."""

from collections.abc import Callable
from math import ceil, log

import numpy as np

from s4q.core.blocks import Array, Phi
from s4q.core.least_squares import Moments, ridge_fit
from s4q.core.messages import Spec
from s4q.core.optimism import QLevel
from s4q.learners.presets import Constants
from s4q.learners.warm_start import WarmStart
from s4q.learners.widths import PAPER, TIGHT

_NEVER = 10**18


def explain(c: Constants, logged: WarmStart | None = None) -> str:
    """A page of text about the constants, and about the steps that were logged before the first episode.

    >>> from s4q import problems
    >>> from s4q.learners.presets import constants
    >>> print(explain(constants(problems.low_rank().spec, "realisable")).splitlines()[0])
    preset realisable: H = 3, d = 5 (1 block of length 5), delta = 0.05
    """
    spec = c.spec
    blocks = f"{spec.n_blocks} block{'s' if spec.n_blocks > 1 else ''} of length {spec.block_dim}"
    replays = c.memory == "policies"
    first, slope = c.threshold(1, replaying=replays)
    growth = f" + {slope:.4g} log n" if slope else ""
    sources = _SOURCES[f"{c.preset}, replaying" if c.preset == "practical" and replays else c.preset]
    yours = "your number"
    low, high = returns_between(spec)
    rows = [
        ("value bound", f"{high:.6g}", "the most that an episode returns, in your units"),
        ("ridge", _range(c.ridge(1, 1)), yours if c.fixed_ridge is not None else sources["ridge"]),
        ("trigger", f"{first:.4g}{growth}", yours if c.fixed_trigger is not None else sources["trigger"]),
        ("bonus width", _first_widths(c), yours if c.fixed_width is not None else sources["width"]),
        (
            "radius",
            _radius(c),
            "none: fits are not projected" if c.preset == "practical" else _RADIUS[spec.radius_from],
        ),
        ("bonus from", c.bonus_from, _BONUS_FROM[c.bonus_from]),
        ("memory", _memory(c), _MEMORIES[c.memory]),
        (
            "pooling",
            "on" if c.pool else "off",
            "every step a sample for every level" if c.pool else "a level has its own steps",
        ),
        ("guarantee", guarantee(c), ""),
    ]
    if c.episodes_per_phase > 1:
        rows.insert(3, ("phases", f"{c.episodes_per_phase:,} episodes", "at least, whatever the trigger says; yours"))
    if logged is not None and logged.n_steps:
        without = f"; {logged.n_without_level:,} of them without a level" if logged.n_without_level else ""
        source = f"taken by learn_from before the first episode; no episodes of the run{without}"
        rows.insert(-1, ("logged steps", f"{logged.n_steps:,}", source))
    lines = [f"preset {c.preset}: H = {spec.horizon}, d = {spec.dim} ({blocks}), delta = {c.delta:g}"]
    lines += [f"  {name:12} {value:24} {source}".rstrip() for name, value, source in rows]
    lines += [
        "what this means for features of norm 1:",
        f"  the first phase: {_count(first_phase(c), 'episode')}",
        _of_the_bonus(c, low, high),
        "p: phase; n: trajectories so far; v: value bound; B: radius; M: B + largest target; s: half the range of a",
        "target; k_e: directions seen in a block",
    ]
    return "\n".join(lines)


def _of_the_bonus(c: Constants, low: float, high: float) -> str:
    if c.fixed_width is not None and c.fixed_width[0] == 0:
        return "  there is no bonus at level 0"
    return (
        f"  the bonus at level 0 falls below {c.spec.value_bound[0]:.6g}, as far as returns can lie apart (from "
        f"{low:.6g} to {high:.6g}), after {_count(visits_until_useful(c), 'visit')} of a direction"
    )


def returns_between(spec: Spec) -> tuple[float, float]:
    """The lowest return of an episode, and the highest by the value bound, in the user's units."""
    low, high = spec.to_user_units(0, np.array([0.0, spec.value_bound[0]])).tolist()
    return low, high


def guarantee(c: Constants) -> str:
    """What is proved about a run with these constants."""
    if c.preset == "practical":
        return "none" if c.memory == "all" else "none; memory is bounded"
    broken = broken_proof(c)
    if broken is not None:
        return f"void: {broken}"
    if c.preset == "realisable":
        return f"optimism, when the features are exact and {_bounds_that_must_hold(c)}"
    what = "Theorem 1" if c.fixed_trigger is None else "optimism, not Theorem 1, whose trigger was replaced"
    exact = "" if c.spec.well_specified else ", up to the transfer error of the features"
    return f"{what}{exact}, when {_bounds_that_must_hold(c)}"


def _bounds_that_must_hold(c: Constants) -> str:
    return "the value bound holds" if c.spec.radius_from == "computed" else "value bound and radius hold"


def broken_proof(c: Constants) -> str | None:
    """Which choice voids the proof of the preset, if one does."""
    if c.memory != "policies":
        return 'steps that are held serve several targets (memory="policies" restores it)'
    if c.fixed_width is not None:
        return "the width is not the one that is proved"
    if c.preset == "realisable":
        if not c.spec.well_specified:
            return "the features are not declared exact (well_specified)"
        if c.bonus_from == "previous":
            return 'the radius is for the level\'s own Gram matrix (bonus_from="own")'
        return None
    return "the proof needs its own ridge" if c.fixed_ridge is not None else None


_SOURCES = {
    name: {
        "ridge": f"{theory.ridge:.4g} log(64 d H p^2 n^2 / delta): covariances concentrate",
        "trigger": f"{theory.trigger:.4g} log(64 H p^2 n^2 / delta): progress is proportional to its mean",
        "width": f"{theory.inflation:.4g} alpha, alpha^2 = {theory.risk:g} M^2 [d log(32 B n M) + log(8 H p^2 / delta)]"
        " + 2 + 4 B^2 ridge",
    }
    for name, theory in (("paper", PAPER), ("tight", TIGHT))
} | {
    "realisable": {
        "ridge": "any; (s / B)^2, so that the bias B sqrt(ridge) is s",
        "trigger": "any; d, which about doubles the data from phase to phase",
        "width": "s sqrt(k_e + 2 sqrt(k_e t) + 2 t) + B sqrt(ridge) per block, t = log(8 n_blocks H p^2 / delta)"
        "; pooled s sqrt(2 t + log det) + B sqrt(ridge)",
    },
    "practical": {
        "ridge": "tiny where features are exact or one-hot: nothing known of a direction until it is seen; else 0.001: "
        "a fit is also asked about states unlike those seen",
        "trigger": "d/16, at least 1: a new policy when one direction in 16 may have doubled its data",
        "width": "v sqrt(ridge) plus standard errors from the data, and with exact or one-hot features a term of order "
        "1/n",
    },
}
_SOURCES["practical, replaying"] = _SOURCES["practical"] | {
    "trigger": "d: each new policy costs a replay of all others; in the first phase d/16, at least 1"
}
_RADIUS = {
    "computed": "computed from the exact tables: it holds the parameters of all targets",
    "declared": "declared by you: the proof assumes that it bounds the parameters of all targets",
    "default": "assumed: sqrt(length) times the largest target, enough for one-hot features of norm 1; features that "
    "are shorter or nearly collinear need more",
}
_MEMORIES = {
    "policies": "S3Q plays c H m episodes of past policies, m the trajectories so far (the paper)",
    "all": "every step is kept and fitted again; nothing is replayed",
    "sketch": "steps are kept and fitted again; beyond the budget exact sums and a sample; nothing is replayed",
}
_BONUS_FROM = {
    "previous": "covariance of the phase before (the paper)",
    "own": "Gram matrix of the very samples a level is fitted to",
}


def first_phase(c: Constants) -> int:
    """Length of the first phase when every step shows the same unit feature: the least n with n/ridge >= trigger(n)."""
    first, slope = c.threshold(1)
    ridge = float(c.ridge(1, 1).max())
    samples = c.spec.horizon if c.pool else 1  # of an episode
    return _least(lambda n: samples * n / ridge >= first + slope * log(n))


def visits_until_useful(c: Constants, level: int = 0) -> int:
    """Visits of a direction after which its bonus, in phase 2 with the noisiest targets, is below the value bound."""
    return _least(lambda n: bonus_after(c, level, n) < c.spec.value_bound[level])


def bonus_after(c: Constants, level: int, n: int) -> float:
    """The bonus of a unit feature seen n times, in phase 2, half of its targets 0 and half as large as can be."""
    ridge, nothing = float(c.ridge(2, n)[level]), Moments.zeros(c.spec.n_blocks, c.spec.block_dim)
    gram, moment = np.array(nothing.gram), np.array(nothing.moment)
    gram[0, 0, 0], moment[0, 0] = n, n * c.spec.half_range(level)
    squares = 2 * moment * c.spec.half_range(level)
    moments = Moments(gram, moment, squares, float(squares.sum()), n)
    fit = c.with_bonus(QLevel(ridge_fit(moments, ridge)), level, 2, n, moments, ridge)
    vector = np.zeros((1, 1, c.spec.block_dim))
    vector[0, 0, 0] = 1.0
    phi = Phi(vector, np.zeros((1, 1), dtype=np.int64))
    return float(fit.optimistic(phi)[0, 0] - fit.theta[0, 0])


def _first_widths(c: Constants) -> str:
    if c.preset == "practical":
        return f"{_range(c.standard_errors())} standard errors"
    ridge, nothing = c.ridge(1, 1), np.zeros(c.spec.gram_shape)
    return _range(np.array([c.width(h, 1, 1, nothing, float(ridge[h]))[0] for h in range(c.spec.horizon)]))


def _memory(c: Constants) -> str:
    if c.memory == "policies":
        return f"policies, c = {c.c_replay:g}, {c.epochs}"
    return "all steps" if c.memory_bytes is None else f"sketch, {c.memory_bytes:,} bytes"


def _radius(c: Constants) -> str:
    return "no ball" if c.preset == "practical" else _range(c.radius())


def _least(holds: Callable[[int], bool]) -> int:
    """The least n at which a statement that stays true becomes true; _NEVER if it is false even there."""
    high = 1
    while not holds(high):
        high *= 2
        if high >= _NEVER:
            return _NEVER
    low = high // 2
    while high - low > max(1, high // 10**6):
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _count(n: int, what: str) -> str:
    number = "over 10^18" if n >= _NEVER else f"{n:,}" if n < 10**7 else f"{n:.2e}"
    return f"{number} {what}{'' if n == 1 else 's'}"


def _range(values: Array) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:.4g}" if ceil(low * 1e6) == ceil(high * 1e6) else f"{low:.4g} to {high:.4g}"
