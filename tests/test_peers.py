"""What `make peers` measures with: the chain, the account of regret, bytes, and SARSA(lambda) on tiles."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import chain_growth
import play_s4q
import s4q
from chain import HORIZON, Chain, optimal_values, tables
from chain_env import ChainEnv
from chain_growth import AT, OWN, exponent, verdict
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


def test_the_environment_of_the_chain_keeps_its_account() -> None:
    """What other packages are given: two episodes that go left all the time, beside the chain itself."""
    env, chain = ChainEnv(seed=5), Chain(seed=5)
    for _ in range(2):
        assert env.reset(seed=9)[0] == chain.reset()[0]
        for _ in range(HORIZON):
            assert env.step(np.int64(0)) == chain.step(0)
    assert env.chain.regret == chain.regret > 1.0
    assert env.chain.n_episodes == 2
    assert (env.observation_space.n, env.action_space.n) == (10, 2)


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


def runs_with(cpu: float, lost: float, numbers: tuple[int, ...] = (100, AT)) -> list[dict[str, Any]]:
    return [{"episodes": k, "cpu_seconds": cpu * k / AT, "regret": lost, "bytes": 1} for k in numbers]


THEIRS = {"rlberry-scool lsvi_ucb": runs_with(250.0, 100.0)}


@pytest.mark.parametrize(("seconds", "regret", "missed"), [(1.0, 90.0, 0), (9.0, 90.0, 1), (9.0, 101.0, 2)])
def test_verdict_sees_a_slow_or_worse_learner(seconds: float, regret: float, missed: int) -> None:
    found = verdict({"runs": {**THEIRS, "s4q lsvi_ucb": runs_with(seconds, regret)}})
    assert found[0].count("missed") == missed


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ({**THEIRS, "s4q lsvi_ucb": "no wheel"}, "s4q lsvi_ucb: not played, no wheel"),
        (THEIRS, "s4q lsvi_ucb: never played"),
        (
            {"rlberry-scool lsvi_ucb": "no wheel", "s4q lsvi_ucb": runs_with(1.0, 1.0)},
            "rlberry-scool lsvi_ucb: not played",
        ),
        ({**THEIRS, "s4q lsvi_ucb": runs_with(1.0, 1.0, (100, 200))}, "s4q lsvi_ucb: no run with 800 episodes"),
        ({}, "rlberry-scool lsvi_ucb: never played"),
    ],
)
def test_a_missing_run_is_named_and_never_met(runs: dict[str, Any], why: str) -> None:
    first = verdict({"runs": runs})[0]
    assert why in first
    assert "missed" in first
    assert "met" not in first


def chain_growth_on(
    path: Path, monkeypatch: pytest.MonkeyPatch, outcome: list[dict[str, Any]] | Exception
) -> dict[str, Any]:
    """The results file after one attempt to play our LSVI-UCB, which has this outcome."""

    def attempt(*_: Any) -> list[dict[str, Any]]:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(chain_growth, "played", attempt)
    chain_growth.main(["--learners", "s4q lsvi_ucb", "--results", str(path)])
    results: dict[str, Any] = json.loads(path.read_text())["runs"]
    return results


def test_a_failed_attempt_keeps_finished_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, good, better = tmp_path / "new" / "chain.json", runs_with(2.0, 90.0), runs_with(1.0, 80.0)
    assert chain_growth_on(path, monkeypatch, RuntimeError("no network")) == {"s4q lsvi_ucb": "no network"}
    assert chain_growth_on(path, monkeypatch, good) == {"s4q lsvi_ucb": good}
    capsys.readouterr()
    assert chain_growth_on(path, monkeypatch, RuntimeError("disk full")) == {"s4q lsvi_ucb": good}
    told = capsys.readouterr().out
    assert "failed: disk full (the runs in the file are kept)" in told
    assert "failed in this run" in told
    assert chain_growth_on(path, monkeypatch, better) == {"s4q lsvi_ucb": better}
    assert [one.name for one in path.parent.iterdir()] == ["chain.json"]


def test_a_script_that_prints_nothing_has_failed(tmp_path: Path) -> None:
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\n")
    silent.chmod(0o755)
    with pytest.raises(RuntimeError, match="printed no run"):
        chain_growth.played(chain_growth.LEARNERS[0], silent)


def test_their_constants_are_those_of_the_other_package() -> None:
    """The bonus of our LSVI-UCB after some episodes, against |phi| + H |phi|^2 with the ridge 0.1, from visits."""
    assert {f"s4q {own}" for own in OWN} <= {learner.key for learner in chain_growth.LEARNERS}
    mdp, visits = s4q.problems.chain(), np.zeros((10, 2))
    learner = play_s4q.built("lsvi_ucb_their_constants", mdp, 20, seed=1)
    collector = s4q.collectors.EpisodeCollector(mdp, seed=1)
    for _ in range(20):
        policy, request = learner.q, learner.ask(20)
        assert isinstance(request, s4q.Explore)
        answer = collector.collect(request)
        assert answer.kept is not None
        np.add.at(visits.reshape(-1), answer.kept.blocks, answer.kept.weights)
        learner.tell(request, answer)
        if learner.q is not policy:
            for h in range(HORIZON):
                phi = mdp.features.level(h)
                bonus = learner.q.optimistic(h, phi) - learner.q.theta[h].reshape(10, 2)
                np.testing.assert_allclose(bonus, (visits + 0.1) ** -0.5 + 10 / (visits + 0.1), rtol=1e-9)
                assert learner.q.levels[h].clip[1] == HORIZON
    assert visits.sum() == 20 * HORIZON


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
