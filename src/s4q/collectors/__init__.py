"""Collectors play episodes and answer requests with sums. They know no algorithm."""

from s4q.collectors.counts import CountCollector
from s4q.collectors.episodes import EpisodeCollector
from s4q.collectors.gym_env import GymCollector
from s4q.collectors.vector import VectorCollector

__all__ = ["CountCollector", "EpisodeCollector", "GymCollector", "VectorCollector"]
