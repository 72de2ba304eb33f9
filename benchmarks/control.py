"""Smooth features on Gymnasium's classic control, with an Agent: `python -m benchmarks.control --help`.

The features are a Fourier basis per action, which is never exact here. The result is the mean return of the policy to
deploy (`agent.policy`) on fresh episodes. The returns of training, the first success and the CPU time of learning stand
beside it. Nothing is tuned to a row.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from rich.console import Console
from rich.table import Table

import s4q
from benchmarks.runs import add_to_file, arguments, chosen, empty_table, played, yes
from s4q.features import Fourier, PerAction

EPISODES, SEEDS, FRESH, LAST = 150, 5, 200, 50
HORIZON = 200
# The env bounds no speed, so README's ranges are taken: a run leaves them seldom.
POLE_RANGES: dict[str, Any] = {"low": [-2.4, -3, -0.21, -3], "high": [2.4, 3, 0.21, 3], "clip": True}


@dataclass(frozen=True)
class Row:
    """An environment, the order of its Fourier basis, and the mean return to reach."""

    env_id: str
    order: int
    reward_range: tuple[float, float]
    success: float  # least return of an episode that counts as one
    target: float

    @property
    def name(self) -> str:
        """How tables and `--rows` call it."""
        return f"{self.env_id.removesuffix('-v0').removesuffix('-v1')}, Fourier {self.order}"

    def env(self) -> Any:
        """The environment, stopped at the horizon."""
        return gym.make(self.env_id, max_episode_steps=HORIZON)

    def features(self, env: Any) -> PerAction:
        """A Fourier basis per action."""
        pole = self.env_id.startswith("CartPole")
        basis = Fourier(order=self.order, **(POLE_RANGES if pole else {"space": env.observation_space}))
        return PerAction(basis, n_actions=int(env.action_space.n))


ROWS = (
    *(
        Row("MountainCar-v0", order, (-1.0, 0.0), success=1.0 - HORIZON, target=target)
        for order, target in ((3, -130.0), (5, -130.0), (8, -150.0))
    ),
    *(Row("CartPole-v1", order, (0.0, 1.0), success=195.0, target=195.0) for order in (1, 2)),
)
_BY_NAME = {row.name: row for row in ROWS}


@dataclass(frozen=True)
class Case:
    """One agent."""

    row: str
    episodes: int
    fresh: int  # episodes that evaluate it
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What an agent reached and cost."""

    best: float  # mean return of `agent.policy` on fresh episodes
    last: float  # mean return of the last training episodes that were played to their end
    first_success: int | None  # episode, from 1
    phases: int
    nbytes: int
    cpu_seconds: float  # of learning, not of the evaluation


class EpisodeReturns(gym.Wrapper[Any, Any, Any, Any]):
    """Notes the return of every episode, and whether it was played to its end. A replay may reset earlier."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.returns: list[float] = []
        self.finished: list[bool] = []

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        """A new episode."""
        self.returns.append(0.0)
        self.finished.append(False)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        """A step of the env."""
        result = self.env.step(action)
        self.returns[-1] += float(result[1])
        self.finished[-1] = bool(result[2] or result[3])
        return result


def play(case: Case) -> Outcome:
    """One agent, learned and evaluated."""
    row = _BY_NAME[case.row]
    env = EpisodeReturns(row.env())
    features = row.features(env)
    agent = s4q.Agent(env, features, horizon=HORIZON, reward_range=row.reward_range, seed=case.seed)
    run = agent.learn(case.episodes).last_run
    assert run is not None
    whole = [(number, one) for number, one in enumerate(env.returns, start=1) if env.finished[number - 1]]
    success = [number for number, one in whole if one >= row.success]
    return Outcome(
        best=agent.evaluate(case.fresh).mean,
        last=float(np.mean([one for _, one in whole[-LAST:]])),
        first_success=success[0] if success else None,
        phases=run.phases,
        nbytes=run.nbytes,
        cpu_seconds=run.cpu_seconds,
    )


def line(row: Row, outcomes: Sequence[Outcome]) -> list[str]:
    """The cells of a row."""
    best, last = np.array([o.best for o in outcomes]), np.array([o.last for o in outcomes])
    first = [o.first_success for o in outcomes if o.first_success is not None]
    never = len(outcomes) - len(first)
    features = row.features(row.env())
    return [
        row.name,
        f"{features.n_blocks * features.block_dim}",
        f"{best.mean():.1f} ({best.min():.1f})",
        f">= {row.target:g}",
        yes(bool(best.mean() >= row.target)),
        f"{last.mean():.1f} ({last.min():.1f})",
        (f"{np.mean(first):.0f} ({max(first)})" if first else "") + (f" {never} never" if never else ""),
        f"{np.mean([o.phases for o in outcomes]):.0f}",
        f"{np.mean([o.nbytes for o in outcomes]):,.0f}",
        f"{np.mean([o.cpu_seconds for o in outcomes]):.1f}",
    ]


def table(
    rows: Sequence[Row] = ROWS,
    *,
    seeds: int = SEEDS,
    episodes: int = EPISODES,
    fresh: int = FRESH,
    processes: int = 2,
    kept: Path | None = None,
) -> Table:
    """A line per row. `kept` is the file of `--json`."""
    headers = ("features", "best policy", "target", "met", f"last {LAST}", "first success", "phases", "bytes", "CPU s")
    title = f"H = {HORIZON}, {episodes} episodes, {seeds} seeds: mean return (worst); best policy: {fresh} episodes"
    result = empty_table(title, ("problem", *headers))
    groups = [[Case(row.name, episodes, fresh, seed) for seed in range(seeds)] for row in rows]
    for row, outcomes in zip(rows, played(play, groups, processes), strict=True):
        add_to_file(kept, row.name, [asdict(one) for one in outcomes])
        cells = line(row, outcomes)
        print(" | ".join(cells), file=sys.stderr, flush=True)
        result.add_row(*cells)
    return result


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments("Smooth features on Gymnasium's classic control.", "the outcomes")
    parser.set_defaults(seeds=SEEDS, episodes=EPISODES)
    parser.add_argument("--fresh", type=int, default=FRESH, help=f"episodes of an evaluation (default {FRESH})")
    given = parser.parse_args(argv)
    size = {"seeds": given.seeds, "episodes": given.episodes, "fresh": given.fresh, "processes": given.processes}
    Console(width=150).print(table(chosen(ROWS, given.rows), **size, kept=given.json))


if __name__ == "__main__":
    main()
