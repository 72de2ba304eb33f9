"""Where the constants of a run come from, and what they mean in numbers of episodes."""

from collections.abc import Callable
from math import ceil, log, sqrt

import numpy as np

from s4q.presets import Constants

_NEVER = 10**18


def explain(c: Constants) -> str:
    """A page of text about the constants.

    >>> from s4q import problems
    >>> from s4q.presets import constants
    >>> print(explain(constants(problems.low_rank().spec, "realisable")).splitlines()[0])
    preset realisable: H = 3, d = 5 (1 block of length 5), delta = 0.05
    """
    spec = c.spec
    blocks = f"{spec.n_blocks} block{'s' if spec.n_blocks > 1 else ''} of length {spec.block_dim}"
    first, slope = c.threshold(1)
    growth = f" + {slope:.4g} log n" if slope else ""
    sources = _SOURCES[c.preset]
    yours = "your number"
    rows = [
        ("ridge", _range(c.ridge(1, 1)), yours if c.fixed_ridge is not None else sources["ridge"]),
        ("trigger", f"{first:.4g}{growth}", yours if c.fixed_trigger is not None else sources["trigger"]),
        ("bonus width", _range(_first_widths(c)), yours if c.fixed_width is not None else sources["width"]),
        ("bonus from", c.bonus_from, _BONUS_FROM[c.bonus_from]),
        ("replay", f"c = {c.c_replay:g}, {c.epochs}", "S3Q plays c H m_tot episodes before each phase but the first"),
    ]
    lines = [f"preset {c.preset}: H = {spec.horizon}, d = {spec.dim} ({blocks}), delta = {c.delta:g}"]
    lines += [f"  {name:12} {value:24} {source}" for name, value, source in rows]
    lines += [
        "what this means for features of norm 1:",
        f"  the first phase lasts {_count(first_phase(c))} episodes",
        f"  the bonus at level 0 falls below the value bound {spec.value_bound[0]:g} after "
        f"{_count(visits_until_useful(c))} visits of a direction",
    ]
    return "\n".join(lines)


_SOURCES = {
    "paper": {
        "ridge": "142 log(64 d H p^2 n^2 / delta): covariances concentrate",
        "trigger": "82.7 log(64 H p^2 n^2 / delta): progress is proportional to its mean",
        "width": "sqrt 2 alpha, alpha^2 = 64 M^2 [d log(32 B n M) + log(8 H p^2 / delta)] + 2 + 4 B^2 ridge",
    },
    "tight": {
        "ridge": "39.8 log(64 d H p^2 n^2 / delta): the exact Chernoff exponent",
        "trigger": "16.2 log(64 H p^2 n^2 / delta): the best constant of the same step",
        "width": "sqrt(4/3) alpha, alpha^2 = 32 M^2 [d log(32 B n M) + log(8 H p^2 / delta)] + 2 + 4 B^2 ridge",
    },
    "realisable": {
        "ridge": "any; 1",
        "trigger": "any; d, which about doubles the data from phase to phase",
        "width": "s sqrt(k_e + 2 sqrt(k_e t) + 2 t) + B sqrt(ridge) per block, t = log(8 n_blocks H p^2 / delta)",
    },
}
_BONUS_FROM = {
    "previous": "covariance of the phase before (the paper)",
    "own": "Gram matrix of the very samples a level is fitted to",
}


def first_phase(c: Constants) -> int:
    """Length of the first phase when every episode shows a unit feature: the least n with n/ridge >= trigger(n)."""
    first, slope = c.threshold(1)
    ridge = float(c.ridge(1, 1).max())
    return _least(lambda n: n / ridge >= first + slope * log(n))


def visits_until_useful(c: Constants, level: int = 0) -> int:
    """Visits of one direction after which its bonus, in phase 2, is below the value bound of the level."""

    def useful(n: int) -> bool:
        ridge = float(c.ridge(2, n)[level])
        gram = np.zeros(c.spec.gram_shape)
        gram[0, 0, 0] = n
        return bool(c.width(level, 2, n, gram, ridge)[0] / sqrt(ridge + n) < c.spec.value_bound[level])

    return _least(useful)


def _first_widths(c: Constants) -> np.ndarray:
    ridge, nothing = c.ridge(1, 1), np.zeros(c.spec.gram_shape)
    return np.array([c.width(h, 1, 1, nothing, float(ridge[h]))[0] for h in range(c.spec.horizon)])


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


def _count(n: int) -> str:
    return "over 10^18" if n >= _NEVER else f"{n:,}" if n < 10**7 else f"{n:.2e}"


def _range(values: np.ndarray) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:.4g}" if ceil(low * 1e6) == ceil(high * 1e6) else f"{low:.4g} to {high:.4g}"
