"""Collectors play episodes and answer requests with sums. They know no algorithm."""

from s4q.collectors.counts import CountCollector
from s4q.collectors.episodes import EpisodeCollector

__all__ = ["CountCollector", "EpisodeCollector"]
