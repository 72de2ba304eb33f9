"""The bounded cache and pooling: identities, bounds, refusals."""

import numpy as np
import pytest
from asking import after_level
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp
from small_problems import blocked_mdp, random_mdp
from test_episodes import explore, zero_q

import s4q
from s4q.collectors import CountCollector, EpisodeCollector
from s4q.core.messages import Explore, Mixture, Regress
from s4q.learners.transition_cache import TransitionCache, bytes_per_step
from s4q.problems import FiniteMDP

PROBLEMS = {
    "dense": random_mdp(4, 2, 3, 3, seed=5, terminal=True, low=-1.0),
    "one-hot": s4q.problems.river_swim(4, 5),
    "blocks": blocked_mdp(),
}
KINDS = {"episodes": EpisodeCollector, "counts": CountCollector}


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("kind", KINDS)
def test_cached_moments_equal_those_of_the_same_steps_streamed(name: str, kind: str) -> None:
    """Added in three parts, with repetitions stored once, against all steps in one go."""
    mdp = PROBLEMS[name]
    pool = mdp.spec.stationary
    policy = s4q.UniformPolicy(mdp.n_actions)
    cache = TransitionCache(mdp.spec, 100, pool)
    rng = np.random.default_rng(0)
    value = s4q.LinearQ.from_arrays(rng.random(zero_q(mdp).theta.shape) / 3)
    collector = KINDS[kind](mdp, seed=2)
    pieces = [
        collector.collect(
            explore(mdp, policy, (np.inf, 0.0), 20, keep=20, done=done, progress=np.zeros(mdp.horizon))
        ).kept
        for done in (0, 20, 40)
    ]
    for kept in pieces:
        cache.add(kept, 20)
    assert (cache.n_episodes, cache.room) == (60, 40)
    for level in range(mdp.horizon):
        target = after_level(value, level)
        streamed = s4q.Moments.zeros(mdp.spec.n_blocks, mdp.spec.block_dim)
        for kept in pieces:
            for i in np.flatnonzero((kept.levels == level) | pool):
                one = type(kept)(*(getattr(kept, f)[i : i + 1] for f in kept.__dataclass_fields__))
                streamed = streamed + one.moments(mdp.spec, level, target)
        cached = cache.moments(level, target)
        assert cached.n == streamed.n
        np.testing.assert_allclose(cached.gram, streamed.gram, atol=1e-10)
        np.testing.assert_allclose(cached.moment, streamed.moment, atol=1e-10)
        np.testing.assert_allclose(cached.moment_sq, streamed.moment_sq, atol=1e-10)
        assert cached.sum_y2 == pytest.approx(streamed.sum_y2)
        np.testing.assert_allclose(cache.gram(level), streamed.gram, atol=1e-10)


def test_equal_steps_are_stored_once() -> None:
    mdp = PROBLEMS["one-hot"]
    cache = TransitionCache(mdp.spec, 1000, pool=True)
    answer = EpisodeCollector(mdp).collect(explore(mdp, s4q.UniformPolicy(2), (np.inf, 0.0), 1000, keep=1000))
    cache.add(answer.kept, 1000)
    assert cache.nbytes <= 20 * bytes_per_step(mdp.spec)  # at most 4 x 2 pairs with up to 3 next states
    assert cache.moments(0, zero_q(mdp).levels[1]).n == 5000
    with pytest.raises(ValueError, match="room for 0 episodes; got 1"):
        cache.add(answer.kept, 1)


@given(
    name=st.sampled_from(sorted(PROBLEMS)),
    kind=st.sampled_from(sorted(KINDS)),
    episodes=st.none() | st.integers(0, 60),
    held=st.none() | st.integers(0, 60_000),
    pool=st.booleans(),
    budget=st.integers(1, 300),
)
@settings(max_examples=60)
def test_the_bound_holds(name: str, kind: str, episodes: int | None, held: int | None, pool: bool, budget: int) -> None:
    """Bytes and episodes of the cache at every phase; the cache fills in the middle of phases and shards."""
    mdp = PROBLEMS[name]
    learner = s4q.S4Q(mdp, cache_episodes=episodes, cache_bytes=held, pool=pool and mdp.spec.stationary)

    def look(run: s4q.Run) -> None:
        cache = learner.cache
        assert cache.n_episodes <= (learner.constants.cache_episodes if episodes is None else episodes)
        assert cache.nbytes <= cache.n_episodes * mdp.horizon * bytes_per_step(mdp.spec)
        if held is not None:
            assert cache.nbytes <= held
        assert run.nbytes >= cache.nbytes + learner.memory.nbytes

    run = s4q.run(learner, KINDS[kind](mdp, seed=1), budget, callback=look, stop=lambda so_far: bool(look(so_far)))
    assert run.episodes == budget
    assert learner.cache.n_episodes + learner.memory.n_episodes <= run.main_episodes


@pytest.mark.parametrize("preset", ["realisable", "practical", "tight"])
def test_a_cache_of_nothing_is_no_cache(preset: str) -> None:
    """cache_episodes=0 asks for no transitions and gives the bits of the algorithm without a cache."""
    mdp = s4q.problems.low_rank(6, 2, 3, 3)
    options = {"ridge": 1.0, "trigger": 2.0}
    runs = [
        s4q.run(s4q.S4Q(mdp, preset, **options, **more), CountCollector(mdp, seed=3), 5000)  # type: ignore[arg-type]
        for more in ({"cache_episodes": 0}, {"cache_bytes": 0}, {"cache_bytes": 10})
    ]
    for run in runs[1:]:
        assert run.q.same_as(runs[0].q)
        assert run.regret == runs[0].regret
    if preset != "practical":  # there no cache is the default
        plain = s4q.run(s4q.S4Q(mdp, preset, **options), CountCollector(mdp, seed=3), 5000)  # type: ignore[arg-type]
        assert plain.q.same_as(runs[0].q)


def test_an_unbounded_cache_never_replays() -> None:
    """LSVI-UCB with rare switching: all data kept, no Regress asked, the memory stays empty."""
    mdp = s4q.problems.low_rank(6, 2, 3, 3)
    learner, collector = s4q.S4Q(mdp, cache_episodes=10**9), CountCollector(mdp, seed=0)
    left = 3000
    while left:
        request = learner.ask(left)
        assert isinstance(request, Explore)
        answer = collector.collect(request)
        learner.tell(request, answer)
        left -= answer.n_episodes
    assert len(learner.memory) == 0
    assert learner.cache.n_episodes == 3000


def test_unbounded_cache_fits_all_data_with_the_newest_targets() -> None:
    """The fit of each level is ridge regression of all cached steps on the final target of the level after."""
    mdp = s4q.problems.low_rank(6, 2, 3, 3)
    learner = s4q.S4Q(mdp, "realisable", cache_episodes=10**6)
    s4q.run(learner, EpisodeCollector(mdp, seed=0), 400)
    q = learner.q
    before = s4q.S4Q(mdp, "realisable", cache_episodes=10**6)
    collector = EpisodeCollector(mdp, seed=0)
    while before.phases < learner.phases:
        request = before.ask(10**6)
        answer = collector.collect(request)
        held = [(before.cache.n_episodes, answer)]
        before.tell(request, answer)
    del held
    for level in range(3):
        moments = before.cache.moments(level, after_level(q, level))
        ridge = ((1 / 3 + (2 - level) / 3) / 2 / mdp.spec.radius[level]) ** 2
        theta = np.linalg.solve(moments.gram[0] + ridge * np.eye(3), moments.moment[0])
        if np.linalg.norm(theta) <= mdp.spec.radius[level]:
            np.testing.assert_allclose(q.theta[level, 0], theta, atol=1e-8)


def one_informed_level() -> FiniteMDP:
    """Stationary, and only the first step shows anything: every other state ends the episode."""
    transitions = np.zeros((3, 2, 3))
    transitions[0, :, 1:] = [[0.3, 0.7], [0.6, 0.4]]
    transitions[1:] = np.eye(3)[1:, None, :]
    return FiniteMDP(
        transitions, [[0.3, 0.6], [0, 0], [0, 0]], [1, 0, 0], horizon=3, terminal=[False, True, True], value_bound=1.0
    )


def test_pooled_and_per_level_fits_agree_where_only_one_level_has_data() -> None:
    """The parameter of the first level has the same law either way; a planted shift of 0.05 is noticed."""
    mdp = one_informed_level()
    fits: dict[bool, list[float]] = {True: [], False: []}
    for pool in fits:
        for seed in range(500):
            learner = s4q.S4Q(mdp, "realisable", pool=pool, trigger=2.0)
            run = s4q.run(learner, EpisodeCollector(mdp, seed=seed), 60)
            fits[pool].append(float(run.q.theta[0, 1, 0]))
    assert ks_2samp(fits[True], fits[False]).pvalue > 1e-3
    assert ks_2samp(np.array(fits[True]) + 0.05, fits[False]).pvalue < 1e-6


def test_pooling_is_refused_with_the_reason() -> None:
    changing = s4q.problems.low_rank()
    with pytest.raises(
        ValueError, match="pool=True needs a stationary problem, but dynamics, rewards or features depend"
    ):
        s4q.S4Q(changing, pool=True)
    still = s4q.problems.chain()
    with pytest.raises(ValueError, match='preset "paper" has no proof for pooled steps'):
        s4q.S4Q(still, "paper", pool=True)
    assert s4q.S4Q(still).constants.pool
    assert s4q.S4Q(still, "realisable").constants.pool
    assert not s4q.S4Q(still, "tight").constants.pool
    assert not s4q.S4Q(changing).constants.pool
    with pytest.raises(ValueError, match='bonus_from must be "own"'):
        s4q.S4Q(still, bonus_from="previous")


def test_pooled_policies_of_practical_share_one_gram() -> None:
    mdp = s4q.problems.chain()
    shared, apart = s4q.S4Q(mdp), s4q.S4Q(mdp, pool=False)
    distinct = [len({id(level.whitener) for level in learner.q.levels}) for learner in (shared, apart)]
    assert distinct == [1, 10]
    assert shared.q.nbytes < apart.q.nbytes


def test_regress_is_asked_only_for_what_is_not_cached() -> None:
    mdp = s4q.problems.chain()
    learner, collector = s4q.S4Q(mdp, cache_episodes=50, c_replay=1.0), CountCollector(mdp, seed=0)
    left, main = 3000, 0
    while left:
        request = learner.ask(left)
        answer = collector.collect(request)
        if isinstance(request, Regress):
            assert isinstance(request.mixture, Mixture)
            assert request.n_episodes <= max(main - 50, 0)
        else:
            main += answer.n_episodes
        learner.tell(request, answer)
        left -= answer.n_episodes
    assert learner.cache.n_episodes == 50
