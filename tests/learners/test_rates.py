"""S3Q's error falls like n^-1/2 (Theorem 2), and basic Q-learning's does not."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import s4q
from s4q.collectors import EpisodeCollector
from s4q.problems import FiniteMDP

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
    theta = np.zeros((mdp.horizon + 1, mdp.dim))
    errors: dict[int, float] = {}
    for n, steps in enumerate(uniform_episodes(mdp, seed), start=1):
        for h, (x, reward, after) in enumerate(steps):
            future = float((after @ theta[h + 1]).max()) if h + 1 < mdp.horizon else 0.0
            theta[h] += 0.1 * x * (reward + future - x @ theta[h])
        if n >= 2**FIRST and n & (n - 1) == 0:
            errors[n] = rms_error(mdp, s4q.LinearQ.from_arrays(theta[:-1, None, :]))
    return errors


def moving_target_errors(mdp: FiniteMDP, seed: int) -> dict[int, float]:
    """S3Q's second-order update with basic Q-learning's target: the live parameter of the next level, at every step."""
    horizon = mdp.horizon
    fits = [s4q.StreamingLeastSquares(mdp.dim, ridge=1.0) for _ in range(horizon)]
    errors: dict[int, float] = {}
    for n, steps in enumerate(uniform_episodes(mdp, seed), start=1):
        for h, (x, reward, after) in enumerate(steps):
            future = float((after @ fits[h + 1].theta).max()) if h + 1 < horizon else 0.0
            fits[h].update(x, reward + future)
        if n >= 2**FIRST and n & (n - 1) == 0:
            errors[n] = rms_error(mdp, s4q.LinearQ.from_arrays(np.stack([fit.theta for fit in fits])[:, None, :]))
    return errors


def uniform_episodes(mdp: FiniteMDP, seed: int) -> Iterator[list[tuple[np.ndarray, float, np.ndarray]]]:
    """2^LAST episodes of the uniform policy as (phi, reward, next features) per level, played by plain numpy."""
    assert not mdp.terminal.any()
    low, spread = mdp.spec.reward_min, mdp.spec.reward_max - mdp.spec.reward_min
    arrivals, levels = np.cumsum(mdp.transitions, axis=-1), range(mdp.horizon)
    for part in range(2**LAST // 1024):
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(part, 0)))
        numbers = rng.random((1024, 1 + 3 * mdp.horizon))
        states = drawn(np.cumsum(mdp.start), numbers[:, 0])
        steps: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for h in levels:
            actions = drawn(np.arange(1, mdp.n_actions + 1) / mdp.n_actions, numbers[:, 1 + 3 * h])
            means = mdp.rewards[h, states, actions] - low
            noisy = mdp.reward_noise == "bernoulli"
            rewards = np.where(numbers[:, 2 + 3 * h] * spread < means, spread, 0.0) if noisy else means
            x = mdp.features.vectors[h, states, actions]
            states = drawn(arrivals[h, states, actions], numbers[:, 3 + 3 * h])
            steps.append((x, rewards, mdp.features.vectors[min(h + 1, mdp.horizon - 1), states]))
        for episode in range(1024):
            yield [(x[episode], float(rewards[episode]), after[episode]) for x, rewards, after in steps]


def drawn(cumulative: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """The outcome of each number in [0, 1), by cumulative probabilities (..., outcomes)."""
    return np.minimum((cumulative <= numbers[:, None]).sum(axis=-1), cumulative.shape[-1] - 1)


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
@pytest.mark.parametrize("planted", [basic_q_errors, moving_target_errors])
def test_q_learning_with_a_moving_target_fails_the_same_test(
    build: Callable[[], FiniteMDP], planted: Callable[[FiniteMDP, int], dict[int, float]]
) -> None:
    """First-order steps never settle; second-order ones carry early targets along, then forget them: too steep."""
    assert not -0.6 < slope(build(), planted, range(2)) < -0.4
