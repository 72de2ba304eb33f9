"""Stream: the bits of the collector on the same episodes, and clear errors."""

import gc
import itertools
import weakref

import gymnasium as gym
import numpy as np
import pytest
from small_envs import Drift, System, Waves
from test_gym_env import drift_spec
from test_vector import CASES

import s4q
from s4q.collectors import GymCollector
from s4q.collectors.seeding import EpisodeDraws
from s4q.core.messages import Answer, Learner, Mixture, Request


class Eavesdropper:
    """A learner that keeps what it is told."""

    def __init__(self, learner: Learner) -> None:
        self.learner, self.told = learner, []
        self.spec = learner.spec

    def ask(self, max_episodes: int) -> Request | None:
        return self.learner.ask(max_episodes)

    def tell(self, request: Request, answer: Answer) -> None:
        self.told.append((request.id, request.done, answer.n_episodes))
        self.learner.tell(request, answer)

    def __getattr__(self, name: str) -> object:
        return getattr(self.learner, name)


def live(env: gym.Env, stream: s4q.Stream, episodes: int, seed: int) -> None:
    """A system whose starts are those that the collector would give: the open request says which episode it is."""

    def env_seed() -> int:
        request, done = stream._sums.request, stream._sums.shard.index + stream._sums.n_episodes
        return EpisodeDraws(seed, request.id, done, stream.learner.spec.horizon).env_seed

    system = System(env, env_seed)
    for _ in range(episodes):
        stream._sums = stream._sums or stream._next_sums()  # what `act` would do: the address must be known before
        observation, over = system.start(), False
        while not over:
            reward, observation, ended = system.apply(stream.act(observation))
            over = stream.observe(reward, observation, terminated=ended)


def learner_of(spec: s4q.Spec, kind: str) -> Learner:
    if kind == "s3q":
        return s4q.S3Q(spec, Mixture([s4q.UniformPolicy(spec.n_actions)] * 2, [0.5, 0.5]))
    if kind == "practical":
        return s4q.S4Q(spec)
    return s4q.S4Q(spec, "realisable", trigger=4.0)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["realisable", "practical", "s3q"])
def test_a_stream_has_the_bits_of_the_collector(case: str, kind: str) -> None:
    make, features, spec = CASES[case]
    heard, collected = Eavesdropper(learner_of(spec, kind)), Eavesdropper(learner_of(spec, kind))
    live(make(), s4q.Stream(heard, features, seed=6), 50, seed=6)
    collector = GymCollector(make(), features, spec, seed=6, reset_early=False)
    while len(collected.told) < len(heard.told):
        request = collected.ask(2**40)
        shard = next(iter(collector.shards(request)))
        start = request.start() if hasattr(request, "policy") else None
        collected.tell(request, collector.play(request, shard, start))
    assert len(heard.told) > 2
    assert heard.told == collected.told
    assert heard.q.same_as(collected.q)
    assert heard.learner.ask(5).n_episodes == collected.learner.ask(5).n_episodes


def test_the_snippet_of_the_documentation_works() -> None:
    features = Waves(3, 4, dense=False)
    seeds = itertools.count()
    system = System(Drift(), lambda: next(seeds))

    spec = s4q.Spec.of(features, horizon=20, reward_range=(-1.5, 0.5))
    stream = s4q.Stream(s4q.S4Q(spec), features, seed=0)
    for _ in range(15):
        observation, over = system.start(), False
        while not over:
            reward, observation, ended = system.apply(stream.act(observation))
            over = stream.observe(reward, observation, terminated=ended)
    assert stream.n_episodes == 15
    assert stream.learner.phases > 1


def test_a_finished_learner_goes_on_acting() -> None:
    features = Waves(3, 4, dense=False)
    spec = drift_spec(features, horizon=2)
    learner = s4q.S3Q(spec, s4q.UniformPolicy(3), epoch_size=2)
    stream = s4q.Stream(learner, features)
    seeds = itertools.count()
    system = System(Drift(), lambda: next(seeds))
    for _ in range(8):
        observation, over = system.start(), False
        while not over:
            level = len(stream._player.actions) if stream._player else 0
            action = stream.act(observation)
            if learner.finished and stream.n_episodes >= 4:
                assert action == learner.policy.greedy(level, features(level, observation[None]))[0]
            reward, observation, ended = system.apply(action)
            over = stream.observe(reward, observation, terminated=ended)
    assert learner.finished
    assert stream.n_episodes == 8


def test_misuse_is_explained_and_does_no_harm() -> None:
    features = Waves(3, 4, dense=False)
    spec = drift_spec(features)
    stream = s4q.Stream(s4q.S4Q(spec), features)
    here = np.zeros(2)
    with pytest.raises(ValueError, match="call act first"):
        stream.observe(0.0, here)
    stream.act(here)
    with pytest.raises(ValueError, match="twice in a row"):
        stream.act(here)
    with pytest.raises(ValueError, match=r"episode 0 .*step 0: the reward is nan; rewards must be finite"):
        stream.observe(np.nan, here)
    stream.act(here)
    with pytest.raises(ValueError, match=r"reward is 7.0, outside of the declared range \[-1.5, 0.5\]"):
        stream.observe(7.0, here)
    with pytest.raises(ValueError, match=r"step 0: the features raised .* at observation"):
        stream.act("nonsense")
    stream.act(here)
    with pytest.raises(ValueError, match="must be a number"):
        stream.observe(None, here)
    stream.act(here)
    assert not stream.observe(0.25, here)
    assert stream.n_episodes == 0
    with pytest.raises(ValueError, match="learner must be"):
        s4q.Stream(s4q.S4Q, features)
    with pytest.raises(ValueError, match="n_actions is 2 and 3"):
        s4q.Stream(s4q.S4Q(spec), Waves(2, 4, dense=False))


def test_nan_observations_are_found() -> None:
    features = Waves(3, 4, dense=False)
    stream = s4q.Stream(s4q.S4Q(drift_spec(features, horizon=1)), features)
    stream.act(np.array([np.nan, 0.0]))
    with pytest.raises(ValueError, match=r"norm nan.*features must be finite"):
        stream.observe(0.0, np.zeros(2))


def test_policies_that_are_over_are_let_go() -> None:
    """What a collector remembers of policies is bounded by the request at hand, not by their number."""
    features = s4q.features.OneHot(30, n_actions=2)
    spec = s4q.Spec.of(features, horizon=5, reward_range=(0, 1))
    stream = s4q.Stream(s4q.S4Q(spec), features, seed=0)
    rng = np.random.default_rng(0)
    seen: list[weakref.ref[s4q.LinearQ]] = []
    for _ in range(120):
        over, place = False, 0
        while not over:
            stream.act(place)
            place = int(rng.integers(30))
            over = stream.observe(float(place == 7), place)
        if not seen or seen[-1]() is not stream.learner.policy:
            seen.append(weakref.ref(stream.learner.policy))
    gc.collect()
    assert len(seen) > 10
    assert sum(one() is not None for one in seen) <= 4
