"""Seeds of environments: no repeats; environments that refuse wide ones get narrow ones, the same wherever they run."""

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from literal_player import LiteralPlayer
from test_gym_env import equal
from test_literal_player import N_STATES, SEED, Ending, Mixed, assert_sums, requests_of, spec_of

import s4q
from s4q.collectors import GymCollector, VectorCollector
from s4q.collectors.seeding import EpisodeDraws
from s4q.core.messages import Explore, Regress


def repeats(seeds: list[int]) -> int:
    return len(seeds) - len(set(seeds))


def test_no_seed_repeats_within_and_between_requests() -> None:
    """62 random bits: some two of 2 * 10^4 episodes share a seed with a chance of 4e-11, of 10^6 with one of 1e-7."""
    draws = [EpisodeDraws(0, request, i, horizon=1) for request in (0, 7) for i in range(10_000)]
    seeds = [one.env_seed for one in draws]
    assert repeats(seeds) == 0
    assert all(seed.bit_length() == 63 for seed in seeds)
    bits = np.array([[seed >> i & 1 for i in range(62)] for seed in seeds[::4]])  # each of them random, no two alike
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(len(bits))
    assert np.abs(np.corrcoef(bits.T) - np.eye(62)).max() < 5.5 / np.sqrt(len(bits))
    assert all(0 <= one.narrow_env_seed < 2**31 for one in draws)


@pytest.mark.slow
def test_no_seed_repeats_in_a_million() -> None:
    draws = [EpisodeDraws(5, request, i, horizon=1) for request in (3, 4) for i in range(500_000)]
    assert repeats([one.env_seed for one in draws]) == 0
    # Between requests 5e5^2 / 2^31 = 116 are expected; within one, where 32 bits do not repeat, 2 * 5e5^2 / 2^33 = 58.
    assert 110 < repeats([one.narrow_env_seed for one in draws]) < 240


class OldGenerator(Ending):
    """Takes its chance from a generator that wants seeds below 2^32."""

    def __init__(self, horizon: int = 3) -> None:
        super().__init__(horizon)
        self.seeds: list[int] = []  # those it was reset with, and took

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        if seed is not None:
            self.old = np.random.RandomState(seed)  # raises ValueError
            self.seeds.append(seed)
        self.left, self.state = int(self.old.randint(1, self.horizon + 2)), int(self.old.randint(N_STATES))
        return self.state, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        reward = 0.1 * self.state - 0.2 * int(action) - 0.3 * float(self.old.uniform())
        self.left, self.state = self.left - 1, int(self.old.randint(N_STATES))
        return self.state, reward, self.left == 0, False, {}


def narrow(word: int) -> int:
    """The first 31 of 64 bits."""
    return word // 2**33


def test_an_env_that_refuses_wide_seeds_gets_narrow_ones_everywhere() -> None:
    """One env and vectors in all modes, from the first episode on, and again in a new collector: the same bits."""
    features = Mixed(3)
    spec = spec_of(features, 3)
    player = LiteralPlayer(features, spec)
    for request in (requests_of(spec, 10)[2], requests_of(spec, 10)[-3]):
        last = player.last_step(request, reset_early=True)
        numbers = range(request.done, request.done + request.n_episodes)
        episodes = (player.env_episode(OldGenerator(), request, SEED, i, last, narrow) for i in numbers)
        want = (
            player.regression(request, episodes) if isinstance(request, Regress) else player.visits(request, episodes)
        )
        env = OldGenerator()
        first = GymCollector(env, features, spec, SEED)
        answer = first.collect(request)
        assert_sums(answer, want)
        assert repeats(env.seeds[1:]) == 0  # the first one was tried before it was clear that it is the size
        assert equal(first.collect(request), answer)
        assert equal(GymCollector(OldGenerator(), features, spec, SEED).collect(request), answer)
        for n, mode in enumerate(AutoresetMode, start=1):
            vector = SyncVectorEnv([OldGenerator] * n, autoreset_mode=mode)
            assert equal(VectorCollector(vector, features, spec, SEED).collect(request), answer)


class Picky(Ending):
    """Says at which seeds it was reset, and raises at one reset."""

    def __init__(self, bad: int) -> None:
        super().__init__(3)
        self.bad, self.seeds = bad, []

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        self.seeds.append(seed)
        if len(self.seeds) - 1 == self.bad:
            raise RuntimeError("jammed")
        return super().reset(seed=seed)


def free(n: int) -> Explore:
    return Explore(0, s4q.UniformPolicy(3), np.ones((3, 3, 2, 2)), (np.inf, 0.0), n)


def test_only_the_first_reset_decides() -> None:
    """An env that took a wide seed once is not given narrow ones when it fails later."""
    features = Mixed(3)
    env = Picky(bad=4)
    collector = GymCollector(env, features, spec_of(features, 3), SEED)
    with pytest.raises(
        ValueError, match=r"episode 4 of request 0, reset with seed \d{19}, step 0: .*RuntimeError: jammed"
    ):
        collector.collect(free(10))
    assert [seed.bit_length() for seed in env.seeds] == [63] * 5


class Jammed(Picky):
    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        self.seeds.append(seed)
        raise RuntimeError(f"jammed at {seed}")


def test_an_env_that_refuses_all_seeds_is_reported_with_the_first() -> None:
    features = Mixed(3)
    spec = spec_of(features, 3)
    env = Jammed(bad=0)
    collector = GymCollector(env, features, spec, SEED)
    with pytest.raises(
        ValueError, match=r"reset with seed (\d{19}), step 0: env.reset raised RuntimeError: jammed at \1"
    ):
        collector.collect(free(2))
    assert [seed.bit_length() <= 31 for seed in env.seeds] == [False, True]
    vector = SyncVectorEnv([lambda: Jammed(bad=0)] * 2)
    with pytest.raises(ValueError, match=r"seed=\[one per episode\]\) raised RuntimeError: jammed at \d{19}"):
        VectorCollector(vector, features, spec, SEED).collect(free(2))


def test_the_error_of_an_env_with_narrow_seeds_names_the_seed_it_got() -> None:
    class Falls(OldGenerator):
        def step(self, action: int) -> tuple:
            raise ZeroDivisionError

    features = Mixed(3)
    env = Falls()
    with pytest.raises(ValueError, match=r"reset with seed \d+, step 0: env.step raised ZeroDivisionError") as caught:
        GymCollector(env, features, spec_of(features, 3), SEED).collect(free(2))
    assert f"reset with seed {env.seeds[0]}," in str(caught.value)
    assert env.seeds[0] < 2**31


class GivesUp(SyncVectorEnv):
    """Like Gymnasium's processes: once a sub-environment has raised, the vector env is of no more use."""

    broken = False

    def reset(self, **options: Any) -> Any:
        if self.broken:
            raise AttributeError("'NoneType' object has no attribute 'send'")
        try:
            return super().reset(**options)
        except Exception:
            self.broken = True
            raise


def test_processes_that_refuse_wide_seeds_are_told_the_cure() -> None:
    features = Mixed(3)
    env = GivesUp([OldGenerator] * 2)
    with pytest.raises(ValueError, match=r"raised ValueError: Seed must be .*cut them: seed % 2\*\*31"):
        VectorCollector(env, features, spec_of(features, 3), SEED).collect(free(2))
