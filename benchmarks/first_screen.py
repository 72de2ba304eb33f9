"""The picture on the README's first screen: `python -m benchmarks.first_screen` writes docs/first_screen.png.

It draws the return of every episode of MountainCar while the README's five lines learn it, five seeds, beside what
random actions get. Nothing is tuned: the agent has its defaults. It takes a minute of CPU time.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import s4q
from benchmarks.control import EpisodeReturns
from benchmarks.runs import played
from s4q.report.drawing import BLUE, FAINT_BLUE, GREEN, ORANGE, figure_of, label, new_axes

ENV, REWARDS = "MountainCar-v0", (-1.0, 0.0)
EPISODES, SEEDS = 150, 5
HORIZON = 200  # steps of an episode that never reaches the goal
SMOOTHED = 10  # episodes of the running mean
PICTURE = Path(__file__).parent.parent / "docs" / "first_screen.png"


@dataclass(frozen=True)
class Case:
    """One agent."""

    episodes: int
    seed: int


@dataclass(frozen=True)
class Outcome:
    """The return of each episode: while the agent learned, and of random actions."""

    learning: list[float]
    random: list[float]


def play(case: Case) -> Outcome:
    """One agent with its defaults, and as many episodes of random actions."""
    env = EpisodeReturns(gym.make(ENV))
    # The wrapper could change rewards, so their range is declared; it is the one that the bare environment has.
    s4q.Agent(env, reward_range=REWARDS, seed=case.seed).learn(case.episodes)
    return Outcome(env.returns[: case.episodes], random_returns(case))


def random_returns(case: Case) -> list[float]:
    """The returns of episodes with random actions."""
    env: Any = EpisodeReturns(gym.make(ENV))
    rng = np.random.default_rng(case.seed)
    for episode in range(case.episodes):
        env.reset(seed=case.seed * case.episodes + episode)
        while not env.finished[-1]:
            env.step(int(rng.integers(env.action_space.n)))
    return list(env.returns)


def running_mean(values: np.ndarray[Any, Any], length: int = SMOOTHED) -> np.ndarray[Any, Any]:
    """The mean of the last `length` values at each place, fewer at the start.

    >>> running_mean(np.array([2.0, 4.0, 6.0]), 2).tolist()
    [2.0, 3.0, 5.0]
    """
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - length, 0)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts))


def draw(outcomes: Sequence[Outcome], path: Path) -> None:
    """Write the picture."""
    ax = new_axes((7.2, 3.3))
    figure_of(ax).set_facecolor("white")  # a README is read on dark pages too
    learning = np.array([one.learning for one in outcomes])
    episodes = np.arange(1, learning.shape[1] + 1)
    for i, returns in enumerate(learning):
        name = f"s4q, each of {len(learning)} runs" if i == 0 else None
        ax.plot(episodes, running_mean(returns), color=FAINT_BLUE, linewidth=1.0, label=name)
    ax.plot(episodes, running_mean(learning.mean(axis=0)), color=BLUE, linewidth=2.2, label="s4q, their mean")
    by_chance = np.mean([one.random for one in outcomes], axis=0)
    ax.plot(episodes, running_mean(by_chance), color=ORANGE, linewidth=2.0, label="random actions")
    solved = gym.spec(ENV).reward_threshold
    if solved is not None:
        ax.axhline(solved, color=GREEN, linewidth=1.2, linestyle=(0, (4, 3)), label="Gymnasium calls this solved")
    ax.set_xlim(1, learning.shape[1])
    label(ax, "episodes of learning", f"return, mean of {SMOOTHED} episodes", "MountainCar: -1 a step until the goal")
    figure_of(ax).legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8.5)
    figure_of(ax).savefig(path, dpi=150, metadata={"Software": None})


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The picture on the README's first screen.")
    parser.add_argument("--out", type=Path, default=PICTURE, help="the file (default docs/first_screen.png)")
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--processes", type=int, default=2, help="runs at a time (default 2)")
    given = parser.parse_args(argv)
    (outcomes,) = played(play, [[Case(given.episodes, seed) for seed in range(given.seeds)]], given.processes)
    draw(outcomes, given.out)
    last = [float(np.mean(one.learning[-50:])) for one in outcomes]
    print(f"{given.out}: last 50 episodes {np.mean(last):.1f} (worst {min(last):.1f})")
    first = [next((n for n, one in enumerate(each.learning, start=1) if one > -HORIZON), None) for each in outcomes]
    by_chance = sum(one > -HORIZON for each in outcomes for one in each.random)
    print(f"first success: {first}; successes of random actions: {by_chance} of {given.seeds * given.episodes}")


if __name__ == "__main__":
    main()
