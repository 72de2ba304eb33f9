"""What `Agent.explain` says of the environment: where horizon, rewards and ranges come from, and what they cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from s4q.collectors.stepping.env_facts import time_limit
from s4q.collectors.stepping.facts_of_gymnasium import declared_facts
from s4q.core.messages import FeatureMap, Spec
from s4q.features import Mixed, PerAction
from s4q.features.unmeasured import Unmeasured

_SHORT = 0.1  # of the horizon: an episode that takes no more leaves nine tenths of the levels to nobody


@final
@dataclass(frozen=True, slots=True)
class WarmUp:
    """How the ranges of the features were measured.

    Args:
        dimensions: The real numbers of an observation whose ranges were measured.
        n_episodes: Episodes of random actions it took; 0 where logged steps did it.
        n_steps: Steps it took.
        logged: True if the steps were logged ones, of `learn_from`. False (default): they were played.
    """

    dimensions: list[int]
    n_episodes: int
    n_steps: int
    logged: bool = False

    @classmethod
    def from_config(cls, config: Any) -> "WarmUp | None":
        """What a file says of it; None where it says nothing, or nothing that makes sense."""
        try:
            dimensions, logged = [int(j) for j in config["dimensions"]], bool(config.get("logged", False))
            return cls(dimensions, int(config["n_episodes"]), int(config["n_steps"]), logged)
        except (TypeError, KeyError, ValueError, AttributeError):
            return None


def explain_env(
    env: Any, features: FeatureMap, spec: Spec, warm_up: WarmUp | None, lengths: Sequence[float]
) -> list[str]:
    """Lines about an environment.

    Args:
        env: The environment.
        features: Its features.
        spec: Its Spec.
        warm_up: How ranges were measured. None: they were not.
        lengths: Mean length of the episodes of each phase of the newest run, in steps.
    """
    lines = ["the environment:", f"  horizon      {spec.horizon:<24} {_horizon_from(env, spec)}"]
    facts = declared_facts(env)
    if facts is not None:
        lines.append(f"  facts        {facts.source}")
    lines.append(f"  features     {features!r}")
    lines += _range_lines(features, warm_up)
    return lines + _horizon_notes(spec, lengths)


def _horizon_from(env: Any, spec: Spec) -> str:
    limit = time_limit(env)
    where = "the env's time limit" if limit == spec.horizon else "declared"
    return f"{where}; a fit goes through every level, so half the horizon takes half the CPU"


def _range_lines(features: FeatureMap, warm_up: WarmUp | None) -> list[str]:
    if isinstance(features, Unmeasured):
        return [f"  ranges       of dimensions {features.dimensions}: measured on the first episodes of learn"]
    basis: Any = features.state_features if isinstance(features, PerAction) else None
    basis = features.numbers if isinstance(features, Mixed) else basis
    ranges = getattr(basis, "ranges", None)
    if ranges is None:
        return []
    pairs = [f"[{low:.4g}, {high:.4g}]" for low, high in zip(ranges.low.tolist(), ranges.high.tolist(), strict=True)]
    line = f"  ranges       {', '.join(pairs)}"
    if warm_up is not None:
        where = (
            f"{warm_up.n_steps} logged steps" if warm_up.logged else f"{warm_up.n_episodes} episodes of random actions"
        )
        line += f"; dimensions {warm_up.dimensions} measured on {where}"
    return [line + ("; beyond them observations are clipped" if ranges.clip else "")]


def _horizon_notes(spec: Spec, lengths: Sequence[float]) -> list[str]:
    """A note where the later half of the phases used a tenth of the horizon or less."""
    later = lengths[len(lengths) // 2 :]
    if not later or max(later) > _SHORT * spec.horizon:
        return []
    longest = float(np.max(later))
    return [
        f"note: episodes now end after {longest:.3g} steps or fewer on average, and the horizon is {spec.horizon}; a "
        f"horizon of {max(1, int(np.ceil(_SHORT * spec.horizon)))} would do at a tenth of the CPU, if none needs more"
    ]
