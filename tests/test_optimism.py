"""`realisable` is optimistic at every reachable (level, s, a) of every phase, in at least 1 - delta of the seeds."""

import numpy as np
import pytest

import s4q
from s4q.presets import Constants
from s4q.problems import FiniteMDP

SEEDS = range(200)
DELTA = 0.05


def is_optimistic(mdp: FiniteMDP, seed: int, episodes: int) -> bool:
    """Does every Q of the run lie above Q* wherever one can get?"""
    worst = [0.0]

    def look(run: s4q.Run) -> None:
        gap = (mdp.q_values(run.q) - mdp.q_star)[mdp.reachable]
        worst[0] = min(worst[0], float(gap.min()))

    learner = s4q.S4Q(mdp, preset="realisable", delta=DELTA)
    s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=seed), episodes, callback=look)
    assert learner.phases > 8
    return worst[0] > -1e-9


def share_optimistic(seeds: range) -> float:
    mdp = s4q.problems.low_rank()
    return float(np.mean([is_optimistic(mdp, seed, 10**5) for seed in seeds]))


@pytest.mark.slow
def test_realisable_is_optimistic() -> None:
    assert share_optimistic(SEEDS) >= 1 - DELTA


@pytest.mark.slow
def test_a_sixteenth_of_the_width_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    width = Constants.width
    monkeypatch.setattr(Constants, "width", lambda *arguments: width(*arguments) / 16)
    assert share_optimistic(SEEDS) < 1 - DELTA
