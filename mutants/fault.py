"""A fault planted by hand."""

from typing import NamedTuple


class Fault(NamedTuple):
    """File, old text, new text, and the tests to try first."""

    file: str
    old: str  # stands in the file exactly once
    new: str
    tests: tuple[str, ...] = ()
