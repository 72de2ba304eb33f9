"""The two rules of `practical` for groups of states, on and off: `python -m benchmarks.grouped_states --help`.

Features are one-hot in (group of states, action), so they are not exact. The first rule is the term of order 1/n in the
bonus (`group_deviation`), the second that a policy whose returns refute the newest promise plays again (`refutes`).
"""

import argparse
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np
from rich.console import Console
from rich.table import Table

import s4q
from s4q.features import TableFeatures
from s4q.learners import widths
from s4q.learners.best_policy import BestPolicy
from s4q.problems import FiniteMDP


def grouped(mdp: FiniteMDP, size: int) -> FiniteMDP:
    """The same problem, with features that cannot tell `size` neighbouring states apart.

    Args:
        mdp: A problem with one-hot features.
        size: States of a group.
    """
    shape = (mdp.horizon, mdp.n_states, mdp.n_actions)
    blocks = np.arange(mdp.n_states)[:, None] // size * mdp.n_actions + np.arange(mdp.n_actions)
    return FiniteMDP(
        mdp.transitions,
        mdp.rewards,
        mdp.start,
        TableFeatures(np.ones((*shape, 1)), np.broadcast_to(blocks, shape), int(blocks.max()) + 1),
        reward_range=(mdp.spec.reward_min, mdp.spec.reward_max),
        value_bound=float(mdp.spec.value_bound[0]),
        reward_noise=mdp.reward_noise,
        well_specified=False,
    )


PROBLEMS: dict[str, Callable[[int], FiniteMDP]] = {
    "DeepSea 6, pairs": lambda seed: s4q.problems.aggregated_deep_sea(6, seed=seed),
    "DeepSea 10, pairs": lambda seed: s4q.problems.aggregated_deep_sea(10, seed=seed),
    "DeepSea 14, pairs": lambda seed: s4q.problems.aggregated_deep_sea(14, seed=seed),
    "DeepSea 14, stochastic, pairs": lambda seed: s4q.problems.aggregated_deep_sea(14, stochastic=True, seed=seed),
    "chain, pairs": lambda _: grouped(s4q.problems.chain(), 2),
    "RiverSwim 6, pairs": lambda _: grouped(s4q.problems.river_swim(), 2),
    "RiverSwim 12, threes": lambda _: grouped(s4q.problems.river_swim(n_states=12, horizon=24), 3),
    "slippery grid, pairs": lambda _: grouped(s4q.problems.slippery_grid(), 2),
    "dense random, pairs": lambda seed: grouped(s4q.problems.dense_random(seed=seed), 2),
}


def regret(mdp: FiniteMDP, seed: int, episodes: int, *, bonus: bool, again: bool) -> float:
    """The regret of the default learner.

    Args:
        mdp: The problem.
        seed: Of the episodes.
        episodes: Their number.
        bonus: False without the first rule.
        again: False without the second.
    """
    with ExitStack() as changed:
        if not bonus:
            changed.enter_context(patch.object(widths, "group_deviation", _nothing))
        if not again:
            changed.enter_context(patch.object(BestPolicy, "refutes", lambda *_: False))
        run = s4q.run(s4q.S4Q(mdp), s4q.collectors.EpisodeCollector(mdp, seed=seed), episodes=episodes)
    assert run.regret is not None
    return run.regret


def _nothing(visits: Any, value_bound: float) -> Any:
    del value_bound
    return np.zeros_like(visits)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The two rules for groups of states, on and off.")
    parser.add_argument("--rows", nargs="*", default=[""], metavar="NAME_PART", help="only problems with such names")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--episodes", type=int, default=1000)
    given = parser.parse_args(argv)
    shown = Table(title=f"mean regret of {given.episodes:,} episodes, {given.seeds} seeds (worst)")
    shown.add_column("problem")
    for header in ("neither", "bonus alone", "played again alone", "both (practical)"):
        shown.add_column(header, justify="right")
    for name, make in PROBLEMS.items():
        if any(part in name for part in given.rows):
            cells = []
            for bonus, again in ((False, False), (True, False), (False, True), (True, True)):
                found = [
                    regret(make(seed), seed, given.episodes, bonus=bonus, again=again) for seed in range(given.seeds)
                ]
                cells.append(f"{np.mean(found):.4g} ({max(found):.4g})")
            shown.add_row(name, *cells)
    Console(width=130).print(shown)


if __name__ == "__main__":
    main()
