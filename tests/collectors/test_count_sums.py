"""CountCollector's sums against expectations by enumeration, and its cuts at the very episode."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from asking import regress_request
from literal_player import LiteralPlayer, Sums
from small_problems import random_policy
from test_episodes import state_q, zero_q
from test_literal_player import kept_rows, requests_of
from test_literal_tables import MDPS, problem

import s4q
from s4q.collectors import CountCollector
from s4q.core.messages import Explore, Mixture, Regress, Shard
from s4q.problems import FiniteMDP

MANY = 10**14
CASES = [(kind, noise, horizon) for horizon in (1, 2, 3, 5) for kind, noise in MDPS]


def same_means(answer: Any, n: int, want: Sums, names: tuple[str, ...], size: float) -> None:
    """Sums over n episodes against n times their expectation, within 8 standard errors of a sum of this size."""
    for name in names:
        np.testing.assert_allclose(
            np.asarray(getattr(answer, name)) / n, getattr(want, name), atol=8 * size / np.sqrt(n), err_msg=name
        )


@pytest.mark.parametrize(("kind", "noise", "horizon"), CASES)
def test_huge_counts_have_the_means_of_the_literal_steps(kind: str, noise: str, horizon: int) -> None:
    """10^14 episodes: every sum of every request to seven digits of its expectation, by enumeration of all steps."""
    mdp = problem(kind, horizon, noise)
    player, collector = LiteralPlayer(mdp.features, mdp.spec), CountCollector(mdp, seed=6)
    table = random_policy(mdp, 0)
    for request in requests_of(mdp.spec, MANY):
        if isinstance(request, Regress):
            first, _, third = request.mixture.policies
            request = replace(request, mixture=Mixture([first, table, third], request.mixture.weights))
            answer, want = collector.collect(request), player.mean_regression(request, mdp)
            size = horizon * (1 + max(mdp.spec.value_bound)) ** 2
            same_means(answer.moments, MANY, want, ("moment", "moment_sq", "sum_y2", "n"), size)
            np.testing.assert_allclose(answer.moments.gram / MANY, want.gram[0], atol=1e-6)
            assert answer.n_episodes == MANY
        else:
            policy = request.policy if isinstance(request.policy, s4q.LinearQ) else table
            free = replace(request, policy=policy, threshold=(np.inf, 0.0), n_episodes=MANY, keep=MANY)
            answer, (want, seen) = collector.collect(free), player.mean_visits(free, mdp)
            same_means(answer, MANY, want, ("progress", "return_sum"), 10.0 * horizon)
            np.testing.assert_allclose(answer.grams / MANY, want.gram, atol=1e-6)
            if want.start_value_sum is not None:
                same_means(answer, MANY, want, ("start_value_sum",), 10.0)
            rows = kept_rows(answer, weighed=True)
            assert {row for row, chance in seen.items() if chance > 1e-9} <= set(rows) <= set(seen)
            for row, count in rows.items():
                assert count / MANY == pytest.approx(seen[row], abs=1e-6)
        assert answer.n_steps / MANY == pytest.approx(want.n_steps, abs=1e-6)


@pytest.mark.parametrize(("kind", "noise"), MDPS)
def test_a_flow_cut_at_its_crossing_is_one_of_whole_episodes(kind: str, noise: str) -> None:
    """Whoever arrives without an end takes the next step: at every cut, exactly; and means stay what they were."""
    mdp = problem(kind, 3, noise)
    player, collector = LiteralPlayer(mdp.features, mdp.spec), CountCollector(mdp, seed=6)
    for threshold in (3.0, 50.0, 1e6, 1e11):
        request = replace(requests_of(mdp.spec, 1)[-3], threshold=(threshold, 0.3), n_episodes=10**15, keep=10**15)
        answer = collector.collect(request)
        kept, n = answer.kept, answer.n_episodes
        assert kept.weights[kept.levels == 0].sum() == n
        for h in (0, 1):
            going = kept.weights[(kept.levels == h) & ~kept.ended].sum()
            assert kept.weights[kept.levels == h + 1].sum() == going
        assert answer.n_steps == kept.weights.sum()
        longest = max(float(np.sum((w @ x) ** 2)) for w in request.whitener[:, 0] for x in kept.vectors[:50])
        assert answer.progress.max() >= threshold + 0.3 * np.log(n)
        if threshold == 1e11:
            assert answer.progress.max() < threshold + 0.3 * np.log(n) + 10 * longest
            want, _ = player.mean_visits(request, mdp)
            np.testing.assert_allclose(answer.grams / n, want.gram, atol=1e-4)
            same_means(answer, n, want, ("progress", "return_sum"), 30.0)


def coin() -> FiniteMDP:
    """One step: heads or tails decides what features an episode sees."""
    return FiniteMDP(np.broadcast_to(np.eye(2)[:, None, :], (2, 1, 2)), [[0.0], [0.0]], [0.5, 0.5], horizon=1)


@pytest.mark.parametrize("size", [2, 3, 8])
def test_an_episode_may_cross_though_its_chunk_ends_below(size: int) -> None:
    """A threshold that outruns the progress: only heads in the first episode crosses, whatever comes after.

    Heads count 3, tails 0.01, and the threshold after n episodes is 2 + 100 log n.
    """
    white = np.sqrt(np.array([3.0, 0.01])).reshape(1, 2, 1, 1)
    collector = CountCollector(coin(), seed=1)
    crossed = 0
    for i in range(400):
        answer = collector.play(Explore(i, s4q.UniformPolicy(1), white, (2.0, 100.0), 100), Shard(0, size))
        heads, tails = answer.grams.ravel().astype(int)
        assert answer.n_episodes == heads + tails
        if answer.n_episodes == 1:
            assert heads == 1
            crossed += 1
        else:
            assert answer.n_episodes == size
    assert abs(crossed - 200) < 50  # five standard deviations


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 8, 15, 100])
def test_a_chunk_is_cut_at_the_very_episode(limit: int) -> None:
    """Each episode counts 1: a chunk of any size is cut after exactly `limit` of them."""
    white = np.ones((1, 2, 1, 1))
    for size in (1, 2, 3, 5, 6, 7, 64, 1000):
        request = Explore(0, s4q.UniformPolicy(1), white, (1.3 * limit - 0.5, 0.0), 2000)
        answer = CountCollector(coin(), seed=1).play(request, Shard(0, size), np.full(1, 0.3 * limit))
        assert answer.n_episodes == min(limit, size)
        assert answer.grams.sum() == answer.progress.sum() == min(limit, size)


def test_episodes_of_policies_that_act_alike_are_all_drawn() -> None:
    """Three policies, two of which act alike: no episode of either is lost."""
    mdp = s4q.problems.river_swim(3, 4)
    q = state_q(mdp)
    mixed = Mixture([q, s4q.UniformPolicy(2), s4q.LinearQ.from_arrays(q.theta * 2), q], [0.3, 0.2, 0.3, 0.2])
    answer = CountCollector(mdp).collect(regress_request(0, 3, mixed, zero_q(mdp), 10**6))
    assert answer.moments.n == answer.moments.gram.sum() == 10**6
    assert answer.n_steps == 4 * 10**6
    np.testing.assert_allclose(answer.moments.gram.ravel() / 10**6, mdp.occupancies(mixed)[3].ravel(), atol=3e-3)
