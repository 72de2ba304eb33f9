"""Checks at the border. Every error names the argument, the value and the cure."""

import difflib
import secrets
from collections.abc import Iterable
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from s4q.core.blocks import Array

_LONG = 10_000  # numbers


def _at(name: str, where: Any) -> str:
    """name[i, j], or the bare name of a single row."""
    index = ", ".join(str(int(i)) for i in where)
    return f"{name}[{index}]" if index else name


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a refusal: the known name that is most like this one, in capitals or not. Empty where there is none.

    >>> did_you_mean("ucbiv", ["psrl", "ucbvi"]), did_you_mean("S4Q", ["s4q"]), did_you_mean("CartPole-v1", ["chain"])
    (', did you mean ucbvi?', ', did you mean s4q?', '')
    """
    small = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), small, n=1, cutoff=0.7)
    return f", did you mean {small[found[0]]}?" if found else ""


def finite_array(name: str, value: ArrayLike) -> Array:
    """A float64 copy of `value`, refused when it is not numeric or holds NaN or infinity."""
    if value is None:
        raise ValueError(f"{name} is needed; got None")
    try:
        array = np.array(value, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers ({error}); got {type(value).__name__}") from None
    require_finite(name, array)
    return array


def require_finite(name: str, array: NDArray[Any]) -> None:
    # One number is faster than a look at every entry. It is finite only if all entries are. BLAS would use threads for
    # the product of a long array, which costs more than it gains.
    with np.errstate(all="ignore"):
        one = np.vdot(array, array) if array.size < _LONG else array.sum()
    if not isfinite(one) and not np.isfinite(array).all():
        bad = np.argwhere(~np.isfinite(array))
        value = array[tuple(bad[0])]
        raise ValueError(f"{name} must be finite, but {_at(name, bad[0])} is {value}; remove NaN and infinity")


def frozen_array(value: ArrayLike) -> Array:
    """The same array if nobody can write to it, so that several objects can share it; else a copy that is read only.

    >>> mine = np.zeros(2)
    >>> shared = frozen_array(mine)
    >>> shared is mine, frozen_array(shared) is shared
    (False, True)
    """
    array = np.asarray(value, dtype=np.float64)
    part: Any = array
    while isinstance(part, np.ndarray) and not part.flags.writeable:
        part = part.base
    if isinstance(part, np.ndarray) or array is not value:
        array = array.copy()
        array.setflags(write=False)
    return array


def require_shape(name: str, array: NDArray[Any], shape: tuple[int | None, ...], meaning: str) -> None:
    """`None` in `shape` accepts any length."""
    if array.shape == shape:
        return
    fits = array.ndim == len(shape) and all(want in (None, got) for got, want in zip(array.shape, shape, strict=True))
    if not fits:
        want = tuple("any" if n is None else n for n in shape)
        raise ValueError(f"{name} must have shape {meaning} = {want}; got {array.shape}")


def require_kind(name: str, value: object, kind: type, advice: str = "") -> None:
    """`value` must be of this class; `advice` goes on after the name of the class."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be a {kind.__name__}{advice}; got {type(value).__name__}")


def require_positive(name: str, value: float, meaning: str) -> None:
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not (number and np.isfinite(value) and value > 0):
        raise ValueError(f"{name} is {meaning}, so it must be positive and finite; got {value!r}")


def require_not_negative(name: str, value: float, meaning: str) -> None:
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not (number and np.isfinite(value) and value >= 0):
        raise ValueError(f"{name} is {meaning}, so it must be finite and at least 0; got {value!r}")


def require_share(name: str, value: float, meaning: str, *, zero: bool = True) -> None:
    """A number in [0, 1], or in (0, 1] where `zero` is False.

    >>> require_share("keep", 0.5, "what is kept", zero=False)
    """
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not (number and 0 <= value <= 1 and (zero or value > 0)):
        interval = "[0, 1]" if zero else "(0, 1]"
        raise ValueError(f"{name} is {meaning}, so it must be a number in {interval}; got {value!r}")


def require_count(name: str, value: int, meaning: str, at_least: int = 1) -> None:
    """A whole number; a float such as 1e5 is refused."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < at_least:
        whole = isinstance(value, float) and np.isfinite(value) and value >= at_least and value == int(value)
        cure = f" (write {int(value):_})" if whole else ""
        raise ValueError(
            f"{name} is {meaning}, so it must be a whole number of at least {at_least}{cure}; got {value!r}"
        )


def drawn_seed(seed: int | None) -> int:
    """The seed itself, or one drawn from the entropy of the operating system where it is None.

    >>> drawn_seed(7), 0 <= drawn_seed(None) < 2**48
    (7, True)
    """
    if seed is None:
        return secrets.randbits(48)  # short enough to be copied by hand
    require_count("seed", seed, "the seed of the episodes", at_least=0)
    return int(seed)


def require_probabilities(name: str, array: Array) -> None:
    """Rows along the last axis must be finite, non-negative and sum to 1."""
    require_finite(name, array)
    negative = np.argwhere(array < 0)
    if len(negative):
        value = array[tuple(negative[0])]
        raise ValueError(f"{name} holds probabilities, but {_at(name, negative[0])} is {value}; none may be negative")
    off = np.abs(array.sum(axis=-1) - 1.0)
    if np.any(off > 1e-8):
        where = np.unravel_index(int(np.argmax(off)), off.shape)
        total = float(array[where].sum())
        cure = "divide each row by its sum" if total else "every row needs somewhere to go (a terminal state stays)"
        raise ValueError(f"{name} holds probabilities, but {_at(name, where)} sums to {total:.12g}; {cure}")


def require_failure_probability(name: str, value: float) -> None:
    if not isinstance(value, (int, float, np.number)) or not 0 < value < 1:
        raise ValueError(f"{name} is a failure probability, so it must lie in (0, 1); got {value!r}")


def require_flag(name: str, value: object, meaning: str) -> None:
    """True or False: a word such as "no" would count as True."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False ({meaning}); got {value!r}")
