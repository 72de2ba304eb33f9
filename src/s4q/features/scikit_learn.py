"""Features of a fitted scikit-learn transformer, scaled by a declared bound on their norm.

scikit-learn is imported only when one is made. The transformer is never fitted here, because features that change
would make every sum of a learner wrong.
"""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array, States
from s4q.core.validation import require_count, require_positive, require_shape
from s4q.features.batches import require_unit_norms
from s4q.features.spaces import Ranges


@final
@dataclass(frozen=True, eq=False, init=False, repr=False)
class Sklearn:
    """psi(s) = transformer.transform(x) / norm_bound, x the observation.

    The norm is checked at every call. Constants are linear in the features only if the transformer has one, as
    PolynomialFeatures has. PerAction makes a feature map of them. Call it on batches: a row alone costs 100 to 700
    microseconds.

    Args:
        transformer: A fitted transformer; a copy of it is kept.
        norm_bound: Bound on the norm of its rows that you know, such as sqrt(2) for an RBFSampler.
        space: A Gymnasium Box: x is scaled to [0, 1]^d first, so fit the transformer on scaled observations. None
            (default): not scaled, unless `low` and `high` are given.
        low: Lower ends of the range of each dimension, in place of a space.
        high: Upper ends, in place of a space.
        clip: True moves an observation outside the range to its nearest end. False (default) refuses it.

    >>> from sklearn.preprocessing import PolynomialFeatures
    >>> poly = PolynomialFeatures(2).fit(np.zeros((1, 1)))
    >>> Sklearn(poly, norm_bound=2.0, low=[0.0], high=[10.0])(np.array([[5.0]])).tolist()
    [[0.5, 0.25, 0.125]]
    """

    transformer: Any
    norm_bound: float
    dim: int
    ranges: Ranges | None
    _n_inputs: int

    proven: ClassVar[bool] = True  # checked here
    custom: ClassVar[bool] = True

    def __init__(
        self,
        transformer: Any,
        norm_bound: float,
        *,
        space: Any = None,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
        clip: bool = False,
    ) -> None:
        require_positive("norm_bound", norm_bound, "a bound on the norm of the transformer's rows")
        scaled = not (space is None and low is None and high is None)
        if clip and not scaled:
            raise ValueError("clip needs a range: pass a space, or low and high")
        _require_fitted(transformer)
        inputs = int(transformer.n_features_in_)
        ranges = Ranges.of(space, low=low, high=high, clip=clip) if scaled else None
        if ranges is not None and ranges.dim != inputs:
            raise ValueError(f"transformer was fitted on {inputs} columns, but the range has {ranges.dim} dimensions")
        frozen = deepcopy(transformer)
        dim = _rows(frozen, np.full((1, inputs), 0.5)).shape[1]
        require_count("dim", dim, "the number of columns the transformer makes")
        vars(self).update(transformer=frozen, norm_bound=float(norm_bound), dim=dim, ranges=ranges, _n_inputs=inputs)

    def __repr__(self) -> str:
        return f"Sklearn({type(self.transformer).__name__}, norm_bound={self.norm_bound:g}, dim={self.dim})"

    def __call__(self, states: States) -> Array:
        """(n, dim) of observations (n, d)."""
        if self.ranges is None:
            inputs = np.asarray(states, dtype=np.float64)
            inputs = inputs.reshape(len(inputs), -1) if inputs.size else inputs.reshape(0, self._n_inputs)
            require_shape("states", inputs, (None, self._n_inputs), "(n, columns the transformer was fitted on)")
        else:
            inputs = self.ranges.unit(states)
        if not len(inputs):  # scikit-learn refuses an empty batch
            return np.zeros((0, self.dim))
        psi = _rows(self.transformer, inputs) / self.norm_bound
        require_shape("transformer's rows", psi, (len(inputs), self.dim), "(n, dim)")
        require_unit_norms(psi, f"declare a larger norm_bound than {self.norm_bound:.6g}")
        return psi


def _rows(transformer: Any, inputs: Array) -> Array:
    made = transformer.transform(inputs)
    return np.asarray(made.toarray() if hasattr(made, "toarray") else made, dtype=np.float64)  # sparse ones too


def _require_fitted(transformer: Any) -> None:
    try:
        from sklearn.exceptions import NotFittedError
        from sklearn.utils.validation import check_is_fitted
    except ImportError:
        raise ImportError('features.Sklearn needs scikit-learn; install it with: pip install "s4q[sklearn]"') from None
    if not hasattr(transformer, "transform") or not hasattr(transformer, "fit"):
        raise ValueError(f"transformer must be a scikit-learn transformer; got {type(transformer).__name__}")
    try:
        check_is_fitted(transformer)
    except NotFittedError:
        raise ValueError(
            f"transformer must be fitted: call {type(transformer).__name__}.fit(observations) first; "
            "it is never fitted here"
        ) from None
    if not hasattr(transformer, "n_features_in_"):
        raise ValueError(f"transformer must know its columns (n_features_in_); {type(transformer).__name__} does not")
