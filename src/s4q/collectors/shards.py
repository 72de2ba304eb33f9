"""Shards: how a request is cut into pieces, and how the pieces are added up again."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from s4q.requests import Collector, Explore, Request, Shard


def fixed_shards(request: Request, size: int) -> Iterator[Shard]:
    """Pieces of `size` episodes, the last one shorter.

    A shard is numbered by its first episode within the request's id, so a request answered in parts never uses a number
    twice, and parts that end between shards give the same bits as the whole.
    """
    end = request.done + request.n_episodes
    for first in range(request.done, end, size):
        yield Shard(first, min(size, end - first))


def generator(seed: int, request: Request, shard: Shard) -> np.random.Generator:
    """The dice of one shard: addressed, never carried from one shard to the next."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(request.address, shard.index)))


def collect(collector: Collector, request: Request) -> Any:
    """The whole answer: shard after shard, added in their order; an Explore ends with the first crossing episode."""
    total = None
    progress = request.start() if isinstance(request, Explore) else None
    for shard in collector.shards(request):
        answer = collector.play(request, shard, progress)
        total = answer if total is None else total + answer
        if isinstance(request, Explore):
            progress = progress + answer.progress
            if request.crossed(progress, shard.index + answer.n_episodes):
                break
    if total is None:
        raise ValueError(f"a request needs at least one episode; got {request.n_episodes}")
    return total
