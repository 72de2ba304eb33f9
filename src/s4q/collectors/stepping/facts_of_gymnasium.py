"""What is known of Gymnasium's own environments and what they do not say themselves: one table, with its sources.

`Agent` asks here for a reward range, for a horizon where there is no time limit, and for a bound on returns. A row
belongs to a class, not to an id: a subclass may pay other rewards, and an id may be registered anew. A wrapper that
may change rewards voids the row. Nothing here is measured or guessed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Any, final

from s4q.collectors.stepping.wrappers import Change, single_envs, wrappers_that_may_change

_CHANGES: tuple[Change, ...] = ("rewards", "lengths")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredFacts:
    """What is declared of an environment class, as it was made.

    Args:
        reward_range: Lowest and highest reward of a step.
        horizon: Steps of an episode, for environments without a time limit. None: the time limit says it.
        value_bound: The most that an episode can return. None: the highest reward at every step.
        observation_range: Lower and upper ends of the observations that an episode can show, where they are narrower
            than the space; infinite where there are none. None: those of the space.
        source: Where the numbers stand.
    """

    reward_range: tuple[float, float]
    horizon: int | None = None
    value_bound: float | None = None
    observation_range: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    source: str


def _cartpole(env: Any) -> DeclaredFacts:
    barto = bool(getattr(env, "_sutton_barto_reward", False))
    ends = (float(env.x_threshold), inf, float(env.theta_threshold_radians), inf)
    source = (
        "cartpole.py: 1 a step; with sutton_barto_reward 0 a step and -1 at the end; an episode ends beyond 2.4 and 12 "
        "degrees, half of what the space allows"
    )
    return DeclaredFacts(
        reward_range=(-1.0, 0.0) if barto else (0.0, 1.0),
        observation_range=(tuple(-end for end in ends), ends),
        source=source,
    )


def _mountain_car(env: Any) -> DeclaredFacts:
    del env
    return DeclaredFacts(reward_range=(-1.0, 0.0), source="mountain_car.py: -1 a step")


def _continuous_mountain_car(env: Any) -> DeclaredFacts:
    del env
    source = "continuous_mountain_car.py: -0.1 force^2 a step for forces in [-1, 1], and 100 once, at the goal"
    return DeclaredFacts(reward_range=(-0.1, 100.0), value_bound=100.0, source=source)


def _pendulum(env: Any) -> DeclaredFacts:
    del env
    source = "pendulum.py: -(angle^2 + 0.1 speed^2 + 0.001 torque^2), angle <= pi, speed <= 8, torque <= 2"
    return DeclaredFacts(reward_range=(-16.2736045, 0.0), source=source)


def _acrobot(env: Any) -> DeclaredFacts:
    ends = (1.0, 1.0, 1.0, 1.0, float(env.MAX_VEL_1) / 2, float(env.MAX_VEL_2) / 2)
    source = (
        "acrobot.py: -1 a step, 0 at the goal; speeds are capped at 4 pi and 9 pi, and features that resolve half of "
        "that are our choice: a swing-up stays below"
    )
    return DeclaredFacts(reward_range=(-1.0, 0.0), observation_range=(tuple(-end for end in ends), ends), source=source)


def _blackjack(env: Any) -> DeclaredFacts:
    # sab=True overrides natural: naturals then pay 1 too.
    best = 1.5 if getattr(env, "natural", False) and not getattr(env, "sab", False) else 1.0
    source = (
        "blackjack.py: -1, 0 or 1 once, at the end (1.5 for a natural with natural=True and sab=False); two cards are "
        "worth at least 2 and every further one at least 1, so the 20th step ends every hand"
    )
    return DeclaredFacts(reward_range=(-1.0, best), horizon=20, value_bound=best, source=source)


def _frozen_lake(env: Any) -> DeclaredFacts | None:
    # The env's table has the rewards; the bound holds where only the goal, which ends an episode, pays.
    rewards = _rewards(env)
    if not rewards <= {0.0, 1.0}:
        return None
    source = "frozen_lake.py: 1 once, at the goal, which ends the episode (reward_schedule=(1, 0, 0))"
    return DeclaredFacts(reward_range=(0.0, 1.0), value_bound=1.0, source=source)


def _cliff_walking(env: Any) -> DeclaredFacts:
    # Where the ground is slippery a step goes astray two times in three.
    horizon = 150 if getattr(env, "is_slippery", False) else 50
    source = (
        f"cliffwalking.py: -1 a step, -100 for the cliff, no time limit; {horizon} steps are our choice: the shortest "
        "way has 13"
    )
    return DeclaredFacts(reward_range=(-100.0, 0.0), horizon=horizon, source=source)


def _taxi(env: Any) -> DeclaredFacts:
    del env
    source = "taxi.py: -1 a step, -10 for a wrong pick-up or drop-off, 20 once, for the delivery that ends the episode"
    return DeclaredFacts(reward_range=(-10.0, 20.0), value_bound=20.0, source=source)


_TABLE: dict[str, Callable[[Any], DeclaredFacts | None]] = {
    "gymnasium.envs.classic_control.cartpole:CartPoleEnv": _cartpole,
    "gymnasium.envs.classic_control.mountain_car:MountainCarEnv": _mountain_car,
    "gymnasium.envs.classic_control.continuous_mountain_car:Continuous_MountainCarEnv": _continuous_mountain_car,
    "gymnasium.envs.classic_control.pendulum:PendulumEnv": _pendulum,
    "gymnasium.envs.classic_control.acrobot:AcrobotEnv": _acrobot,
    "gymnasium.envs.toy_text.blackjack:BlackjackEnv": _blackjack,
    "gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv": _frozen_lake,
    "gymnasium.envs.toy_text.cliffwalking:CliffWalkingEnv": _cliff_walking,
    "gymnasium.envs.toy_text.taxi:TaxiEnv": _taxi,
}


def declared_facts(env: Any) -> DeclaredFacts | None:
    """What is declared of an environment; None where nothing is, or where a wrapper may have changed it.

    Args:
        env: A Gymnasium environment, with or without wrappers.

    >>> import gymnasium as gym
    >>> declared_facts(gym.make("CliffWalking-v1")).horizon
    50
    >>> declared_facts(gym.wrappers.TransformReward(gym.make("CliffWalking-v1"), lambda r: 2 * r)) is None
    True
    """
    with single_envs(env) as singles:
        cores = [getattr(single, "unwrapped", single) for single in singles]
        rows = set(map(_row, cores))
    facts = next(iter(rows)) if len(rows) == 1 else None  # the sub-environments of a vector must agree
    if facts is None or any(wrappers_that_may_change(env, what) for what in _CHANGES):
        return None
    return replace(facts, observation_range=None) if _shows_others(env, cores[0]) else facts


def _shows_others(env: Any, core: Any) -> bool:
    """True if a wrapper may change the observations that the user sees."""
    import gymnasium

    kinds = (gymnasium.ObservationWrapper, gymnasium.vector.VectorObservationWrapper)
    with single_envs(env) as singles:
        layers = [env, *singles]
        for layer in layers:
            while layer is not None:
                if isinstance(layer, kinds):
                    return True
                layer = getattr(layer, "env", None)
        return any(single.observation_space != core.observation_space for single in singles)


def _row(core: Any) -> DeclaredFacts | None:
    kind = type(core)
    row = _TABLE.get(f"{kind.__module__}:{kind.__qualname__}")
    return None if row is None else row(core)


def _rewards(env: Any) -> set[float]:
    table = getattr(env, "P", {})
    return {float(row[2]) for actions in table.values() for rows in actions.values() for row in rows}
