"""Q-learning, SARSA(lambda), replay Q-learning, Q-Rex and UCB-Q against literal loops and closed forms."""

from collections.abc import Callable
from math import log, sqrt
from typing import Any

import numpy as np
import pytest
from small_problems import random_mdp

import s4q
from s4q import FiniteMDP
from s4q.baselines import UCBQ, EpsilonGreedy, QLearning, QRex, ReplayQ, Sarsa, paper_c
from s4q.collectors import CountCollector, EpisodeCollector
from s4q.core.blocks import dense
from s4q.core.messages import Transitions


def ending(low: float = -0.5) -> FiniteMDP:
    """4 states, 2 actions, 4 levels, one-hot; the last state ends an episode, and rewards may be negative."""
    rng = np.random.default_rng(3)
    transitions = rng.dirichlet(np.full(4, 0.7), size=(4, 2))
    rewards = rng.uniform(low, 1.0, size=(4, 2))
    transitions[3], rewards[3] = np.eye(4)[3], 0.0
    mask = np.array([False, False, False, True])
    return FiniteMDP(transitions, rewards, np.eye(4)[0], horizon=4, reward_range=(low, 1.0), terminal=mask)


MDPS = [random_mdp(5, 2, 3, 3, seed=1), s4q.problems.dense_random(3, 2, 4), ending()]
NAMES = ["dense", "one-hot", "ends"]


def episodes_of(learner: Any, collector: s4q.Collector, n: int) -> list[Transitions]:
    """Play n episodes, one a request, and return their steps."""
    kept = []
    for _ in range(n):
        request = learner.ask(10)
        assert request.n_episodes == 1
        answer = collector.collect(request)
        learner.tell(request, answer)
        kept.append(answer.kept)
    return kept


class Written:
    """One episode with long features, in the order of its levels."""

    def __init__(self, steps: Transitions, spec: s4q.Spec) -> None:
        order = np.argsort(steps.levels)
        self.phi = dense(steps.vectors, steps.blocks, spec.n_blocks)[order]
        self.after = dense(steps.next_vectors, steps.next_blocks, spec.n_blocks)[order]
        self.reward, self.ended = steps.rewards[order], steps.ended[order]

    def __len__(self) -> int:
        return len(self.reward)


def value_after(theta: np.ndarray, episode: Written, h: int, spec: s4q.Spec) -> float:
    if episode.ended[h]:
        return (spec.horizon - 1 - h) * -spec.reward_min
    return 0.0 if h == spec.horizon - 1 else max(x @ theta[h + 1] for x in episode.after[h])


@pytest.mark.parametrize("mdp", MDPS, ids=NAMES)
@pytest.mark.parametrize("collector", [EpisodeCollector, CountCollector])
def test_q_learning_step_by_step(mdp: FiniteMDP, collector: type) -> None:
    learner = QLearning(mdp, step_size=0.3)
    kept = episodes_of(learner, collector(mdp, seed=1), 30)
    theta = np.zeros((mdp.horizon, mdp.dim))
    for episode in (Written(steps, mdp.spec) for steps in kept):
        for h in range(len(episode)):  # along the way: theta changes before the next step is looked at
            td = episode.reward[h] + value_after(theta, episode, h, mdp.spec) - episode.phi[h] @ theta[h]
            theta[h] = theta[h] + 0.3 * td * episode.phi[h]
    np.testing.assert_allclose(learner.theta.reshape(theta.shape), theta, rtol=1e-10, atol=1e-13)
    assert np.abs(theta).max() > 0.05


@pytest.mark.parametrize("mdp", MDPS, ids=NAMES)
@pytest.mark.parametrize("trace", [0.0, 0.7, 1.0])
def test_sarsa_gives_what_eligibility_traces_give_along_the_way(mdp: FiniteMDP, trace: float) -> None:
    learner = Sarsa(mdp, trace=trace, step_size=0.3)
    kept = episodes_of(learner, EpisodeCollector(mdp, seed=1), 30)
    theta, spec = np.zeros((mdp.horizon, mdp.dim)), mdp.spec
    for episode in (Written(steps, spec) for steps in kept):
        eligibility = np.zeros_like(theta)
        for h in range(len(episode)):
            after = value_after(theta, episode, h, spec)
            if h + 1 < len(episode):
                after = episode.phi[h + 1] @ theta[h + 1]
            td = episode.reward[h] + after - episode.phi[h] @ theta[h]
            eligibility *= trace
            eligibility[h] += episode.phi[h]
            theta = theta + 0.3 * td * eligibility
    np.testing.assert_allclose(learner.theta.reshape(theta.shape), theta, rtol=1e-10, atol=1e-13)
    assert np.abs(theta).max() > 0.05


@pytest.mark.parametrize("mdp", MDPS, ids=NAMES)
def test_q_rex_goes_backwards_with_a_target_that_stands_still(mdp: FiniteMDP) -> None:
    learner = QRex(mdp, step_size=0.3, buffer_episodes=2, target_every=3)
    kept = episodes_of(learner, EpisodeCollector(mdp, seed=1), 36)
    theta = np.zeros((mdp.horizon, mdp.dim))
    target = theta.copy()
    for number in range(0, 36, 2):
        for steps in (kept[number + 1], kept[number]):
            episode = Written(steps, mdp.spec)
            for h in reversed(range(len(episode))):
                td = episode.reward[h] + value_after(target, episode, h, mdp.spec) - episode.phi[h] @ theta[h]
                theta[h] = theta[h] + 0.3 * td * episode.phi[h]
        if (number // 2 + 1) % 3 == 0:
            target = theta.copy()
    np.testing.assert_allclose(learner.theta.reshape(theta.shape), theta, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(learner.target.reshape(theta.shape), target, rtol=1e-10, atol=1e-13)
    assert learner.phases <= 6
    assert np.abs(target).max() > 0.05


@pytest.mark.parametrize("mdp", MDPS, ids=NAMES)
def test_replay_q_draws_batches_from_all_steps(mdp: FiniteMDP) -> None:
    learner = ReplayQ(mdp, step_size=0.3, batch=4, updates=3, target_every=2, seed=5)
    kept = episodes_of(learner, EpisodeCollector(mdp, seed=1), 12)
    spec, theta = mdp.spec, np.zeros((mdp.horizon, mdp.spec.n_blocks, mdp.spec.block_dim))
    target, stored = theta.copy(), list[tuple[Written, int, int]]()
    for number, steps in enumerate(kept):
        episode = Written(steps, spec)
        stored += [(episode, h, int(np.sort(steps.levels)[h])) for h in range(len(episode))]
        rng = np.random.default_rng(np.random.SeedSequence(5, spawn_key=(0x6C6561726E6572, number)))
        for batch in rng.integers(len(stored), size=(3, 4)):
            changes: dict[tuple[int, int], list[np.ndarray]] = {}
            for one, h, _ in (stored[i] for i in batch):
                after = value_after(target.reshape(mdp.horizon, -1), one, h, spec)
                td = one.reward[h] + after - one.phi[h] @ theta[h].ravel()
                block = int(np.flatnonzero(one.phi[h].reshape(spec.n_blocks, -1).any(axis=1))[0])
                changes.setdefault((h, block), []).append(td * one.phi[h].reshape(spec.n_blocks, -1)[block])
            for cell, parts in changes.items():
                theta[cell] += 0.3 * np.mean(parts, axis=0)
        if (number + 1) % 2 == 0:
            target = theta.copy()
    np.testing.assert_allclose(learner.theta, theta, rtol=1e-9, atol=1e-13)
    np.testing.assert_array_equal(learner.target, learner.theta)
    assert np.abs(theta).max() > 0.05


def test_the_buffer_of_replay_q_grows_with_the_episodes_up_to_its_capacity() -> None:
    mdp = s4q.problems.chain(4, 4)
    sizes = [s4q.run(ReplayQ(mdp, updates=1), EpisodeCollector(mdp), n).nbytes for n in (50, 100, 200)]
    assert sizes[2] - sizes[1] == 2 * (sizes[1] - sizes[0]) > 0
    learner = ReplayQ(mdp, updates=1, capacity=6)
    kept = episodes_of(learner, EpisodeCollector(mdp), 4)  # 16 steps: the last six are left
    rewards = np.concatenate([steps.rewards for steps in kept])
    assert len(learner.buffer) == 6
    assert sorted(learner.buffer.levels[:6].tolist()) == sorted([2, 3, 0, 1, 2, 3])
    assert learner.buffer.rewards[:6].sum() == pytest.approx(rewards[-6:].sum())


def test_ucb_q_has_the_rates_and_the_bonus_of_the_paper() -> None:
    """One pair, t visits, reward r: Q = sum of alpha_t^i (r + b_i) with alpha_t^i = a_i prod_{j>i} (1 - a_j)."""
    mdp = FiniteMDP(np.ones((1, 1, 1)), [[0.25]], [1.0], horizon=1, reward_noise="none")
    learner, t, c = UCBQ(mdp, c=0.3), 7, 0.3
    episodes_of(learner, EpisodeCollector(mdp), t)
    rates = [2 / (1 + i) for i in range(1, t + 1)]
    weights = [rates[i] * np.prod([1 - a for a in rates[i + 1 :]]) for i in range(t)]
    assert sum(weights) == pytest.approx(1.0)  # the first rate is 1: the start is forgotten
    expected = sum(w * (0.25 + c * sqrt(1 / i)) for i, w in enumerate(weights, start=1))
    assert learner.table.item() == pytest.approx(expected, rel=1e-12)
    assert learner.n_visits.item() == t


@pytest.mark.parametrize("mdp", MDPS[1:], ids=NAMES[1:])
def test_ucb_q_step_by_step(mdp: FiniteMDP) -> None:
    learner = UCBQ(mdp, c=0.1)
    kept = episodes_of(learner, CountCollector(mdp, seed=1), 40)
    spec, horizon = mdp.spec, mdp.horizon
    q = {(h, i): spec.value_bound[h] for h in range(horizon) for i in range(mdp.dim)}
    seen = dict.fromkeys(q, 0)
    for episode in (Written(steps, spec) for steps in kept):
        for h in range(len(episode)):
            pair = (h, int(episode.phi[h].argmax()))
            after = (horizon - 1 - h) * -spec.reward_min if episode.ended[h] else 0.0
            if not episode.ended[h] and h + 1 < horizon:
                after = min(spec.value_bound[h + 1], max(q[h + 1, int(x.argmax())] for x in episode.after[h]))
            seen[pair] += 1
            rate = (horizon + 1) / (horizon + seen[pair])
            bonus = 0.1 * spec.value_bound[0] * sqrt(horizon / seen[pair])
            q[pair] = (1 - rate) * q[pair] + rate * (episode.reward[h] + after + bonus)
    np.testing.assert_allclose(learner.table.reshape(horizon, -1).ravel(), list(q.values()), rtol=1e-10)


def test_paper_c() -> None:
    spec = s4q.problems.chain().spec
    assert paper_c(spec, 100, 0.1) == pytest.approx(sqrt(log(20 * 10 * 100 / 0.1)))


@pytest.mark.slow
def test_q_learning_converges_on_tables_with_the_standard_step_sizes() -> None:
    """1/n^0.8 satisfies the conditions of Watkins and Dayan; a constant step size keeps its noise."""
    mdp = s4q.problems.dense_random(3, 2, 3)
    errors = {}
    for decay in (0.8, 0.0):
        learner = QLearning(mdp, epsilon=1.0, step_size=1.0, decay=decay)
        run = s4q.run(learner, EpisodeCollector(mdp, seed=0), 5000)
        errors[decay] = float(np.abs(mdp.q_values(run.q) - mdp.q_star)[mdp.reachable].max())
    assert errors[0.8] < 0.15
    assert errors[0.0] > 0.3


@pytest.mark.parametrize("build", [QLearning, Sarsa, QRex])
def test_an_optimistic_start_explores_where_epsilon_does_not(build: Callable[..., s4q.Learner]) -> None:
    mdp = s4q.problems.deep_sea(5)
    gaps = {}
    for optimistic in (True, False):
        learner = build(mdp, 0.0 if optimistic else 0.1, step_size=0.5, optimistic=optimistic)
        gaps[optimistic] = s4q.run(learner, EpisodeCollector(mdp, seed=0), 300).gap
    assert gaps[True] is not None
    assert gaps[True] < 0.01
    assert gaps[False] is not None
    assert gaps[False] > 0.9


def test_shared_weights_are_one_parameter_in_the_rewards_of_the_user() -> None:
    """One state that pays -0.5 for ever: the discounted value is -0.5 / (1 - 0.9) at every level."""
    mdp = FiniteMDP(np.ones((1, 1, 1)), [[-0.5]], [1.0], horizon=10, reward_range=(-1, 0), reward_noise="none")
    settings: dict[Any, dict[str, Any]] = {QLearning: {}, Sarsa: {"trace": 0.5}, QRex: {"target_every": 1}}
    for build, more in settings.items():
        learner = build(mdp, shared=True, discount=0.9, step_size=0.2, **more)
        run = s4q.run(learner, EpisodeCollector(mdp), 80)
        assert learner.theta.shape == (1, 1, 1)
        assert learner.theta.item() == pytest.approx(-5.0, rel=0.02)
        assert run.q.horizon == 10


def test_the_seed_of_replay_q_draws_its_batches() -> None:
    mdp = s4q.problems.low_rank()
    regrets = [s4q.run(ReplayQ(mdp, seed=seed), EpisodeCollector(mdp), 30).regret for seed in (0, 0, 1)]
    assert regrets[0] == regrets[1] != regrets[2]


@pytest.mark.parametrize("build", [QLearning, Sarsa, lambda mdp: UCBQ(mdp, c=0.02)])
def test_a_policy_is_new_only_if_an_action_has_changed(build: Callable[..., Any]) -> None:
    """On tables the same policy is passed again while it plays the same actions; Q itself is always the newest."""
    mdp = s4q.problems.dense_random(3, 2, 3)
    learner, collector = build(mdp), EpisodeCollector(mdp, seed=0)
    changes = 0
    for _ in range(120):
        policy, table = learner.ask(1).policy, mdp.policy_table(learner.policy)
        episodes_of(learner, collector, 1)
        changed = bool((mdp.policy_table(learner.policy) != table).any())
        assert (learner.ask(1).policy is not policy) == changed
        changes += changed
    assert learner.phases == changes
    assert 2 < changes < 115


def test_what_is_played_explores_and_what_is_deployed_does_not() -> None:
    mdp = s4q.problems.chain(4, 4)
    learner = QLearning(mdp, epsilon=0.2)
    assert mdp.policy_table(learner.ask(1).policy).max() == pytest.approx(0.9)
    assert mdp.policy_table(learner.policy).max() == 1.0


CHAIN = s4q.problems.chain(4, 4)
BAD: list[tuple[str, Callable[[], object], str]] = [
    ("epsilon", lambda: QLearning(CHAIN, epsilon=-0.1), r"epsilon .*\[0, 1\]; got -0.1"),
    ("step", lambda: QLearning(CHAIN, step_size=0.0), r"step_size .*positive.*got 0.0"),
    ("decay", lambda: Sarsa(CHAIN, decay=2.0), r"decay .*\[0, 1\]; got 2.0"),
    ("trace", lambda: Sarsa(CHAIN, trace=1.5), r"trace is lambda.*got 1.5"),
    ("discount", lambda: QLearning(CHAIN, discount=0.9), r"discount .* unless shared=True; got 0.9"),
    ("batch", lambda: ReplayQ(CHAIN, batch=0), r"batch .*got 0"),
    ("capacity", lambda: ReplayQ(CHAIN, capacity=0), r"capacity .*got 0"),
    ("buffer", lambda: QRex(CHAIN, buffer_episodes=0), r"buffer_episodes .*got 0"),
    ("target", lambda: QRex(CHAIN, target_every=0), r"target_every .*got 0"),
    ("c", lambda: UCBQ(CHAIN, c=0.0), r"c is the factor of the bonus.*got 0.0"),
    ("tabular", lambda: UCBQ(random_mdp(3, 2, 2, 2, seed=0)), r"one-hot features"),
]


@pytest.mark.parametrize(("call", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_a_mixed_policy_knows_all_levels_at_once() -> None:
    mdp, rng = s4q.problems.chain(4, 3), np.random.default_rng(1)
    policy = EpsilonGreedy(s4q.LinearQ.from_arrays(rng.standard_normal((3, 8, 1))), 0.3)
    expected = [policy.probabilities(h, np.arange(4), mdp.features.level(h)) for h in range(3)]
    np.testing.assert_array_equal(mdp.policy_table(policy), expected)


def test_q_rex_says_that_it_has_diverged_before_its_target_does() -> None:
    """The target stands still for 1,000 buffers. A parameter beyond all bounds is refused long before."""
    learner = QRex(s4q.problems.chain(4, 4), step_size=50.0, target_every=1000)
    with pytest.raises(ValueError, match=r"QRex has diverged: a parameter is .*choose smaller steps"):
        s4q.run(learner, EpisodeCollector(s4q.problems.chain(4, 4), seed=0), 200)
    assert np.all(np.isfinite(learner.theta))
