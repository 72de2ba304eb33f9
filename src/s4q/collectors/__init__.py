"""Collectors play episodes and answer requests with sums. They know no algorithm."""

from s4q.collectors.batches import BatchCollector
from s4q.collectors.cartpole_batch import CartPoleBatch
from s4q.collectors.counts import CountCollector
from s4q.collectors.episodes import EpisodeCollector
from s4q.collectors.finite_batch import FiniteBatch
from s4q.collectors.gym_env import GymCollector
from s4q.collectors.rollout import BatchedEnv
from s4q.collectors.vector import VectorCollector

__all__ = [
    "BatchCollector",
    "BatchedEnv",
    "CartPoleBatch",
    "CountCollector",
    "EpisodeCollector",
    "FiniteBatch",
    "GymCollector",
    "VectorCollector",
]
