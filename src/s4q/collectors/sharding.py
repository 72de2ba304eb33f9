"""Shards: how a request is cut into pieces, and how the pieces are added up again."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from s4q.core.messages import Collector, Evaluate, Explore, Request, Shard

_EVALUATION = 2**32 - 1  # the first word of the address of every Evaluate; no learner asks that often


def fixed_shards(request: Request, size: int) -> Iterator[Shard]:
    """Pieces of `size` episodes, the last one shorter.

    A shard is numbered by its first episode within the request's id, so a request answered in parts never uses a number
    twice, and parts that end between shards give the same bits as the whole.
    """
    end = request.done + request.n_episodes
    for first in range(request.done, end, size):
        yield Shard(first, min(size, end - first))


def address(request: Request) -> int:
    """Where the dice of a request are: the first part of their spawn key.

    SeedSequence reads a number as words of 32 bits. Those of an Evaluate are always four: its mark, two words of the
    id, 1. So it shares no dice with any other request, whatever their ids and shards.
    """
    return 2**96 + (request.id << 32) + _EVALUATION if isinstance(request, Evaluate) else request.id


def generator(seed: int, request: Request, shard: Shard) -> np.random.Generator:
    """The dice of one shard: addressed, never carried from one shard to the next."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(address(request), shard.index)))


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
