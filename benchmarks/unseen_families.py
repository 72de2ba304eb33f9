"""Problems on which no setting was chosen, ours or a baseline's: `python -m benchmarks.unseen_families --help`.

The constants of `practical` were chosen in trials on the built-in problems. These families are others: bandits, an
exploration problem of Strehl and Littman, a grid with wind, tables with rare rewards, and built-in families at other
sizes and seeds. Each run has a problem of its own where the family is random. Regret is exact. A run is stuck if the
last tenth of its episodes gave up more than 5 % of V* on average; its last policy alone may just be trying something.
The number of standard errors of tables with one to three levels was chosen later, in trials on bandits like the first
two, with other seeds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import s4q
from benchmarks.runs import add_to_file, arguments, chosen, empty_table, played
from s4q.baselines import LEARNERS
from s4q.baselines.tabular import NotOneHot
from s4q.problems import FiniteMDP

STUCK = 0.05  # of V*, given up in the last tenth of the episodes
PLAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "s4q": ("s4q", {}),
    "s4q, bonus_width=0.5": ("s4q", {"bonus_width": 0.5}),
    "ucbvi_tuned": ("ucbvi_tuned", {}),
    "ucbvi": ("ucbvi", {}),
    "psrl": ("psrl", {}),
    "lsvi_ucb_tuned": ("lsvi_ucb_tuned", {}),
    "rlsvi_tuned": ("rlsvi_tuned", {}),
}


def arms(seed: int, n_arms: int, horizon: int) -> FiniteMDP:
    """A bandit: one state, arms that pay 1 with a chance drawn from Beta(1, 4), played `horizon` times an episode."""
    means = np.random.default_rng([77, seed]).beta(1, 4, size=(1, n_arms))
    return FiniteMDP(np.ones((1, n_arms, 1)), means, [1.0], horizon=horizon)


def contexts(seed: int) -> FiniteMDP:
    """A contextual bandit: one of 10 states, all equally likely, then one of 5 arms whose chances are uniform."""
    means = np.random.default_rng([80, seed]).uniform(size=(10, 5))
    return FiniteMDP(np.tile(np.eye(10)[:, None], (1, 5, 1)), means, np.full(10, 0.1), horizon=1)


def two_steps(seed: int) -> FiniteMDP:
    """The first of two actions leads to one of six rooms, in 8 steps of 10 to its own; the second pays by chance."""
    transitions, rewards = np.zeros((7, 6, 7)), np.zeros((7, 6))
    transitions[0, :, 1:] = 0.8 * np.eye(6) + 0.2 / 6
    transitions[1:, :, 0] = 1.0
    rewards[1:] = np.random.default_rng([81, seed]).beta(1, 4, size=(6, 6))
    return FiniteMDP(transitions, rewards, np.eye(7)[0], horizon=2)


def six_arms(horizon: int = 20) -> FiniteMDP:
    """Six arms of a start state lead to rooms that pay 50 to 6000; the better the room, the rarer the arm opens it.

    Strehl, Littman (2008): An analysis of model-based interval estimation for Markov decision processes. Rewards are
    divided by the largest.
    """
    opens, pays = (1.0, 0.15, 0.1, 0.05, 0.03, 0.01), np.array((50, 133, 300, 800, 1660, 6000)) / 6000
    transitions, rewards = np.zeros((7, 6, 7)), np.zeros((7, 6))
    for arm, chance in enumerate(opens):
        transitions[0, arm, [arm + 1, 0]] = chance, 1 - chance
        transitions[1:, arm, 0] = 1.0
    for room in range(1, 7):
        stays = range(6) if room == 1 else [room - 1]
        for action in stays:
            transitions[room, action] = np.eye(7)[room]
            rewards[room, action] = pays[room - 1]
    return FiniteMDP(transitions, rewards, np.eye(7)[0], horizon=horizon)


def windy(seed: int, width: int = 7, horizon: int = 25) -> FiniteMDP:
    """A square grid from corner to corner; in each column a wind blows up to two cells back, in 7 steps of 10."""
    rng, n_states = np.random.default_rng([78, seed]), width * width
    wind = rng.integers(0, 3, size=width)
    transitions, rewards = np.zeros((n_states, 4, n_states)), np.zeros((n_states, 4))
    for state in range(n_states - 1):
        x, y = state % width, state // width
        for action, (dx, dy) in enumerate([(1, 0), (-1, 0), (0, 1), (0, -1)]):
            for blown, chance in ((int(wind[x]), 0.7), (0, 0.3)):
                to_x, to_y = (min(max(z, 0), width - 1) for z in (x + dx, y + dy - blown))
                transitions[state, action, to_y * width + to_x] += chance
    transitions[-1, :, 0] = rewards[-1] = 1.0
    return FiniteMDP(transitions, rewards, np.eye(n_states)[0], horizon=horizon)


def rare_rewards(seed: int) -> FiniteMDP:
    """25 states with few successors each, of which three pay for one of three actions."""
    rng = np.random.default_rng([79, seed])
    transitions, rewards = rng.dirichlet(np.full(25, 0.05), size=(25, 3)), np.zeros((25, 3))
    for state in rng.choice(25, 3, replace=False):
        rewards[state, rng.integers(3)] = rng.uniform(0.05, 1.0)
    return FiniteMDP(transitions, rewards, np.eye(25)[0], horizon=15)


@dataclass(frozen=True)
class Row:
    """A family, and the episodes of a run."""

    name: str
    build: Callable[[int], FiniteMDP]
    episodes: int


ROWS = (
    Row("20 arms", lambda seed: arms(seed, 20, 1), 5000),
    Row("10 arms, three times", lambda seed: arms(seed, 10, 3), 5000),
    Row("contextual bandit", contexts, 5000),
    Row("two steps", two_steps, 5000),
    Row("six arms", lambda _: six_arms(), 5000),
    Row("windy grid", windy, 3000),
    Row("rare rewards", rare_rewards, 5000),
    Row("dense random S=30 A=2 H=20", lambda seed: s4q.problems.dense_random(30, 2, 20, seed=1000 + seed), 3000),
    Row("dense random S=5 A=10 H=5", lambda seed: s4q.problems.dense_random(5, 10, 5, seed=1000 + seed), 5000),
    Row("RiverSwim (16, 40)", lambda _: s4q.problems.river_swim(16, horizon=40), 5000),
    Row("low_rank d=12", lambda seed: s4q.problems.low_rank(60, 5, 12, 4, seed=50 + seed), 5000),
    Row("bellman_closed", lambda seed: s4q.problems.bellman_closed(seed=50 + seed), 5000),
)
_BY_NAME = {row.name: row for row in ROWS}


@dataclass(frozen=True)
class Case:
    """One run."""

    row: str
    player: str
    seed: int
    episodes: int


@dataclass(frozen=True)
class Outcome:
    """What a run reached; None where the learner does not suit the problem."""

    regret: float | None
    late_loss: float | None  # mean loss of an episode in the last tenth of them, as a share of V*


def play(case: Case) -> Outcome:
    """One run, with exact regret."""
    mdp = _BY_NAME[case.row].build(case.seed)
    name, settings = PLAYERS[case.player]
    try:
        learner = LEARNERS[name].build(mdp, case.seed, case.episodes, settings)
    except NotOneHot:
        return Outcome(None, None)
    run = s4q.run(learner, s4q.collectors.EpisodeCollector(mdp, seed=500 + case.seed), case.episodes)
    assert run.regret is not None
    return Outcome(run.regret, late_loss(run) / mdp.v_star)


def late_loss(run: s4q.Run) -> float:
    """The mean loss of an episode in the last tenth of a run."""
    points = [(0, 0.0)] + [(point.episodes, point.regret or 0.0) for point in run.curve]
    start = 0.9 * run.episodes
    # A policy loses the same in each of its episodes, so regret is linear between two points of the curve.
    before = float(np.interp(start, *np.array(points).T))
    return (points[-1][1] - before) / (run.episodes - start)


def cell(outcomes: Sequence[Outcome]) -> str:
    """The mean regret with its standard error, and how many runs are stuck."""
    regrets = [one.regret for one in outcomes if one.regret is not None]
    if not regrets:
        return "-"
    stuck = sum(one.late_loss is not None and one.late_loss > STUCK for one in outcomes)
    error = f" ± {np.std(regrets, ddof=1) / len(regrets) ** 0.5:.2g}" if len(regrets) > 1 else ""
    return f"{np.mean(regrets):.3g}{error}" + (f", {stuck} stuck" if stuck else "")


def table(rows: Sequence[Row], seeds: int, episodes: int | None, processes: int, kept: Any = None) -> Table:
    """A line a family."""
    result = empty_table(f"mean regret ± standard error, {seeds} seeds", ("family", "K", *PLAYERS))
    for row in rows:
        groups = [
            [Case(row.name, player, seed, episodes or row.episodes) for seed in range(seeds)] for player in PLAYERS
        ]
        cells = [cell(outcomes) for outcomes in played(play, groups, processes)]
        add_to_file(kept, row.name, dict(zip(PLAYERS, cells, strict=True)))
        result.add_row(row.name, f"{episodes or row.episodes:,}", *cells)
    return result


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments("Problems on which no setting was chosen.", "the cells")
    parser.set_defaults(seeds=20)
    given = parser.parse_args(argv)
    Console(width=190).print(table(chosen(ROWS, given.rows), given.seeds, given.episodes, given.processes, given.json))


if __name__ == "__main__":
    main()
