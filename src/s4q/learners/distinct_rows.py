"""DistinctRows: finds rows of numbers that are held already, so that equal states and equal steps are stored once.

The memory of steps calls it when steps arrive. Rows are compared bit for bit. A hash only says where to look, so two
rows with one hash are never taken for each other.
"""

from collections.abc import Callable
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from s4q.core.blocks import IntArray

Bits = NDArray[np.uint64]
BYTES_PER_ROW = 16  # a hash and a place
_PIECE = 2**14  # rows that are looked at together: bits of all of them at once would be a second table


@final
class DistinctRows:
    """The places of rows, found by their bits.

    Args:
        held: The bits (n, w) of the rows at some places (n,); called only for places that were handed out.
        n: Rows that are there from the start, all of them different.

    >>> table = np.array([[7, 7], [1, 2]], dtype=np.uint64)
    >>> rows = DistinctRows(lambda places: table[places], n=2)
    >>> places, new = rows.locate(np.array([[1, 2], [5, 5], [5, 5]], dtype=np.uint64))
    >>> places.tolist(), new.tolist()
    ([1, 2, 2], [1])
    """

    __slots__ = ("_hashes", "_held", "_places")

    def __init__(self, held: Callable[[IntArray], Bits], n: int = 0) -> None:
        self._hashes: Bits = np.zeros(0, dtype=np.uint64)  # ascending
        self._places: IntArray = np.zeros(0, dtype=np.int64)
        self._held: Callable[[IntArray], Bits] = held
        for first in range(0, n, _PIECE):
            piece = np.arange(first, min(first + _PIECE, n))
            if len(self.locate(held(piece))[1]) != len(piece):
                raise ValueError("rows that are held must not repeat")

    def locate(self, bits: Bits) -> tuple[IntArray, IntArray]:
        """The place of each row (n,), and which rows are new, (m,): these get the next places, in their order.

        Args:
            bits: The rows, (n, w).
        """
        hashes = _hashes(bits)
        while True:  # a row that meets another one with its hash tries the next hash
            distinct, first, where = np.unique(hashes, return_index=True, return_inverse=True)
            spots = np.searchsorted(self._hashes, distinct)
            old = np.zeros(len(distinct), dtype=np.bool_)
            inside = np.flatnonzero(spots < len(self._hashes))
            old[inside] = self._hashes[spots[inside]] == distinct[inside]
            pattern = bits[first]
            if old.any():
                pattern[old] = self._held(self._places[spots[old]])
            wrong = (bits != pattern[where]).any(axis=1)
            if not wrong.any():
                break
            hashes[wrong] += np.uint64(1)
        places = np.empty(len(distinct), dtype=np.int64)
        places[old] = self._places[spots[old]]
        order = np.argsort(first[~old])  # appended in the order of their coming
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = len(self._places) + np.arange(len(order))
        places[~old] = ranks
        self._hashes = np.insert(self._hashes, spots[~old], distinct[~old])
        self._places = np.insert(self._places, spots[~old], ranks)
        return places[where], first[~old][order]


def bits_of(*columns: NDArray[Any]) -> Bits:
    """The bits (n, w) of columns (n, ...) of 8 bytes a number, side by side."""
    flat = [np.ascontiguousarray(column).reshape(len(column), -1).view(np.uint64) for column in columns]
    return np.concatenate(flat, axis=1)


def _hashes(bits: Bits) -> Bits:
    """A number of 64 bits for each row: entries are mixed (SplitMix64, Steele, Lea & Flood 2014) and added."""
    salt = np.arange(1, bits.shape[1] + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = bits + salt
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return np.asarray(mixed.sum(axis=1, dtype=np.uint64))
