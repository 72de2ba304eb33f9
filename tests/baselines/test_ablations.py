"""The ablations of S3Q and S4Q: each against a literal loop, and what the paper predicts of each, with a margin."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from small_envs import Drift, Waves
from small_problems import random_mdp

import s4q
from s4q import FiniteMDP, UniformPolicy
from s4q.baselines import LiveTargetS3Q, NoReplayS4Q, SgdS3Q, VarianceReducedS3Q
from s4q.collectors import CountCollector, EpisodeCollector, GymCollector
from s4q.core.messages import Transitions


def answers(learner: s4q.Learner, collector: s4q.Collector, requests: int) -> list[Transitions]:
    """Answer so many requests in full, and return their steps."""
    kept = []
    for _ in range(requests):
        request = learner.ask(10**6)
        assert isinstance(request, s4q.Explore)
        answer = collector.collect(request)
        assert answer.kept is not None
        kept.append(answer.kept)
        learner.tell(request, answer)
    return kept


def samples(steps: Transitions, level: int, following: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Dense features and targets of the steps of a level, for a next parameter (d,)."""
    here = np.flatnonzero(steps.levels == level)
    targets = steps.rewards[here].copy()
    if following is not None:
        targets += (steps.next_vectors[here] @ following).max(axis=1)
    return steps.vectors[here], targets


def literal_sgd(phi: np.ndarray, y: np.ndarray, average: bool) -> np.ndarray:
    iterates = [np.zeros(phi.shape[1])]
    for t in range(len(y)):
        theta = iterates[-1]
        iterates.append(theta + 0.5 / np.sqrt(t + 1) * (y[t] - phi[t] @ theta) * phi[t])
    return np.mean(iterates[1:], axis=0) if average else iterates[-1]


def literal_variance_reduced(phi: np.ndarray, y: np.ndarray) -> np.ndarray:
    anchor, first, size = np.zeros(phi.shape[1]), 0, 2
    while first + size <= len(y):
        middle = first + size // 2
        slope = np.mean([(y[i] - phi[i] @ anchor) * phi[i] for i in range(first, middle)], axis=0)
        theta = anchor.copy()
        for i in range(middle, first + size):
            new, old = (y[i] - phi[i] @ theta) * phi[i], (y[i] - phi[i] @ anchor) * phi[i]
            theta = theta + 0.1 * (new - old + slope)
        anchor, first, size = theta, first + size, 2 * size
    return anchor


FITS: dict[str, tuple[Callable[..., s4q.Learner], Callable[..., np.ndarray]]] = {
    "plain": (SgdS3Q, lambda phi, y: literal_sgd(phi, y, False)),
    "averaged": (lambda *a: SgdS3Q(*a, average=True), lambda phi, y: literal_sgd(phi, y, True)),
    "variance reduced": (VarianceReducedS3Q, literal_variance_reduced),
}


@pytest.mark.parametrize("name", FITS)
def test_first_order_fits_step_by_step(name: str) -> None:
    """Four epochs of two levels: the loops of S3Q with another fit, on dense features, in the order of the dice."""
    build, fit = FITS[name]
    mdp = random_mdp(5, 2, 2, 3, seed=1)
    horizon, dim = mdp.horizon, mdp.dim
    learner = build(mdp, UniformPolicy(2))
    kept = answers(learner, EpisodeCollector(mdp, seed=3), 4 * horizon)
    n_episodes = 0
    for epoch in range(4):
        theta = np.zeros((horizon, dim))
        for place, level in enumerate(reversed(range(horizon))):
            steps = kept[epoch * horizon + place]
            assert steps.weights.sum() == 2 ** (epoch + 1) * horizon
            phi, y = samples(steps, level, theta[level + 1] if place else None)
            dice = np.random.default_rng(np.random.SeedSequence(0, spawn_key=(0x6C6561726E6572, n_episodes)))
            order = dice.permutation(len(y))
            theta[level] = fit(phi[order], y[order])
            n_episodes += 2 ** (epoch + 1)
    np.testing.assert_allclose(learner.q.theta[:, 0], theta, rtol=1e-10, atol=1e-14)
    assert learner.phases == 4
    assert np.abs(theta).max() > 0.05


def geometric(dim: int = 14) -> FiniteMDP:
    """One step of a known mean reward in one of `dim` states, each half as likely as the one before."""
    chances = 0.5 ** np.arange(1, dim + 1)
    chances[-1] *= 2
    return FiniteMDP(np.eye(dim)[:, None, :], np.full((dim, 1), 0.5), chances, horizon=1)


def excess_slope(build: Callable[[FiniteMDP, int], s4q.Learner], epochs: int, seeds: int = 6) -> float:
    """Slope of log excess loss against log samples, over the last eight epochs."""
    mdp = geometric()
    losses = np.zeros((seeds, epochs))
    for seed in range(seeds):
        learner, collector = build(mdp, seed), CountCollector(mdp, seed=seed)
        for epoch in range(epochs):
            q = s4q.run(learner, collector, 2 ** (epoch + 1)).q
            losses[seed, epoch] = mdp.start @ (q.theta[0, :, 0] - 0.5) ** 2
    sizes = np.arange(1, epochs + 1) * np.log(2)
    return float(np.polyfit(sizes[-8:], np.log(losses.mean(axis=0))[-8:], 1)[0])


@pytest.mark.slow
def test_first_order_loses_half_of_the_slope_where_directions_are_rare() -> None:
    """The paper's discussion: excess loss 1/sqrt(n) against 1/n. Variance reduction wins it back, with d numbers."""
    controller = UniformPolicy(1)
    plain = excess_slope(lambda mdp, seed: SgdS3Q(mdp, controller, seed=seed), 13)
    averaged = excess_slope(lambda mdp, seed: SgdS3Q(mdp, controller, average=True, seed=seed), 13)
    second = excess_slope(lambda mdp, _: s4q.S3Q(mdp, controller), 16)
    reduced = excess_slope(lambda mdp, seed: VarianceReducedS3Q(mdp, controller, seed=seed), 15)
    assert -0.65 < plain < -0.4
    assert -0.65 < averaged < -0.4
    assert second < -0.8
    assert reduced < -0.7


def test_first_order_needs_d_numbers_where_second_order_needs_d_squared() -> None:
    mdp = random_mdp(8, 2, 30, 2, seed=0)
    controller = UniformPolicy(2)
    bytes_of = [
        s4q.run(build(mdp, controller), EpisodeCollector(mdp, seed=0), 20).nbytes - mdp.dim**2 * 8 * taken
        for build, taken in ((SgdS3Q, 1), (VarianceReducedS3Q, 1), (s4q.S3Q, 0))  # an empty metric, which Explore wants
    ]
    assert max(bytes_of[:2]) < 0.6 * bytes_of[2]


def test_live_targets_of_one_state_by_hand() -> None:
    """Reward 1 for ever, ridge r: after n episodes theta_h = sum of (1 + live theta_{h+1}) over (n + r)."""
    mdp = FiniteMDP(np.ones((1, 1, 1)), [[1.0]], [1.0], horizon=3, reward_noise="none")
    learner = LiveTargetS3Q(mdp, UniformPolicy(1), ridge=0.5)
    answers(learner, EpisodeCollector(mdp), 12)
    sums, theta = np.zeros(3), np.zeros(4)
    for n in range(1, 13):
        for h in range(3):
            sums[h] += 1.0 + theta[h + 1]
            theta[h] = sums[h] / (n + 0.5)
    np.testing.assert_allclose(learner.theta.ravel(), theta[:3], rtol=1e-12)


def test_the_last_level_of_live_targets_is_a_ridge_fit() -> None:
    mdp = random_mdp(5, 2, 2, 3, seed=1)
    learner = LiveTargetS3Q(mdp, UniformPolicy(2), ridge=0.5)
    kept = answers(learner, EpisodeCollector(mdp, seed=0), 30)
    last = mdp.horizon - 1
    phi, y = (np.concatenate(parts) for parts in zip(*(samples(one, last, None) for one in kept), strict=True))
    expected = np.linalg.solve(0.5 * np.eye(mdp.dim) + phi.T @ phi, phi.T @ y)
    np.testing.assert_allclose(learner.theta[last, 0], expected, rtol=1e-9)
    cov_inv = np.linalg.inv(0.5 * np.eye(mdp.dim) + phi.T @ phi)
    np.testing.assert_allclose(learner.fits[last][0].cov_inv, cov_inv, rtol=1e-8)


@pytest.mark.slow
def test_live_targets_leave_a_bias_that_grows_with_the_horizon() -> None:
    """Reward 1 for ever: S3Q is off by its ridge, live targets by what they got wrong early, the more the longer."""
    shortfalls = {}
    for horizon in (2, 4, 8, 16):
        mdp = FiniteMDP(np.ones((1, 1, 1)), [[1.0]], [1.0], horizon=horizon, reward_noise="none")
        live = s4q.run(LiveTargetS3Q(mdp, UniformPolicy(1), ridge=1e-3), EpisodeCollector(mdp), 600).q.theta[0].item()
        plain = s4q.run(s4q.S3Q(mdp, UniformPolicy(1), ridge=1e-3), CountCollector(mdp), 600).q.theta[0].item()
        shortfalls[horizon] = ((horizon - live) / horizon, (horizon - plain) / horizon)
    live_ones = [shortfalls[h][0] for h in (2, 4, 8, 16)]
    assert all(later > 2 * earlier for earlier, later in pairwise(live_ones))
    assert max(plain for _, plain in shortfalls.values()) < 0.02 < live_ones[2]


@pytest.mark.parametrize("keep", [0.5, 1.0])
@pytest.mark.parametrize("pool", [False, True])
def test_sums_without_replay_keep_the_targets_of_their_phase(keep: float, pool: bool) -> None:
    mdp = random_mdp(5, 2, 3, 3, seed=2)
    if pool:  # the first level of it at every level
        mdp = FiniteMDP(mdp.transitions[0], mdp.rewards[0], mdp.start, mdp.features.vectors[0], horizon=3)
    learner, collector = NoReplayS4Q(mdp, keep=keep, pool=pool), EpisodeCollector(mdp, seed=0)
    gram, moment, every = np.zeros((3, 3, 3)), np.zeros((3, 3)), np.zeros((3, 3, 3))
    for _ in range(5):
        q = learner.q
        while learner.q is q:
            request = learner.ask(10**4)
            answer = collector.collect(request)
            learner.tell(request, answer)
            steps = answer.kept
            assert steps is not None
            of_levels = [(i, h) for i in range(len(steps.levels)) for h in ((0, 1, 2) if pool else [steps.levels[i]])]
            for i, h in of_levels:
                phi, y = steps.vectors[i], float(steps.rewards[i])
                if h < 2:
                    phis = s4q.Phi(steps.next_vectors[i : i + 1], steps.next_blocks[i : i + 1])
                    y += float(q.value(h + 1, phis)[0])
                gram[h] += np.outer(phi, phi)
                every[h] += np.outer(phi, phi)
                moment[h] += phi * y
        gram, moment = keep * gram, keep * moment
        ridge = learner.constants.ridge(learner.phases + 1, learner.n_episodes)
        for h in range(3):
            expected = np.linalg.solve(gram[h] + ridge[h] * np.eye(3), moment[h])
            np.testing.assert_allclose(learner.q.theta[h, 0], expected, rtol=1e-9, atol=1e-12)
            white = learner.q.levels[h].whitener[0]
            np.testing.assert_allclose(white @ (every[h] + ridge[h] * np.eye(3)) @ white.T, np.eye(3), atol=1e-9)


@pytest.mark.parametrize("preset", ["practical", "realisable"])
@pytest.mark.parametrize("mdp", [s4q.problems.low_rank(horizon=1), s4q.problems.dense_random(6, 3, 1)])
def test_with_one_level_nothing_is_lost_without_replay(preset: Any, mdp: FiniteMDP) -> None:
    """There are no targets to make again. Told the same steps, it learns what S4Q with every step kept learns."""
    learner, kept = NoReplayS4Q(mdp, preset), s4q.S4Q(mdp, preset, memory="all")
    collector, n_in_ball = EpisodeCollector(mdp, seed=0), 0
    while learner.n_episodes < 1000:
        request, same = learner.ask(1000 - learner.n_episodes), kept.ask(1000 - kept.n_episodes)
        assert same is not None
        answer = collector.collect(request)
        learner.tell(request, answer)
        kept.tell(same, answer)  # type: ignore[arg-type]
        assert learner.phases == kept.phases
        np.testing.assert_allclose(learner.q.theta, kept.q.theta, rtol=0, atol=1e-12)
        ball = learner.constants.radius()[0]
        n_in_ball += bool(np.any(np.linalg.norm(learner.q.theta) > 0.999 * ball))
    assert learner.phases > 4
    if preset == "realisable" and mdp.spec.block_dim > 1:
        assert n_in_ball > 0  # the ball has bound a fit


@pytest.mark.slow
def test_early_bonuses_stay_in_the_weights_without_replay() -> None:
    """The same constants; only the targets are never made again. The promise shrinks far later."""
    mdp = s4q.problems.river_swim(4, horizon=6)
    excess, regrets = {}, {}
    learners: dict[str, s4q.Learner] = {
        "no replay": NoReplayS4Q(mdp, "practical", pool=False),
        "all": s4q.S4Q(mdp, "practical", memory="all", pool=False),
    }
    for name, learner in learners.items():
        run = s4q.run(learner, CountCollector(mdp, seed=0), 10_000)
        assert run.optimistic_value is not None
        assert run.regret is not None
        excess[name], regrets[name] = run.optimistic_value - mdp.v_star, run.regret
    assert excess["no replay"] > 5 * abs(excess["all"])
    assert regrets["no replay"] > 5 * regrets["all"]


@pytest.mark.slow
def test_discounting_forgets_directions_that_are_no_longer_played() -> None:
    """Two arms. The worse one is left alone after a while; its estimate fades though its bonus says it is known."""
    mdp = FiniteMDP(np.ones((1, 2, 1)), [[0.9, 0.8]], [1.0], horizon=1)
    errors: dict[float, list[float]] = {1.0: [], 0.5: []}
    lowest = {}
    for keep, found in errors.items():
        learner, collector, promised = NoReplayS4Q(mdp, keep=keep), CountCollector(mdp, seed=0), []
        for power in range(4, 11):
            s4q.run(learner, collector, 10**power)
            found.append(abs(float(learner.q.theta[0, 1, 0]) - 0.8))
            promised.append(float(learner.q.optimistic(0, mdp.features.level(0))[0, 1]))
        lowest[keep] = min(promised)
    assert max(errors[1.0][1:]) < 0.1
    assert lowest[1.0] > 0.8
    assert max(errors[0.5]) > 0.3
    assert lowest[0.5] < 0.7  # no longer optimistic


@pytest.mark.slow
def test_experience_replay_grows_with_the_episodes_and_policy_replay_does_not() -> None:
    """A continuous state never repeats, so that a memory of steps grows by the same amount with every episode."""
    env: gym.Env[Any, Any] = Drift(n_actions=2, limit=4)
    features = Waves(2, 3, dense=True)
    spec = s4q.Spec.of(features, horizon=4, reward_range=(-10.0, 10.0))
    held: dict[str, list[int]] = {"all": [], "policies": []}
    for memory, sizes in held.items():
        learner = s4q.S4Q(spec, "practical", memory=memory)  # type: ignore[arg-type]
        collector = GymCollector(env, features, spec, seed=0)
        for _ in range(3):
            s4q.run(learner, collector, 400)
            sizes.append(learner.memory.nbytes)
    grown = np.diff(held["all"])
    assert grown[1] == pytest.approx(grown[0], rel=0.1)
    assert held["all"][2] > 2.8 * held["all"][0]
    assert held["policies"][2] < 2 * held["policies"][0]
    assert held["policies"][2] < 0.2 * held["all"][2]


@pytest.mark.slow
def test_doubling_epochs_cost_more_than_a_single_one() -> None:
    """All but the last epoch of a fit are thrown away: over three seeds at least a third more regret."""
    mdp, regrets = s4q.problems.river_swim(), np.zeros((3, 2))
    for seed in range(3):
        for i, how in enumerate(({}, {"epochs": "doubling", "c_replay": 4.0})):
            learner = s4q.S4Q(mdp, "realisable", **how)  # type: ignore[arg-type]
            regrets[seed, i] = s4q.run(learner, CountCollector(mdp, seed=seed), 10**8).regret
    single, doubling = regrets.sum(axis=0)
    assert 1.33 * single < doubling < 4 * single


def test_without_a_bonus_regret_is_linear() -> None:
    mdp = s4q.problems.river_swim()
    short, long = (
        s4q.run(s4q.S4Q(mdp, bonus_width=0.0), CountCollector(mdp, seed=0), n).regret for n in (10**4, 10**6)
    )
    assert short is not None
    assert long == pytest.approx(100 * short, rel=0.01)
    assert short > 0.9 * 10**4 * (mdp.v_star - 0.005)  # the far end is never found


BAD: list[tuple[str, Callable[[], object], str]] = [
    ("keep", lambda: NoReplayS4Q(geometric(), keep=0.0), r"keep .*\(0, 1\]; got 0.0"),
    ("step", lambda: SgdS3Q(geometric(), UniformPolicy(1), step_size=0.0), r"step_size .*got 0.0"),
    ("seed", lambda: VarianceReducedS3Q(geometric(), UniformPolicy(1), seed=-1), r"seed .*got -1"),
    ("ridge", lambda: LiveTargetS3Q(geometric(), UniformPolicy(1), ridge=0.0), r"ridge .*got 0.0"),
    ("controller", lambda: SgdS3Q(geometric(), "uniform"), r"controller must be a policy.*got str"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
