"""Collectors play episodes and answer requests with sums. They know no algorithm."""

from s4q.collectors.batched.batch_collector import BatchCollector
from s4q.collectors.batched.cartpole import CartPoleBatch
from s4q.collectors.batched.finite_tables import FiniteBatch
from s4q.collectors.batched.rollout import BatchedEnv
from s4q.collectors.finite.counts import CountCollector
from s4q.collectors.finite.episodes import EpisodeCollector
from s4q.collectors.stepping.gym_env import GymCollector
from s4q.collectors.stepping.vector_env import VectorCollector

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
