"""LSVI-UCB, RLSVI and fitted Q iteration against dense batch solves, exact values and closed forms."""

from collections.abc import Callable
from dataclasses import replace
from math import log, sqrt

import numpy as np
import pytest
from small_problems import random_mdp

import s4q
from s4q import FiniteMDP
from s4q.baselines import LSVIUCB, RLSVI, EpsilonGreedy, FittedQ, paper_beta
from s4q.baselines.refitting import RefitLearner
from s4q.collectors import CountCollector, EpisodeCollector
from s4q.core.blocks import dense
from s4q.core.least_squares import ridge_fit
from s4q.core.messages import Transitions

Build = Callable[[FiniteMDP], RefitLearner]
BUILDS: list[Build] = [LSVIUCB, RLSVI, FittedQ]


def told(learner: s4q.Learner, collector: s4q.Collector, episodes: int) -> list[Transitions]:
    """The steps that a learner was told, request by request."""
    kept: list[Transitions] = []
    n = 0
    while n < episodes:
        request = learner.ask(episodes - n)
        assert isinstance(request, s4q.Explore)
        answer = collector.collect(request)
        assert answer.kept is not None
        kept.append(answer.kept)
        learner.tell(request, answer)
        n += answer.n_episodes
    return kept


class Steps:
    """All steps written out: long features, rewards, long features of the next state, ends, levels."""

    def __init__(self, kept: list[Transitions], n_blocks: int) -> None:
        rows = np.concatenate([np.repeat(np.arange(len(one.levels)), one.weights) for one in kept])
        which = np.repeat(np.arange(len(kept)), [int(one.weights.sum()) for one in kept])

        def column(values: list[np.ndarray]) -> np.ndarray:
            return np.stack([values[i][row] for i, row in zip(which, rows, strict=True)])

        self.phi = column([dense(one.vectors, one.blocks, n_blocks) for one in kept])
        self.after = column([dense(one.next_vectors, one.next_blocks, n_blocks) for one in kept])
        self.reward, self.ended = column([one.rewards for one in kept]), column([one.ended for one in kept])
        self.level = column([one.levels for one in kept])


def literal_lsvi(
    steps: Steps, spec: s4q.Spec, beta: float, ridge: float, lower: float, lower_order: float = 0.0
) -> list[np.ndarray]:
    """theta of every level: one dense solve a level, step by step, with a bonus of width beta."""
    thetas: list[np.ndarray] = [np.zeros(spec.dim)] * spec.horizon
    following: tuple[np.ndarray, np.ndarray] | None = None
    for h in reversed(range(spec.horizon)):
        here = np.flatnonzero(steps.level == h)
        cov, moment = ridge * np.eye(spec.dim), np.zeros(spec.dim)
        for i in here:
            value = (spec.horizon - 1 - h) * -spec.reward_min if steps.ended[i] else 0.0
            if not steps.ended[i] and following is not None:
                theta, inverse = following
                sizes = [x @ inverse @ x for x in steps.after[i]]
                bonuses = [beta * sqrt(size) + lower_order * size for size in sizes]
                values = [x @ theta + bonus for x, bonus in zip(steps.after[i], bonuses, strict=True)]
                value = min(max(max(values), lower), spec.value_bound[h + 1])
            cov += np.outer(steps.phi[i], steps.phi[i])
            moment += steps.phi[i] * (steps.reward[i] + value)
        thetas[h] = np.linalg.solve(cov, moment)
        following = (thetas[h], np.linalg.inv(cov))
    return thetas


MDPS = [random_mdp(5, 2, 3, 3, seed=1), s4q.problems.low_rank(), s4q.problems.chain(4, 4)]


@pytest.mark.parametrize("collector", [EpisodeCollector, CountCollector])
@pytest.mark.parametrize("mdp", MDPS, ids=["dense", "low rank", "one-hot"])
def test_weights_of_lsvi_ucb_are_a_batch_ridge_solve(mdp: FiniteMDP, collector: type) -> None:
    learner = LSVIUCB(mdp, beta=0.3, ridge=0.7)
    steps = Steps(told(learner, collector(mdp, seed=2), 25), mdp.spec.n_blocks)
    lower = 0.0 if mdp.spec.well_specified else -np.inf
    expected = literal_lsvi(steps, mdp.spec, 0.3 * mdp.spec.value_bound[0], 0.7, lower)
    np.testing.assert_allclose(learner.q.theta.reshape(mdp.horizon, -1), expected, rtol=1e-8, atol=1e-10)
    # The test sees a bonus that is a little wider, and a step less.
    other = literal_lsvi(steps, mdp.spec, 0.31 * mdp.spec.value_bound[0], 0.7, lower)
    assert np.abs(learner.q.theta.reshape(mdp.horizon, -1) - other).max() > 1e-6


@pytest.mark.parametrize("mdp", MDPS, ids=["dense", "low rank", "one-hot"])
def test_a_second_term_of_the_bonus_is_of_order_one_over_n(mdp: FiniteMDP) -> None:
    learner = LSVIUCB(mdp, beta=0.1, ridge=0.2, lower_order=0.05)
    steps = Steps(told(learner, EpisodeCollector(mdp, seed=2), 25), mdp.spec.n_blocks)
    bound, lower = mdp.spec.value_bound[0], 0.0 if mdp.spec.well_specified else -np.inf
    expected = literal_lsvi(steps, mdp.spec, 0.1 * bound, 0.2, lower, 0.05 * bound)
    np.testing.assert_allclose(learner.q.theta.reshape(mdp.horizon, -1), expected, rtol=1e-8, atol=1e-10)
    without = literal_lsvi(steps, mdp.spec, 0.1 * bound, 0.2, lower)
    assert np.abs(learner.q.theta.reshape(mdp.horizon, -1) - without).max() > 1e-6
    with pytest.raises(ValueError, match="lower_order"):
        LSVIUCB(mdp, lower_order=-1.0)


def test_the_bonus_of_lsvi_ucb_is_the_norm_of_the_inverse() -> None:
    mdp = MDPS[0]
    learner = LSVIUCB(mdp, beta=0.3)
    steps = Steps(told(learner, EpisodeCollector(mdp, seed=0), 10), 1)
    phi = mdp.features.level(1)
    inverse = np.linalg.inv(np.eye(3) + steps.phi[steps.level == 1].T @ steps.phi[steps.level == 1])
    norms = np.sqrt(np.einsum("sai,ij,saj->sa", phi.vectors, inverse, phi.vectors))
    bonus = learner.q.optimistic(1, phi) - phi.vectors @ learner.q.theta[1, 0]
    np.testing.assert_allclose(bonus, 0.3 * mdp.spec.value_bound[0] * norms, rtol=1e-9)


def test_rare_switching_waits_until_a_determinant_has_doubled() -> None:
    mdp = s4q.problems.low_rank()
    learner, collector = LSVIUCB(mdp, beta=0.1, switch="determinant"), EpisodeCollector(mdp, seed=0)
    grams, fitted, switches = np.zeros((3, 5, 5)), np.zeros(3), 0
    for _ in range(200):
        policy = learner.policy
        [kept] = told(learner, collector, 1)
        for vector, level in zip(kept.vectors, kept.levels, strict=True):
            grams[level] += np.outer(vector, vector)
        dets = np.log([np.linalg.det(gram + np.eye(5)) for gram in grams])
        doubled = bool((dets >= fitted + log(2)).any())
        assert (learner.policy is not policy) == doubled
        if doubled:
            fitted, switches = dets, switches + 1
    assert learner.phases == switches
    assert 5 < switches < 60


@pytest.mark.parametrize("mdp", [s4q.problems.chain(4, 4), s4q.problems.deep_sea(4), s4q.problems.low_rank()])
def test_fitted_q_equals_exact_values_with_enough_data(mdp: FiniteMDP) -> None:
    """A uniform controller reaches every pair of these; with 10^6 episodes the noise is gone."""
    learner = FittedQ(mdp, epsilon=1.0, ridge=1e-6)
    request = replace(learner.ask(1), n_episodes=10**6, keep=10**6)
    learner._length = 10**6
    learner.tell(request, CountCollector(mdp, seed=0).collect(request))
    error = np.abs(mdp.q_values(learner.q) - mdp.q_star)[mdp.reachable].max()
    assert error < 0.01
    assert np.abs(mdp.q_values(s4q.LinearQ.from_arrays(0 * learner.q.theta)) - mdp.q_star)[mdp.reachable].max() > 0.1


def test_fitted_q_plays_its_policy_and_sometimes_another_action() -> None:
    mdp = s4q.problems.chain(4, 4)
    learner = FittedQ(mdp, epsilon=0.25)
    table = mdp.policy_table(learner.ask(1).policy)
    assert isinstance(learner.ask(1).policy, EpsilonGreedy)
    np.testing.assert_allclose(np.sort(table, axis=-1), np.broadcast_to([0.125, 0.875], table.shape))
    assert mdp.policy_table(learner.policy).max() == 1.0


def test_draws_of_rlsvi_have_the_mean_and_covariance_of_the_posterior() -> None:
    """At the last level no target is random: mean and covariance are those of a ridge fit."""
    mdp = MDPS[0]
    learner = RLSVI(mdp, sigma=0.4, ridge=0.7, switch="every_episode")
    steps = Steps(told(learner, EpisodeCollector(mdp, seed=2), 25), 1)
    last = steps.phi[steps.level == 2]
    cov = np.linalg.inv(0.7 * np.eye(3) + last.T @ last)
    mean = cov @ last.T @ steps.reward[steps.level == 2]
    draws = []
    moments = learner.memory.source().moments(2, None)
    for seed in range(4000):
        learner.seed = seed
        draws.append(learner._level(2, ridge_fit(moments, 0.7), moments).theta[0])
    spread = (0.4 * mdp.spec.value_bound[0]) ** 2 * cov
    error = np.sqrt(np.diag(spread) / 4000)
    assert (np.abs(np.mean(draws, axis=0) - mean) < 4 * error).all()
    np.testing.assert_allclose(np.cov(np.array(draws).T), spread, atol=0.08 * spread.max())
    assert np.abs(spread * 0.81 - np.cov(np.array(draws).T)).max() > 0.08 * spread.max()  # sigma 10 % off is seen


def test_rlsvi_draws_from_its_own_seed() -> None:
    mdp = s4q.problems.low_rank()
    regrets = [s4q.run(RLSVI(mdp, seed=seed), EpisodeCollector(mdp, seed=0), 50).regret for seed in (0, 0, 1)]
    assert regrets[0] == regrets[1] != regrets[2]


@pytest.mark.parametrize("build", [lambda p: LSVIUCB(p, 0.1, pool=True), lambda p: RLSVI(p, 0.1, pool=True)])
def test_pooled_steps_learn_faster_on_a_chain(build: Build) -> None:
    mdp = s4q.problems.chain()
    run = s4q.run(build(mdp), EpisodeCollector(mdp, seed=0), 150)
    assert run.regret is not None
    assert run.regret < 0.8 * 150 * mdp.v_star


def test_lsvi_ucb_learns_a_chain() -> None:
    mdp = s4q.problems.chain(5, 5)
    run = s4q.run(LSVIUCB(mdp, 0.1, switch="determinant"), EpisodeCollector(mdp, seed=0), 400)
    assert run.gap is not None
    assert run.gap < 0.05 * mdp.v_star
    assert run.phases < 200


def test_steps_wait_only_until_there_are_many() -> None:
    """While a policy is kept its steps wait; they are merged with equal ones now and then, so that bytes stay few."""
    mdp = s4q.problems.low_rank()
    learner = LSVIUCB(mdp, beta=0.1, switch="determinant")
    told(learner, CountCollector(mdp, seed=0), 150)
    learner._fitted_log_dets = learner._log_dets() + 100.0  # no new policy for a long while
    told(learner, CountCollector(mdp, seed=1), 200)
    assert learner._n_waiting < 64
    assert learner.memory.n_episodes + learner._n_waiting == learner.n_episodes == 350


def test_memory_of_all_steps_grows_unless_steps_repeat() -> None:
    """A table with few states repeats its steps, so that its memory stops growing."""
    mdp = s4q.problems.low_rank()
    sizes = [s4q.run(FittedQ(mdp), CountCollector(mdp, seed=0), n).nbytes for n in (10, 60, 80)]
    assert sizes[0] < sizes[1] <= sizes[2] < 2 * sizes[1]


def test_paper_beta() -> None:
    assert paper_beta(s4q.problems.low_rank().spec, 100, 0.1) == pytest.approx(5 * sqrt(log(2 * 5 * 3 * 100 / 0.1)))


BAD: list[tuple[str, Callable[[], object], str]] = [
    ("beta", lambda: LSVIUCB(MDPS[0], beta=0.0), r"beta is the factor of the bonus.*got 0.0"),
    ("sigma", lambda: RLSVI(MDPS[0], sigma=-1.0), r"sigma .*got -1.0"),
    ("seed", lambda: RLSVI(MDPS[0], seed=-1), r"seed .*got -1"),
    ("epsilon", lambda: FittedQ(MDPS[0], epsilon=1.5), r"epsilon .*\[0, 1\]; got 1.5"),
    ("ridge", lambda: LSVIUCB(MDPS[0], ridge=0.0), r"ridge .*got 0.0"),
    ("switch", lambda: LSVIUCB(MDPS[0], switch="never"), r"switch must be one of every_episode.*got 'never'"),  # type: ignore[arg-type]
    ("pool", lambda: LSVIUCB(s4q.problems.deep_sea(4), pool=True), r"pool=True needs .* pass pool=False"),
    ("problem", lambda: FittedQ("chain"), r"problem must be a Spec .*got str"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("build", BUILDS)
def test_parts_of_a_request_and_wrong_answers(build: Build) -> None:
    mdp = s4q.problems.low_rank()
    learner, collector = build(mdp), EpisodeCollector(mdp, seed=0)
    request = learner.ask(5)
    answer = collector.collect(request)
    with pytest.raises(ValueError, match="not the open one"):
        learner.tell(build(mdp).ask(5), answer)
    with pytest.raises(ValueError, match="does not answer"):
        learner.tell(request, replace(answer, kept=None))
    assert learner.n_episodes == 0
    learner.tell(request, answer)
    with pytest.raises(ValueError, match="not the open one"):
        learner.tell(request, answer)
    assert (learner.n_episodes, learner.phases) == (1, 1)
    assert learner.ask(5).id == 1
