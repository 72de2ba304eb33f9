"""Control with a tenth of the memory: `python -m benchmarks.control_memory --help`.

Each seed is played twice: with every step kept, and with a sketch whose budget is a tenth of the bytes that the first
run held. The policies to deploy are compared on the same fresh episodes, seed by seed. A run collapses when, after its
first block of 50 episodes that is better than random play, a later block is back at it.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from rich.console import Console
from scipy.stats import t as student

import s4q
from benchmarks.control import POLE_RANGES, EpisodeReturns
from benchmarks.runs import add_to_file, arguments, chosen, empty_table, played, yes
from s4q.features import Fourier, PerAction

EPISODES, SEEDS, FRESH, BLOCK = 1_000, 10, 200, 50


@dataclass(frozen=True)
class Row:
    """An environment, its horizon and the order of its Fourier basis."""

    env_id: str
    horizon: int
    order: int
    reward_range: tuple[float, float]

    @property
    def name(self) -> str:
        """How tables and `--rows` call it."""
        return f"{self.env_id}, Fourier {self.order}, H = {self.horizon}"


ROWS = (Row("MountainCar-v0", 200, 3, (-1.0, 0.0)), Row("CartPole-v1", 500, 2, (0.0, 1.0)))
_BY_NAME = {row.name: row for row in ROWS}


@dataclass(frozen=True)
class Case:
    """One seed."""

    row: str
    episodes: int
    fresh: int
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What both runs of a seed reached and cost: with every step kept, and with a tenth."""

    best: tuple[float, float]  # mean return of the policy to deploy on fresh episodes
    collapses: tuple[int, int]  # blocks of training episodes back at random play
    step_bytes: tuple[int, int]  # of the steps held
    cpu_seconds: tuple[float, float]


def made(row: Row, seed: int, **memory: Any) -> tuple[s4q.Agent, EpisodeReturns]:
    """An agent and the record of its episodes."""
    env = EpisodeReturns(gym.make(row.env_id, max_episode_steps=row.horizon))
    ranges = POLE_RANGES if row.env_id.startswith("CartPole") else {"space": env.observation_space}
    features = PerAction(Fourier(order=row.order, **ranges), n_actions=int(env.action_space.n))
    agent = s4q.Agent(env, features, horizon=row.horizon, reward_range=row.reward_range, seed=seed, **memory)
    return agent, env


def random_return(row: Row) -> float:
    """Mean return of random actions."""
    env, returns = gym.make(row.env_id, max_episode_steps=row.horizon), []
    env.action_space.seed(0)
    for episode in range(BLOCK):
        env.reset(seed=episode)
        total, over = 0.0, False
        while not over:
            _, reward, ended, cut, _ = env.step(env.action_space.sample())
            total, over = total + float(reward), ended or cut
        returns.append(total)
    return float(np.mean(returns))


def collapses(returns: Sequence[float], random: float) -> int:
    """Blocks that are no better than random play, after the first one that is."""
    blocks = [float(np.mean(returns[i : i + BLOCK])) for i in range(0, len(returns) - BLOCK + 1, BLOCK)]
    first = next((i for i, mean in enumerate(blocks) if mean > random), len(blocks))
    return sum(mean <= random for mean in blocks[first:])


def play(case: Case) -> Outcome:
    """Both runs of a seed."""
    row, found = _BY_NAME[case.row], []
    random, budget = random_return(row), None
    for memory in ("all", "sketch"):
        agent, env = made(row, case.seed, memory=memory, memory_bytes=budget)
        run = agent.learn(case.episodes).last_run
        assert run is not None
        held = int(agent.learner.memory.held_bytes)  # type: ignore[union-attr]
        budget = held // 10
        whole = [one for one, over in zip(env.returns, env.finished, strict=True) if over]
        found.append((agent.evaluate(case.fresh).mean, collapses(whole, random), held, run.cpu_seconds))
    return Outcome(*zip(*found, strict=True))  # type: ignore[arg-type]


def line(row: Row, outcomes: Sequence[Outcome]) -> list[str]:
    """The cells of a row."""
    best = np.array([one.best for one in outcomes])
    difference = best[:, 1] - best[:, 0]
    n = len(difference)
    half = float(student.ppf(0.975, n - 1) * difference.std(ddof=1) / np.sqrt(n)) if n > 1 else np.inf
    lost = np.sum([one.collapses for one in outcomes], axis=0)
    held, cpu = (np.mean([getattr(one, name) for one in outcomes], axis=0) for name in ("step_bytes", "cpu_seconds"))
    return [
        row.name,
        f"{best[:, 0].mean():.1f} ({best[:, 0].min():.1f})",
        f"{best[:, 1].mean():.1f} ({best[:, 1].min():.1f})",
        f"{difference.mean():+.1f} ± {half:.1f}",
        yes(bool(difference.mean() + half >= 0)),
        f"{lost[0]} and {lost[1]}",
        f"{held[0] / 1e6:.1f} and {held[1] / 1e6:.1f}",
        f"{cpu[0]:.0f} and {cpu[1]:.0f}",
    ]


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments("Control with a tenth of the memory, against keeping every step.", "the outcomes")
    parser.set_defaults(seeds=SEEDS, episodes=EPISODES)
    parser.add_argument("--fresh", type=int, default=FRESH, help=f"episodes of an evaluation (default {FRESH})")
    given = parser.parse_args(argv)
    headers = ("all kept", "a tenth", "difference (95 %)", "no worse", "blocks lost", "MB of steps", "CPU s")
    title = f"{given.episodes} episodes, {given.seeds} seeds: mean return (worst) of the policy to deploy"
    result = empty_table(title, ("problem", *headers))
    rows = chosen(ROWS, given.rows)
    groups = [[Case(row.name, given.episodes, given.fresh, seed) for seed in range(given.seeds)] for row in rows]
    for row, outcomes in zip(rows, played(play, groups, given.processes), strict=True):
        add_to_file(given.json, row.name, [asdict(one) for one in outcomes])
        cells = line(row, outcomes)
        print(" | ".join(cells), file=sys.stderr, flush=True)
        result.add_row(*cells)
    Console(width=160).print(result)


if __name__ == "__main__":
    main()
