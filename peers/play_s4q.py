"""The chain with the learners of s4q, and a line of JSON a run: python play_s4q.py lsvi_ucb 100 200 400 800 --seed 1.

The regret is exact, of the policies that were played: the mean of what `chain.Chain` adds up for the others.
"""

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import s4q
from chain import HORIZON
from held_bytes import held_bytes
from s4q.baselines import LEARNERS


@dataclass(frozen=True)
class Setting:
    """A learner of s4q by its name, with settings, and the value bound that it is told.

    Args:
        learner: Its name in a comparison.
        settings: What takes the place of its own settings.
        value_bound: The largest return of an episode. None for that of the problem, which is 1: it pays once.
    """

    learner: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    value_bound: float | None = None


# rlberry-scool's LSVI-UCB shares the steps of all levels, so ours does too. Its bonus is |phi| + H |phi|^2, its ridge
# 0.1, and it cuts values at H, because it cannot be told that the problem pays once. Here both terms are shares of H.
THEIR_CONSTANTS = {"pool": True, "beta": 1.0 / HORIZON, "lower_order": 1.0, "ridge": 0.1}
SETTINGS = {
    "s4q": Setting("s4q"),
    "lsvi_ucb": Setting("lsvi_ucb", {"pool": True}),
    "lsvi_ucb_levels_apart": Setting("lsvi_ucb"),
    "lsvi_ucb_every_episode": Setting("lsvi_ucb", {"pool": True, "switch": "every_episode"}),
    "lsvi_ucb_their_constants": Setting("lsvi_ucb", THEIR_CONSTANTS, value_bound=HORIZON),
    "lsvi_ucb_cut_at_horizon": Setting("lsvi_ucb", {"pool": True, "beta": 1.0 / HORIZON}, value_bound=HORIZON),
    "lsvi_ucb_tuned": Setting("lsvi_ucb_tuned"),
    "ucbvi": Setting("ucbvi"),
    "ucbvi_cut_at_horizon": Setting("ucbvi", value_bound=HORIZON),
    "ucb_q": Setting("ucb_q"),
}


def built(name: str, mdp: s4q.FiniteMDP, episodes: int, seed: int) -> s4q.Learner:
    """The learner of a name for the chain."""
    setting = SETTINGS[name]
    told: Any = mdp
    if setting.value_bound is not None:
        told = replace(mdp.spec, value_bound=(float(setting.value_bound),) * HORIZON)
    return LEARNERS[setting.learner].build(told, seed, episodes, setting.settings)


def run(name: str, episodes: int, seed: int) -> dict[str, Any]:
    """One run: its regret, its CPU seconds, and the bytes that the learner holds at the end."""
    mdp = s4q.problems.chain()
    learner, collector = built(name, mdp, episodes, seed), s4q.collectors.EpisodeCollector(mdp, seed=seed)
    before = time.process_time()
    found = s4q.run(learner, collector, episodes)
    seconds = time.process_time() - before
    return {"episodes": episodes, "regret": found.regret, "cpu_seconds": seconds, "bytes": held_bytes(learner)}


def main() -> None:
    parser = argparse.ArgumentParser(description="The chain with a learner of s4q, a line of JSON a run.")
    parser.add_argument("learner", choices=list(SETTINGS))
    parser.add_argument("episodes", type=int, nargs="+")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for episodes in given.episodes:
        print(json.dumps(run(given.learner, episodes, given.seed)), flush=True)


if __name__ == "__main__":
    main()
