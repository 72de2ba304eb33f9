"""CountCollector has the law of EpisodeCollector: every field of every answer, and planted errors are noticed."""

from collections.abc import Callable

import numpy as np
import pytest
from asking import regress_request
from scipy.stats import binomtest, chi2_contingency, geom, ks_2samp, kstest
from small_problems import random_mdp
from test_episodes import explore, mixture, p_of_counts, state_q, stochastic_policy, zero_q

import s4q
from s4q.collectors import CountCollector, EpisodeCollector
from s4q.collectors.finite.state_counts import CountModel
from s4q.core.messages import Explore, Mixture, Regress, Regression, Visits
from s4q.problems import FiniteMDP

N_REQUESTS = 1200
Draw = Callable[[int], object]


def small() -> FiniteMDP:
    """Three states, the last one terminal, negative rewards, random dense features, a stochastic everything."""
    return random_mdp(3, 2, 2, 3, seed=12, terminal=True, low=-1.0)


def policies(mdp: FiniteMDP) -> Mixture:
    return Mixture([stochastic_policy(mdp, 1), random_q(mdp), s4q.UniformPolicy(2)], [0.2, 0.5, 0.3])


def random_q(mdp: FiniteMDP) -> s4q.LinearQ:
    rng = np.random.default_rng(5)
    return s4q.LinearQ.from_arrays(rng.normal(size=(mdp.horizon, mdp.spec.n_blocks, mdp.spec.block_dim)) / 3)


def regress(level: int, mixed: Mixture, value: s4q.LinearQ, *, pool: bool = False) -> Callable[[int], Regress]:
    return lambda i: regress_request(i, level, mixed, value, 8, pool)


def fields_of_regression(answer: Regression) -> dict[str, float]:
    moments = answer.moments
    named: dict[str, float] = {"sum_y2": moments.sum_y2, "n": moments.n, "n_steps": answer.n_steps}
    for name, array in (("gram", moments.gram), ("moment", moments.moment), ("moment_sq", moments.moment_sq)):
        named |= {f"{name}{i}": float(x) for i, x in enumerate(array.ravel())}
    return named | {f"per_policy{i}": float(x) for i, x in enumerate(answer.episodes_per_policy)}


def fields_of_visits(answer: Visits) -> dict[str, float]:
    named: dict[str, float] = {
        "n_episodes": answer.n_episodes,
        "return_sum": answer.return_sum,
        "n_steps": answer.n_steps,
        "start_value_sum": answer.start_value_sum or 0.0,
    }
    named |= {f"progress{i}": float(x) for i, x in enumerate(answer.progress)}
    return named | {f"grams{i}": float(x) for i, x in enumerate(answer.grams.ravel())}


def p_of_same_law(first: list[dict[str, float]], second: list[dict[str, float]]) -> float:
    """The least p value over fields, times their number (Bonferroni): KS, or chi-square where few values occur."""
    worst, n_tests = 1.0, 0
    for name in first[0]:
        a, b = (np.round([row[name] for row in rows], 9) for rows in (first, second))
        values = np.unique(np.concatenate([a, b]))
        if len(values) == 1:
            continue
        n_tests += 1
        if len(values) <= 10:
            table = np.array([[np.sum(x == value) for value in values] for x in (a, b)])
            table = table[:, table.sum(axis=0) > 0]
            worst = min(worst, float(chi2_contingency(table).pvalue))
        else:
            worst = min(worst, float(ks_2samp(a, b).pvalue))
    assert n_tests > 3
    return min(1.0, worst * n_tests)


def answers(collector: object, request_of: Callable[[int], object], fields: Callable[..., dict[str, float]]) -> list:
    return [fields(collector.collect(request_of(i))) for i in range(N_REQUESTS)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_regress_has_the_same_law(level: int) -> None:
    mdp = small()
    request_of = regress(level, policies(mdp), random_q(mdp))
    played = answers(EpisodeCollector(mdp, seed=1), request_of, fields_of_regression)
    counted = answers(CountCollector(mdp, seed=2), request_of, fields_of_regression)
    assert p_of_same_law(played, counted) > 1e-3


def test_regress_test_notices_planted_errors() -> None:
    mdp = small()
    mixed, value = policies(mdp), random_q(mdp)
    played = answers(EpisodeCollector(mdp, seed=1), regress(1, mixed, value), fields_of_regression)
    for planted in (
        regress(2, mixed, value),  # one level off
        regress(1, Mixture(mixed.policies, [0.3, 0.4, 0.3]), value),  # one wrong weight
        regress(1, mixed, s4q.LinearQ.from_arrays(-value.theta)),  # another target
    ):
        assert p_of_same_law(played, answers(CountCollector(mdp, seed=2), planted, fields_of_regression)) < 1e-6


def explore_of(
    mdp: FiniteMDP, policy: object, threshold: tuple[float, float], pool: bool = False
) -> Callable[[int], Explore]:
    white = np.array(explore(mdp, s4q.UniformPolicy(2), threshold, 1, pool=pool).whitener)
    white[-1] *= 1.4
    return lambda i: Explore(i, policy, white, threshold, 10**6, pool=pool)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "threshold",
    [
        (0.9, 0.0),
        pytest.param((4.0, 0.0), marks=pytest.mark.slow),
        pytest.param((2.0, 1.5), marks=pytest.mark.slow),
        pytest.param((25.0, 3.0), marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("kind", ["stochastic", "greedy"])
def test_explore_has_the_same_law(threshold: tuple[float, float], kind: str) -> None:
    mdp = small()
    policy = stochastic_policy(mdp, 1) if kind == "stochastic" else random_q(mdp)
    request_of = explore_of(mdp, policy, threshold)
    played = answers(EpisodeCollector(mdp, seed=1), request_of, fields_of_visits)
    counted = answers(CountCollector(mdp, seed=2), request_of, fields_of_visits)
    assert p_of_same_law(played, counted) > 1e-3


@pytest.mark.slow
def test_explore_with_pooled_progress_has_the_same_law() -> None:
    mdp = s4q.problems.river_swim(3, 4)
    request_of = explore_of(mdp, s4q.UniformPolicy(2), (17.3, 0.5), pool=True)
    played = answers(EpisodeCollector(mdp, seed=1), request_of, fields_of_visits)
    counted = answers(CountCollector(mdp, seed=2), request_of, fields_of_visits)
    assert p_of_same_law(played, counted) > 1e-3


class OneEpisodeLate:
    """A CountCollector that goes on for one episode after the crossing."""

    def __init__(self, mdp: FiniteMDP) -> None:
        self.right = CountCollector(mdp, seed=2)

    def collect(self, request: Explore) -> Visits:
        answer = self.right.collect(request)
        late = Explore(request.id, request.policy, request.whitener, (np.inf, 0.0), 1, done=answer.n_episodes)
        return answer + self.right.collect(late)


@pytest.mark.slow
def test_explore_test_notices_planted_errors() -> None:
    mdp = small()
    policy = random_q(mdp)
    request_of = explore_of(mdp, policy, (4.0, 0.0))
    played = answers(EpisodeCollector(mdp, seed=1), request_of, fields_of_visits)
    shifted = explore_of(mdp, s4q.LinearQ.from_arrays(np.roll(policy.theta, 1, axis=0)), (4.0, 0.0))  # one level off
    assert p_of_same_law(played, answers(CountCollector(mdp, seed=2), shifted, fields_of_visits)) < 1e-6
    assert p_of_same_law(played, answers(OneEpisodeLate(mdp), request_of, fields_of_visits)) < 1e-6


def test_pooled_regress_has_the_same_law() -> None:
    mdp = s4q.problems.river_swim(3, 3)
    request_of = regress(1, Mixture([s4q.UniformPolicy(2), state_q(mdp)], [0.5, 0.5]), state_q(mdp), pool=True)
    played = answers(EpisodeCollector(mdp, seed=1), request_of, fields_of_regression)
    counted = answers(CountCollector(mdp, seed=2), request_of, fields_of_regression)
    assert p_of_same_law(played, counted) > 1e-3


@pytest.mark.parametrize("n", [10**6, 10**12, 10**16])
def test_large_counts_have_the_exact_occupancies(n: int) -> None:
    """Relative errors shrink like 1/sqrt(n), far below what playing could reach."""
    mdp = s4q.problems.river_swim(3, 4)
    mixed = mixture(mdp)
    answer = CountCollector(mdp, seed=0).collect(regress_request(0, 2, mixed, zero_q(mdp), n))
    exact = n * mdp.occupancies(mixed)[2].ravel()
    assert answer.moments.n == n
    np.testing.assert_allclose(answer.moments.gram.ravel(), exact, atol=6 * np.sqrt(n / 4))
    if n == 10**6:
        assert p_of_counts(answer, exact) > 1e-3


@pytest.mark.parametrize("threshold", [1e3, 1e9, 1e15])
def test_explore_stops_at_the_crossing_whatever_its_size(threshold: float) -> None:
    """One unit of progress per episode and level here (one-hot features, whitener 1), so the stop is known exactly."""
    mdp = s4q.problems.river_swim(3, 4)
    answer = CountCollector(mdp, seed=0).collect(explore(mdp, s4q.UniformPolicy(2), (threshold, 0.0), 10**18))
    assert answer.n_episodes == threshold
    growing = CountCollector(mdp, seed=0).collect(
        explore(mdp, s4q.UniformPolicy(2), (threshold, threshold / 50), 10**18)
    )
    n = growing.n_episodes
    assert n >= threshold + threshold / 50 * np.log(n)
    assert n - 1 < threshold + threshold / 50 * np.log(n - 1)


def test_max_episodes_caps_and_parts_add_up() -> None:
    mdp = small()
    collector = CountCollector(mdp, seed=0)
    policy = random_q(mdp)
    capped = collector.collect(explore(mdp, policy, (1e9, 0.0), 12_345))
    assert capped.n_episodes == 12_345
    rest = collector.collect(explore(mdp, policy, (1e5, 0.0), 10**9, done=12_345, progress=capped.progress))
    total = capped + rest
    assert total.progress.max() >= 1e5 > total.progress.max() - 1.0


@pytest.mark.parametrize("keep", [1, 5, 300])
def test_kept_transitions_of_counts(keep: int) -> None:
    """They are the first `keep` episodes, as weighted steps, and give the same sums as streaming them."""
    mdp = small()
    collector = CountCollector(mdp, seed=3)
    answer = collector.collect(explore(mdp, random_q(mdp), (1e9, 0.0), 1000, keep=keep))
    kept = answer.kept
    assert kept is not None
    assert kept.weights[kept.levels == 0].sum() == keep
    assert kept.weights.sum() < answer.n_steps
    assert kept.rewards.min() >= 0
    assert collector.collect(explore(mdp, random_q(mdp), (1e9, 0.0), 1000)).kept is None


def test_same_seed_same_bits_another_seed_differs() -> None:
    mdp = small()
    request = explore(mdp, random_q(mdp), (500.0, 1.0), 10**9)
    first, again = (CountCollector(mdp, seed=4).collect(request) for _ in range(2))
    assert first.grams.tobytes() == again.grams.tobytes()
    assert first.n_episodes == again.n_episodes
    assert CountCollector(mdp, seed=5).collect(request).grams.tobytes() != first.grams.tobytes()


def test_policies_that_act_alike_are_drawn_together_and_counted_apart() -> None:
    mdp = s4q.problems.river_swim(3, 4)
    q = state_q(mdp)
    twin = s4q.LinearQ.from_arrays(q.theta * 2)
    answer = CountCollector(mdp).collect(regress_request(0, 3, Mixture([q, twin], [0.5, 0.5]), zero_q(mdp), 10**6))
    assert answer.episodes_per_policy.sum() == 10**6
    assert abs(answer.episodes_per_policy[0] - 500_000) < 5 * 500


def sticky() -> FiniteMDP:
    """Two states that are never left: what an episode sees at one step it sees at all."""
    return FiniteMDP(np.broadcast_to(np.eye(2)[:, None, :], (2, 1, 2)), [[0.0], [1.0]], [0.5, 0.5], horizon=4)


@pytest.mark.parametrize("n", [1, 3, 10**6])
def test_pooled_steps_of_one_episode_hang_together(n: int) -> None:
    """Counts, targets and next states are those of whole episodes: on the sticky problem all steps agree."""
    mdp = sticky()
    value = s4q.LinearQ.from_arrays(np.tile([[[0.0], [10.0]]], (4, 1, 1)))
    mixed = Mixture([s4q.UniformPolicy(1)], [1.0])
    for i in range(20):
        moments = CountCollector(mdp, seed=0).collect(regress_request(i, 1, mixed, value, n, pool=True)).moments
        seen = moments.gram.ravel()
        assert np.all(seen % 4 == 0)  # four steps an episode, all in one state
        np.testing.assert_allclose(moments.moment.ravel(), seen * [0.0, 11.0])


def slow_mover() -> FiniteMDP:
    """Six steps of a chain that seldom moves, so that steps of an episode are strongly dependent."""
    transitions = np.array([[[0.9, 0.1]], [[0.1, 0.9]]])
    return FiniteMDP(transitions, [[0.1], [0.8]], [0.5, 0.5], horizon=6)


def test_pooled_regress_of_dependent_steps_has_the_same_law() -> None:
    mdp = slow_mover()
    value = s4q.LinearQ.from_arrays(np.tile([[[0.0], [3.0]]], (6, 1, 1)))
    request_of = regress(2, Mixture([s4q.UniformPolicy(1)], [1.0]), value, pool=True)
    played = answers(EpisodeCollector(mdp, seed=1), request_of, fields_of_regression)
    counted = answers(CountCollector(mdp, seed=2), request_of, fields_of_regression)
    assert p_of_same_law(played, counted) > 1e-3


def rare_and_heavy() -> tuple[FiniteMDP, np.ndarray]:
    """A state reached once in 10^4 episodes whose features weigh a million times as much as the others."""
    transitions = np.zeros((2, 2, 1, 2))
    transitions[0, 0, 0] = [1 - 1e-4, 1e-4]
    transitions[0, 1, 0, 1] = transitions[1, 0, 0, 0] = transitions[1, 1, 0, 1] = 1.0
    mdp = FiniteMDP(transitions, np.zeros((2, 2, 1)), [1.0, 0.0])
    white = np.full((2, 2, 1, 1), 1e-3)
    white[:, 1] = 1e3
    return mdp, white


@pytest.mark.slow
def test_rare_heavy_features_are_found_with_few_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The crossing is a single rare event: its episode number is geometric, and finding it takes order log n cuts."""
    mdp, white = rare_and_heavy()
    cuts = [0]
    split = CountModel.split

    def counting(*arguments: object) -> object:
        cuts[0] += 1
        return split(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(CountModel, "split", counting)
    numbers = []
    for i in range(400):
        cuts[0] = 0
        answer = CountCollector(mdp, seed=3).collect(Explore(i, s4q.UniformPolicy(1), white, (6.0, 0.0), 10**12))
        numbers.append(answer.n_episodes)
        assert cuts[0] <= 2 * np.log2(answer.n_episodes + 2) + 4
    assert kstest(numbers, geom(1e-4).cdf).pvalue > 1e-3
    assert kstest(numbers, geom(1.3e-4).cdf).pvalue < 1e-3


@pytest.mark.slow
def test_a_bursty_crossing_under_a_growing_threshold_has_the_same_law() -> None:
    """Rare large steps, a threshold that grows fast: a chunk may end below its last threshold and yet have crossed."""
    mdp, white = rare_and_heavy()
    frequent = FiniteMDP(
        np.where(mdp.transitions == 1e-4, 0.2, np.where(mdp.transitions == 1 - 1e-4, 0.8, mdp.transitions)),
        mdp.rewards,
        mdp.start,
    )
    white = np.sqrt(np.where(white > 1, 3.0, 0.01))

    def request_of(i: int) -> Explore:
        return Explore(i, s4q.UniformPolicy(1), white, (1.0, 2.0), 10**6)

    played = answers(
        EpisodeCollector(frequent, seed=1), request_of, lambda a: {"n": a.n_episodes, **fields_of_visits(a)}
    )
    counted = answers(
        CountCollector(frequent, seed=2), request_of, lambda a: {"n": a.n_episodes, **fields_of_visits(a)}
    )
    assert p_of_same_law(played, counted) > 1e-3


def test_an_early_crossing_is_found_inside_a_chunk_that_ends_below_its_last_threshold() -> None:
    """A heavy step (30) crosses 20 + 5 log n up to n = 7 = floor(e^2), and no later. A tenth of episodes has one."""
    transitions = np.zeros((2, 2, 1, 2))
    transitions[0, 0, 0] = [0.9, 0.1]
    transitions[0, 1, 0, 1] = transitions[1, 0, 0, 0] = transitions[1, 1, 0, 1] = 1.0
    mdp = FiniteMDP(transitions, np.zeros((2, 2, 1)), [1.0, 0.0])
    white = np.full((2, 2, 1, 1), 1e-3)
    white[:, 1] = np.sqrt(30.0)
    numbers = np.array(
        [
            CountCollector(mdp, seed=1).collect(Explore(i, s4q.UniformPolicy(1), white, (20.0, 5.0), 10**6)).n_episodes
            for i in range(400)
        ]
    )
    # Forgetting the lower thresholds inside a chunk misses a third of them.
    assert binomtest(int((numbers <= 7).sum()), len(numbers), 1 - 0.9**7).pvalue > 1e-3
    assert binomtest(int((numbers == 1).sum()), len(numbers), 0.1).pvalue > 1e-3


def test_too_many_episodes_for_64_bits_are_refused() -> None:
    mdp = s4q.problems.river_swim(3, 12)
    with pytest.raises(ValueError, match=r"episodes are counted in 64 bits: at most 3.33e\+17 of 12 steps"):
        CountCollector(mdp).collect(regress_request(0, 2, mixture(mdp), zero_q(mdp), 10**18))
