"""Warm-up: a few episodes of random actions that show in which ranges the observations lie.

`Agent.learn` plays them before its first episode where the default features wait for ranges. They are played by the
collectors that learn, so that a vector of environments shows the same observations as one of them.
"""

from typing import Any, ClassVar, final

import numpy as np

from s4q.collectors.stepping.gym_env import GymCollector
from s4q.collectors.stepping.vector_env import VectorCollector
from s4q.core.blocks import Phi, States
from s4q.core.messages import Evaluate, Returns, Spec, UniformPolicy

EPISODES = 10  # at most; and at most a tenth of those that are to be learned from
_REQUEST = 2**63  # an id that no run gives to its evaluations


@final
class ObservationRecorder:
    """A feature map of one constant that remembers every observation it is shown.

    Args:
        n_actions: Number of actions.
    """

    n_blocks: ClassVar[int] = 1
    block_dim: ClassVar[int] = 1

    def __init__(self, n_actions: int) -> None:
        self.n_actions = n_actions
        self.seen: list[Any] = []

    def __call__(self, h: int, states: States) -> Phi:  # noqa: ARG002 - the same at every level
        self.seen.extend(states)
        n = len(states)
        return Phi(np.ones((n, self.n_actions, 1)), np.zeros((n, self.n_actions), dtype=np.int64))


def n_warm_up_episodes(episodes: int) -> int:
    """How many of these episodes may be spent on measuring ranges.

    >>> [n_warm_up_episodes(n) for n in (1, 30, 1000)]
    [1, 3, 10]
    """
    return min(EPISODES, max(1, episodes // 10))


def random_play(collector: GymCollector | VectorCollector, n_episodes: int) -> tuple[list[Any], Returns]:
    """The observations of episodes of random actions, and what they cost.

    Args:
        collector: The collector of the environment; its seed is used, and nothing in it is changed.
        n_episodes: Episodes to play.
    """
    spec = collector.spec
    recorder = ObservationRecorder(spec.n_actions)
    plain = Spec.of(
        recorder,
        horizon=spec.horizon,
        reward_range=(spec.reward_min, spec.reward_max),
        stationary=True,
    )
    player = type(collector)(collector.env, recorder, plain, collector.seed)
    answer = player.collect(Evaluate(_REQUEST, UniformPolicy(spec.n_actions), n_episodes))
    return recorder.seen, answer
