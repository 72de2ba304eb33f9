"""How long one call of a deployed policy takes: `python -m benchmarks.deployed_policy`.

Policies are learned with a few episodes, saved, and read again. A line is the least CPU time of 5 repetitions, per
call, of `act` and `q_values` for one observation and of `act` in batches of 1,000, on one BLAS thread. Times are of the
machine it runs on; the last column divides by the time of the features alone, which any policy needs.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

import s4q
from s4q.features import Dense, Fourier, OneHot, PerAction, RandomFourier

REPEAT = 5
LOW, HIGH = np.array([-4.8, -4.0, -0.42, -4.0]), np.array([4.8, 4.0, 0.42, 4.0])


@dataclass(frozen=True)
class Row:
    name: str
    n_features: int  # of a state
    n_actions: int
    act: float  # microseconds, as all times
    q_values: float
    batch: float  # per observation
    features: float  # alone
    file_bytes: int


def microseconds(work: Callable[[], object], n: int) -> float:
    """The least CPU time of one call, over 5 repetitions of n calls: other programs do not count."""
    best = float("inf")
    for _ in range(REPEAT):
        start = time.process_time()
        for _ in range(n):
            work()
        best = min(best, time.process_time() - start)
    return best / n * 1e6


def cases() -> dict[str, tuple[str, Any, int]]:
    """Env, features and horizon, by name."""
    per_action = {
        f"random Fourier, {dim} per action": ("CartPole-v1", PerAction(_random(dim), n_actions=2), 100)
        for dim in (50, 100, 300)
    }
    return per_action | {
        "Fourier of order 3, per action": ("CartPole-v1", PerAction(Fourier(low=LOW, high=HIGH, order=3), 2), 100),
        "a function of the user's, 100 dense": ("CartPole-v1", Dense(_own, n_actions=2, dim=100), 100),
        "one-hot, 500 states": ("Taxi-v4", OneHot(500, n_actions=6), 50),
    }


def _random(dim: int) -> RandomFourier:
    return RandomFourier(low=LOW, high=HIGH, dim=dim, width=0.5, seed=0)


_WAVES = np.random.default_rng(0).normal(size=(4, 50))


def _own(states: Any) -> Any:
    angles = np.asarray(states) @ _WAVES
    found = np.zeros((len(angles), 2, 100))
    found[:, 0, :50], found[:, 1, 50:] = np.cos(angles) / np.sqrt(50), np.cos(angles) / np.sqrt(50)
    return found


def measured(name: str, n: int = 2_000, episodes: int = 20) -> Row:
    """One line of the table."""
    env_id, features, horizon = cases()[name]
    ranges = {"CartPole-v1": (0, 1), "Taxi-v4": (-10, 20)}
    env = gym.make(env_id)
    agent = s4q.Agent(env, features, horizon=horizon, reward_range=ranges[env_id], seed=0).learn(episodes)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.s4q"
        agent.policy.save(path)
        size = path.stat().st_size
        policy = s4q.Policy.load(path, features=features if "user" in name else None)
    observation, _ = env.reset(seed=0)
    batch = np.stack([np.asarray(observation)] * 1_000)
    one = np.asarray(observation)[None]
    return Row(
        name,
        features.block_dim,
        features.n_actions,
        microseconds(lambda: policy.act(observation, 1), n),
        microseconds(lambda: policy.q_values(observation, 1), n),
        microseconds(lambda: policy.act(batch, 1), max(n // 200, 1)) / len(batch),
        microseconds(lambda: features(1, one), n),
        size,
    )


def table(n: int = 2_000) -> Table:
    """A line for each case."""
    columns = (
        "features",
        "length of a block",
        "actions",
        "act, us",
        "q_values, us",
        "act in batches, us",
        "file, bytes",
    )
    shown = Table(*columns, "act / features alone", title="one call of a deployed policy (best of 5)")
    for name in cases():
        row = measured(name, n)
        times = [f"{value:.1f}" for value in (row.act, row.q_values, row.batch)]
        sizes = [str(row.n_features), str(row.n_actions)]
        shown.add_row(row.name, *sizes, *times, f"{row.file_bytes:,}", f"{row.act / row.features:.1f}")
    return shown


if __name__ == "__main__":
    with threadpool_limits(limits=1):
        Console(width=150).print(table())
