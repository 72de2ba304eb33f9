"""Wrappers for environments that s4q cannot take as they are. They need gymnasium, and are Gymnasium wrappers.

`DiscreteActions` chooses finitely many of the actions of a continuous space. It changes neither rewards nor lengths, so
what is declared of an environment still holds.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from s4q.core.validation import require_count

try:
    import gymnasium
except ImportError:
    raise ImportError('s4q.wrappers needs gymnasium; install it with: pip install "s4q[gym]"') from None

MOST_ACTIONS = 1_000  # every action has features of its own


class DiscreteActions(gymnasium.ActionWrapper[Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Continuous actions as a Discrete space: evenly spaced values of each number, the ends included.

    Action i is the i-th combination in the order of counting, the last number fastest; `actions[i]` is its array.

    Args:
        env: An environment whose action space is a Box.
        values: How many values each number takes: one count for all of them, or one per number. 1 takes the middle.
        low: Lower ends, in place of those of the space. None (default): those of the space, which must be finite.
        high: Upper ends, likewise.

    >>> import gymnasium as gym
    >>> env = DiscreteActions(gym.make("Pendulum-v1"), 5)
    >>> env.action_space, env.actions.ravel().tolist()
    (Discrete(5), [-2.0, -1.0, 0.0, 1.0, 2.0])
    """

    def __init__(
        self, env: Any, values: int | Sequence[int], *, low: Any | None = None, high: Any | None = None
    ) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, values=values, low=low, high=high)
        super().__init__(env)
        space = env.action_space
        if not isinstance(space, gymnasium.spaces.Box):
            raise ValueError(f"env must have a Box of actions, to choose some of them; got {space}")
        ends = [
            np.broadcast_to(np.asarray(default if given is None else given, dtype=np.float64), space.shape).ravel()
            for given, default in ((low, space.low), (high, space.high))
        ]
        for j, (lowest, highest) in enumerate(zip(*ends, strict=True)):
            if not (np.isfinite(lowest) and np.isfinite(highest) and lowest <= highest):
                raise ValueError(
                    f"number {j} of the actions needs finite low <= high; got ({lowest}, {highest}); declare them with "
                    "low=[...] and high=[...]"
                )
        counts = [values] * len(ends[0]) if isinstance(values, int | np.integer) else list(values)
        if len(counts) != len(ends[0]):
            raise ValueError(f"values must be one count, or one for each of {len(ends[0])} numbers; got {values!r}")
        for count in counts:
            require_count("values", count, "how many values a number of the actions takes")
        if np.prod([float(count) for count in counts]) > MOST_ACTIONS:
            raise ValueError(
                f"values={values!r} would make {np.prod(counts):.3g} actions, more than {MOST_ACTIONS}; take fewer "
                "values, or only the combinations that matter, with a gymnasium.ActionWrapper of yours"
            )
        grids = [
            np.linspace(lowest, highest, count) if count > 1 else np.array([(lowest + highest) / 2])
            for lowest, highest, count in zip(*ends, counts, strict=True)
        ]
        rows = np.array(list(product(*grids)), dtype=np.float64)
        self.actions = rows.reshape(len(rows), *space.shape).astype(space.dtype)
        self.action_space = gymnasium.spaces.Discrete(len(rows))

    def action(self, action: Any) -> Any:
        """The action of the environment inside.

        Args:
            action: Its number.
        """
        return self.actions[int(action)].copy()
