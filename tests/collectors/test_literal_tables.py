"""The collectors of finite problems against the literal player: all sums of all requests, level by level."""

from typing import Any

import numpy as np
import pytest
from literal_player import Episode, LiteralPlayer, Step
from small_problems import TablePolicy, random_mdp
from test_literal_player import HIGH, HORIZONS, LOW, N_ACTIONS, N_STATES, SEED, Mixed, assert_sums, requests_of

import s4q
from s4q.collectors import BatchCollector, CountCollector, EpisodeCollector, FiniteBatch
from s4q.core.messages import Explore, Regress
from s4q.problems import FiniteMDP


def problem(kind: str, horizon: int, noise: str = "none") -> FiniteMDP:
    """Random dynamics with a state that ends the episode, reached from everywhere, and negative rewards."""
    base = random_mdp(N_STATES, N_ACTIONS, 3, horizon, seed=horizon, terminal=True, low=LOW)
    features: Any = None
    if kind == "dense":
        features = base.features
    elif kind == "mixed blocks":
        mixed = Mixed(horizon)
        mixed.vectors[:, -1] = 0.0  # of a state that ends the episode
        features = mixed
    arrivals = None
    rewards = base.rewards * 0.9
    if noise == "arrivals":
        arrivals = np.random.default_rng(1).uniform(LOW, HIGH, size=base.transitions.shape)
        arrivals[:, -1] = 0.0
        rewards = (base.transitions * arrivals).sum(axis=-1)
    return FiniteMDP(
        base.transitions,
        rewards.clip(LOW, HIGH),
        base.start,
        features,
        reward_range=(LOW, HIGH),
        reward_noise="bernoulli" if noise == "bernoulli" else "none",
        terminal=base.terminal,
        arrival_rewards=arrivals,
    )


MDPS = [("one-hot", "bernoulli"), ("dense", "arrivals"), ("mixed blocks", "none")]


@pytest.mark.parametrize(("kind", "noise"), MDPS)
@pytest.mark.parametrize("horizon", HORIZONS)
def test_the_reference_collector(kind: str, noise: str, horizon: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("s4q.collectors.stepping.stepping_collector._MOST_EPISODES", 64)
    mdp = problem(kind, horizon, noise)
    player, collector = LiteralPlayer(mdp.features, mdp.spec), EpisodeCollector(mdp, seed=SEED)
    table = TablePolicy(np.random.default_rng(0).dirichlet(np.ones(N_ACTIONS), size=(horizon, N_STATES)))
    lengths = set()
    for request in requests_of(mdp.spec, 60):
        if isinstance(request, Explore) and not isinstance(request.policy, s4q.LinearQ):
            request = Explore(request.id, table, request.whitener, request.threshold, 200, keep=2)
        episodes: list[Episode] = []
        for shard in collector.shards(request):
            last = player.last_step(request, reset_early=True)
            episodes += player.mdp_episodes(mdp, request, SEED, shard.index, shard.n_episodes, last)
        lengths |= {len(episode.steps) for episode in episodes if episode.steps[-1].ended}
        add = player.regression if isinstance(request, Regress) else player.visits
        assert_sums(collector.collect(request), add(request, episodes))
    assert lengths == set(range(1, horizon + 1))


class Recording:
    """A batched simulator that writes down its episodes. With `few` it says that its states are few."""

    def __init__(self, env: FiniteBatch, few: bool) -> None:
        self.env, self.batches = env, []
        if few:
            self.n_states = env.n_states

    def start(self, n: int, rng: Any) -> Any:
        self.batches.append([[] for _ in range(n)])
        self.rows = list(range(n))
        return self.env.start(n, rng)

    def step(self, h: int, states: Any, actions: Any, rng: Any) -> Any:
        rewards, after, ended = self.env.step(h, states, actions, rng)
        for i, row in enumerate(self.rows):
            self.batches[-1][row].append(
                Step(int(states[i]), int(actions[i]), float(rewards[i]), int(after[i]), bool(ended[i]))
            )
        self.rows = [row for i, row in enumerate(self.rows) if not ended[i]]
        return rewards, after, ended


def played_right(player: LiteralPlayer, policy: Any, steps: list[Step]) -> bool:
    """Could the policy have taken these actions?"""
    return all(player.chances(policy, h, step.observation)[step.action] > 0 for h, step in enumerate(steps))


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize(("kind", "noise"), MDPS)
@pytest.mark.parametrize("horizon", HORIZONS)
def test_the_batch_collector(kind: str, noise: str, horizon: int, few: bool) -> None:
    """The first episodes of a batch play the first policy, and so on: as many as the answer says."""
    mdp = problem(kind, horizon, noise)
    player = LiteralPlayer(mdp.features, mdp.spec)
    env = Recording(FiniteBatch(mdp), few)
    collector = BatchCollector(env, mdp.features, mdp.spec, seed=SEED)
    lengths = set()
    for request in requests_of(mdp.spec, 60):
        env.batches.clear()
        answer = collector.collect(request)
        policies = [request.policy] if isinstance(request, Explore) else list(request.mixture.policies)
        which = [0] * 10_000
        if isinstance(request, Regress):
            which = [j for j, n in enumerate(answer.episodes_per_policy) for _ in range(n)]
            assert len(which) == 60
        steps = [one for batch in env.batches for one in batch]
        episodes = [Episode(j, one) for j, one in zip(which, steps, strict=False)]
        assert all(played_right(player, policies[j], one) for j, one in episodes)
        lengths |= {len(one) for one in steps if one[-1].ended}
        add = player.regression if isinstance(request, Regress) else player.visits
        assert_sums(answer, add(request, episodes))
    assert lengths == set(range(1, horizon + 1))


def without_chance(kind: str, horizon: int) -> FiniteMDP:
    """One start and one way to go from each pair; some ways lead to an end."""
    base = problem(kind, horizon)
    step = np.eye(N_STATES)[np.random.default_rng(5).integers(0, N_STATES, size=base.rewards.shape)]
    step[:, -1] = np.eye(N_STATES)[-1]
    features = None if kind == "one-hot" else base.features
    return FiniteMDP(
        step,
        base.rewards,
        np.eye(N_STATES)[0],
        features,
        reward_range=(LOW, HIGH),
        reward_noise="none",
        terminal=base.terminal,
    )


@pytest.mark.parametrize("kind", ["one-hot", "dense", "mixed blocks"])
@pytest.mark.parametrize("horizon", HORIZONS)
def test_the_count_collector_where_nothing_is_left_to_chance(kind: str, horizon: int) -> None:
    mdp = without_chance(kind, horizon)
    player, collector = LiteralPlayer(mdp.features, mdp.spec), CountCollector(mdp, seed=SEED)
    ended = set()
    for request in requests_of(mdp.spec, 300, draws=False):
        answer = collector.collect(request)
        last = player.last_step(request, reset_early=True)
        if isinstance(request, Regress):
            only = [player.only_episode(mdp, policy, j, last) for j, policy in enumerate(request.mixture.policies)]
            counts = answer.episodes_per_policy.tolist()
            assert sum(counts) == 300
            assert all(abs(n - 300 * w) < 50 for n, w in zip(counts, request.mixture.weights, strict=True))
            want = player.regression(request, [one for one, n in zip(only, counts, strict=True) for _ in range(n)])
        else:
            only = [player.only_episode(mdp, request.policy, 0, last)]
            want = player.visits(request, only * request.n_episodes)
        ended |= {one.steps[-1].ended for one in only}
        assert_sums(answer, want, weighed=True)
    assert horizon == 1 or len(ended) == 2


def test_the_count_collector_answers_learners() -> None:
    """S4Q's own requests, whose mixtures grow: policies that act alike among them."""
    mdp = without_chance("one-hot", 3)
    player, collector = LiteralPlayer(mdp.features, mdp.spec), CountCollector(mdp, seed=SEED)
    practical = s4q.S4Q(mdp, memory="policies", trigger=3.0, c_replay=1.0)
    for learner in (s4q.S4Q(mdp, "realisable", trigger=3.0), practical):
        left, most = 500, 0
        while left > 0:
            request = learner.ask(left)
            answer = collector.collect(request)
            last = player.last_step(request, reset_early=True)
            if isinstance(request, Regress):
                most = max(most, len(request.mixture.policies))
                only = [player.only_episode(mdp, policy, j, last) for j, policy in enumerate(request.mixture.policies)]
                counts = answer.episodes_per_policy.tolist()
                want = player.regression(request, [one for one, n in zip(only, counts, strict=True) for _ in range(n)])
            else:
                want = player.visits(request, [player.only_episode(mdp, request.policy, 0, last)] * request.n_episodes)
            assert_sums(answer, want, weighed=True)
            learner.tell(request, answer)
            left -= answer.n_episodes
        assert most > 3
        assert learner.phases > 5
