"""CPU of whole `Agent.learn` calls over that of the environment alone: `python -m benchmarks.learn_cpu --help`.

The environment alone plays as many steps with random actions, before and after, in the same process. The ratio is what
learning costs an episode: features, policy, fits and memory together. CPU time is that of one BLAS thread.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time
from typing import Any

import gymnasium as gym
import numpy as np
from rich.console import Console
from rich.table import Table

import s4q
from benchmarks.control import POLE_RANGES
from benchmarks.runs import add_to_file, arguments, chosen, empty_table, played, yes
from s4q.features import Fourier, PerAction

SEEDS = 3


@dataclass(frozen=True)
class Row:
    """An environment, its horizon, and the most that the ratio may be."""

    name: str
    env_id: str
    horizon: int
    episodes: int
    target: float
    features: Callable[[Any], PerAction] | None = None  # of the env; None: those of the Agent
    reward_range: tuple[float, float] | None = None


def _pole(env: Any) -> PerAction:
    del env
    return PerAction(Fourier(order=2, **POLE_RANGES), n_actions=2)


def _car(env: Any) -> PerAction:
    return PerAction(Fourier(env.observation_space, order=3), n_actions=3)


ROWS = (
    Row("CartPole H=500, Fourier 2", "CartPole-v1", 500, 200, 50.0, _pole, (0.0, 1.0)),
    Row("CartPole H=100, Fourier 2", "CartPole-v1", 100, 200, 25.0, _pole, (0.0, 1.0)),
    Row("MountainCar H=200, Fourier 3", "MountainCar-v0", 200, 100, 20.0, _car, (-1.0, 0.0)),
    Row("Taxi H=50", "Taxi-v4", 50, 2000, 15.0),
)
_BY_NAME = {row.name: row for row in ROWS}


@dataclass(frozen=True)
class Case:
    """One agent."""

    row: str
    episodes: int
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What an agent cost, in seconds of CPU, and reached."""

    learn: float
    alone: float  # the environment alone, for as many steps
    n_steps: int
    phases: int
    mean_return: float


def play(case: Case) -> Outcome:
    """One agent, and the environment alone."""
    row = _BY_NAME[case.row]
    env = gym.make(row.env_id, max_episode_steps=row.horizon)
    given: dict[str, Any] = {} if row.reward_range is None else {"reward_range": row.reward_range}
    features = None if row.features is None else row.features(env)
    agent = s4q.Agent(env, features=features, horizon=row.horizon, seed=case.seed, **given)
    before_it = env_alone(row, case.seed)
    start = process_time()
    run = agent.learn(case.episodes).last_run
    learn = process_time() - start
    assert run is not None
    each = (before_it + env_alone(row, case.seed)) / 2
    return Outcome(learn, each * run.steps, run.steps, run.phases, run.mean_return or float("nan"))


def env_alone(row: Row, seed: int, n_steps: int = 20_000) -> float:
    """Seconds of CPU for a step with a random action, resets included."""
    env = gym.make(row.env_id, max_episode_steps=row.horizon)
    actions = np.random.default_rng(seed).integers(int(env.action_space.n), size=n_steps).tolist()  # type: ignore[attr-defined]
    env.reset(seed=seed)
    before = process_time()
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
    return (process_time() - before) / n_steps


def line(row: Row, outcomes: Sequence[Outcome]) -> list[str]:
    """The cells of a row."""
    learn, alone = np.array([o.learn for o in outcomes]), np.array([o.alone for o in outcomes])
    steps = np.array([o.n_steps for o in outcomes])
    ratio = float((learn / alone).mean())
    return [
        row.name,
        f"{np.mean([o.mean_return for o in outcomes]):.1f}",
        f"{np.mean([o.phases for o in outcomes]):.0f}",
        f"{steps.mean():,.0f}",
        f"{learn.mean():.1f}",
        f"{1e6 * (learn / steps).mean():.0f}",
        f"{1e6 * (alone / steps).mean():.1f}",
        f"{ratio:.1f} ({(learn / alone).max():.1f})",
        f"<= {row.target:g}",
        yes(ratio <= row.target),
    ]


def table(
    rows: Sequence[Row] = ROWS,
    *,
    seeds: int = SEEDS,
    episodes: int | None = None,
    processes: int = 1,
    kept: Path | None = None,
) -> Table:
    """A line per row. `kept` is the file of `--json`."""
    result = empty_table(
        f"Agent.learn end to end, {seeds} seeds: CPU over that of the environment alone",
        (
            "problem",
            "mean return",
            "phases",
            "steps",
            "CPU s",
            "us a step",
            "env alone",
            "ratio (worst)",
            "target",
            "met",
        ),
    )
    groups = [[Case(row.name, episodes or row.episodes, seed) for seed in range(seeds)] for row in rows]
    for row, outcomes in zip(rows, played(play, groups, processes), strict=True):
        add_to_file(kept, row.name, [asdict(one) for one in outcomes])
        result.add_row(*line(row, outcomes))
    return result


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments("CPU of whole Agent.learn calls over that of the environment alone.", "the outcomes")
    parser.set_defaults(seeds=SEEDS, processes=1)
    given = parser.parse_args(argv)
    size = {"seeds": given.seeds, "episodes": given.episodes, "processes": given.processes}
    Console(width=150).print(table(chosen(ROWS, given.rows), **size, kept=given.json))


if __name__ == "__main__":
    main()
