"""Memory of a process that learns for long: `python -m benchmarks.resident --help`.

A cheap environment whose observations never repeat is stepped for 10^6 episodes. With a sketch the bytes held, the
memory of the process and the CPU of a thousand episodes must not grow once the budget is reached. The memory of the
process is looked at twice: as it is, and after the C library was asked to give free memory back to the system. What
is left then is really in use.
"""

import argparse
import ctypes
import gc
import sys
from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import Any

import gymnasium as gym
import numpy as np
from rich.console import Console

import s4q
from benchmarks.runs import empty_table
from s4q.features import Fourier, PerAction

HORIZON = 3


class Drift(gym.Env[Any, Any]):
    """A point in the unit square that drifts at random; action 1 pays more on the right half."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(0.0, 1.0, (2,), np.float64)
        self.action_space = gym.spaces.Discrete(2)
        self._step = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """A new episode."""
        del options
        super().reset(seed=seed)
        self._step, self._place = 0, self.np_random.random(2)
        return self._place, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step."""
        paid = float(self.np_random.random() < (self._place[0] if action == 1 else 0.5))
        self._step, self._place = self._step + 1, self.np_random.random(2)
        return self._place, paid, False, self._step >= HORIZON, {}


def resident_bytes() -> int:
    """Of this process, now; Linux only."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def give_back_free_memory() -> None:
    """Ask glibc to return memory that was freed; it keeps some for the next array. Nothing happens elsewhere."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Memory of a process that learns for long.")
    parser.add_argument("--episodes", type=int, default=10**6, help="episodes in all (default 10^6)")
    parser.add_argument("--memory-bytes", type=int, default=10**6, help="budget of the sketch (default 10^6)")
    given = parser.parse_args(argv)
    env = Drift()
    features = PerAction(Fourier(env.observation_space, order=2), n_actions=2)
    agent = s4q.Agent(env, features, horizon=HORIZON, reward_range=(0.0, 1.0), memory_bytes=given.memory_bytes)
    headers = ("episodes", "phases", "mean return", "bytes held", "growth of the process", "ratio", "in use", "ratio")
    headers = (*headers, "CPU s per 1000")
    result = empty_table(f"a sketch of {given.memory_bytes:,} bytes, observations that never repeat", headers)
    done = max(given.episodes // 1000, 1)
    agent.learn(done)  # the first shard: libraries are loaded, buffers are made
    first = resident_bytes()
    give_back_free_memory()
    first_in_use = resident_bytes()
    for share in (0.01, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0):
        more = max(int(share * given.episodes) - done, 1)
        start = process_time()
        run = agent.learn(more).last_run
        cpu = process_time() - start
        done += more
        gc.collect()
        assert run is not None
        held, growth = agent.learner.nbytes, resident_bytes() - first
        give_back_free_memory()
        in_use = resident_bytes() - first_in_use
        sizes = (f"{held:,}", f"{growth:,}", f"{growth / held:.2f}", f"{in_use:,}", f"{in_use / held:.2f}")
        cells = (f"{run.phases}", f"{run.mean_return:.3f}", *sizes)
        result.add_row(f"{done:,}", *cells, f"{1000 * cpu / more:.2f}")
        print(done, *cells, file=sys.stderr, flush=True)
    Console(width=150).print(result)


if __name__ == "__main__":
    main()
