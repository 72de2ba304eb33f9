"""What `make peers` measures with: the chain, the account of regret, bytes, and SARSA(lambda) on tiles."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import s4q
from chain import HORIZON, Chain, optimal_values, tables
from chain_growth import exponent, verdict
from control_meter import metered, new_record
from control_study import good_from
from held_bytes import held_bytes
from s4q.features import Tiles
from tile_sarsa import TileSarsa


def test_the_chain_is_the_built_in_one() -> None:
    mdp = s4q.problems.chain()
    transitions, rewards = tables()
    for h in range(HORIZON):
        np.testing.assert_allclose(transitions, mdp.transitions[h], atol=1e-15)
        np.testing.assert_allclose(rewards, mdp.rewards[h], atol=1e-15)
    np.testing.assert_allclose(optimal_values(), mdp.q_star, atol=1e-12)
    assert Chain().v_star == pytest.approx(mdp.v_star, abs=1e-12)


def returns_and_regrets(act: Callable[[int, int], int], episodes: int) -> tuple[Chain, np.ndarray]:
    """A Chain that played a policy, and the regret of each episode."""
    chain, regrets = Chain(seed=3), []
    for _ in range(episodes):
        before, (state, _) = chain.regret, chain.reset()
        for h in range(HORIZON):
            state, _, terminated, truncated, _ = chain.step(act(h, state))
            assert not terminated
            assert truncated == (h == HORIZON - 1)
        regrets.append(chain.regret - before)
    return chain, np.array(regrets)


def test_regret_has_the_mean_of_the_gap_of_the_policy_that_played() -> None:
    """A policy that goes left in two states at some levels, against its value by the dynamic programming of s4q."""
    mdp = s4q.problems.chain()
    actions = np.ones((HORIZON, 10), dtype=np.int64)
    actions[7:, 3] = 0
    actions[2, 1:3] = 0
    chain, regrets = returns_and_regrets(lambda h, state: int(actions[h, state]), 2_000)
    table = np.eye(2)[actions]
    occupancy, value = np.eye(10)[0], 0.0
    for h in range(HORIZON):
        pairs = occupancy[:, None] * table[h]
        value += float((pairs * mdp.rewards[h]).sum())
        occupancy = np.einsum("sa,sat->t", pairs, mdp.transitions[h])
    error = regrets.std() / np.sqrt(len(regrets))
    assert abs(regrets.mean() - (mdp.v_star - value)) < 4 * error + 1e-9
    assert mdp.v_star - value > 20 * error  # it would see a wrong account
    assert chain.n_episodes == 2_000
    assert chain.n_steps == 2_000 * HORIZON


def test_the_best_policy_has_no_regret() -> None:
    best = optimal_values().argmax(axis=2)
    chain, regrets = returns_and_regrets(lambda h, state: int(best[h, state]), 300)
    assert regrets.max() == 0.0
    assert chain.total_return / 300 == pytest.approx(chain.v_star, abs=0.15)


def test_bytes_are_those_of_everything_held_once() -> None:
    array = np.zeros(10_000)
    assert 80_000 < held_bytes(array) < 80_500
    assert held_bytes([array, array, array[:5]]) < 81_500
    assert held_bytes({"a": [array], "b": np.zeros(10_000)}) > 160_000
    assert held_bytes([array[:5]]) > 80_000  # a view keeps the whole array alive


def test_exponent_is_the_slope_in_log_k() -> None:
    runs = [{"episodes": k, "cpu_seconds": 3e-4 * k**2, "bytes": 77} for k in (100, 200, 800)]
    assert exponent(runs, "cpu_seconds") == pytest.approx(2.0)
    assert exponent(runs, "bytes") == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("seconds", "regret", "missed"), [(1.0, 90.0, 0), (9.0, 90.0, 1), (9.0, 101.0, 2)])
def test_verdict_sees_a_slow_or_worse_learner(seconds: float, regret: float, missed: int) -> None:
    def runs(cpu: float, lost: float) -> list[dict[str, Any]]:
        return [{"episodes": k, "cpu_seconds": cpu * k / 800, "regret": lost, "bytes": 1} for k in (100, 800)]

    found = verdict({"runs": {"rlberry-scool lsvi_ucb": runs(250.0, 100.0), "s4q lsvi_ucb": runs(seconds, regret)}})
    assert found[0].count("missed") == missed


def test_good_from_is_the_end_of_the_first_good_window() -> None:
    returns = [0.0] * 30 + [500.0] * 40
    assert good_from({"returns": returns}, "CartPole-v1") == 30 + 19
    assert good_from({"returns": returns[:45]}, "CartPole-v1") is None
    assert good_from({"returns": [500.0] * 5}, "CartPole-v1") is None


def test_the_meter_notes_every_finished_episode() -> None:
    record, env = new_record(), gym.make("CartPole-v1")
    metered(env, record)
    lengths = []
    for seed in range(3):
        env.reset(seed=seed)
        n, over = 0, False
        while not over:
            _, _, terminated, truncated, _ = env.step(n % 2)
            n, over = n + 1, terminated or truncated
        lengths.append(n)
    env.reset(seed=9)
    env.step(0)  # not finished: not noted
    assert record["lengths"] == lengths
    assert record["returns"] == lengths


class Corridor(gym.Env[Any, Any]):
    """Three places in a row; action 1 goes right, 0 stays; -1 a step until the end, at most 30 steps."""

    observation_space = gym.spaces.Box(0.0, 1.0, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.place, self.n = 0, 0
        return np.array([0.0]), {}

    def step(self, action: Any) -> Any:
        self.place += int(action)
        self.n += 1
        return np.array([self.place / 3]), -1.0, self.place == 3, self.n == 30, {}


def corridor_learner(**settings: Any) -> TileSarsa:
    return TileSarsa(Tiles(low=[0.0], high=[1.0], n_tilings=1, tiles_per_dim=3), 2, epsilon=0.0, **settings)


def test_one_episode_of_tile_sarsa_by_hand() -> None:
    """Action 0 is worth -9 everywhere and action 1 is worth 0, so the way is right, right, right."""
    learner = corridor_learner(step_size=0.25, trace=0.5)
    learner.theta[0] = -9.0
    learner.episode(Corridor())
    # Every error is -1, because Q of action 1 is 0 where nobody was yet. A trace halves after each step.
    by_hand = [-0.25 * (1 + 0.5 + 0.25), -0.25 * (1 + 0.5), -0.25]
    np.testing.assert_allclose(learner.theta[1], by_hand, atol=1e-12)
    np.testing.assert_allclose(learner.theta[0], -9.0)


def test_tile_sarsa_learns_the_way() -> None:
    learner, env = corridor_learner(), Corridor()
    for _ in range(60):
        learner.episode(env)
    assert [learner.action(learner.active([place / 3])) for place in range(3)] == [1, 1, 1]
    np.testing.assert_allclose(learner.theta[1], [-3.0, -2.0, -1.0], atol=0.05)
