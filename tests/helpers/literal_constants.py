"""The oracle for the constants of S4Q: every formula written out again, number by number, on long vectors.

Nothing here knows the library. `spec` is anything with the numbers of a problem: horizon, n_blocks, block_dim,
reward_min, reward_max, value_bound, radius, block_radius, well_specified, stationary.

delta is cut in 4 for fit, trigger, covariance and replay; phase p gets 1/(2 p^2) of a part; a level gets 1/H of that;
the n-th check of the covariance gets 1/(2 n^2) and each of its two halves 1/2.
"""

from typing import Any

import numpy as np


def realisable_ridge(spec: Any, h: int) -> float:
    """The ridge of `realisable` where none is given: the bias B sqrt(ridge) equals half the range of a target."""
    after = spec.value_bound[h + 1] if h + 1 < spec.horizon else 0.0
    if not spec.well_specified and h + 1 < spec.horizon:
        after = max(after, spec.radius[h + 1])
    half = (spec.reward_max - spec.reward_min + after) * (0.5 if spec.well_specified else 1.0)
    return float((half / spec.block_radius[h]) ** 2) if half > 0 else 1.0


class LiteralConstants:
    """The constants of one run. The options are those of S4Q, under the same names."""

    def __init__(self, spec: Any, preset: str = "practical", **options: Any) -> None:
        self.spec, self.preset = spec, preset
        self.delta = options.pop("delta", 0.05)
        self.given_ridge, self.given_width = options.pop("ridge", None), options.pop("bonus_width", None)
        self.given_trigger = options.pop("trigger", None)
        self.max_episodes = options.pop("max_episodes", None)
        self.epochs = options.pop("epochs", "doubling" if preset == "paper" else "single")
        usual = {"paper": "previous", "tight": "previous", "realisable": "own", "practical": "own"}
        self.bonus_from = options.pop("bonus_from", usual[preset])
        self.c = options.pop("c_replay", {"paper": 4, "tight": 1, "realisable": 1, "practical": 0.25}[preset])
        # The 64 MiB of a sketch hold more steps than any test plays: everything is kept, as with "all".
        self.memory = options.pop("memory", "sketch" if preset == "practical" else "policies")
        assert self.memory in ("policies", "all", "sketch")
        self.pool = options.pop("pool", None)
        if self.pool is None:
            self.pool = bool(spec.stationary) and preset in ("realisable", "practical")
        assert not options, options

    @property
    def extrapolates(self) -> bool:
        """Features of `practical` that are neither exact nor one-hot: it treats them differently."""
        return not self.spec.well_specified and self.spec.block_dim > 1

    def ridge(self, phase: int, n_total: int) -> np.ndarray:
        """lambda of a phase, (H,); n_total trajectories of main loops came before it."""
        levels = range(self.spec.horizon)
        if self.given_ridge is not None:
            return np.array([one_of(self.given_ridge, h) for h in levels])
        if self.preset == "practical":
            return np.array([0.001 if self.extrapolates else 0.000001 for _ in levels])
        if self.preset == "realisable":
            n = max(1, n_total, self.max_episodes or 0)
            lost = 0.00000000000001 * n if self.spec.block_dim > 1 else 0.0  # to rounding
            return np.array([max(realisable_ridge(self.spec, h), lost) for h in levels])
        n = max(1, n_total, 0 if self.max_episodes is None else self.max_episodes)
        delta_cov = self.delta / 4 / (2 * phase**2) / self.spec.horizon / (2 * n**2) / 2
        dim = self.spec.n_blocks * self.spec.block_dim
        half = np.log(2 * dim / delta_cov)  # one of two halves of the covariance
        if self.preset == "paper":
            each = 2 * half / np.log(36 / 35)
        else:  # the exponent of the upper tail at a third, with no step lost
            each = half / -np.log(np.exp(1 / 3) * (3 / 4) ** (4 / 3))
        return np.array([2 * each * self.shortfall() for _ in levels])

    def threshold(self, phase: int, replaying: bool) -> tuple[float, float]:
        """(a, b) of the trigger a + b log n."""
        dim = self.spec.n_blocks * self.spec.block_dim
        if self.given_trigger is not None:
            pair = self.given_trigger if isinstance(self.given_trigger, tuple) else (self.given_trigger, 0.0)
            return (float(pair[0]), float(pair[1]))
        if self.preset == "realisable" or (self.preset == "practical" and replaying):
            return (float(dim), 0.0)
        if self.preset == "practical":
            return (max(dim / 16, 1.0), 0.0)
        delta_trig = self.delta / 4 / (2 * phase**2) / self.spec.horizon
        factor = 64 + 56 / 3 if self.preset == "paper" else 16.2
        return (factor * np.log(8 / delta_trig), factor * 2)  # factor log(8 n^2 / delta_trig)

    def balls(self, h: int) -> float | np.ndarray | None:
        """One ball for the whole parameter, one for each block, or none."""
        if self.preset in ("paper", "tight"):
            return float(self.spec.radius[h])
        if self.preset == "realisable":
            return np.array([self.spec.block_radius[h] for _ in range(self.spec.n_blocks)])
        return None

    def slots(self, m_tot: int) -> int:
        """Episodes a level that an S3Q call has: at least what one epoch takes."""
        if m_tot == 0:
            return 0
        return max(2 if self.epochs == "doubling" else 1, int(np.ceil(self.c * m_tot)))

    def n_level(self, m_tot: int) -> int:
        """Episodes a level of the last epoch that an S3Q call finishes."""
        size = spent = 0
        if self.epochs == "single":
            return self.slots(m_tot)
        while spent + max(2 * size, 2) <= self.slots(m_tot):
            size = max(2 * size, 2)
            spent += size
        return size

    def shortfall(self) -> float:
        """How many times more trajectories there may be than samples a level; a doubling call may waste 3 of 4."""
        wasted = 4 if self.epochs == "doubling" else 1
        return max(1.0, wasted / self.c)

    def largest_target(self, h: int) -> float:
        """Of |r + Q'|, r from 0 on: Q' lies in [0, v] if it is clipped below, else in [-B, v]."""
        spec = self.spec
        r = spec.reward_max - spec.reward_min
        if h == spec.horizon - 1:
            return r
        return r + (
            spec.value_bound[h + 1] if spec.well_specified else max(spec.value_bound[h + 1], spec.radius[h + 1])
        )

    def width(self, h: int, phase: int, n_total: int, cov: np.ndarray, ridge: float) -> np.ndarray:
        """What multiplies the norm of phi, one number per block. cov (d, d), ridge not included."""
        spec, k = self.spec, self.spec.block_dim
        if self.given_width is not None:
            return np.array([one_of(self.given_width, h) for _ in range(spec.n_blocks)])
        few = np.sqrt(self.shortfall()) if self.bonus_from == "previous" else 1.0
        delta_fit = self.delta / 4 / (2 * phase**2) / spec.horizon
        if self.preset == "realisable":
            # Targets in [0, y] are y/2 from their middle; those of either sign are y from 0.
            s = self.largest_target(h) * (0.5 if spec.well_specified else 1.0)
            bias = spec.block_radius[h] * np.sqrt(ridge)
            t = np.log(spec.n_blocks / delta_fit)
            widths = []
            for b in range(spec.n_blocks):
                values = np.linalg.eigvalsh(cov[b * k : (b + 1) * k, b * k : (b + 1) * k])
                if self.pool:
                    log_det = sum(np.log1p(max(value, 0.0) / ridge) for value in values)
                    noise = s * np.sqrt(2 * t + log_det)
                else:
                    seen = sum(max(value, 0.0) / (max(value, 0.0) + ridge) for value in values)
                    noise = s * np.sqrt(seen + 2 * np.sqrt(seen * t) + 2 * t)
                widths.append(few * (noise + bias))
            return np.array(widths)
        unit, dim = spec.value_bound[h], spec.n_blocks * k
        ball, largest = spec.radius[h] / unit, self.largest_target(h) / unit
        n = max(1, self.n_level(n_total), 0 if self.max_episodes is None else self.max_episodes)
        residual = ball + largest
        # Excess risk (1/n) {e M^2 [d log(32 B n M) + log(1/delta)] + 1}, times 2 n, and 4 B^2 lambda for the bias.
        excess = (32 if self.preset == "paper" else 16) * residual**2
        cover = dim * max(0.0, np.log(32 * ball * n * residual)) - np.log(delta_fit)
        alpha_u = np.sqrt(2 * (excess * cover + 1) + 4 * ball**2 * ridge)
        covariance = 2 if self.preset == "paper" else 4 / 3  # the empirical one may be so many times too large
        return np.full(spec.n_blocks, few * np.sqrt(covariance) * alpha_u * unit)

    def kappa(self, h: int) -> float:
        """Standard errors in the bonus of `practical`."""
        usual = 0.5 if self.spec.well_specified else 0.2
        if self.spec.well_specified and self.spec.block_dim == 1:
            usual = 0.5 if self.spec.horizon == 1 else max(0.25, np.sqrt(0.25 / self.spec.horizon))
        return usual if self.given_width is None else one_of(self.given_width, h)


def one_of(given: Any, h: int) -> float:
    """One number for all levels, or the one of this level."""
    return float(given) if np.ndim(given) == 0 else float(given[h])


def data_scaled_width(
    spec: Any,
    h: int,
    norm_sq: float,
    variance: float,
    residual: float,
    ridge: float,
    kappa: float,
    n_samples: float,
    *,
    begun: bool,
) -> float:
    """The width of `practical` at one phi: of this norm, with this variance of the targets near it.

    begun: was anything seen in its block?
    """
    if kappa == 0:
        return 0.0
    v = spec.value_bound[h]
    n = max(0.0, 1 / norm_sq - ridge)
    table = spec.well_specified and spec.block_dim == 1
    floor = (0.06 if table else 0.03) * v * min(1.0, np.sqrt(10 / spec.horizon))
    growth = 0.3 if table else 0.05
    factor = np.sqrt(1 + growth * max(0.0, np.log(max(n_samples, 1) / (spec.n_blocks * spec.block_dim))))
    if not spec.well_specified:
        unseen = 0.3 * v if begun and spec.block_dim > 1 else v
        unlike = v * min(1.0, 1 / np.sqrt(n)) if n > 0 and spec.block_dim == 1 else v * (spec.block_dim == 1)
        return float(unseen * np.sqrt(ridge) + kappa * factor * (np.sqrt(residual + floor**2) + unlike))
    local = min(max(variance, 0.0), v * v / 4)
    sigma = np.sqrt((n * local + residual + floor**2) / max(n, 1.0))
    spread = sigma + 2.5 * (v * v * residual) ** 0.25 * np.sqrt(norm_sq)
    return float(v * np.sqrt(ridge) + kappa * factor * spread)
