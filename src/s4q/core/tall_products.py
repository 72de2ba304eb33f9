"""Products of a tall matrix with few vectors, piece by piece: what a fit does most.

`optimism` and the memory of steps call it. A matrix of many rows is read from memory once, in pieces that stay in the
cache while every vector is multiplied with them. BLAS multiplies one vector at a time faster than a narrow matrix, and
two to three times faster where the columns of the matrix are contiguous (`by_columns`) than where its short rows are.
Bits depend on shapes and on this order alone.
"""

from collections.abc import Callable, Iterator

import numpy as np

from s4q.core.blocks import Array

_PIECE = 2**16  # numbers of a piece: half a megabyte
_PIECE_BY_COLUMNS = 2**18  # the same where columns are contiguous: longer columns are worth more than a smaller piece
_MOST_VECTORS = 8  # more of them are a matrix, and one product is faster
_TALL = 2**15  # numbers of the matrix from which it pays


def is_tall(n_rows: int, k: int, n_vectors: int) -> bool:
    """Is a matrix (n_rows, k) large enough, and are the vectors few enough, that pieces are faster?

    >>> is_tall(10**5, 81, 2), is_tall(100, 81, 2), is_tall(10**5, 81, 81)
    (True, False, False)
    """
    return n_vectors <= _MOST_VECTORS and n_rows * k >= _TALL and k > 1


def tall_times(matrix: Array, vectors: Array) -> Array:
    """matrix @ vector for each of m vectors (m, k), (m, n). matrix (n, k).

    >>> tall_times(np.arange(6.0).reshape(3, 2), np.array([[1.0, 0.0], [1.0, 1.0]])).tolist()
    [[0.0, 2.0, 4.0], [1.0, 5.0, 9.0]]
    """
    product = np.empty((len(vectors), len(matrix)), dtype=np.result_type(matrix, vectors))
    for rows in pieces(matrix):
        piece = matrix[rows]
        for vector, row in zip(vectors, product, strict=True):
            np.matmul(piece, vector, out=row[rows])
    return product


def pieces(matrix: Array) -> Iterator[slice]:
    """Its rows (n, k), as many at a time as make a piece."""
    numbers = _PIECE if matrix.flags.c_contiguous else _PIECE_BY_COLUMNS
    step = max(numbers // matrix.shape[1], 1)
    for first in range(0, len(matrix), step):
        yield slice(first, min(first + step, len(matrix)))


def by_columns(n: int, k: int, rows: Callable[[slice], Array]) -> Array:
    """A matrix (n, k) whose columns are contiguous, filled piece by piece, so that no second copy is ever there.

    Args:
        n: Number of rows.
        k: Number of columns.
        rows: The rows of a slice, (n of the slice, k).

    >>> matrix = by_columns(3, 2, lambda some: np.arange(6.0).reshape(3, 2)[some])
    >>> matrix.tolist(), matrix.flags.f_contiguous
    ([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], True)
    """
    columns = np.empty((k, n))
    step = max(_PIECE // k, 1)
    for first in range(0, n, step):
        some = slice(first, min(first + step, n))
        columns[:, some] = rows(some).T
    return columns.T
