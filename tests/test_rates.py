"""S3Q's error falls like n^-1/2 (Theorem 2), and basic Q-learning's does not."""

from collections.abc import Callable

import numpy as np
import pytest

import s4q
from s4q.collectors import EpisodeCollector
from s4q.problems import FiniteMDP
from s4q.requests import Explore

SEEDS = range(6)
FIRST, LAST = 6, 16  # episodes a level: 2^6 .. 2^16, three decades


def rms_error(mdp: FiniteMDP, q: s4q.LinearQ) -> float:
    return float(np.sqrt(np.mean((mdp.q_values(q) - mdp.q_star)[mdp.reachable] ** 2)))


def s3q_errors(mdp: FiniteMDP, seed: int) -> dict[int, float]:
    """Error after each epoch, by episodes a level."""
    errors: dict[int, float] = {}

    def note(run: s4q.Run) -> None:
        errors[2**run.phases] = rms_error(mdp, run.q)

    learner = s4q.S3Q(mdp, s4q.UniformPolicy(mdp.n_actions))
    s4q.run(learner, EpisodeCollector(mdp, seed=seed), episodes=mdp.horizon * (2 ** (LAST + 1) - 2), callback=note)
    return errors


def basic_q_errors(mdp: FiniteMDP, seed: int) -> dict[int, float]:
    """Basic linear Q-learning: first-order steps towards a target that moves with the parameter itself."""
    horizon, dim = mdp.horizon, mdp.dim
    theta = np.zeros((horizon + 1, dim))
    errors: dict[int, float] = {}
    white = np.broadcast_to(np.eye(dim), (horizon, 1, dim, dim))
    collector = EpisodeCollector(mdp, seed=seed)
    step = 0.1
    n = 0
    for part in range(2**LAST // 1024):
        kept = collector.collect(
            Explore(part, s4q.UniformPolicy(mdp.n_actions), white, (np.inf, 0.0), 1024, keep=1024)
        ).kept
        by_level = [np.flatnonzero(kept.levels == h) for h in range(horizon)]
        for episode in range(1024):
            n += 1
            for h in range(horizon):
                i = by_level[h][episode]
                x = kept.vectors[i]
                after = (kept.next_vectors[i] @ theta[h + 1]).max() if h + 1 < horizon else 0.0
                theta[h] += step * x * (kept.rewards[i] + after - x @ theta[h])
            if n >= 2**FIRST and n & (n - 1) == 0:
                errors[n] = rms_error(mdp, s4q.LinearQ(theta[:horizon, None, :]))
    return errors


def slope(mdp: FiniteMDP, errors_of: Callable[[FiniteMDP, int], dict[int, float]], seeds: range) -> float:
    """Slope of the log of the mean error on the log of episodes a level."""
    sizes = [2**e for e in range(FIRST, LAST + 1)]
    runs = [errors_of(mdp, seed) for seed in seeds]
    mean = [np.sqrt(np.mean([run[n] ** 2 for run in runs])) for n in sizes]
    return float(np.polyfit(np.log(sizes), np.log(mean), 1)[0])


@pytest.mark.slow
@pytest.mark.parametrize("build", [s4q.problems.low_rank, s4q.problems.bellman_closed])
def test_error_falls_like_one_over_root_n(build: Callable[[], FiniteMDP]) -> None:
    assert -0.6 < slope(build(), s3q_errors, SEEDS) < -0.4


@pytest.mark.slow
@pytest.mark.parametrize("build", [s4q.problems.low_rank, s4q.problems.bellman_closed])
def test_basic_q_learning_fails_the_same_test(build: Callable[[], FiniteMDP]) -> None:
    assert not -0.6 < slope(build(), basic_q_errors, range(2)) < -0.4
