"""from_gymnasium: the exact problem behind a table, against dynamic programming on the table and known optima."""

import sys

import gymnasium as gym
import numpy as np
import pytest

import s4q
from s4q.collectors import CountCollector, EpisodeCollector
from s4q.core.messages import Explore
from s4q.problems import from_gymnasium


def literal_value(env: gym.Env, horizon: int) -> float:
    """V* by backward induction on the table, an ended episode worth nothing more."""
    inner = env.unwrapped
    n_states, n_actions = len(inner.P), len(inner.P[0])
    value = np.zeros(n_states)
    for _ in range(horizon):
        q = np.zeros((n_states, n_actions))
        for s in range(n_states):
            for a in range(n_actions):
                q[s, a] = sum(p * (r + (0.0 if done else value[t])) for p, t, r, done in inner.P[s][a])
        value = q.max(axis=1)
    return float(inner.initial_state_distrib @ value)


@pytest.mark.parametrize(
    ("name", "horizon"), [("FrozenLake-v1", 50), ("FrozenLake8x8-v1", 30), ("CliffWalking-v1", 20), ("Taxi-v4", 25)]
)
def test_values_are_those_of_the_table(name: str, horizon: int) -> None:
    mdp = from_gymnasium(name, horizon)
    assert mdp.v_star == pytest.approx(literal_value(gym.make(name), horizon), abs=1e-9)
    assert mdp.spec.stationary
    assert mdp.terminal.any()


def test_known_optima() -> None:
    assert from_gymnasium("CliffWalking-v1", 20).v_star == pytest.approx(-13.0)
    lake = from_gymnasium("FrozenLake-v1", 10, env_options={"is_slippery": False})
    assert lake.v_star == pytest.approx(1.0)
    assert from_gymnasium("FrozenLake-v1", 5, env_options={"is_slippery": False}).v_star == 0.0  # six moves are needed


def test_rewards_are_paid_on_arrival() -> None:
    """FrozenLake pays 1 exactly when the goal is entered: returns are 0 or 1, so squares of returns equal returns."""
    mdp = from_gymnasium("FrozenLake-v1", 30)
    white = np.ones((30, mdp.spec.n_blocks, 1, 1))
    best = s4q.LinearQ.from_arrays(mdp.q_star.reshape(30, -1, 1))
    request = Explore(0, best, white, (np.inf, 0.0), 3000)
    played, counted = (kind(mdp, seed=1).collect(request) for kind in (EpisodeCollector, CountCollector))
    assert played.return_sum == played.return_sum_sq
    assert played.return_sum / 3000 == pytest.approx(mdp.v_star, abs=0.05)
    assert counted.return_sum / 3000 == pytest.approx(mdp.v_star, abs=0.05)
    assert counted.return_sum == pytest.approx(round(counted.return_sum), abs=1e-9)


@pytest.mark.slow
def test_negative_rewards_are_shifted_and_reaching_the_goal_stays_best() -> None:
    mdp = from_gymnasium("CliffWalking-v1", 20)
    assert (mdp.spec.reward_min, mdp.spec.reward_max) == (-100.0, 0.0)
    run = s4q.run(s4q.S4Q(mdp), CountCollector(mdp, seed=0), 2000)
    assert run.gap is not None
    assert run.gap < 3.0  # of 13 steps; a learner that forgot what an end is worth would wait 20 steps
    assert mdp.value(run.policy) > -20


class Loop:
    """A state that is entered both by going on and by ending."""

    P = {0: {0: [(0.5, 1, 0.0, False), (0.5, 1, 1.0, True)]}, 1: {0: [(1.0, 0, 0.0, False)]}}  # noqa: RUF012
    initial_state_distrib = np.array([1.0, 0.0])


def test_a_state_entered_both_ways_gets_an_end_of_its_own() -> None:
    mdp = from_gymnasium(Loop(), 3)
    assert mdp.n_states == 3
    assert mdp.terminal.tolist() == [False, False, True]
    assert mdp.v_star == pytest.approx(0.5 + 0.5 * 0.5)


def test_what_has_no_table_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unwrapped.P.*CartPoleEnv does not"):
        from_gymnasium("CartPole-v1", 10)
    with pytest.raises(ValueError, match=r"horizon .*got 0"):
        from_gymnasium("FrozenLake-v1", 0)


def test_a_missing_gymnasium_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ImportError, match=r'pip install "s4q\[gym\]"'):
        from_gymnasium("FrozenLake-v1", 10)
