"""Certificates: valid in at least 1 - delta of the seeds, tight enough to be of use, refused when nothing is proved."""

from collections.abc import Callable
from dataclasses import replace
from math import inf, log
from typing import Any

import numpy as np
import pytest
from small_problems import cliff, random_mdp

import s4q
from s4q.certificates import certifier, confidence_sequences
from s4q.certificates.certifier import Bounds, Certifier, bounds, largest_return, phase_delta, refusal
from s4q.collectors import CountCollector, EpisodeCollector
from s4q.core.optimism import QLevel
from s4q.learners.main_loop import PhaseRecord, Record
from s4q.learners.presets import Constants, constants
from s4q.problems import FiniteMDP, chain, low_rank, river_swim

DELTA = 0.05
SEEDS = range(200)


def walk(shift: float = 0.0) -> FiniteMDP:
    """Three cells in a row, Bernoulli rewards, a random start, one-hot features; all rewards may be shifted."""
    transitions = np.array([[[0.7, 0.3, 0.0]] * 2, [[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]], [[0.0, 0.6, 0.4]] * 2])
    rewards = np.array([[0.5, 0.0], [0.0, 0.5], [0.0, 1.0]]) / 4 + shift
    return FiniteMDP(transitions, rewards, [0.6, 0.2, 0.2], horizon=4, reward_range=(shift, 0.25 + shift))


CASES: dict[str, tuple[FiniteMDP, bool | None, type[Any], int]] = {
    "one block": (low_rank(), None, CountCollector, 10**5),
    "pooled": (walk(), True, CountCollector, 10**5),
    "a radius per block": (walk(), False, CountCollector, 10**5),
    "squares known": (walk(), True, EpisodeCollector, 3000),
    "costs, early ends": (cliff(), None, CountCollector, 10**4),
}


def record_of(case: str, seed: int, look: Callable[[s4q.Run], Any] | None = None, episodes: int = 0) -> Record:
    mdp, pool, kind, enough = CASES[case]
    learner = s4q.S4Q(mdp, preset="realisable", delta=DELTA, pool=pool)
    stop = None if look is None else lambda run: bool(look(run))
    record = s4q.run(learner, kind(mdp, seed=seed), episodes or enough, record=True, stop=stop).record
    assert record is not None
    assert len(record.phases) > 5
    return record


def holds(mdp: FiniteMDP, record: Record) -> bool:
    """Do the bounds of every phase hold?"""
    phases = [*record.phases, *([] if record.unfinished is None else [record.unfinished])]
    found = [bounds(record.constants, phase) for phase in phases if phase.n_episodes]
    shift = mdp.horizon * mdp.spec.reward_min
    upper_holds = min(one.upper for one in found) + shift >= mdp.v_star - 1e-9
    return upper_holds and all(
        one.lower + shift <= mdp.value(phase.q) + 1e-9 for one, phase in zip(found, phases, strict=False)
    )


def always_holds(case: str, seed: int) -> bool:
    """Do the bounds of every phase hold, and did the certificate at every shard?"""
    mdp, seen = CASES[case][0], [True]

    def look(run: s4q.Run) -> None:
        found = run.certificate
        assert found is not None
        if found.policy is not None:
            seen[0] &= found.lower <= mdp.value(found.policy) + 1e-9
        seen[0] &= found.upper >= mdp.v_star - 1e-9

    record = record_of(case, seed, look)
    return seen[0] and holds(mdp, record)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_certificates_are_valid(case: str) -> None:
    assert np.mean([always_holds(case, seed) for seed in SEEDS]) >= 1 - DELTA


@pytest.mark.parametrize("case", CASES)
def test_certificates_are_valid_on_a_few_seeds(case: str) -> None:
    assert all(always_holds(case, seed) for seed in range(2))


@pytest.mark.parametrize(("case", "factor"), [("one block", -1.0), ("pooled", 0.0), ("a radius per block", 0.0)])
def test_not_without_the_bonus(case: str, factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    # One block hardly needs exploration, so there the bonus has to point the wrong way before a bound fails.
    with_bonus = Constants.with_bonus

    def turned(*arguments: Any) -> QLevel:
        level = with_bonus(*arguments)
        object.__setattr__(level, "width", factor * level.width)  # a QLevel would refuse a negative width
        return level

    monkeypatch.setattr(Constants, "with_bonus", turned)
    assert not any(holds(CASES[case][0], record_of(case, seed, episodes=5000)) for seed in range(3))


@pytest.mark.parametrize("case", ["one block", "squares known"])
def test_not_with_the_bare_mean_of_returns(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certifier, "mean_at_least", lambda total, n, delta: total / n)
    monkeypatch.setattr(certifier, "mean_at_least_by_variance", lambda total, total_sq, n, delta: total / n)
    assert not any(holds(CASES[case][0], record_of(case, seed, episodes=5000)) for seed in range(3))


@pytest.mark.parametrize("case", ["one block", "pooled"])
def test_not_with_the_returns_of_another_policy(case: str) -> None:
    def mixed_up(record: Record) -> Record:
        """Every policy is credited with the returns of the last one."""
        last = record.phases[-1]
        return replace(record, phases=tuple(replace(last, q=one.q, phase=one.phase) for one in record.phases))

    records = [record_of(case, seed, episodes=10**4) for seed in range(3)]
    assert all(holds(CASES[case][0], record) for record in records)
    assert not any(holds(CASES[case][0], mixed_up(record)) for record in records)


def a_phase(phase: int, n: int, returns: float, starts: float, squares: float | None = None) -> PhaseRecord:
    """A finished phase with these sums."""
    q, nothing = s4q.LinearQ.from_arrays(np.zeros((1, 1, 1))), np.zeros((1, 1, 1, 1))
    return PhaseRecord(phase, q, np.ones(1), nothing, nothing, np.zeros(1), n, returns, squares, starts)


def one_step(value_bound: float, reward_max: float = 1.0) -> Constants:
    """Of a problem with one step and one feature."""
    spec = FiniteMDP(
        np.ones((1, 1, 1)), [[0.5]], [1.0], horizon=1, reward_range=(0.0, reward_max), value_bound=value_bound
    ).spec
    return constants(spec, "realisable", delta=DELTA)


def share_missed(draw: Callable[[np.random.Generator], np.ndarray], mean: float, settings: Constants) -> float:
    """How often any of 10 phases, each cut at its worst moment, misses the mean on either side."""
    missed = []
    for seed in range(100):
        rng, bad = np.random.default_rng(seed), False
        for phase in range(1, 11):
            x = draw(rng)
            n = np.arange(1, len(x) + 1)
            surprise = (np.cumsum(x) - n * mean) / np.sqrt(n)
            for i in (int(surprise.argmax()), int(surprise.argmin())):
                total = float(x[: i + 1].sum())
                found = bounds(settings, a_phase(phase, i + 1, total, total))
                bad |= not found.lower <= mean <= found.upper
        missed.append(bad)
    return float(np.mean(missed))


def coin(rng: np.random.Generator) -> np.ndarray:
    return (rng.random(400) < 0.5).astype(float)


def test_an_exact_q_and_the_worst_moments_do_not_break_it() -> None:
    """Q = Q* leaves no slack: what is seen at the start are the true values, and all rests on the deviations."""
    assert share_missed(coin, 0.5, one_step(value_bound=1.0)) <= DELTA


def test_without_the_union_over_episodes_and_phases_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confidence_sequences, "_level", lambda n, delta: log(1 / delta) / n)
    monkeypatch.setattr(certifier, "phase_delta", lambda delta, phase: delta / 4)
    assert share_missed(coin, 0.5, one_step(value_bound=1.0)) > DELTA


def test_returns_may_exceed_the_value_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """An episode that pays 10 once in 20 times is worth 1/2: the value bound 1 is right, and no bound on returns."""
    settings = one_step(value_bound=1.0, reward_max=10.0)
    assert settings.spec.value_bound == (1.0,)

    def missed() -> float:
        wins = [float(10 * np.random.default_rng(seed).binomial(1000, 0.05)) for seed in SEEDS]
        return float(np.mean([bounds(settings, a_phase(1, 1000, total, 1000.0)).lower > 0.5 for total in wins]))

    assert largest_return(settings.spec) == 10
    assert missed() <= DELTA
    monkeypatch.setattr(certifier, "largest_return", lambda spec: spec.value_bound[0])
    assert missed() > DELTA


@pytest.mark.parametrize("name", ["paper", "tight", "realisable"])
def test_the_shares_of_delta_add_up(name: Any) -> None:
    settings = constants(low_rank().spec, name, delta=DELTA)
    phases, horizon = np.arange(1, 10**4), settings.spec.horizon
    fit = sum(settings.delta_fit(int(p)) * horizon for p in phases)
    # The ridge of paper and tight is made for log(2 d / delta_cov): one for each level, n and part of the covariance.
    covariance = 0.0
    if settings.theory is not None:
        spread = settings.ridge(3, 7)[0] / settings.theory.ridge
        share = 2 * settings.spec.dim / np.exp(spread) * 3**2 * 7**2  # delta_cov p^2 n^2
        covariance = share * 2 * horizon * (np.pi**2 / 6) ** 2
    deviations = sum(2 * phase_delta(DELTA, int(p)) for p in phases)
    assert fit <= DELTA / 4
    assert covariance <= DELTA / 4
    assert deviations <= DELTA / 2
    assert fit + covariance + deviations <= DELTA


@pytest.mark.slow
@pytest.mark.parametrize("mdp", [river_swim(6, horizon=12), chain()], ids=["river_swim", "chain"])
@pytest.mark.parametrize(("pool", "episodes"), [(True, 10**7), (False, 10**9)])
def test_certificates_are_of_use(mdp: FiniteMDP, pool: bool, episodes: int) -> None:
    learner = s4q.S4Q(mdp, "realisable", pool=pool)
    found = s4q.run(learner, CountCollector(mdp, seed=0), episodes, record=True).certificate
    assert found is not None
    assert found.policy is not None
    assert found.gap < mdp.spec.value_bound[0] / 2
    assert found.lower <= mdp.value(found.policy) <= mdp.v_star <= found.upper


def test_the_best_of_all_phases() -> None:
    settings = one_step(value_bound=1.0)
    rng = np.random.default_rng(1)
    phases = [a_phase(p, int(rng.integers(1, 10**5)), 0.0, 0.0) for p in range(1, 12)]
    phases = [
        replace(one, return_sum=one.n_episodes * rng.random() / 3, start_value_sum=one.n_episodes * 0.9)
        for one in phases
    ]
    found = s4q.certify(Record(settings, tuple(phases[:-1]), phases[-1]))
    each = [bounds(settings, phase) for phase in phases]
    best = int(np.argmax([one.lower for one in each]))
    assert (found.upper, found.lower) == (min(one.upper for one in each), each[best].lower)
    assert (found.phase, found.policy, found.n_episodes) == (
        best + 1,
        phases[best].q,
        phases[best].n_episodes,
    )
    assert found.gap == found.upper - found.lower


def test_a_run_says_what_its_record_says() -> None:
    learner, collector = s4q.S4Q(walk(), "realisable"), CountCollector(walk(), seed=3)
    first = s4q.run(learner, collector, 20_000, record=True)
    assert first.record is not None
    for found in (s4q.certify(first.record), first.certificate):
        assert found is not None
        assert (found.gap, found.phase) == (first.certificate.gap, first.certificate.phase)  # type: ignore[union-attr]
    short = s4q.certify(learner)
    assert short.upper >= s4q.certify(first.record).upper
    # One episode more can only add to what is known.
    assert s4q.run(learner, collector, 1, record=True).certificate.upper <= short.upper  # type: ignore[union-attr]
    assert s4q.run(learner, collector, 1).certificate is None


def test_rewards_below_zero_change_the_units_and_nothing_else() -> None:
    found = []
    for shift in (0.0, -0.1, 2.0):
        mdp = walk(shift)
        run = s4q.run(s4q.S4Q(mdp, "realisable"), CountCollector(mdp, seed=0), 20_000, record=True)
        assert run.certificate is not None
        found.append(run.certificate)
    for other, shift in zip(found[1:], (-0.1, 2.0), strict=True):
        assert other.gap == pytest.approx(found[0].gap, rel=1e-9)
        assert other.upper == pytest.approx(found[0].upper + 4 * shift, rel=1e-9)
        assert other.lower == pytest.approx(found[0].lower + 4 * shift, rel=1e-9)


def test_what_an_episode_can_pay() -> None:
    assert largest_return(walk().spec) == pytest.approx(1.0)
    assert largest_return(walk(-0.1).spec) == pytest.approx(1.0)
    assert largest_return(walk(-1.0).spec) == pytest.approx(3.25)  # a Spec does not say whether episodes may end
    assert largest_return(cliff(8).spec) == 80.0
    ends = FiniteMDP(  # costs of 1 or 2 a step; over after the first step is the best one can do
        np.array([[[0.0, 1.0]], [[0.0, 1.0]]]), [[-1.0], [0.0]], [1.0, 0.0], horizon=3,
        reward_range=(-2.0, -1.0), terminal=[False, True], reward_noise="none",
    )  # fmt: skip
    answer = s4q.run(s4q.S4Q(ends, "realisable"), CountCollector(ends), 500, record=True).record
    assert answer is not None
    last = answer.phases[-1]
    assert last.return_sum / last.n_episodes == pytest.approx(largest_return(ends.spec)) == 5.0
    same = FiniteMDP(np.ones((1, 1, 1)), [[1.0]], [1.0], horizon=2, reward_range=(1.0, 1.0))
    assert largest_return(same.spec) > 0


def test_vacuous_says_so() -> None:
    learner = s4q.S4Q(low_rank(), "realisable")
    nothing = s4q.certify(learner)
    assert nothing.vacuous
    assert (nothing.policy, nothing.phase, nothing.gap) == (None, 0, nothing.largest_gap)
    assert str(nothing).startswith("vacuous")
    early = s4q.run(learner, EpisodeCollector(low_rank()), 5, record=True).certificate
    assert early is not None
    assert early.vacuous
    assert early.gap == early.largest_gap == 1.0
    assert early.policy is not None
    costs = s4q.certify(s4q.S4Q(cliff(), "realisable"))
    assert (costs.upper, costs.lower, costs.vacuous) == (0.0, -80.0, True)
    later = s4q.run(learner, CountCollector(low_rank()), 10**5, record=True).certificate
    assert later is not None
    assert not later.vacuous
    assert str(later).startswith("with probability 0.95")


def test_a_contradiction_certifies_nothing() -> None:
    settings = one_step(value_bound=1.0)
    found = s4q.certify(Record(settings, (a_phase(1, 10**4, 9000.0, 1000.0),), None))
    assert found.contradictory
    assert found.gap == inf
    assert found.lower > found.upper
    assert "features are not exact" in str(found)
    unknown = replace(a_phase(1, 10**4, 0.0, 0.0), start_value_sum=None)
    assert s4q.certify(Record(settings, (unknown,), None)).vacuous
    assert bounds(settings, unknown) == Bounds(1.0, 0.0)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "practical": ({}, "proves nothing"),
    "a sketch": ({"preset": "realisable", "memory": "sketch"}, 'memory="policies"'),
    "all steps": ({"preset": "realisable", "memory": "all"}, 'memory="policies"'),
    "a width": ({"preset": "tight", "bonus_width": 1.0}, "width"),
    "a ridge": ({"preset": "paper", "ridge": 1e9}, "ridge"),
    "another Gram matrix": ({"preset": "realisable", "bonus_from": "previous"}, "bonus_from"),
}


class NeverPlays:
    """A collector that must not be asked to play."""

    seed = 0

    def shards(self, request: Any) -> Any:
        raise AssertionError("an episode was played")

    play = collect = shards


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_reason_and_before_any_episode(case: str) -> None:
    choices, reason = REFUSED[case]
    learner = s4q.S4Q(low_rank(), **choices)
    with pytest.raises(ValueError, match=f"no certificate.*{reason}"):
        s4q.certify(learner)
    with pytest.raises(ValueError, match=f"no certificate.*{reason}"):
        s4q.run(learner, NeverPlays(), 10**6, stop_when_gap=0.1)


@pytest.mark.parametrize("name", ["paper", "tight", "realisable"])
def test_refused_when_the_features_may_be_inexact(name: Any) -> None:
    learner = s4q.S4Q(random_mdp(5, 3, 4, 3, seed=1), name)
    with pytest.raises(ValueError, match="well_specified=True"):
        s4q.certify(learner)
    run = s4q.run(learner, CountCollector(random_mdp(5, 3, 4, 3, seed=1)), 100, record=True)
    assert run.certificate is None


@pytest.mark.parametrize(
    "choices",
    [
        {"preset": "paper"},
        {"preset": "tight", "trigger": 5.0, "max_episodes": 10**9, "bonus_from": "own", "c_replay": 0.5},
        {"preset": "realisable", "ridge": 0.5, "trigger": 6.0, "epochs": "doubling", "c_replay": 0.5},
    ],
)
def test_not_refused_for_what_optimism_does_not_need(choices: dict[str, Any]) -> None:
    learner = s4q.S4Q(low_rank(), **choices)
    assert refusal(learner.constants) is None
    run = s4q.run(learner, CountCollector(low_rank()), 3000, record=True)
    assert run.certificate is not None
    assert run.certificate.upper >= low_rank().v_star


def test_a_run_stops_when_the_gap_is_certified() -> None:
    mdp = walk()
    run = s4q.run(s4q.S4Q(mdp, "realisable"), CountCollector(mdp, seed=0), 10**9, stop_when_gap=0.3)
    found = run.certificate
    assert found is not None
    assert found.policy is not None
    assert 1000 < run.episodes < 10**6
    assert mdp.v_star - mdp.value(found.policy) <= found.gap <= 0.3
    assert run.record is None
    # The same run, watched from outside: it was not certified a shard earlier.
    gaps: list[float] = []
    learner = s4q.S4Q(mdp, "realisable")
    look = lambda so_far: gaps.append(so_far.certificate.gap)  # noqa: E731
    s4q.run(learner, CountCollector(mdp, seed=0), run.episodes, record=True, stop=look)
    assert min(gaps[:-1]) > 0.3 >= gaps[-1]


def test_a_run_that_cannot_be_certified_in_time_uses_its_budget() -> None:
    run = s4q.run(s4q.S4Q(walk(), "realisable"), EpisodeCollector(walk()), 300, stop_when_gap=1e-3)
    assert run.episodes == 300
    assert run.certificate is not None
    assert run.certificate.gap > 1e-3


def test_stop_when_gap_refuses_nonsense() -> None:
    learner = s4q.S4Q(walk(), "realisable")
    for eps in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="stop_when_gap"):
            s4q.run(learner, NeverPlays(), 10, stop_when_gap=eps)
    with pytest.raises(ValueError, match="stop_when_gap needs the certificates of an S4Q; S3Q has none"):
        s4q.run(s4q.S3Q(walk(), s4q.UniformPolicy(2)), NeverPlays(), 10, stop_when_gap=0.1)


def test_a_certifier_keeps_one_policy() -> None:
    certifier = Certifier(one_step(value_bound=1.0))
    for p in range(1, 50):
        certifier.add(a_phase(p, 1000, 500.0, 900.0))
    found = certifier.certificate()
    assert found.phase == 1  # shares of delta shrink, so with equal data the first phase says most
    kept = [value for value in vars(certifier).values() if isinstance(value, (list, dict))]
    assert kept == []


def test_a_run_will_do_if_it_was_recorded() -> None:
    mdp = s4q.problems.river_swim(6, horizon=12)
    kept, lost = (
        s4q.run(s4q.S4Q(mdp, "realisable"), CountCollector(mdp, seed=0), 1000, record=record)
        for record in (True, False)
    )
    assert s4q.certify(kept).upper == s4q.certify(kept.record).upper
    with pytest.raises(ValueError, match="record=True"):
        s4q.certify(lost)
