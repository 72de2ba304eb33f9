"""Products of a tall matrix with few vectors, piece by piece: what a fit does most.

`optimism` calls it. A matrix of many rows is read from memory once, in pieces that stay in the cache while every vector
is multiplied with them. BLAS multiplies one vector at a time 1.2 to 1.5 times faster than a narrow matrix. Bits depend
on the shapes alone.
"""

import numpy as np

from s4q.core.blocks import Array

_PIECE = 2**16  # numbers of a piece: half a megabyte
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
    step = max(_PIECE // matrix.shape[1], 1)
    for first in range(0, len(matrix), step):
        piece = matrix[first : first + step]
        for vector, row in zip(vectors, product, strict=True):
            np.dot(piece, vector, out=row[first : first + step])
    return product
