"""EpisodeCollector: the law of its answers against exact occupancies, and its bits."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from asking import regress_request
from scipy.stats import chisquare
from small_problems import blocked_mdp, cliff, random_mdp

import s4q
from s4q.collectors import CountCollector, EpisodeCollector
from s4q.core.messages import Answer, Explore, Mixture, Policy, Regress, Regression, Request, Shard, Visits
from s4q.problems import FiniteMDP

N = 20_000


def one_hot_mdp(slip: float = 0.3, paid: float = 0.4) -> FiniteMDP:
    """Three states, two actions, three levels; one-hot features, so that Gram matrices are counts."""
    rng = np.random.default_rng(4)
    transitions = rng.dirichlet(np.ones(3), size=(3, 3, 2))
    transitions[1, 0, 1] = [slip, 0.5, 0.5 - slip]
    rewards = np.full((3, 3, 2), 0.25)
    rewards[1] = paid
    return FiniteMDP(transitions, rewards, [0.5, 0.3, 0.2])


class TablePolicy:
    """A stochastic controller that reads states only."""

    def __init__(self, table: np.ndarray) -> None:
        self.table = table

    def probabilities(self, h: int, states: np.ndarray, phi: s4q.Phi) -> np.ndarray:
        return self.table[h, states]


def stochastic_policy(mdp: FiniteMDP, seed: int) -> TablePolicy:
    rng = np.random.default_rng(seed)
    return TablePolicy(rng.dirichlet(np.ones(mdp.n_actions), size=(mdp.horizon, mdp.n_states)))


def mixture(mdp: FiniteMDP) -> Mixture:
    return Mixture([stochastic_policy(mdp, 1), stochastic_policy(mdp, 2)], [0.3, 0.7])


def occupancy(mdp: FiniteMDP, mixed: Mixture) -> np.ndarray:
    return np.einsum("j,jhsa->hsa", mixed.weights, np.stack([mdp.occupancies(p) for p in mixed.policies]))


def zero_q(mdp: FiniteMDP) -> s4q.LinearQ:
    return s4q.LinearQ.from_arrays(np.zeros((mdp.horizon, mdp.spec.n_blocks, mdp.spec.block_dim)))


def state_q(mdp: FiniteMDP) -> s4q.LinearQ:
    """A value that tells next states apart: action 0 of state s is worth (s + 1)/2."""
    theta = np.zeros((mdp.horizon, mdp.n_states, mdp.n_actions))
    theta[:, :, 0] = (np.arange(mdp.n_states) + 1) / 2
    return s4q.LinearQ.from_arrays(theta.reshape(mdp.horizon, -1, 1))


def regress(
    mdp: FiniteMDP, level: int, mixed: Mixture, value: s4q.LinearQ | None = None, pool: bool = False
) -> Regression:
    request = regress_request(level, level, mixed, value or zero_q(mdp), N, pool)
    return EpisodeCollector(mdp, seed=5).collect(request)


def p_of_counts(answer: Regression, expected: np.ndarray) -> float:
    counts = answer.moments.gram.ravel()
    return float(chisquare(counts, expected.ravel() * counts.sum() / expected.sum()).pvalue)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_visits_have_the_exact_occupancies(level: int) -> None:
    mdp = one_hot_mdp()
    answer = regress(mdp, level, mixture(mdp))
    assert p_of_counts(answer, occupancy(mdp, mixture(mdp))[level]) > 1e-3
    assert answer.moments.n == answer.n_episodes == N
    assert answer.n_steps == N * (level + 1)


def test_visits_test_notices_planted_errors() -> None:
    """One level off, one wrong mixture weight, another transition probability: same seeds, tiny p."""
    mdp = one_hot_mdp()
    right = occupancy(mdp, mixture(mdp))
    policies = mixture(mdp).policies
    assert p_of_counts(regress(mdp, 1, mixture(mdp)), right[2]) < 1e-6
    assert p_of_counts(regress(mdp, 1, Mixture(policies, [0.5, 0.5])), right[1]) < 1e-6
    assert p_of_counts(regress(one_hot_mdp(slip=0.1), 2, mixture(mdp)), right[2]) < 1e-6


def p_of_rewards(answer: Regression, paid: float) -> float:
    """Bernoulli rewards at one level: the number of ones. With value 0, y is the reward and sum y^2 counts them."""
    ones = answer.moments.sum_y2
    return float(chisquare([ones, N - ones], [N * paid, N * (1 - paid)]).pvalue)


def test_rewards_are_bernoulli_with_the_right_mean() -> None:
    mdp = one_hot_mdp(paid=0.4)
    assert p_of_rewards(regress(mdp, 1, mixture(mdp)), 0.4) > 1e-3
    assert p_of_rewards(regress(one_hot_mdp(paid=0.37), 1, mixture(mdp)), 0.4) < 1e-6


def test_mixture_is_drawn_once_per_episode_with_its_weights() -> None:
    mdp = one_hot_mdp()
    counts = regress(mdp, 0, mixture(mdp)).episodes_per_policy
    assert chisquare(counts, N * np.array([0.3, 0.7])).pvalue > 1e-3
    assert chisquare(counts, N * np.array([0.32, 0.68])).pvalue < 1e-6


def test_targets_see_the_next_state() -> None:
    """E[y | s, a] = r + sum P(s') V(s'), within five standard errors at every pair; another dynamics is noticed."""
    mdp = one_hot_mdp()
    worst = {}
    for slip in (0.3, 0.1):
        moments = regress(one_hot_mdp(slip=slip), 1, mixture(mdp), state_q(mdp)).moments
        n = moments.gram.ravel()
        mean = moments.moment.ravel() / n
        spread = np.sqrt(moments.moment_sq.ravel() / n - mean**2) / np.sqrt(n)
        value = (np.arange(3) + 1) / 2
        expected = (mdp.rewards[1] + mdp.transitions[1] @ value).ravel()
        worst[slip] = float(np.max(np.abs(mean - expected) / spread))
    assert worst[0.3] < 5 < worst[0.1]


def test_pooling_adds_all_steps() -> None:
    mdp = s4q.problems.chain(3, 4)
    mixed = Mixture([s4q.UniformPolicy(2)], [1.0])
    value = state_q(mdp)
    collector = EpisodeCollector(mdp, seed=0)
    pooled = collector.collect(regress_request(0, 1, mixed, value, 3000, pool=True))
    assert pooled.moments.n == pooled.n_steps == 3000 * 4
    mean = pooled.moments.moment.ravel() / pooled.moments.gram.ravel()
    expected = (mdp.rewards[0] + mdp.transitions[0] @ ((np.arange(3) + 1) / 2)).ravel()
    np.testing.assert_allclose(mean, expected, atol=0.05)


def explore(mdp: FiniteMDP, policy: Policy, threshold: tuple[float, float], most: int, **more: object) -> Explore:
    n_metrics = 1 if more.get("pool") else mdp.horizon
    white = np.broadcast_to(np.eye(mdp.spec.block_dim), (n_metrics, *mdp.spec.gram_shape))
    return Explore(3, policy, white, threshold, most, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize("threshold", [(0.5, 0.0), (7.0, 0.0), (3.0, 2.0), (900.0, 10.0)])
def test_explore_stops_at_the_first_crossing_episode(threshold: tuple[float, float], pool: bool) -> None:
    """Against the progress of every shorter run of the same seed, the episode before the stop included."""
    mdp = blocked_mdp()
    policy = s4q.UniformPolicy(3)
    collector = EpisodeCollector(mdp, seed=2)
    stopped = collector.collect(explore(mdp, policy, threshold, 10**5, pool=pool))
    n = stopped.n_episodes
    request = explore(mdp, policy, (np.inf, 0.0), n, pool=pool)
    assert collector.collect(request).progress.tolist() == stopped.progress.tolist()
    level = threshold[0] + threshold[1] * np.log(n)
    assert stopped.progress.max() >= level
    if n > 1:
        before = collector.collect(explore(mdp, policy, (np.inf, 0.0), n - 1, pool=pool))
        assert before.progress.max() < threshold[0] + threshold[1] * np.log(n - 1)
    assert stopped.progress.shape == ((1,) if pool else (mdp.horizon,))


def test_explore_adds_grams_returns_and_start_values() -> None:
    mdp = one_hot_mdp()
    policy = state_q(mdp)
    answer = EpisodeCollector(mdp, seed=1).collect(explore(mdp, policy, (np.inf, 0.0), 5000))
    exact = mdp.occupancies(policy) * 5000
    np.testing.assert_allclose(answer.grams.reshape(3, 3, 2), exact, atol=5 * np.sqrt(5000))
    np.testing.assert_allclose(answer.progress, 5000)  # whitener I and unit features: one per episode
    assert answer.return_sum == pytest.approx(5000 * mdp.value(policy), abs=5 * np.sqrt(5000))
    assert answer.return_sum_sq is not None
    assert answer.return_sum_sq >= answer.return_sum**2 / 5000
    assert answer.start_value_sum == pytest.approx(5000 * float(mdp.start @ [0.5, 1.0, 1.5]), abs=5 * 40)
    uniform = EpisodeCollector(mdp, seed=1).collect(explore(mdp, s4q.UniformPolicy(2), (np.inf, 0.0), 5))
    assert uniform.start_value_sum is None


def test_returns_of_episodes_that_end_early() -> None:
    """In shifted units every step is worth at least 0 and an early end is worth -reward_min a step left."""
    mdp = cliff()
    answer = EpisodeCollector(mdp, seed=1).collect(explore(mdp, s4q.UniformPolicy(4), (np.inf, 0.0), 4000))
    user = answer.return_sum / 4000 + mdp.horizon * mdp.spec.reward_min
    assert user == pytest.approx(mdp.value(s4q.UniformPolicy(4)), abs=1.5)
    assert answer.n_steps < 4000 * mdp.horizon


@pytest.mark.parametrize("keep", [0, 1, 7, 1030, 5000])
def test_kept_transitions_are_those_of_the_first_episodes(keep: int) -> None:
    mdp = random_mdp(4, 2, 3, 3, seed=5, terminal=True, low=-1.0)
    collector = EpisodeCollector(mdp, seed=8)
    policy = s4q.UniformPolicy(2)
    kept = collector.collect(explore(mdp, policy, (np.inf, 0.0), 2000, keep=keep)).kept
    if keep == 0:
        assert kept is None
        return
    short = collector.collect(explore(mdp, policy, (np.inf, 0.0), min(keep, 2000)))
    assert len(kept.levels) == short.n_steps
    for h in range(3):
        x = kept.vectors[kept.levels == h]
        np.testing.assert_allclose(x.T @ x, short.grams[h, 0], atol=1e-9)
    assert kept.rewards.min() >= 0.0


def flat(answer: Answer) -> list[np.ndarray]:
    """All numbers of an answer."""
    if isinstance(answer, Regression):
        moments = answer.moments
        parts = (moments.gram, moments.moment, moments.moment_sq, moments.sum_y2, moments.n)
        return [np.asarray(part) for part in (*parts, answer.episodes_per_policy, answer.n_steps)]
    parts = (answer.grams, answer.progress, answer.n_episodes, answer.return_sum, answer.return_sum_sq, answer.n_steps)
    return [np.asarray(part) for part in parts]


def same_bits(a: Answer, b: Answer) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(flat(a), flat(b), strict=True))


def requests(mdp: FiniteMDP) -> list[Request]:
    return [
        regress_request(7, 1, mixture(mdp), zero_q(mdp), 5000),
        explore(mdp, stochastic_policy(mdp, 1), (2500.0, 1.0), 10**5),
    ]


@pytest.mark.parametrize("which", [0, 1])
def test_same_seed_same_bits_and_another_seed_differs(which: int) -> None:
    mdp = random_mdp(5, 3, 4, 3, seed=1)
    request = requests(mdp)[which]
    answer = EpisodeCollector(mdp, seed=0).collect(request)
    assert same_bits(answer, EpisodeCollector(mdp, seed=0).collect(request))
    assert not same_bits(answer, EpisodeCollector(mdp, seed=1).collect(request))


def test_shards_in_any_order_and_twice() -> None:
    mdp = random_mdp(5, 3, 4, 3, seed=1)
    request = requests(mdp)[0]
    collector = EpisodeCollector(mdp, seed=0)
    shards = list(collector.shards(request))
    assert len(shards) > 3
    assert shards == list(collector.shards(request))
    played = {shard: collector.play(request, shard) for shard in reversed(shards)}
    played.update({shard: collector.play(request, shard) for shard in shards[::2]})
    total = played[shards[0]]
    for shard in shards[1:]:
        total = total + played[shard]
    assert same_bits(total, collector.collect(request))


def test_two_halves_of_a_request_give_the_bits_of_the_whole() -> None:
    """Cut between shards, a Regress and an Explore are the same in two parts; each part has its own draws."""
    mdp = random_mdp(5, 3, 4, 3, seed=1)
    collector = EpisodeCollector(mdp, seed=0)
    mixed = mixture(mdp)
    whole = collector.collect(regress_request(7, 1, mixed, zero_q(mdp), 5000))
    first = collector.collect(regress_request(7, 1, mixed, zero_q(mdp), 2048))
    rest = collector.collect(regress_request(7, 1, mixed, zero_q(mdp), 2952, done=2048))
    merged = first
    for start in range(2048, 5000, 256):
        n = min(256, 5000 - start)
        merged = merged + collector.collect(regress_request(7, 1, mixed, zero_q(mdp), n, done=start))
    assert same_bits(merged, whole)
    assert (first + rest).n_episodes == whole.n_episodes
    np.testing.assert_allclose((first + rest).moments.gram, whole.moments.gram, rtol=1e-12)

    policy = stochastic_policy(mdp, 1)
    long = collector.collect(explore(mdp, policy, (2500.0, 1.0), 10**5))
    head = collector.collect(explore(mdp, policy, (2500.0, 1.0), 1024))
    tail = collector.collect(explore(mdp, policy, (2500.0, 1.0), 10**5, done=1024, progress=head.progress))
    assert head.n_episodes + tail.n_episodes == long.n_episodes
    np.testing.assert_allclose((head + tail).progress, long.progress, rtol=1e-12)
    np.testing.assert_allclose((head + tail).grams, long.grams, rtol=1e-12)


def test_parts_cut_anywhere_use_fresh_draws() -> None:
    mdp = random_mdp(5, 3, 4, 3, seed=1)
    collector = EpisodeCollector(mdp, seed=0)
    parts = [
        collector.collect(regress_request(7, 1, mixture(mdp), zero_q(mdp), 100, done=done)).moments.moment
        for done in (0, 100, 200)
    ]
    assert not np.array_equal(parts[0], parts[1])
    assert not np.array_equal(parts[1], parts[2])


def test_a_shard_played_with_another_start_is_cut_elsewhere() -> None:
    mdp = random_mdp(5, 3, 4, 3, seed=1)
    collector = EpisodeCollector(mdp, seed=0)
    request = explore(mdp, s4q.UniformPolicy(3), (600.0, 0.0), 1024)
    shard = Shard(0, 1024)
    fresh: Visits = collector.play(request, shard)
    ahead: Visits = collector.play(request, shard, np.full(3, 300.0))
    assert ahead.n_episodes < fresh.n_episodes


@pytest.mark.parametrize("kind", [EpisodeCollector, CountCollector])
@pytest.mark.parametrize("level", [0, 3, 7])
def test_pooled_steps_that_end_an_episode_are_worth_what_the_level_says(kind: type, level: int) -> None:
    """The cliff is deterministic: the pooled fit of any level is r + V(next), or r + the known worth of an end."""
    mdp = cliff()
    value = s4q.LinearQ.from_arrays(np.random.default_rng(0).random((8, 20, 1)))
    answer = kind(mdp, seed=0).collect(
        regress_request(0, level, Mixture([s4q.UniformPolicy(4)], [1.0]), value, 3000, pool=True)
    )
    after = value.value(level + 1, mdp.features.level(0)) if level + 1 < 8 else np.zeros(5)
    after[4] = mdp.spec.ended_value(level)
    expected = (mdp.rewards[0] - mdp.spec.reward_min + mdp.transitions[0] @ after).ravel()[:16]
    seen = answer.moments.gram.ravel()[:16]
    np.testing.assert_allclose(answer.moments.moment.ravel()[:16] / seen, expected, rtol=1e-12)


def test_keep_and_done_together() -> None:
    """The second part of a request keeps its own first episodes, not those before."""
    mdp = random_mdp(4, 2, 3, 3, seed=5)
    collector = EpisodeCollector(mdp, seed=8)
    policy = s4q.UniformPolicy(2)
    for done in (0, 1024, 2000):
        part = collector.collect(explore(mdp, policy, (np.inf, 0.0), 50, keep=7, done=done, progress=np.zeros(3)))
        assert (part.kept.levels == 0).sum() == 7


@pytest.mark.parametrize("kind", [EpisodeCollector, CountCollector])
def test_exact_sums_on_a_deterministic_problem(kind: type) -> None:
    """One state, one action, reward 0.5 a step for 3 steps, the value clipped at 1: every sum is known."""
    mdp = FiniteMDP(np.ones((1, 1, 1)), [[0.5]], [1.0], horizon=3, reward_noise="none")
    q = s4q.LinearQ.from_arrays(np.full((3, 1, 1), 5.0), clip=[[0.0, 1.0]] * 3)
    answer = kind(mdp).collect(explore(mdp, q, (np.inf, 0.0), 10))
    assert (answer.return_sum, answer.start_value_sum, answer.n_steps) == (15.0, 10.0, 30)
    assert answer.return_sum_sq == (22.5 if kind is EpisodeCollector else None)


def test_requests_with_different_ids_have_different_draws() -> None:
    mdp = random_mdp(5, 3, 4, 3, seed=1)
    first, second = (
        EpisodeCollector(mdp, seed=0).collect(regress_request(i, 1, mixture(mdp), zero_q(mdp), 100)).moments.moment
        for i in (0, 1)
    )
    assert not np.array_equal(first, second)


def test_a_growing_threshold_is_followed_across_shards() -> None:
    """Several shards with b > 0: the stop is the first n at which the progress of n episodes reaches a + b log n."""
    mdp = blocked_mdp()
    policy, collector = s4q.UniformPolicy(3), EpisodeCollector(mdp, seed=4)
    stopped = collector.collect(explore(mdp, policy, (400.0, 150.0), 10**5))
    n = stopped.n_episodes
    assert n > 2048
    before = collector.collect(explore(mdp, policy, (np.inf, 0.0), n - 1))
    assert before.progress.max() < 400 + 150 * np.log(n - 1)
    assert stopped.progress.max() >= 400 + 150 * np.log(n)


BAD_REQUESTS = [
    (lambda mdp: regress_request(0, 3, mixture(mdp), zero_q(mdp), 5), r"level must lie in 0..2; got 3"),
    (lambda mdp: regress_request(0, -1, mixture(mdp), zero_q(mdp), 5), r"level .*got -1"),
    (lambda mdp: regress_request(0, 1, mixture(mdp), zero_q(mdp), 0), r"n_episodes .*got 0"),
    (lambda mdp: Regress(0, 1, mixture(mdp), None, 5), r"target must be a QLevel before the last level"),
    (lambda mdp: Regress(0, 2, mixture(mdp), zero_q(mdp).levels[0], 5), r"target must be None at the last level"),
    (lambda mdp: Regress(0, 1, mixture(mdp), zero_q(mdp), 5), r"target must be the QLevel of level \+ 1"),
    (lambda mdp: explore(mdp, s4q.UniformPolicy(2), (np.nan, 0.0), 5), r"threshold .*nan"),
    (lambda mdp: explore(mdp, s4q.UniformPolicy(2), (1.0, 0.0), 5, keep=-3), r"keep .*got -3"),
    (lambda mdp: explore(mdp, s4q.UniformPolicy(2), (1.0, 0.0), 0), r"n_episodes .*got 0"),
]


@pytest.mark.parametrize(("make", "message"), BAD_REQUESTS)
def test_bad_requests_are_refused(make: Callable[[FiniteMDP], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EpisodeCollector(one_hot_mdp()).collect(make(one_hot_mdp()))
