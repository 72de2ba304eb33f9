"""VectorCollector: the bits of one env, in all three autoreset modes, whatever the number of sub-environments."""

from collections.abc import Callable
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from small_envs import Drift, MDPEnv, Waves
from small_problems import cliff
from test_gym_env import all_requests, drift_spec, equal

import s4q
from s4q.collectors import GymCollector, VectorCollector
from s4q.core.messages import Answer, Request

MODES = list(AutoresetMode)


def lake() -> gym.Env:
    return MDPEnv(cliff())


def limited(horizon: int) -> gym.Env:
    return TimeLimit(Drift(), horizon)


CASES: dict[str, tuple[Callable[[], gym.Env], object, s4q.Spec]] = {
    "early ends": (Drift, Waves(3, 4, dense=False), drift_spec(Waves(3, 4, dense=False))),
    "dense": (Drift, Waves(3, 4, dense=True), drift_spec(Waves(3, 4, dense=True))),
    "H = 1": (Drift, Waves(3, 4, dense=False), drift_spec(Waves(3, 4, dense=False), horizon=1)),
    "H = time limit": (partial(limited, 5), Waves(3, 4, dense=False), drift_spec(Waves(3, 4, False), horizon=5)),
    "whole numbers": (lake, cliff().features, cliff().spec),
}


def vector(make: Callable[[], gym.Env], n: int, mode: AutoresetMode) -> SyncVectorEnv:
    return SyncVectorEnv([make] * n, autoreset_mode=mode)


def wanted(spec: s4q.Spec) -> list[Request]:
    return all_requests(spec, n=24)


@pytest.mark.parametrize("case", CASES)
def test_all_modes_give_the_bits_of_one_env(case: str) -> None:
    make, features, spec = CASES[case]
    single = [GymCollector(make(), features, spec, seed=4).collect(request) for request in wanted(spec)]
    for mode, n in zip(MODES, (1, 3, 32), strict=True):
        collector = VectorCollector(vector(make, n, mode), features, spec, seed=4)
        for request, answer in zip(wanted(spec), single, strict=True):
            assert equal(collector.collect(request), answer), (mode, type(request).__name__, request.id)


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_with_several_numbers_of_envs(mode: AutoresetMode) -> None:
    make, features, spec = CASES["early ends"]
    requests = wanted(spec)[2:5]
    answers: list[list[Answer]] = [
        [VectorCollector(vector(make, n, mode), features, spec, seed=4).collect(request) for request in requests]
        for n in (2, 7)
    ]
    assert all(equal(a, b) for a, b in zip(*answers, strict=True))


def test_processes_give_the_same_bits() -> None:
    make, features, spec = CASES["early ends"]
    env = AsyncVectorEnv([make] * 2, autoreset_mode=AutoresetMode.SAME_STEP, context="spawn")
    try:
        for request in wanted(spec)[1:4:2]:
            one = GymCollector(make(), features, spec, seed=4).collect(request)
            assert equal(VectorCollector(env, features, spec, seed=4).collect(request), one)
    finally:
        env.close()


class Forgetful(SyncVectorEnv):
    """Does not tell that an episode ended: the step of the autoreset then looks like any other."""

    def step(self, actions: np.ndarray) -> tuple:
        observations, rewards, terminated, truncated, info = super().step(actions)
        return observations, rewards, np.zeros_like(terminated), truncated, info


def test_a_fake_autoreset_transition_is_caught() -> None:
    """Planted: ends are swallowed, so the step of the autoreset enters the sums. Level 0 alone cannot see it."""
    make, features, spec = CASES["early ends"]
    fake = Forgetful([make] * 3, autoreset_mode=AutoresetMode.NEXT_STEP)
    caught = []
    for request in wanted(spec):
        honest = GymCollector(make(), features, spec, seed=4).collect(request)
        caught.append(not equal(VectorCollector(fake, features, spec, seed=4).collect(request), honest))
    assert caught[1:] == [True] * 5


def test_the_next_start_taken_for_an_arrival_is_caught() -> None:
    """Planted: SAME_STEP whose final observation is the start of the next episode. Only what follows an end may err."""
    make, features, spec = CASES["H = time limit"]
    pooled, kept = wanted(spec)[2], wanted(spec)[3]

    class Wrong(SyncVectorEnv):
        def step(self, actions: np.ndarray) -> tuple:
            observations, rewards, terminated, truncated, info = super().step(actions)
            return observations, rewards, terminated, truncated, {"final_obs": list(observations)} if info else info

    wrong = Wrong([make] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    for request in (pooled, kept):
        honest = GymCollector(make(), features, spec, seed=4).collect(request)
        assert not equal(VectorCollector(wrong, features, spec, seed=4).collect(request), honest)


def test_run_learns_the_same_from_one_env_and_from_many() -> None:
    make, features, spec = CASES["early ends"]
    one = GymCollector(make(), features, spec, seed=2)
    many = VectorCollector(vector(make, 5, AutoresetMode.NEXT_STEP), features, spec, seed=2)
    results = [s4q.run(s4q.S4Q(spec, "realisable", trigger=1.0), collector, 60) for collector in (one, many)]
    assert results[0].phases > 1
    assert results[0].q.same_as(results[1].q)
    assert results[0].steps == results[1].steps


def test_a_native_vector_class_with_one_seed_is_refused() -> None:
    env = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point")
    features = s4q.features.Dense(lambda x: np.ones((len(x), 2, 1)), n_actions=2, dim=1)
    spec = s4q.Spec.of(features, horizon=5, reward_range=(0, 1))
    with pytest.raises(ValueError, match=r"one per episode.*CartPoleBatch"):
        VectorCollector(env, features, spec).collect(wanted(spec)[0])
