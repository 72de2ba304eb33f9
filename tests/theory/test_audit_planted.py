"""Errors planted in learner and collector: the audit notices each one, and honest runs on all problems pass it."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from benchmarks.audit_planted import PLANTS, RUNS, Plant, caught_by, failing
from small_problems import blocked_mdp, random_mdp
from typer.testing import CliRunner

import s4q
from s4q.cli import app
from s4q.cli.audit_command import audited, small_problem
from s4q.collectors import CountCollector
from s4q.core.messages import Regression
from s4q.learners import presets
from s4q.learners.presets import PresetName, constants
from s4q.learners.widths import INEXACT
from s4q.problems import FiniteMDP
from s4q.theory import Audit, audit, audited_s3q
from s4q.theory.bounds import Prescribed
from s4q.theory.lemmas import bernstein, freedman, freedman_about
from s4q.theory.run_checks import constrained

DELTA = 0.05
DOCS = Path(__file__).parents[2] / "docs" / "audit.md"
PRESETS: tuple[PresetName, ...] = ("paper", "tight", "realisable", "practical")


def listed(plant: str) -> list[set[str]]:
    """The rows that docs/audit.md names for a plant, for each preset."""
    line = next(line for line in DOCS.read_text().splitlines() if line.startswith(f"| {plant} |"))
    cells = line.replace("\\|", "\0").split(" | ")[1:]
    return [{name.strip(" |").replace("\0", "|") for name in cell.split("; ")} for cell in cells]


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_every_planted_error_is_caught_by_a_row_that_the_docs_name(plant: Plant) -> None:
    for (preset, episodes), named in zip(RUNS, listed(plant.name), strict=True):
        for seed in range(3):
            assert named <= caught_by(plant, preset, episodes, seed), (preset, seed)


@pytest.mark.parametrize("name", ["ridge / 100", "replays a tenth as long", "theta + 1e-4", "a false well_specified"])
def test_some_planted_errors_are_caught_at_once(name: str) -> None:
    plant = next(plant for plant in PLANTS if plant.name == name)
    named = listed(name)[0]
    assert caught_by(plant, "realisable", 2000, 0) & named


def honest(mdp: FiniteMDP, preset: PresetName, episodes: int, seeds: range) -> None:
    for seed in seeds:
        found = audited(mdp, preset, episodes, seed, DELTA)
        assert failing(found) == set(), (preset, seed)
        assert not any(row.slack is not None and row.slack < 0 for row in found.rows if row.holds)


PROBLEMS: dict[str, Callable[[], FiniteMDP]] = {
    "low_rank": lambda: small_problem("low_rank", {}),
    "river_swim": lambda: s4q.problems.river_swim(4, horizon=5),
    "chain": lambda: s4q.problems.chain(4, 5),
    "deep_sea": lambda: s4q.problems.deep_sea(4),
    "combination_lock": lambda: s4q.problems.combination_lock(3, 4),
    "bellman_closed": lambda: s4q.problems.bellman_closed(4, 2, 2, 3, 2),
    "padded_features": lambda: small_problem("padded_features", {}),
}
LENGTHS: dict[PresetName, int] = {"realisable": 20_000, "practical": 1000, "tight": 10**10, "paper": 10**13}


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_honest_runs_pass(problem: str, preset: PresetName) -> None:
    honest(PROBLEMS[problem](), preset, LENGTHS[preset], range(1))


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["tight", "paper"])
def test_honest_runs_with_inexact_features_pass_where_that_is_allowed(preset: PresetName) -> None:
    honest(small_problem("perturbed_low_rank", {}), preset, 10**10, range(2))


@pytest.mark.parametrize(("errors", "holds"), [(0.2, True), (0.25, False)])
def test_the_width_of_practical_with_inexact_features_is_the_prescribed_one(
    errors: float, holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presets, "data_scale", lambda *_: replace(INEXACT, errors=errors))
    mdp = s4q.problems.aggregated_deep_sea(6, seed=1)
    learner = s4q.S4Q(mdp, memory="policies", pool=False)
    run = s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=0), 300, record=True)
    assert audit(run, mdp)["prescribed width"].holds == holds


@pytest.mark.parametrize("problem", ["chain", "combination_lock"])
def test_honest_runs_pass_in_short(problem: str) -> None:
    honest(PROBLEMS[problem](), "realisable", 500, range(1))


SETTINGS: list[dict[str, Any]] = [
    {},
    {"epochs": "doubling", "c_replay": 0.3},
    {"epochs": "single", "c_replay": 2.5, "delta": 0.01},
    {"max_episodes": 10**9},
    {"ridge": [3.0, 2.0, 1.0], "trigger": (4.0, 0.5)},
]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("mdp", [s4q.problems.low_rank(6, 2, 3, 3), blocked_mdp(), s4q.problems.chain(3, 3)])
def test_two_ways_to_the_same_constants(preset: PresetName, mdp: FiniteMDP) -> None:
    """The learner's formulas and the audit's are written apart; they agree, so each checks the other."""
    rng = np.random.default_rng(0)
    k = mdp.spec.block_dim
    for settings in SETTINGS:
        mine = constants(mdp.spec, preset, **settings, memory="policies", pool=False)
        theirs = Prescribed(mine)
        np.testing.assert_allclose(theirs.ball(), mine.radius(), rtol=1e-12)
        for phase, n in ((1, 0), (2, 1), (3, 7), (9, 10**6), (40, 10**17)):
            assert theirs.level_episodes(n) == mine.samples_a_level(n)
            assert theirs.call_episodes(n) == mine.replay_slots(n)
            ridge = mine.ridge(phase, n)
            np.testing.assert_allclose(theirs.ridge(phase, n), ridge, rtol=1e-12)
            first, slope = mine.threshold(phase, replaying=phase > 1)
            assert theirs.trigger(phase, n) == pytest.approx(first + slope * log(max(n, 1)), rel=1e-12)
            root = rng.normal(size=(mdp.spec.n_blocks, k, k)) * n**0.5
            for h in range(mdp.horizon if preset != "practical" else 0):
                gram = root @ np.swapaxes(root, 1, 2)
                meant = mine.width(h, phase, n, gram, float(ridge[h]))
                np.testing.assert_allclose(theirs.width(h, phase, n, gram, float(ridge[h])), meant, rtol=1e-6)


def test_constrained_least_squares_is_a_minimum() -> None:
    """No point of the ball has a smaller loss: random ones do not, and the gradient points outwards."""
    rng = np.random.default_rng(1)
    for per_block in (False, True):
        root = rng.normal(size=(2, 3, 3))
        gram, moment, lam = root @ np.swapaxes(root, 1, 2), 5 * rng.normal(size=(2, 3)), 0.3
        radius = np.array([0.4, 100.0]) if per_block else np.array(0.7)
        theta = constrained(gram, moment, lam, radius)
        slope = moment - np.einsum("bij,bj->bi", gram, theta) - lam * theta  # minus half the gradient
        if per_block:
            assert np.linalg.norm(theta[0]) == pytest.approx(0.4)
            np.testing.assert_allclose(slope[1], 0.0, atol=1e-10)
            theta, slope = theta[0], slope[0]
        else:
            assert np.linalg.norm(theta) == pytest.approx(0.7)
        factor = float((slope * theta).sum() / (theta**2).sum())
        assert factor > 0
        np.testing.assert_allclose(slope, factor * theta, atol=1e-9)


def test_deviations_are_rare_and_not_too_rare() -> None:
    """10^5 sums of 200 coins each: none leaves the bound at 1e-4 more often than that, many leave half of it."""
    rng = np.random.default_rng(2)
    off = np.abs(rng.binomial(200, 0.3, size=10**5) - 60.0)
    variance = np.array(200 * 0.21)
    for bound in (
        float(bernstein(variance, 0.7, 1e-4)),
        float(freedman(variance, 0.7, 1e-4)),
        freedman_about(float(variance), 40.0, 0.7, 1e-4),
    ):
        assert (off > bound).mean() <= 1e-4
        assert (off > bound / 3).mean() > 1e-3
    assert freedman(np.zeros(2), 0.0, 0.1).tolist() == [0.0, 0.0]
    assert freedman_about(0.0, 1.0, 0.0, 0.1) == 0.0


def test_a_record_knows_what_the_collector_returned() -> None:
    """One regression a level and call; the counts of policies add up; resuming keeps all of it."""
    mdp = s4q.problems.low_rank(6, 2, 3, 2)
    run = s4q.run(s4q.S4Q(mdp, "realisable"), CountCollector(mdp, seed=0), 3000, record=True)
    assert run.record is not None
    fits = run.record.fits
    assert sum(fit.n_episodes for fit in fits) == run.replay_episodes
    for fit in fits:
        assert fit.per_policy.sum() == fit.n_episodes
        assert fit.per_policy[-1] == 0
        assert len(fit.per_policy) == fit.phase
    assert {(fit.phase, fit.level) for fit in fits if fit.phase <= run.phases} == {
        (p, h) for p in range(2, run.phases + 1) for h in range(2)
    }


def test_a_record_is_kept_in_a_checkpoint(tmp_path: Path) -> None:
    mdp, path = s4q.problems.low_rank(6, 2, 3, 2), tmp_path / "run.s4q"
    whole = s4q.run(s4q.S4Q(mdp, "realisable"), CountCollector(mdp, seed=0), 3000, record=True)
    short = s4q.run(
        s4q.S4Q(mdp, "realisable"), CountCollector(mdp, seed=0), 3000, record=True, checkpoint=path,
        stop=lambda run: run.episodes >= 1000,
    )  # fmt: skip
    assert short.episodes < 3000
    resumed = s4q.run(s4q.load(path), CountCollector(mdp, seed=0), 3000, record=True)
    assert whole.record is not None
    assert resumed.record is not None
    for one, other in zip(whole.record.fits, resumed.record.fits, strict=True):
        np.testing.assert_array_equal(one.moment, other.moment)
        np.testing.assert_array_equal(one.per_policy, other.per_policy)
    assert audit(resumed, mdp).holds == audit(whole, mdp).holds


S3Q_PROBLEM = s4q.problems.low_rank(6, 2, 3, 2)


def s3q_failing(plant: AbstractContextManager[Any]) -> set[str]:
    with plant:
        return failing(audited_s3q(S3Q_PROBLEM, 10**6, 0, DELTA))


def test_theorem_2_is_audited() -> None:
    for mdp in (S3Q_PROBLEM, s4q.problems.chain(3, 3), random_mdp(5, 2, 2, 2, seed=4)):
        found = audited_s3q(mdp, 10**5, 0, DELTA)
        assert found.holds
        assert found["Theorem 2 (a)"].holds
        assert found["Theorem 2 (a)"].place.startswith("epoch ")
        assert ("excess-risk" in found["Theorem 2 (a)"].note) is not mdp.spec.well_specified
    with pytest.raises(ValueError, match="at least one epoch"):
        audited_s3q(S3Q_PROBLEM, 3, 0, DELTA)


def test_errors_planted_in_s3q_are_noticed() -> None:
    fit, play = s4q.learners.s3q.constrained_fit, CountCollector.play

    def answers(change: Callable[[Regression], Regression]) -> AbstractContextManager[Any]:
        return mock.patch.object(CountCollector, "play", lambda *arguments: change(play(*arguments)))

    def more(answer: Regression) -> Regression:
        return replace(answer, moments=replace(answer.moments, moment=1.05 * answer.moments.moment))

    def half(answer: Regression) -> Regression:
        moments = answer.moments
        return replace(answer, moments=replace(moments, gram=moments.gram / 2, moment=moments.moment / 2, known=None))

    assert s3q_failing(answers(lambda answer: answer)) == set()
    assert "targets of a fit and their mean" in s3q_failing(answers(more))
    assert "Gram of a fit and its mean" in s3q_failing(answers(half))
    off = mock.patch.object(s4q.learners.s3q, "constrained_fit", lambda *arguments: fit(*arguments) + 1e-4)
    assert "fit = least squares of its samples" in s3q_failing(off)
    larger = mock.patch.object(s4q.S3Q, "nbytes", property(lambda self: 10**6))
    assert "Theorem 2: floats held" in s3q_failing(larger)
    longer = mock.patch.object(s4q.S3Q, "n_level", property(lambda self: 3**self._epoch))
    assert {"episodes of a level and 2^e", "samples of a level"} <= s3q_failing(longer)


def test_the_command_audits_s3q_and_exits_1_when_an_assumption_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def invoke(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["audit", *arguments], env={"COLUMNS": "180"})
        return result.exit_code, result.output

    code, output = invoke("--algorithm", "s3q", "--episodes", "1e5", "--json")
    assert code == 0
    assert json.loads(output)["rows"][1]["statement"].startswith("Theorem 2 (a)")
    code, output = invoke("perturbed_low_rank", "--preset", "realisable", "--episodes", "500")
    assert code == 1
    assert "assumed: features are exact" in output
    code, output = invoke("--algorithm", "q", "--episodes", "1e5")
    assert code == 2


@pytest.mark.slow
def test_theorem_2_holds_over_seeds_and_rows_of_sampling_never_fail() -> None:
    found = [audited_s3q(S3Q_PROBLEM, 10**4, seed, DELTA) for seed in range(60)]
    assert sum(not each.holds for each in found) <= DELTA * len(found)
    assert not any(failing_rarely(each) for each in found)


def failing_rarely(found: Audit) -> set[str]:
    return {row.statement for row in found.rows if row.kind == "rarely" and row.holds is False}
