"""UCBVI and PSRL: plans against slow literal loops, counts against independent counts, and that they learn."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from small_problems import cliff, random_mdp

import s4q
from s4q import FiniteMDP
from s4q.baselines import PSRL, UCBVI
from s4q.baselines.tabular import TabularLearner
from s4q.collectors import CountCollector, EpisodeCollector
from s4q.core.messages import Visits
from s4q.problems import planning

Build = Callable[[FiniteMDP], TabularLearner]
BUILDS: list[Build] = [UCBVI, PSRL]


def tabular(seed: int, *, stationary: bool = True, terminal: bool = False, low: float = 0.0) -> FiniteMDP:
    """A random problem with one-hot features: 4 states, 2 actions, 5 levels."""
    rng = np.random.default_rng([7, seed])
    lead = () if stationary else (5,)
    transitions = rng.dirichlet(np.full(4, 0.5), size=(*lead, 4, 2))
    rewards = rng.uniform(low, 1.0, size=(*lead, 4, 2))
    mask = np.array([False, False, False, terminal])
    if terminal:
        transitions[..., 3, :, :] = np.eye(4)[3]
        rewards[..., 3, :] = 0.0
    return FiniteMDP(transitions, rewards, np.eye(4)[0], horizon=5, reward_range=(low, 1.0), terminal=mask)


MDPS = [
    tabular(0),
    tabular(1, stationary=False),
    tabular(2, terminal=True, low=-0.5),
    tabular(3, stationary=False, terminal=True, low=-0.5),
]
NAMES = ["pooled", "levels", "pooled, ends", "levels, ends"]


def answers(learner: TabularLearner, collector: s4q.Collector, episodes: int) -> Iterator[Visits]:
    """Play, tell, and pass on what was told."""
    while learner.n_episodes < episodes:
        request = learner.ask(episodes - learner.n_episodes)
        answer = collector.collect(request)
        learner.tell(request, answer)
        yield answer


def literal_ucbvi(learner: UCBVI) -> np.ndarray:
    """Q (H, S, A), pair by pair and next state by next state, from the counts."""
    spec, counts, sums = learner.spec, learner.counts.tolist(), learner.reward_sums.tolist()
    n_states, n_actions = learner.counts.shape[1:3]
    q = np.zeros((spec.horizon, n_states, n_actions))
    span = spec.reward_max - spec.reward_min
    for h in reversed(range(spec.horizon)):
        table = 0 if len(counts) == 1 else h
        after = [0.0] * n_states if h == spec.horizon - 1 else [max(q[h + 1, s]) for s in range(n_states)]
        after.append((spec.horizon - 1 - h) * -spec.reward_min)  # 0 a step, shifted
        for s in range(n_states):
            for a in range(n_actions):
                seen = counts[table][s][a]
                n = sum(seen)
                if n == 0:
                    q[h, s, a] = spec.value_bound[h]
                    continue
                mean = sum(m * v for m, v in zip(seen, after, strict=True)) / n
                variance = sum(m * (v - mean) ** 2 for m, v in zip(seen, after, strict=True)) / n
                bonus = learner.c * (sqrt((variance + span**2 / 4) / n) + spec.value_bound[h] / n)
                q[h, s, a] = min(spec.value_bound[h], sums[table][s][a] / n + mean + bonus)
    return q


@pytest.mark.parametrize("mdp", MDPS, ids=NAMES)
def test_ucbvi_plans_as_a_literal_loop_does(mdp: FiniteMDP) -> None:
    learner = UCBVI(mdp, c=0.2)
    for episodes in (1, 5, 40, 230):
        list(answers(learner, EpisodeCollector(mdp, seed=1), episodes))
        before = learner.q
        while learner.q is before:  # a plan is kept for some episodes; until the next one the counts go on
            list(answers(learner, EpisodeCollector(mdp, seed=1), learner.n_episodes + 1))
        np.testing.assert_allclose(learner.q.theta, literal_ucbvi(learner).reshape(5, 8, 1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("mdp", MDPS, ids=NAMES)
@pytest.mark.parametrize("collector", [CountCollector, EpisodeCollector])
def test_counts_are_those_of_the_transitions(build: Build, mdp: FiniteMDP, collector: type) -> None:
    learner = build(mdp)
    seen: dict[tuple[int, int, int, int], int] = {}
    paid: dict[tuple[int, int, int], float] = {}
    grams, returns = 0.0, 0.0
    for answer in answers(learner, collector(mdp, seed=3), 300):
        steps = answer.kept
        assert steps is not None
        for i in range(len(steps.blocks)):
            table = 0 if mdp.spec.stationary else int(steps.levels[i])
            pair = (table, int(steps.blocks[i]) // 2, int(steps.blocks[i]) % 2)
            arrived = 4 if steps.ended[i] else int(steps.next_blocks[i, 0]) // 2
            seen[*pair, arrived] = seen.get((*pair, arrived), 0) + int(steps.weights[i])
            paid[pair] = paid.get(pair, 0.0) + float(steps.weights[i] * steps.rewards[i])
        grams, returns = grams + answer.grams, returns + answer.return_sum
    counted = np.zeros_like(learner.counts)
    for where, n in seen.items():
        counted[where] = n
    np.testing.assert_array_equal(learner.counts, counted)
    for where, total in paid.items():
        assert learner.reward_sums[where] == pytest.approx(total)
    # The same from other sums of the answers: Gram matrices of one-hot features are counts, returns are rewards.
    np.testing.assert_array_equal(learner.n_visits.reshape(grams.shape), grams)  # type: ignore[attr-defined]
    steps_after_the_end = 300 * 5 - learner.counts.sum()
    assert learner.reward_sums.sum() - steps_after_the_end * mdp.spec.reward_min == pytest.approx(returns)


def promises(c: float) -> np.ndarray:
    """The value that UCBVI gives the start, less V*: of every plan, on random problems."""
    gaps: list[float] = []
    for seed in range(4):
        mdp = tabular(seed, stationary=seed % 2 == 0)
        learner = UCBVI(mdp, c=c)
        plays = answers(learner, CountCollector(mdp, seed=seed), 400)
        gaps.extend(float(mdp.start @ mdp.q_values(learner.q)[0].max(axis=-1)) - mdp.v_star for _ in plays)
    return np.array(gaps)


@pytest.mark.slow
def test_ucbvi_is_optimistic_if_its_bonus_is_wide() -> None:
    wide, narrow = promises(3.0), promises(0.01)
    assert wide.min() > 0
    assert narrow.min() < -0.05  # the same test fails without much of a bonus


def test_before_the_first_episode_every_pair_is_worth_the_bound() -> None:
    mdp = tabular(0)
    q = UCBVI(mdp).q.theta[..., 0]
    np.testing.assert_array_equal(q, np.broadcast_to(np.array(mdp.spec.value_bound)[:, None], (5, 8)))


@pytest.mark.parametrize("mdp", MDPS, ids=NAMES)
def test_psrl_plans_for_the_problem_it_drew(mdp: FiniteMDP) -> None:
    """By the planner of the problems, with the end of an episode as one more state."""
    learner = PSRL(mdp, seed=5)
    list(answers(learner, CountCollector(mdp, seed=0), 50))
    transitions, rewards = learner._drawn_problem()
    np.testing.assert_allclose(transitions.sum(axis=-1), 1.0)
    moves, pays = np.zeros((5, 5, 2, 5)), np.zeros((5, 5, 2))
    moves[:, :4], pays[:, :4] = transitions, rewards
    moves[:, 4, :, 4], pays[:, 4] = 1.0, -mdp.spec.reward_min
    expected = planning.optimal_values(moves, pays)[:, :4].reshape(5, 8, 1)
    np.testing.assert_allclose(learner.q.theta, expected, rtol=1e-12)


def test_draws_of_psrl_have_the_moments_of_the_posterior() -> None:
    mdp = tabular(2, terminal=True, low=-0.5)
    learner = PSRL(mdp)
    list(answers(learner, CountCollector(mdp, seed=0), 8))
    draws = []
    for seed in range(4000):
        learner.seed = seed
        draws.append(learner._drawn_problem())
    transitions, rewards = (np.stack(parts) for parts in zip(*draws, strict=True))
    n = learner.n_visits
    weights = learner.counts + 0.2
    means = weights / weights.sum(axis=-1, keepdims=True)
    variances = means * (1 - means) / (n + 2.0)[..., None]  # Dirichlet of total weight n + 1
    np.testing.assert_allclose(transitions.mean(axis=0), means, atol=0.03)
    np.testing.assert_allclose(transitions.var(axis=0), variances, atol=0.01)
    shares = (1 + learner.reward_sums / 1.5) / (n + 2.0)
    np.testing.assert_allclose(rewards.mean(axis=0), 1.5 * shares, atol=0.04)
    np.testing.assert_allclose(rewards.var(axis=0), 1.5**2 * shares * (1 - shares) / (n + 3.0), atol=0.02)


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize(
    "mdp", [s4q.problems.chain(), s4q.problems.river_swim(), cliff()], ids=["chain", "river", "cliff"]
)
def test_they_learn(build: Build, mdp: FiniteMDP) -> None:
    run = s4q.run(build(mdp), CountCollector(mdp, seed=0), 2000)
    uniform = mdp.v_star - mdp.value(s4q.UniformPolicy(mdp.n_actions))
    assert run.regret is not None
    assert run.regret < 0.05 * 2000 * uniform
    assert run.gap is not None
    assert run.gap < 0.02 * uniform
    assert run.replay_episodes == 0


@pytest.mark.parametrize("build", BUILDS)
def test_the_same_seed_gives_the_same_bits(build: Build) -> None:
    mdp = s4q.problems.dense_random(6, 3, 5)
    runs = [s4q.run(build(mdp), CountCollector(mdp, seed=seed), 400) for seed in (0, 0, 1)]
    assert runs[0].regret == runs[1].regret
    assert runs[0].q.same_as(runs[1].q)
    assert runs[0].regret != runs[2].regret


def test_psrl_draws_from_its_own_seed() -> None:
    mdp = s4q.problems.dense_random(6, 3, 5)
    first, again, other = (PSRL(mdp, seed=seed) for seed in (0, 0, 1))
    assert first.q.same_as(again.q)
    assert not first.q.same_as(other.q)


@pytest.mark.parametrize("build", BUILDS)
def test_rhythm_of_plans(build: Build) -> None:
    """One episode a plan at first, then 1 % of the episodes so far; a plan may be played in parts."""
    mdp = tabular(0)
    learner = build(mdp)
    lengths = [answer.n_episodes for answer in answers(learner, CountCollector(mdp), 1000)]
    assert lengths[:200] == [1] * 200
    assert max(lengths) == 9
    played = 0
    for length in lengths[:-1]:  # the last one was cut by the budget
        assert length == max(1, played // 100)
        played += length
    assert learner.phases >= len(lengths) - 1
    before, request = learner.phases, learner.ask(10**6)
    assert learner.ask(10**6).n_episodes == request.n_episodes > 1
    assert learner.ask(1).n_episodes == learner.ask(1).keep == 1
    part = learner.ask(1)
    learner.tell(part, CountCollector(mdp).collect(part))
    assert learner.phases == before
    assert learner.ask(10**6).done == part.done + 1
    assert learner.q is request.policy


@pytest.mark.parametrize("build", BUILDS)
def test_what_a_run_counts(build: Build) -> None:
    mdp = s4q.problems.river_swim()
    learner = build(mdp)
    run = s4q.run(learner, CountCollector(mdp), 150)
    again = s4q.run(learner, CountCollector(mdp), 150)
    assert (run.episodes, run.phases, again.phases, learner.n_episodes) == (150, 150, 250, 300)
    assert (
        run.nbytes == learner.nbytes == learner.counts.nbytes + learner.reward_sums.nbytes + learner.q.nbytes + 12 * 8
    )
    assert run.policy is not None
    assert run.cpu_seconds > 0
    assert len(run.curve) == 151


BAD: list[tuple[str, Callable[[], object], str]] = [
    ("dense features", lambda: UCBVI(random_mdp(3, 2, 2, 2, seed=0)), r"one-hot features.*1 blocks of length 2"),
    ("groups", lambda: UCBVI(s4q.problems.aggregated_deep_sea(6)), r"one-hot features.*6 blocks of length 1.*use S4Q"),
    ("blocks", lambda: PSRL(replace(tabular(0).spec, n_blocks=7)), r"one-hot features.*7 blocks"),
    ("c", lambda: UCBVI(tabular(0), c=0.0), r"c is the factor of the bonus.*got 0.0"),
    ("seed", lambda: PSRL(tabular(0), seed=-1), r"seed .*got -1"),
    ("problem", lambda: UCBVI("chain"), r"problem must be a Spec .*got str"),  # type: ignore[arg-type]
    ("budget", lambda: PSRL(tabular(0)).ask(0), r"max_episodes .*got 0"),
]


@pytest.mark.parametrize(("call", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("build", BUILDS)
def test_a_refused_answer_changes_nothing(build: Build) -> None:
    mdp = tabular(0)
    learner, collector = build(mdp), CountCollector(mdp)
    request = learner.ask(10)
    answer = collector.collect(request)
    assert answer.kept is not None
    other = s4q.Evaluate(0, learner.policy, 3)
    crooked = replace(answer, kept=replace(answer.kept, state_vectors=0.5 * answer.kept.state_vectors))
    merged = replace(answer, kept=replace(answer.kept, state_blocks=answer.kept.state_blocks * 0))
    bad: list[tuple[object, object, str]] = [
        (other, collector.collect(other), "Returns does not answer"),
        (request, replace(answer, kept=None), "Visits does not answer"),
        (request, replace(answer, n_episodes=2), "2 episodes, not 1 to 1"),
        (build(mdp).ask(10), answer, "not the open one"),
        (request, crooked, "not one-hot"),
        (request, merged, "not one-hot"),
    ]
    for asked, told, message in bad:
        with pytest.raises(ValueError, match=message):
            learner.tell(asked, told)  # type: ignore[type-var, arg-type]
    assert learner.n_episodes == learner.phases == learner.counts.sum() == 0
    learner.tell(request, answer)
    with pytest.raises(ValueError, match="not the open one"):
        learner.tell(request, answer)
    assert learner.n_episodes == 1
