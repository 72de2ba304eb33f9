"""The chain with the learners of s4q, and a line of JSON a run: python play_s4q.py lsvi_ucb 100 200 400 800.

The regret is exact, of the policies that were played: the mean of what `chain.Chain` adds up for the others.
"""

import json
import sys
import time
from typing import Any

import s4q
from held_bytes import held_bytes
from s4q.baselines import LEARNERS

SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "s4q": ("s4q", {}),
    "lsvi_ucb": ("lsvi_ucb", {"pool": True}),  # rlberry-scool's shares the steps of all levels too
    "lsvi_ucb_every_episode": ("lsvi_ucb", {"pool": True, "switch": "every_episode"}),
    "lsvi_ucb_tuned": ("lsvi_ucb_tuned", {}),
    "ucbvi": ("ucbvi", {}),
    "ucb_q": ("ucb_q", {}),
}


def main() -> None:
    name, settings = SETTINGS[sys.argv[1]]
    mdp = s4q.problems.chain()
    for episodes in (int(text) for text in sys.argv[2:]):
        learner = LEARNERS[name].build(mdp, 1, episodes, settings)
        collector = s4q.collectors.EpisodeCollector(mdp, seed=1)
        before = time.process_time()
        run = s4q.run(learner, collector, episodes)
        seconds = time.process_time() - before
        found = {"episodes": episodes, "regret": run.regret, "cpu_seconds": seconds, "bytes": held_bytes(learner)}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
