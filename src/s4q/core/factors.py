"""Factors of Gram matrices: what fits and bonuses need of gram + ridge I, computed once."""

from typing import final

import numpy as np

from s4q.core.blocks import Array, BoolArray


def whitener(gram: Array, ridge: float) -> Array:
    """W with W (gram + ridge I) W^T = I, lower triangular per block, so that the Sigma^-1 norm of x is |W x|.

    >>> whitener(np.array([[[3.0]]]), 1.0).item()
    0.5
    """
    k = gram.shape[-1]
    if k == 1 and gram.min(initial=0.0) + ridge > 0:
        return _read_only(np.asarray(1.0 / np.sqrt(gram + ridge)))
    from scipy.linalg.lapack import dtrtri  # loading scipy takes as long as all of s4q, and one-hot features need none

    try:
        factor = np.linalg.cholesky(gram + ridge * np.eye(k))
    except np.linalg.LinAlgError:
        raise ValueError(f"gram + ridge I is singular in floating point; raise ridge above {ridge}") from None
    return _read_only(np.stack([np.tril(dtrtri(block, lower=1)[0]) for block in factor]))


def _read_only(array: Array) -> Array:
    """So that the levels of a LinearQ can share it."""
    array.setflags(write=False)
    return array


@final
class Factors:
    """What is known of one Gram matrix (n_blocks, k, k): made when first asked for, shared by all who hold it.

    >>> factors = Factors(3.0 * np.eye(2)[None])
    >>> factors.whitener(1.0)[0, 0].tolist(), factors.whitener(1.0) is factors.whitener(1.0)
    ([0.5, 0.0], True)
    """

    __slots__ = ("_all_seen", "_blocks_seen", "_diagonal", "_seen", "_spectra", "_whitener", "gram")

    def __init__(self, gram: Array) -> None:
        self.gram = gram
        self._whitener: tuple[float, Array] | None = None  # of the newest ridge
        self._seen: tuple[float, Array] | None = None  # of the newest ridge
        self._all_seen: tuple[float, float] | None = None  # of the newest ridge
        self._blocks_seen: BoolArray | None = None
        self._diagonal: tuple[float, Array] | None = None  # of the newest ridge; blocks of length 1 alone
        self._spectra: dict[int, tuple[Array, Array]] = {}  # of a block

    def whitener(self, ridge: float) -> Array:
        """W with W (gram + ridge I) W^T = I."""
        if self._whitener is None or self._whitener[0] != ridge:
            self._whitener = (ridge, whitener(self.gram, ridge))
        return self._whitener[1]

    def solve(self, moment: Array, ridge: float) -> Array:
        """(gram + ridge I)^-1 moment, (n_blocks, k).

        Args:
            moment: The right-hand side, (n_blocks, k).
            ridge: Added to the diagonal.

        >>> Factors(np.array([[[3.0]], [[1.0]]])).solve(np.array([[2.0], [4.0]]), ridge=1.0).tolist()
        [[0.5], [2.0]]
        """
        if self.gram.shape[-1] == 1:
            if self._diagonal is None or self._diagonal[0] != ridge:
                self._diagonal = (ridge, self.gram[:, :, 0] + ridge)
            return np.asarray(moment / self._diagonal[1])
        white = self.whitener(ridge)
        half = white @ moment[:, :, None]
        return np.ascontiguousarray((white.transpose(0, 2, 1) @ half)[:, :, 0])

    def directions_seen(self, ridge: float) -> Array:
        """k_e = tr G (G + ridge I)^-1 of each block, (n_blocks,): how many directions the samples have told about.

        >>> Factors(np.diag([3.0, 0.0])[None]).directions_seen(ridge=1.0).tolist()
        [0.75]
        """
        if self._seen is None or self._seen[0] != ridge:
            self._seen = (ridge, self._directions_seen(ridge))
        return self._seen[1]

    def all_directions_seen(self, ridge: float) -> float:
        """The sum of `directions_seen` over all blocks."""
        if self._all_seen is None or self._all_seen[0] != ridge:
            self._all_seen = (ridge, float(self.directions_seen(ridge).sum()))
        return self._all_seen[1]

    def blocks_seen(self) -> BoolArray:
        """Which blocks have a sample that is not 0, (n_blocks,)."""
        if self._blocks_seen is None:
            self._blocks_seen = np.asarray(self.gram.any(axis=(1, 2)))
        return self._blocks_seen

    def _directions_seen(self, ridge: float) -> Array:
        k = self.gram.shape[-1]
        if k == 1:
            return _read_only(np.asarray(self.gram[:, 0, 0] / (self.gram[:, 0, 0] + ridge)))
        white = self.whitener(ridge)
        missing = ridge * np.einsum("bij,bij->b", white, white)  # the inverse is W^T W
        return _read_only(np.asarray(np.clip(k - missing, 0.0, k)))

    def spectrum(self, block: int) -> tuple[Array, Array]:
        """Eigenvalues (k,), none below 0, and eigenvectors (k, k) of one block of the Gram matrix."""
        if block not in self._spectra:
            values, vectors = np.linalg.eigh(self.gram[block])
            self._spectra[block] = (np.maximum(values, 0.0), vectors)
        return self._spectra[block]
