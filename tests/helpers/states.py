"""Comparing states bit for bit, whatever time they took."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import s4q
from s4q.collectors import EpisodeCollector
from s4q.core.codec import Packed, pack

_COSTS = ("cpu_seconds", "discarded_episodes")


def without_time(value: Any) -> Any:
    """A copy of plain data without its cpu_seconds, and without what an executor played ahead in vain."""
    if isinstance(value, dict):
        return {key: without_time(one) for key, one in value.items() if key not in _COSTS}
    if isinstance(value, (list, tuple)):
        return [without_time(one) for one in value]
    return value


def bits(thing: object) -> tuple[str, dict[str, tuple[str, tuple[int, ...], bytes]]]:
    """Everything in a state: numbers, who shares what with whom, and the bytes of every array."""
    packed: Packed = pack(thing)
    arrays = {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in packed.arrays.items()}
    return json.dumps(without_time(packed.objects)), arrays


def differences(one: Any, other: Any, where: str = "", seen: set[int] | None = None) -> list[str]:
    """Where two objects differ in any attribute, private ones included, all the way down."""
    seen, where = set() if seen is None else seen, where or type(one).__name__
    if type(one) is not type(other):
        return [where]
    if isinstance(one, np.ndarray):
        return [] if (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes()) else [where]
    if id(one) in seen:
        return []
    if isinstance(one, (list, tuple)):
        pairs = [(f"[{i}]", a, b) for i, (a, b) in enumerate(zip(one, other, strict=False))]
        same = len(one) == len(other)
    elif isinstance(one, dict):
        pairs, same = [(f"[{key!r}]", one[key], other.get(key)) for key in one], list(one) == list(other)
    elif type(one).__module__.startswith("s4q"):
        seen.add(id(one))
        names, others = _attributes(one), _attributes(other)
        pairs = [(f".{name}", getattr(one, name), getattr(other, name, None)) for name in names]
        same = set(names) == set(others)
    else:
        return [] if one == other else [where]
    if not same:
        return [f"{where}: attributes"]
    return [found for name, a, b in pairs for found in differences(a, b, where + name, seen)]


def _attributes(thing: Any) -> list[str]:
    """All but what is only remembered so as not to be computed again."""
    names = list(vars(thing)) if hasattr(thing, "__dict__") else [f.name for f in dataclasses.fields(thing)]
    return [name for name in names if not name.startswith("_known") and name != "known"]


def run_bits(run: s4q.Run) -> tuple[Any, ...]:
    """What a run came to, its curve included."""
    plain = [without_time(dataclasses.asdict(point)) for point in run.curve]
    numbers = {name: getattr(run, name) for name in ("episodes", "main_episodes", "steps", "regret", "gap", "nbytes")}
    return numbers, plain, bits(run.q)


def log_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log."""
    for line in path.read_text().splitlines():
        yield without_time(json.loads(line))


class Interrupted(Exception):
    """What a failing environment raises."""


class FailsAfter:
    """An EpisodeCollector that raises at the n-th shard."""

    def __init__(self, inner: EpisodeCollector, n_shards: int) -> None:
        self.mdp, self.seed, self.shards, self.collect = inner.mdp, inner.seed, inner.shards, inner.collect
        self._inner, self._left = inner, n_shards

    def play(self, request: Any, shard: Any, start: Any = None) -> Any:
        self._left -= 1
        if self._left < 0:
            raise Interrupted
        return self._inner.play(request, shard, start)
