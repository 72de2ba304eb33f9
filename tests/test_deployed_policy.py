"""Policy: the same actions and values as the agent's, from one file, without environment or learner."""

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from benchmarks import deployed_policy as benchmark
from small_envs import Drift, MDPEnv
from small_problems import random_mdp

import s4q
from s4q.features import Dense, Fourier, FunctionFeatures, OneHot, PerAction, RandomFourier

LOW, HIGH = [-2.0, -2.0], [2.0, 2.0]


def drifting(features: Any = None, episodes: int = 30, **options: Any) -> s4q.Agent:
    features = PerAction(Fourier(low=LOW, high=HIGH, order=2), n_actions=3) if features is None else features
    return s4q.Agent(Drift(), features, horizon=6, reward_range=(-1.2, 0.5), seed=1, **options).learn(episodes)


def observations(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1.9, 1.9, (n, 2)).astype(np.float32)


def literal_values(policy: s4q.Policy, observation: np.ndarray, h: int) -> tuple[list[float], list[float]]:
    """Unclipped and shown values of every action, written out in loops from the arrays of the level."""
    level, spec = policy.q.levels[h], policy.spec
    psi = np.asarray(policy.features(h, observation[None]).vectors[0], dtype=np.float64)
    block_of = policy.features(h, observation[None]).blocks[0]
    raw, shown = [], []
    for action in range(spec.n_actions):
        phi, block = psi[action], int(block_of[action])
        dot = sum(float(a) * float(b) for a, b in zip(phi, level.theta[block], strict=True))
        white = [sum(float(a) * float(b) for a, b in zip(row, phi, strict=True)) for row in level.whitener[block]]
        length = sum(x * x for x in white) ** 0.5
        width = float(level.width[block])
        if level.second is not None:
            square = sum(float(a) * float(b) for a, b in zip(phi, level.second[block], strict=True))
            visits = max(1 / max(length**2, 1e-300) - level.ridge, 0.0)
            variance = min(max(square - dot * dot, 0.0), level.ceiling)
            sigma = ((visits * variance + level.noise) / max(visits, 1.0)) ** 0.5
            width += level.kappa * (sigma + level.lower_order * length)
        value = dot + width * length
        raw.append(value)
        shown.append(min(max(value, level.clip[0]), level.clip[1]) + (spec.horizon - h) * spec.reward_min)
    return raw, shown


@pytest.mark.parametrize("exact", [False, True])
def test_actions_and_values_are_those_of_the_formula(exact: bool, tmp_path: Path) -> None:
    agent = drifting(well_specified=exact)
    agent.policy.save(tmp_path / "policy.s4q")
    policy = s4q.Policy.load(tmp_path / "policy.s4q")
    assert policy.spec.reward_min == -1.2  # so that units matter
    seen = set()
    for observation in observations(25):
        for step in range(6):
            raw, shown = literal_values(policy, observation, step)
            action = policy.act(observation, step)
            assert raw[action] == pytest.approx(max(raw), abs=1e-9)
            np.testing.assert_allclose(policy.q_values(observation, step), shown, rtol=0, atol=1e-9)
            seen.add(action)
    assert len(seen) > 1


def test_values_are_in_the_units_of_the_rewards() -> None:
    """Q* of CliffWalking by value iteration written out here: rewards of -1 and -100, ends before the horizon."""
    horizon, table = 15, gym.make("CliffWalking-v1").unwrapped.P
    after, best = np.zeros(48), np.zeros((horizon, 48, 4))
    for h in reversed(range(horizon)):
        for s in range(48):
            for a in range(4):
                [(_, following, reward, ended)] = table[s][a]
                best[h, s, a] = reward + (0.0 if ended else after[following])
        after = best[h].max(axis=1)
    mdp = s4q.problems.from_gymnasium("CliffWalking-v1", horizon)
    shifted = best + 100.0 * np.arange(horizon, 0, -1)[:, None, None]
    q = s4q.LinearQ.from_arrays(shifted.reshape(horizon, -1, 1))
    policy = s4q.Policy(q, OneHot(48, n_actions=4), s4q.Spec.of(OneHot(48, 4), horizon=horizon, reward_range=(-100, 0)))
    assert mdp.v_star == pytest.approx(-13.0)
    assert policy.q_values(36).max() == pytest.approx(-13.0)
    for h in (0, 7, 14):
        np.testing.assert_allclose(policy.q_values(np.arange(48), h), best[h], atol=1e-9)
        for s in range(48):
            assert best[h, s, policy.act(s, h)] == best[h, s].max()


@pytest.mark.parametrize("first", [0, 5, -3])
def test_actions_are_the_environments_numbers(first: int, tmp_path: Path) -> None:
    mdp = random_mdp(5, 3, 4, horizon=4, seed=4)
    agent = s4q.Agent(MDPEnv(mdp, first_action=first), horizon=4, reward_range=(0, 1), seed=0).learn(40)
    agent.policy.save(tmp_path / "policy.s4q")
    policy = s4q.Policy.load(tmp_path / "policy.s4q")
    for h in range(4):
        want = [int(np.argmax(literal_values(policy, np.array(s), h)[0])) + first for s in range(5)]
        assert [policy.act(s, h) for s in range(5)] == want
        assert policy.act(np.arange(5), h).tolist() == want
        assert [int(agent.predict(s, state=h)[0]) for s in range(5)] == want
    assert type(policy.act(2, 0)) is int
    assert first <= policy.act(np.int64(2), 0) < first + 3


def test_batches_are_rows_one_by_one() -> None:
    policy = drifting().policy
    batch, steps = observations(40), np.arange(40) % 6
    actions, values = policy.act(batch, steps), policy.q_values(batch, steps)
    assert actions.tolist() == [policy.act(one, int(h)) for one, h in zip(batch, steps, strict=True)]
    one_by_one = [policy.q_values(one, int(h)) for one, h in zip(batch, steps, strict=True)]
    np.testing.assert_allclose(values, one_by_one, atol=1e-10)
    assert policy.act(batch, 2).tolist() == policy.act(batch, np.full(40, 2)).tolist()
    assert policy.act(batch, steps + 6).tolist() == actions.tolist()  # after the horizon it starts over
    assert policy.act(batch[:0], 0).shape == (0,)
    assert policy.q_values(batch[:0]).shape == (0, 3)
    one = policy.act(batch[3], np.int64(4))
    assert one == policy.act(batch[3], 4)
    assert type(one) is int


WITHOUT_GYMNASIUM = """
import sys
for name in ("gymnasium", "gym", "sklearn", "matplotlib"):
    sys.modules[name] = None  # an import of it raises
import json, numpy as np, s4q
policy = s4q.Policy.load(sys.argv[1])
batch = np.random.default_rng(0).uniform(-1.9, 1.9, (50, 2)).astype(np.float32)
one_by_one = [policy.act(one, 5) for one in batch]
print(json.dumps([policy.act(batch, 3).tolist(), one_by_one, policy.q_values(batch[0], 1).tolist()]))
"""


def test_it_needs_no_gymnasium(tmp_path: Path) -> None:
    """In a process that cannot import it: the same actions, and the same values to the last bit."""
    path = tmp_path / "policy.s4q"
    policy = drifting().policy
    policy.save(path)
    printed = subprocess.run(
        [sys.executable, "-c", WITHOUT_GYMNASIUM, str(path)], capture_output=True, text=True, check=True
    )
    batch = observations(50)
    want = [policy.act(batch, 3).tolist(), [policy.act(one, 5) for one in batch], policy.q_values(batch[0], 1).tolist()]
    assert json.loads(printed.stdout) == want


FEATURES = {
    "fourier": PerAction(Fourier(low=LOW, high=HIGH, order=2), n_actions=3),
    "random": PerAction(RandomFourier(low=LOW, high=HIGH, dim=20, width=0.5, seed=3), n_actions=3),
}


@pytest.mark.parametrize("name", FEATURES)
def test_a_file_holds_everything(name: str, tmp_path: Path) -> None:
    policy = drifting(FEATURES[name]).policy
    policy.save(tmp_path / "one.s4q")
    again = s4q.Policy.load(tmp_path / "one.s4q")
    assert again.q.same_as(policy.q)
    assert (again.spec, again.env, again.horizon, again.n_actions) == (policy.spec, "Drift", 6, 3)
    assert repr(again) == repr(policy)
    again.save(tmp_path / "two.s4q")  # a loaded policy can be saved
    assert (tmp_path / "one.s4q").read_bytes() == (tmp_path / "two.s4q").read_bytes()
    worker = pickle.loads(pickle.dumps(again))  # as a worker process would get it
    assert worker.act(observations(9), 2).tolist() == policy.act(observations(9), 2).tolist()


def waves(shift: float, k: int = 8) -> Any:
    def evaluate(h: int, states: Any) -> s4q.Phi:
        angles = np.asarray(states, dtype=np.float64) @ np.linspace(1, 2, 2 * k).reshape(2, k) + shift
        vectors = np.repeat(np.cos(angles)[:, None] / np.sqrt(k), 3, axis=1)
        return s4q.Phi(vectors, np.broadcast_to(np.arange(3), (len(angles), 3)).copy())

    return FunctionFeatures(evaluate, n_actions=3, n_blocks=3, block_dim=k)


def test_features_of_the_users_own_are_passed_again_and_compared(tmp_path: Path) -> None:
    path = tmp_path / "policy.s4q"
    policy = drifting(waves(0.0)).policy
    policy.save(path)
    with pytest.raises(ValueError, match=r"holds code of your own, which no file carries.*features=\.\.\."):
        s4q.Policy.load(path)
    again = s4q.Policy.load(path, features=waves(0.0))
    assert again.act(observations(20), 1).tolist() == policy.act(observations(20), 1).tolist()
    with pytest.raises(ValueError, match=r"not those the policy was learned with: at observation .* other values"):
        s4q.Policy.load(path, features=waves(1e-4))  # of the same size
    with pytest.raises(ValueError, match=r"do not fit the policy: .* block_dim is 9 and 8"):
        s4q.Policy.load(path, features=waves(0.0, k=9))
    with pytest.raises(ValueError, match="they raise TypeError"):
        s4q.Policy.load(path, features=FunctionFeatures(lambda: 0, n_actions=3, n_blocks=3, block_dim=8))


def test_other_features_of_the_library_are_refused_too(tmp_path: Path) -> None:
    drifting().policy.save(tmp_path / "policy.s4q")
    same = PerAction(Fourier(low=LOW, high=HIGH, order=2), n_actions=3)
    s4q.Policy.load(tmp_path / "policy.s4q", features=same)
    with pytest.raises(ValueError, match="not those the policy was learned with"):
        s4q.Policy.load(
            tmp_path / "policy.s4q", features=PerAction(Fourier(low=LOW, high=[2.0, 2.5], order=2), n_actions=3)
        )


def test_the_fingerprint_draws_nothing_from_the_environment(tmp_path: Path) -> None:
    env = Drift()
    env.observation_space.seed(5)
    features = PerAction(Fourier(low=LOW, high=HIGH, order=1), n_actions=3)
    agent = s4q.Agent(env, features, horizon=3, reward_range=(-1.2, 0.5)).learn(3)
    agent.policy.save(tmp_path / "policy.s4q")
    fresh = Drift()
    fresh.observation_space.seed(5)
    assert np.array_equal(env.observation_space.sample(), fresh.observation_space.sample())


def test_files_of_the_other_kind_say_who_reads_them(tmp_path: Path) -> None:
    agent = drifting(episodes=5)
    agent.save(tmp_path / "agent.s4q")
    agent.policy.save(tmp_path / "policy.s4q")
    with pytest.raises(s4q.CheckpointError, match=r"not a policy .*: it is a checkpoint; s4q\.Agent\.load"):
        s4q.Policy.load(tmp_path / "agent.s4q")
    with pytest.raises(s4q.CheckpointError, match=r"not a checkpoint .*: it is a policy; s4q\.Policy\.load reads it"):
        s4q.Agent.load(tmp_path / "policy.s4q", Drift())


@pytest.mark.parametrize("at", [100, -200, -1])
def test_one_flipped_byte_is_noticed(at: int, tmp_path: Path) -> None:
    path = tmp_path / "policy.s4q"
    drifting(episodes=5).policy.save(path)
    broken = bytearray(path.read_bytes())
    broken[at] ^= 1
    path.write_bytes(broken)
    with pytest.raises(s4q.CheckpointError, match="is not a policy that can be read"):
        s4q.Policy.load(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(s4q.CheckpointError, match=r"it does not exist.*save it again"):
        s4q.Policy.load(tmp_path / "nowhere.s4q")
    with pytest.raises(s4q.CheckpointError, match="there is no folder"):
        drifting(episodes=3).policy.save(tmp_path / "none" / "policy.s4q")


def _spoiled(states: Any) -> np.ndarray:
    """Features of the user's own that are NaN for the second action of state 3."""
    found = np.full((len(states), 2, 2), 0.5)
    found[np.asarray(states) == 3, 1] = np.nan
    return found


def _spec(features: Any) -> s4q.Spec:
    return s4q.Spec.of(features, horizon=2, reward_range=(0, 1))


def test_wrong_calls_say_what_is_wrong() -> None:
    policy = drifting(episodes=5).policy
    good = observations(1)[0]
    for bad in (np.array([np.nan, 0.0]), np.array([[np.nan, 0.0], good])):
        with pytest.raises(ValueError, match=r"(?s)observation .*finite; pass an observation as Drift gives it"):
            policy.act(bad, 0)
        with pytest.raises(ValueError, match="must be finite"):
            policy.q_values(bad)
    unchecked = s4q.Policy(
        s4q.LinearQ.from_arrays(np.ones((2, 1, 2))), Dense(_spoiled, 2, 2), _spec(Dense(_spoiled, 2, 2))
    )
    for spoiled in (3, [0, 3]):
        with pytest.raises(ValueError, match=r"observation .*(finite|nan)"):
            unchecked.act(spoiled, 0)
    assert unchecked.act(0, 0) == 0
    with pytest.raises(ValueError, match=r"observation must have the shape \(2,\)"):
        policy.act(np.zeros(3), 0)
    for step in (-1, 1.0, [1, 2], "two"):
        with pytest.raises(ValueError, match="step must be the number of steps taken so far"):
            policy.act(good, step)
    with pytest.raises(ValueError, match="q must be a LinearQ"):
        s4q.Policy(s4q.UniformPolicy(3), policy.features, policy.spec)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n_actions"):
        s4q.Policy(policy.q, OneHot(3, n_actions=2), policy.spec)
    table = s4q.Agent(gym.make("FrozenLake-v1"), horizon=4, reward_range=(0, 1)).policy
    for state in (16, -1, 2.5):
        with pytest.raises(ValueError, match=r"observation .*FrozenLake-v1 gives it"):
            table.act(state, 0)


def test_best_and_newest_are_both_there(tmp_path: Path) -> None:
    agent = s4q.Agent(gym.make("FrozenLake-v1"), horizon=20, reward_range=(0, 1), seed=0)
    while agent.learner.best is agent.learner.policy:
        agent.learn(7)
    assert agent.best.q is agent.policy.q is agent.learner.best
    assert agent.newest.q is agent.learner.policy
    assert agent.policy is agent.policy  # made once
    states = np.arange(16)
    levels = np.full(16, 3)
    assert agent.predict(states, levels)[0].tolist() == agent.best.act(states, 3).tolist()
    assert agent.predict(states, levels, policy="newest")[0].tolist() == agent.newest.act(states, 3).tolist()
    assert any(agent.best.act(states, h).tolist() != agent.newest.act(states, h).tolist() for h in range(20))
    mdp = s4q.problems.from_gymnasium("FrozenLake-v1", 20)
    exact = {"best": mdp.value(agent.best.q), "newest": mdp.value(agent.newest.q)}
    for which in ("best", "newest"):
        found = agent.evaluate(300, policy=which)  # type: ignore[arg-type]
        assert found.mean == pytest.approx(exact[which], abs=0.12)
    with pytest.raises(ValueError, match=r"policy must be .best.*, .newest. or .no_bonus.*; got 'last'"):
        agent.evaluate(3, policy="last")  # type: ignore[arg-type]
    agent.newest.save(tmp_path / "newest.s4q")
    assert s4q.Policy.load(tmp_path / "newest.s4q").q.same_as(agent.learner.policy)


def test_the_newest_policy_without_its_bonus(tmp_path: Path) -> None:
    """It takes the action with the highest fitted value, whatever was seen how often."""
    agent = s4q.Agent(gym.make("FrozenLake-v1"), horizon=20, reward_range=(0, 1), seed=0).learn(200)
    states = np.arange(16)
    theta = agent.learner.policy.theta.reshape(20, 16, 4)  # one-hot: a number for every pair
    for h in (0, 7, 19):
        assert agent.no_bonus.act(states, h).tolist() == theta[h].argmax(axis=1).tolist()
        estimates = agent.no_bonus.q_values(states, np.full(16, h))
        np.testing.assert_allclose(estimates, theta[h], atol=1e-12)
        assert agent.predict(states, np.full(16, h), policy="no_bonus")[0].tolist() == theta[h].argmax(axis=1).tolist()
    assert any(agent.no_bonus.act(states, h).tolist() != agent.newest.act(states, h).tolist() for h in range(20))
    agent.no_bonus.save(tmp_path / "plain.policy")
    assert s4q.Policy.load(tmp_path / "plain.policy").q.same_as(agent.no_bonus.q)
    before = agent.no_bonus
    assert agent.no_bonus is before  # made once
    phases = agent.learner.phases
    while agent.learner.phases == phases:
        agent.learn(10)
    assert agent.no_bonus is not before  # of the new fit


def parts(states: Any) -> np.ndarray:
    """Features of dictionaries: where and lamp."""
    found = np.zeros((len(states), 4, 2))
    for i, state in enumerate(states):
        found[i, :, 0] = state["where"][0] * np.array([1, -1, 0.5, 0])
        found[i, :, 1] = 0.3 * state["lamp"]
    return found


def test_observations_with_parts_and_actions_with_several_numbers(tmp_path: Path) -> None:
    """A dictionary goes to the features as it is, and an action is a row of the table of actions."""
    features = Dense(parts, n_actions=4, dim=2)
    spec = s4q.Spec.of(features, horizon=2, reward_range=(0, 1))
    table = [[0, 5], [0, 6], [1, 5], [1, 6]]
    q = s4q.LinearQ.from_arrays(np.array([[[1.0, 0.0]], [[-1.0, 0.0]]]))
    policy = s4q.Policy(q, features, spec, actions=table, observation_shape=None)
    policy.save(tmp_path / "policy.s4q")
    for one in (policy, s4q.Policy.load(tmp_path / "policy.s4q", features=features)):
        left, right = {"where": [-0.5], "lamp": 1}, {"where": [0.5], "lamp": 0}
        assert one.act(right, 0).tolist() == [0, 5]
        assert one.act(left, 0).tolist() == [0, 6]
        assert one.act([left, right, right], step=[0, 0, 1]).tolist() == [[0, 6], [0, 5], [0, 6]]
        np.testing.assert_allclose(one.q_values(right), [0.5, -0.5, 0.25, 0])
        np.testing.assert_allclose(one.q_values([right, left], 0), [[0.5, -0.5, 0.25, 0], [-0.5, 0.5, -0.25, 0]])
    with pytest.raises(ValueError, match="actions must be whole numbers, one entry for each of 4"):
        s4q.Policy(q, features, spec, actions=[1, 2])


def test_the_benchmark_runs() -> None:
    row = benchmark.measured("random Fourier, 50 per action", n=20, episodes=3)
    assert row.act > 0
    assert row.file_bytes > 8 * 50 * 50 * 2


@pytest.mark.slow
def test_a_call_takes_less_than_50_microseconds() -> None:
    """100 features for each action. CPU time, the least of several tries, since the machine may be busy."""
    rows = [benchmark.measured("random Fourier, 100 per action") for _ in range(4)]
    assert min(row.act for row in rows) < 50
    assert min(row.q_values for row in rows) < 50
