"""Bad environments: an error that names env, episode, step and cure, and a learner that is as it was."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from asking import regress_request
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from small_envs import Broken, Drift, Waves
from test_gym_env import drift_spec

import s4q
from s4q.collectors import BatchCollector, GymCollector, VectorCollector
from s4q.core.messages import Explore, Phi

FEATURES = Waves(3, 4, dense=False)
SPEC = drift_spec(FEATURES)


def raising(result: tuple) -> tuple:
    raise ZeroDivisionError("motor")


SPOILS: dict[str, tuple[Callable[[tuple], tuple], str]] = {
    "NaN reward": (lambda r: (r[0], np.nan, *r[2:]), r"step 1: the reward is nan; rewards must be finite"),
    "infinite reward": (lambda r: (r[0], np.inf, *r[2:]), r"step 1: the reward is inf; rewards must be finite"),
    "reward too high": (lambda r: (r[0], 3.0, *r[2:]), r"step 1: the reward is 3.0, outside .*\[-1.5, 0.5\].*declare"),
    "no number": (lambda r: (r[0], "a lot", *r[2:]), r"step 1: the reward is 'a lot'; it must be a number"),
    "outside": (lambda r: (np.full(2, 5.0, np.float32), *r[1:]), r"step 2: observation .* outside .*correct the env"),
    "NaN seen": (lambda r: (np.full(2, np.nan, np.float32), *r[1:]), r"step 2: observation .*nan.* outside"),
    "shape": (lambda r: (np.zeros(3, np.float32), *r[1:]), r"step 2: observation .* outside"),
    "raises": (raising, r"step 1: env.step raised ZeroDivisionError: motor"),
    "a word": (lambda r: (*r[:2], "no", *r[3:]), r"step 1: terminated is 'no'; it must be True or False"),
    "four values": (lambda r: (*r[:3], {}), r"step 1: env.step returned 4 values; Gymnasium asks for \(observation, "),
    "no tuple": (lambda r: r[1], r"step 1: env.step returned a float; Gymnasium asks for"),
    "a word more": (lambda r: (*r[:3], "no", {}), r"step 1: truncated is 'no'; it must be True or False"),
}


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("kind", SPOILS)
def test_the_error_names_env_episode_step_and_cure_and_the_learner_is_intact(kind: str, vector: bool) -> None:
    if vector and kind in ("shape", "a word", "a word more", "no tuple"):
        pytest.skip("a VectorEnv makes arrays of what it gets, or refuses to")
    spoil, message = SPOILS[kind]
    # Two good shards first, so that something has been learned before.
    learner = s4q.S4Q(SPEC, "realisable", trigger=4.0)
    s4q.run(learner, GymCollector(Drift(), FEATURES, SPEC, seed=1), 30)
    before, q = learner.ask(100), learner.q

    def make() -> gym.Env:
        return Broken(Drift(), 1, spoil, from_episode=0 if vector else 2)

    if vector:
        env = SyncVectorEnv([make] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
        bad = VectorCollector(env, FEATURES, SPEC, seed=1, reset_early=False)
    else:
        bad = GymCollector(make(), FEATURES, SPEC, seed=1, reset_early=False)
    if vector and kind in ("no number", "four values"):
        message = r"env.step raised"
    name = "SyncVectorEnv" if vector else "Drift"
    start = rf"^{name}: episode \d+ of request {before.id}, reset with seed \d+, "
    with pytest.raises(ValueError, match=rf"{start}.*{message}"):
        s4q.run(learner, bad, 100)
    after = learner.ask(100)
    assert (after.id, after.done, after.n_episodes) == (before.id, before.done, before.n_episodes)
    assert learner.q.same_as(q)
    s4q.run(learner, GymCollector(Drift(), FEATURES, SPEC, seed=1), 30)


def test_the_error_tells_how_to_see_it_again() -> None:
    env = Broken(Drift(), 1, SPOILS["NaN reward"][0], from_episode=5)
    request = Explore(3, s4q.UniformPolicy(3), np.tile(np.eye(4), (8, 3, 1, 1)), (np.inf, 0.0), 20)
    with pytest.raises(ValueError, match=r"episode 5 of request 3, reset with seed (\d+)") as caught:
        GymCollector(env, FEATURES, SPEC).collect(request)
    seed = int(str(caught.value).split("seed ")[1].split(",")[0])
    assert np.isnan([env.reset(seed=seed), env.step(0), env.step(0)][2][1])


@pytest.mark.parametrize("terminated", [0, 1, np.bool_(True), np.int64(0), 1.0, np.array(False), np.array([True])])
def test_flags_may_be_written_as_numbers(terminated: Any) -> None:
    env = Broken(Drift(), 1, lambda r: (*r[:2], terminated, *r[3:]), from_episode=0)
    collector = GymCollector(env, FEATURES, SPEC)
    request = Explore(3, s4q.UniformPolicy(3), np.tile(np.eye(4), (8, 3, 1, 1)), (np.inf, 0.0), 1)
    assert (collector.collect(request).n_steps == 2) == bool(terminated)


class OldReset(Drift):
    def reset(self, **options: Any) -> Any:
        return super().reset(**options)[0]


def test_an_old_reset_is_told_what_is_wanted() -> None:
    with pytest.raises(ValueError, match=r"step 0: env.reset returned a ndarray; .* \(observation, info\)"):
        s4q.run(s4q.S4Q(SPEC), GymCollector(OldReset(), FEATURES, SPEC), 5)


class Hot:
    """Features of norm 2 at some states."""

    n_actions, n_blocks, block_dim = 3, 1, 1

    def __call__(self, h: int, states: np.ndarray) -> Phi:
        vectors = np.where(np.abs(states[:, :1, None]) > 0.4, 2.0, 0.5) * np.ones((1, 3, 1))
        return Phi(vectors, np.zeros((len(states), 3), int))


def test_norms_above_one_are_refused() -> None:
    spec = s4q.Spec.of(Hot(), horizon=8, reward_range=(-1.5, 0.5))
    message = r"Drift: episode \d+ .*step \d+: the features of action 0 have norm 2, above 1; divide all features"
    with pytest.raises(ValueError, match=message):
        s4q.run(s4q.S4Q(spec), GymCollector(Drift(), Hot(), spec), 50)

    class Line:
        def start(self, n: int, rng: np.random.Generator) -> np.ndarray:
            return rng.random((n, 1))

        def step(self, h: int, states: np.ndarray, actions: np.ndarray, rng: np.random.Generator) -> tuple:
            return np.zeros(len(states)), states, np.zeros(len(states), bool)

    with pytest.raises(ValueError, match=r"norm at most 1, but at level 0, state .* the norm is 2"):
        s4q.run(s4q.S4Q(spec), BatchCollector(Line(), Hot(), spec), 50)


class Space(Drift):
    def __init__(self, action: gym.Space | None = None, observation: gym.Space | None = None) -> None:
        super().__init__()
        self.action_space = action or self.action_space
        self.observation_space = observation or self.observation_space


BAD = {
    "continuous": (
        lambda: Space(action=spaces.Box(-1, 1, (1,))),
        r"Space: action_space must be finite .*Box.*DiscreteActions\(env, 5\)",
    ),
    "other number": (lambda: Space(action=spaces.Discrete(4)), r"the env has 4 actions, but spec.n_actions is 3"),
    "limit": (lambda: TimeLimit(Drift(), 7), r"Drift: the env is truncated after 7 .* horizon is 8, .*=8 or more"),
    "inner limit": (lambda: TimeLimit(TimeLimit(Drift(), 6), 20), r"truncated after 6 steps"),
    "no env": (lambda: "Drift", r"env must be a Gymnasium environment, with `reset`; got 'Drift'"),
    "a class": (lambda: Drift, r"env must be a Gymnasium environment"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_cannot_work_is_refused_at_once(kind: str) -> None:
    make, message = BAD[kind]
    with pytest.raises(ValueError, match=message):
        GymCollector(make(), FEATURES, SPEC)


def test_a_registered_time_limit_is_seen_in_one_env_and_in_many() -> None:
    features = s4q.features.Dense(lambda x: np.ones((len(x), 2, 1)), n_actions=2, dim=1)
    spec = s4q.Spec.of(features, horizon=501, reward_range=(0, 1))
    with pytest.raises(ValueError, match=r"CartPole-v1: the env is truncated after 500 steps, but the horizon is 501"):
        GymCollector(gym.make("CartPole-v1"), features, spec)
    with pytest.raises(ValueError, match="truncated after 500 steps"):
        VectorCollector(gym.make_vec("CartPole-v1", 2, vectorization_mode="sync"), features, spec)


def test_a_collector_for_another_problem_is_refused_by_run() -> None:
    with pytest.raises(ValueError, match="made for one problem, but horizon is 9 for the learner and 8"):
        s4q.run(s4q.S4Q(drift_spec(FEATURES, horizon=9)), GymCollector(Drift(), FEATURES, SPEC), 5)


class SinglePrecision(Drift):
    """Pays the bounds of its range in turn, a rounding beyond them."""

    def step(self, action: int) -> tuple:
        seen, _, _, truncated, info = super().step(action)
        reward = 0.5 + 4e-7 if self.t % 2 else -1.5 - 4e-7
        return seen, reward, False, truncated, info


def test_rounding_beyond_the_range_is_clipped() -> None:
    """Kept rewards and returns are those of the bounds, exactly; a little more is refused."""
    request = Explore(3, s4q.UniformPolicy(3), np.tile(np.eye(4), (8, 3, 1, 1)), (np.inf, 0.0), 3, keep=3)
    for collector in (
        GymCollector(SinglePrecision(), FEATURES, SPEC),
        VectorCollector(SyncVectorEnv([SinglePrecision] * 2), FEATURES, SPEC),
    ):
        answer = collector.collect(request)
        assert answer.kept.rewards.tolist() == [2.0, 0.0] * 12
        assert answer.return_sum == 24.0
    for reward in (0.5 + 3e-6, -1.5 - 3e-6):
        env = Broken(Drift(), 0, lambda r, reward=reward: (r[0], reward, *r[2:]))
        with pytest.raises(ValueError, match="outside of the declared range"):
            GymCollector(env, FEATURES, SPEC).collect(request)


class Blocks:
    """Features in a block that there is not."""

    n_actions, n_blocks, block_dim = 3, 2, 1

    def __init__(self, block: int) -> None:
        self.block = block

    def __call__(self, h: int, states: np.ndarray) -> Phi:
        return Phi(np.ones((len(states), 3, 1)), np.tile([0, 1, self.block], (len(states), 1)))


@pytest.mark.parametrize("block", [-1, 2])
def test_blocks_out_of_range_are_refused(block: int) -> None:
    spec = s4q.Spec.of(Blocks(0), horizon=8, reward_range=(-1.5, 0.5))
    request = Explore(3, s4q.UniformPolicy(3), np.ones((8, 2, 1, 1)), (np.inf, 0.0), 2)
    with pytest.raises(ValueError, match=rf"step 0: blocks are \[0, 1, {block}\]; they must lie in 0..1"):
        GymCollector(Drift(), Blocks(block), spec).collect(request)


class FallsOff(Drift):
    """Ends with its first step, at a place of its own."""

    def step(self, action: int) -> tuple:
        return np.full(2, 2.0, np.float32), 0.0, True, False, {}


class Inside(Waves):
    """Features that are defined where an episode goes on, and nowhere else."""

    def __call__(self, h: int, states: np.ndarray) -> Phi:
        if np.any(states == 2.0):
            raise FloatingPointError("nobody can be there")
        return super().__call__(h, states)


def test_features_are_not_asked_where_an_episode_has_ended() -> None:
    features = Inside(3, 4, dense=False)
    white = np.tile(np.eye(4), (8, 3, 1, 1))
    q = s4q.LinearQ.from_arrays(np.zeros(SPEC.theta_shape))
    for request in (
        regress_request(0, 0, s4q.Mixture([q], [1.0]), q, 3),
        regress_request(1, 2, s4q.Mixture([q], [1.0]), q, 3, pool=True),
        Explore(2, q, white, (np.inf, 0.0), 3, keep=3),
    ):
        assert GymCollector(FallsOff(), features, SPEC).collect(request).n_steps == 3
