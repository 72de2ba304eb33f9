"""What an Agent reaches with its defaults alone, `Agent(id).learn(episodes=n)`: `python -m benchmarks.agents --help`.

Nothing but the environment is named: features, horizon, reward range and constants are those that a newcomer gets.
The result is the mean return of `agent.policy` on fresh episodes. Where the environment can be solved exactly, the
exact value of the policy stands beside it; for Blackjack, whose returns vary so much that a thousand hands say little,
it is what counts. The defaults were chosen on seeds from 100 on; the seeds reported here are 0 to 4.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from rich.console import Console
from rich.table import Table

import s4q
from benchmarks.runs import add_to_file, arguments, chosen, empty_table, played, yes

SEEDS, FRESH = 5, 1_000


@dataclass(frozen=True)
class Row:
    """An environment, the episodes to learn from, and what the mean over seeds must reach."""

    name: str
    episodes: int
    target: Callable[[], float]
    exact: bool = False  # the exact value of the policy counts, not its returns

    def env(self) -> Any:
        """What is handed to the Agent: an id, or an environment that needs a wrapper."""
        if self.name == "Pendulum-v1":
            return s4q.wrappers.DiscreteActions(gym.make(self.name), 5)
        return self.name


def constant(value: float) -> Callable[[], float]:
    """A target that is a number."""
    return lambda: value


@cache
def lake() -> s4q.FiniteMDP:
    """FrozenLake with its own time limit as the horizon."""
    return s4q.problems.from_gymnasium("FrozenLake-v1", horizon=100)


ROWS = (
    Row("CartPole-v1", 100, constant(475.0)),
    Row("MountainCar-v0", 150, constant(-130.0)),
    Row("Acrobot-v1", 200, constant(-120.0)),
    Row("Pendulum-v1", 300, constant(-300.0)),
    Row("FrozenLake-v1", 5_000, lambda: 0.98 * lake().v_star),
    Row("Taxi-v4", 2_500, constant(7.5)),
    Row("CliffWalking-v1", 1_000, constant(-13.0)),
    Row("Blackjack-v1", 30_000, lambda: blackjack_values()[0] - 0.02, exact=True),
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

    fresh: float  # mean return of `agent.policy` on fresh episodes
    exact: float | None  # the value of that policy, where it can be computed
    no_bonus: float | None  # the same of `agent.no_bonus`
    training: float  # mean return while learning
    newest: float | None  # mean return of the newest phase
    phases: int
    nbytes: int
    cpu_seconds: float  # of learning, not of the evaluation


def play(case: Case) -> Outcome:
    """One agent, learned and evaluated."""
    agent = s4q.Agent(_BY_NAME[case.row].env(), seed=case.seed).learn(episodes=case.episodes)
    run = agent.last_run
    assert run is not None
    returns = [point.mean_return for point in run.curve if point.mean_return is not None]
    return Outcome(
        fresh=agent.evaluate(case.fresh).mean,
        exact=exact_value(case.row, agent.policy),
        no_bonus=exact_value(case.row, agent.no_bonus),
        training=float(run.mean_return or 0.0),
        newest=returns[-1] if returns else None,
        phases=run.phases,
        nbytes=run.nbytes,
        cpu_seconds=run.cpu_seconds,
    )


def exact_value(name: str, policy: s4q.Policy) -> float | None:
    """The value of an agent's policy, where the environment can be solved exactly."""
    if name == "FrozenLake-v1":
        return float(lake().value(policy.q))
    if name == "Blackjack-v1":
        return blackjack_values(lambda hand, step: int(policy.act(hand, step)))[1]
    return None


Hand = tuple[int, int, int]  # the sum, the dealer's card, 1 with a usable ace: what Blackjack-v1 shows
CARDS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10)  # drawn with replacement


def blackjack_values(act: Callable[[Hand, int], int] | None = None) -> tuple[float, float]:
    """The value of Blackjack-v1 (Sutton and Barto's rules: sab=True), and that of a policy, both exactly.

    Args:
        act: Function of a hand and the step; 1 draws a card, 0 sticks. None (default): sticks at once.
    """
    best, mine = 0.0, 0.0
    optimal = _Play(None)
    policy = _Play(act or (lambda *_: 0))
    for dealer in CARDS:
        for first in CARDS:
            for second in CARDS:
                hand = _with_card(_with_card((0, dealer, 0), first), second)
                best += optimal.value(hand, 0) / len(CARDS) ** 3
                mine += policy.value(hand, 0) / len(CARDS) ** 3
    return best, mine


def _with_card(hand: Hand, card: int) -> Hand:
    """The hand with one card more; an ace counts 11 while that does not bust."""
    total, dealer, ace = hand
    hard = total - 10 * ace + card
    soft = ace or card == 1
    return (hard + 10, dealer, 1) if soft and hard + 10 <= 21 else (hard, dealer, 0)


@cache
def _dealer(total: int, ace: int) -> dict[int, float]:
    """What the dealer ends with, from a hand on; 0 for a bust. He draws below 17."""
    if total > 21:
        return {0: 1.0}
    if total >= 17:
        return {total: 1.0}
    ends: dict[int, float] = {}
    for card in CARDS:
        after, _, soft = _with_card((total, 0, ace), card)
        for end, chance in _dealer(after, soft).items():
            ends[end] = ends.get(end, 0.0) + chance / len(CARDS)
    return ends


class _Play:
    """The value of hands under a policy, or under the best one (None)."""

    def __init__(self, act: Callable[[Hand, int], int] | None) -> None:
        self._act = act
        self._known: dict[tuple[Hand, int], float] = {}

    def value(self, hand: Hand, step: int) -> float:
        """What a hand returns from a step on."""
        if hand[0] > 21:
            return -1.0
        key = (hand, step if self._act else min(step, 1))  # only a natural depends on the step
        if key not in self._known:
            if self._act is None:
                self._known[key] = max(self._stick(hand, step), self._draw(hand, step))
            else:
                self._known[key] = self._draw(hand, step) if self._act(hand, step) else self._stick(hand, step)
        return self._known[key]

    def _draw(self, hand: Hand, step: int) -> float:
        return sum(self.value(_with_card(hand, card), step + 1) for card in CARDS) / len(CARDS)

    @staticmethod
    def _stick(hand: Hand, step: int) -> float:
        """Against the dealer's second card and what he draws.

        With these rules a natural (21 with two cards) wins unless the dealer has one too. It pays 1, as any win.
        """
        total, dealer, _ = hand
        natural = step == 0 and total == 21
        value = 0.0
        for second in CARDS:
            shown = _with_card((0, 0, 0), dealer)
            begins = _with_card((shown[0], 0, shown[2]), second)
            if natural and begins[0] < 21:
                value += 1 / len(CARDS)
                continue
            for end, chance in _dealer(begins[0], begins[2]).items():
                value += chance * float(np.sign(total - end)) / len(CARDS)
        return value


def line(row: Row, outcomes: Sequence[Outcome]) -> list[str]:
    """The cells of a row."""
    fresh = np.array([one.fresh for one in outcomes])
    exact = [one.exact for one in outcomes if one.exact is not None]
    counted = np.array(exact) if row.exact else fresh
    plain = [one.no_bonus for one in outcomes if one.no_bonus is not None]
    newest = [one.newest for one in outcomes if one.newest is not None]
    target = row.target()
    return [
        row.name,
        f"{row.episodes:,}",
        f"{fresh.mean():.4g} ({fresh.min():.4g})",
        f"{np.mean(exact):.4f} ({min(exact):.4f})" if exact else "",
        f"{np.mean(plain):.4f} ({min(plain):.4f})" if plain else "",
        f">= {target:.4g}",
        yes(bool(counted.mean() >= target - 1e-9)),
        f"{np.mean(newest):.4g}" if newest else "",
        f"{np.mean([one.phases for one in outcomes]):.0f}",
        f"{np.mean([one.nbytes for one in outcomes]):,.0f}",
        f"{np.mean([one.cpu_seconds for one in outcomes]):.1f}",
    ]


def table(
    rows: Sequence[Row] = ROWS,
    *,
    seeds: int = SEEDS,
    first_seed: int = 0,
    episodes: int | None = None,
    fresh: int = FRESH,
    processes: int = 2,
    kept: Path | None = None,
) -> Table:
    """A line per row. `kept` is the file of `--json`."""
    headers = (
        "episodes",
        "best policy",
        "exact value",
        "no bonus",
        "target",
        "met",
        "newest phase",
        "phases",
        "bytes",
        "CPU s",
    )
    title = (
        f"Agent(id).learn(episodes), {seeds} seeds: mean return (worst) of the best policy on {fresh:,} fresh episodes"
    )
    result = empty_table(title, ("environment", *headers))
    numbers = range(first_seed, first_seed + seeds)
    groups = [[Case(row.name, episodes or row.episodes, fresh, seed) for seed in numbers] for row in rows]
    for row, outcomes in zip(rows, played(play, groups, processes), strict=True):
        add_to_file(kept, row.name, [asdict(one) for one in outcomes])
        cells = line(row, outcomes)
        print(" | ".join(cells), file=sys.stderr, flush=True)
        result.add_row(*cells)
    return result


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments("What an Agent reaches with its defaults alone.", "the outcomes")
    parser.set_defaults(seeds=SEEDS)
    parser.add_argument("--first-seed", type=int, default=0, help="number of the first seed (default 0)")
    parser.add_argument("--fresh", type=int, default=FRESH, help=f"episodes of an evaluation (default {FRESH})")
    given = parser.parse_args(argv)
    size = {"seeds": given.seeds, "first_seed": given.first_seed, "episodes": given.episodes, "fresh": given.fresh}
    rows = chosen(ROWS, given.rows)
    Console(width=170).print(table(rows, **size, processes=given.processes, kept=given.json))


if __name__ == "__main__":
    main()
