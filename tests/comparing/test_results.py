"""Summaries, tables, notes, curves and plots of a comparison."""

import sys
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from comparisons import SMALL, row
from rich.console import Console

import s4q
from s4q.comparing.cells import kept_points
from s4q.comparing.report_page import render
from s4q.comparing.results import interval
from s4q.running.curve import Point


def test_a_narrow_table_has_fewer_columns_and_no_cut_number() -> None:
    found = s4q.compare([SMALL], ["s4q", "psrl"], seeds=2, episodes=20, processes=1)
    wide, narrow = found.tables()[0], found.tables(narrow=True)[0]
    assert [column.header for column in narrow.columns] == [
        "learner",
        "regret, IQM [95 %]",
        "end gap",
        "bytes",
        "CPU s",
        "best",
    ]
    whole = {str(column.header): list(column.cells) for column in wide.columns}
    assert all(list(column.cells) == whole[str(column.header)] for column in narrow.columns)
    console = Console(width=80, record=True, file=StringIO())
    console.print(narrow)
    shown = console.export_text()
    assert "…" not in shown
    assert all(str(cell) in shown for cell in whole["end gap"])


@pytest.mark.parametrize(("seeds", "misses"), [(1, None), (2, 50), (3, 25), (4, 12), (5, None)])
def test_few_seeds_are_said_to_be_few(seeds: int, misses: int | None) -> None:
    rows = [
        {
            "problem": "chain",
            "learner": learner,
            "seed": seed,
            "episodes": 9,
            "error": "",
            "regret": 1.0,
            "mean_return": 1.0,
        }
        for seed in range(seeds)
        for learner in "ab"
    ]
    said = s4q.Comparison(rows, {}).notes("chain")
    if misses is None:
        assert said == (["one seed has no interval: who is best may be luck."] if seeds == 1 else [])
        return
    assert said == [
        f"{seeds} seeds are few: a 95 % interval of {seeds} misses the true value about {misses} times in 100, not 5."
    ]
    rng = np.random.default_rng(1)
    found = [interval(rng.normal(size=seeds)) for _ in range(800)]
    missed = sum(one.low is None or one.high is None or not one.low <= 0 <= one.high for one in found)
    assert abs(missed / len(found) - misses / 100) < 0.04


def test_interquartile_means_and_their_intervals() -> None:
    values = np.random.default_rng(0).normal(size=21) ** 3
    found = interval(values)
    middle = np.sort(values)[5:16]  # a quarter of 21, rounded down, is cut from each end
    assert found.iqm == pytest.approx(middle.mean())
    rng = np.random.default_rng(1)
    means = [np.sort(rng.choice(values, 21))[5:16].mean() for _ in range(20_000)]
    assert found.low == pytest.approx(np.quantile(means, 0.025), abs=0.05)
    assert found.high == pytest.approx(np.quantile(means, 0.975), abs=0.05)
    assert interval(values) == found
    assert str(interval([2.0])) == "2"
    assert str(interval([2.0, 2.0])) == "2 [2, 2]"


def test_all_reasons_why_a_learner_is_not_ranked_are_said() -> None:
    """Of ten episodes one is scored, two were cut, and seven replayed old policies."""
    partly = row("s4q_policies", 0, 1.0) | {"regret": None, "scored_episodes": 1, "truncated_episodes": 2}
    [_, note] = s4q.Comparison([partly], {}).notes("p")
    assert "2 of 10 episodes were cut" in note
    assert "and it replays old policies" in note
    assert note.endswith("its mean return is that of 1 of 10 episodes.")


def test_the_best_learners_are_those_whose_interval_meets_that_of_the_lowest() -> None:
    regrets = {"good": [1.0, 2.0, 3.0, 2.0], "near": [2.0, 3.0, 4.0, 3.0], "bad": [9.0, 9.5, 9.0, 9.4]}
    rows = [row(name, seed, regret) for name, ones in regrets.items() for seed, regret in enumerate(ones)]
    found = s4q.Comparison(rows, {})
    assert {one["learner"]: one["best"] for one in found.summary()} == {"good": True, "near": True, "bad": False}
    assert [str(cell) for cell in found.tables()[0].columns[0].cells] == ["good", "near", "bad"]
    assert found.columns[:2] == ["problem", "learner"]
    assert len(found) == 12


def test_a_learner_with_a_failed_run_is_never_the_best() -> None:
    rows = [row("sound", seed, 2.0 + seed) for seed in range(4)] + [row("lucky", 0, 0.5)]
    rows += [{**row("lucky", seed, 0.0), "regret": None, "error": "it diverged"} for seed in range(1, 4)]
    found = s4q.Comparison(rows, {})
    assert {one["learner"]: one["best"] for one in found.summary()} == {"sound": True, "lucky": False}
    names, scores = ([str(cell) for cell in found.tables()[0].columns[i].cells] for i in (0, 1))
    assert names == ["sound", "lucky"]  # though its one run has less regret
    assert scores[1] == "0.5 (1 of 4 runs)"
    rows = [{**one, "curve": [] if one["error"] else [[1, 0.1, 0.5, 0.1, 8], [10, 2.0, 0.5, 0.2, 8]]} for one in rows]
    page = render(s4q.Comparison(rows, {}))
    assert "sound is best" in page
    assert "sound has the best IQM" in page
    assert "lucky has the best" not in page
    alone = render(s4q.Comparison([one for one in rows if one["learner"] == "lucky"], {}))
    assert "No learner can be ranked." in alone
    assert "No run was finished" not in alone
    assert found.notes("p")[-1] == "lucky: 3 of 4 runs failed; seed 3: it diverged."


def test_returns_of_some_episodes_are_not_ranked() -> None:
    """Replayed episodes of an environment have no known return, so the mean of the others is no score."""
    env = {"problem": "CartPole-v1", "horizon": 20}
    found = s4q.compare([env], ["s4q", "s4q_policies"], seeds=2, episodes=40, processes=1)
    whole, partly = ([row for row in found if row["learner"] == name] for name in ("s4q", "s4q_policies"))
    assert all(row["scored_episodes"] == 40 for row in whole)
    assert all(0 < row["scored_episodes"] < 40 for row in partly)
    rows = [{**row, "mean_return": 1e6} if row["learner"] == "s4q_policies" else row for row in found]
    judged = s4q.Comparison(rows, {})
    assert {one["learner"]: (one["best"], one["ranked"]) for one in judged.summary()} == {
        "s4q": (True, True),
        "s4q_policies": (False, False),
    }
    assert "not ranked, because it replays old policies" in " ".join(judged.notes(found.problems[0]))
    finite = s4q.compare([SMALL], ["s4q_policies"], seeds=1, episodes=40, processes=1)
    assert [one["best"] for one in finite.summary()] == [True]  # exact regret charges replays too


@pytest.mark.filterwarnings("error")
def test_episodes_that_were_cut_are_no_part_of_a_score(tmp_path: Path) -> None:
    """A pole is cut after 10 of 30 steps: the mean of those that fell earlier is no score of the others."""
    pole = {"problem": "CartPole-v1", "horizon": 30, "env_kwargs": {"max_episode_steps": 10}, "name": "pole"}
    found = s4q.compare([pole], ["q_learning", "sarsa"], seeds=2, episodes=60, processes=1)
    for one in found:
        assert one["error"] == ""
        assert one["scored_episodes"] + one["truncated_episodes"] == 60
        assert 0 < one["truncated_episodes"] < 60
        assert 8 <= one["mean_return"] < 10
        assert one["curve"][-1][2] == pytest.approx(one["mean_return"], abs=1e-9)
    assert not any(one["ranked"] or one["best"] for one in found.summary())
    note = next(one for one in found.notes("pole") if one.startswith("sarsa"))
    cut, scored = (found.rows[-1][f"{name}_episodes"] for name in ("truncated", "scored"))
    assert f"{cut} of 60 episodes were cut before the horizon and their returns are not known" in note
    assert note.endswith(f"its mean return is that of {scored} of 60 episodes.")
    # Nothing is known of a car that never gets up.
    car = {"problem": "MountainCar-v0", "horizon": 300, "env_kwargs": {"max_episode_steps": 20}, "name": "car"}
    lost = s4q.compare([car], ["q_learning"], seeds=2, episodes=3, processes=1)
    assert [(one["mean_return"], one["scored_episodes"]) for one in lost] == [(None, 0), (None, 0)]
    [line] = lost.summary()
    assert [line["iqm"], line["mean"], line["ranked"]] == [None, None, False]
    shown = {str(column.header) for column in lost.tables()[0].columns}
    assert not {"mean return, IQM [95 %]", "mean", "return", "end gap"} & shown  # nothing would stand in them
    page = render(lost)
    assert "not known" in page
    assert "nan" not in page.split("<style>")[0] + page.split("</style>")[-1].split("<svg")[0]
    assert page.count("<figure") == 2  # bytes and CPU time are known
    assert len(lost.plot(tmp_path)) == 1


@pytest.mark.parametrize("name", ["a [b/c]", "x [/y]", "[bold]z[/bold]", ":smile:", "end\\", "[" * 9])
def test_names_are_shown_as_they_are(name: str) -> None:
    """What looks like markup to rich is a part of the name."""
    rows = [row(name, 0, 1.0), row(f"no {name}", 0, 2.0) | {"error": f"it has {name}"}]
    found = s4q.Comparison([{**one, "problem": f"on {name}"} for one in rows], {(f"on {name}", "psrl"): f"see {name}"})
    console = Console(file=StringIO(), width=300, color_system=None)
    console.print(*found.tables())
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"on {name}: 10 episodes, 1 seed" in shown
    assert f"│ {name} " in shown
    assert f"no {name}: 1 of 1 runs failed; seed 0: it has {name}." in shown
    assert f"psrl: not played, see {name}." in shown


def test_rounding_decides_nothing() -> None:
    """Regrets of ten episodes that differ by less than the last bits of ten values are the same; a real one is not."""
    rows = [row("exact", 0, 0.0), row("rounded", 0, 3e-13), row("worse", 0, 1e-9)]
    found = s4q.Comparison(rows, {}).summary()
    assert {one["learner"]: one["best"] for one in found} == {"exact": True, "rounded": True, "worse": False}


def test_a_table_of_failed_runs_names_no_score() -> None:
    found = s4q.compare([SMALL], ["q_learning:step_size=50.0"], seeds=1, episodes=300, processes=1)
    assert found.tables()[0].columns[1].header == "score, IQM [95 %]"


def test_curves_are_thinned_evenly_in_the_logarithm() -> None:
    def point(n: int, mean: float | None) -> Point:
        return Point(
            episodes=n,
            main_episodes=n,
            replay_episodes=0,
            steps=n,
            phases=n,
            regret=float(n),
            gap=0.0,
            optimistic_value=None,
            nbytes=8,
            cpu_seconds=0.1 * n,
            mean_return=mean,
        )

    kept = kept_points([point(n, float(n % 2)) for n in range(1, 5001)] + [point(5000, None)], 1)
    assert len(kept) <= 61
    assert kept[-1] == [5000, 5000.0, 0.5, 500.0, 8]
    assert kept[1][:3] == [2, 2.0, 0.5]
    gaps = np.diff(np.log([one[0] for one in kept[20:-1]]))  # type: ignore[misc]
    assert gaps.max() < 0.3


def test_a_curve_begins_with_the_first_episode() -> None:
    """A policy that never changes is left behind at the end of the run alone; its regret is a straight line."""
    [row] = s4q.compare(["chain"], ["sarsa"], seeds=1, episodes=100, processes=1)
    assert row["phases"] == 0
    table = np.array(row["curve"])
    assert (table[0, 0], table[-1, 0], len(table)) == (1, 100, 10)
    for column in (1, 3):  # regret and CPU time
        np.testing.assert_allclose(table[:, column], table[-1, column] * table[:, 0] / 100)
    assert np.all(table[:, 2] == row["mean_return"])
    assert np.all(np.diff(table[:, 4]) >= 0)
    # A first phase that replays says nothing about its first episode.
    given = {"steps": 1, "phases": 1, "gap": 0.0, "optimistic_value": None, "nbytes": 8, "cpu_seconds": 1.0}
    replayed = Point(episodes=9, main_episodes=5, replay_episodes=4, regret=9.0, **given)  # type: ignore[arg-type]
    assert len(kept_points([replayed], 1)) == 1


def test_regret_that_is_rounding_is_zero_and_ranks_nobody() -> None:
    found = s4q.compare(["baird"], ["q_learning", "sarsa"], seeds=2, episodes=30, processes=1)
    assert {(one["iqm"], one["mean"], one["best"]) for one in found.summary()} == {(0.0, 0.0, True)}
    assert "no run lost anything, whatever it played: nobody is better here." in found.notes("baird")
    lost = s4q.compare([SMALL], ["q_learning"], seeds=2, episodes=30, processes=1)
    assert not [note for note in lost.notes(SMALL) if "nobody" in note]


def test_rows_as_a_data_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    found = s4q.compare([SMALL], ["psrl"], seeds=1, episodes=5, processes=1)
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda rows: ("frame", rows)))  # type: ignore[arg-type]
    kind, rows = found.to_dataframe()
    assert (kind, rows[0]["learner"]) == ("frame", "psrl")
    monkeypatch.setitem(sys.modules, "pandas", None)  # type: ignore[arg-type]
    with pytest.raises(ImportError, match="pip install pandas"):
        found.to_dataframe()


def test_plots_are_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = s4q.compare([SMALL, "low_rank"], ["s4q", "q_learning"], seeds=2, episodes=20, processes=1)
    files = found.plot(tmp_path / "plots")
    assert [Path(file).name for file in files] == ["chain_n_states_3_horizon_3.png", "low_rank.png"]
    assert all(Path(file).read_bytes()[:4] == b"\x89PNG" for file in files)
    rows = [{**one, "learner": "_a $\\frac{ b$", "problem": name} for one in found for name in ("x y", "x:y")]
    odd = s4q.Comparison(rows, {}).plot(tmp_path / "odd")
    assert [Path(file).name for file in odd] == ["x_y.png", "x_y_2.png"]
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"file/chain.*png cannot be written: .*choose another folder"):
        found.plot(tmp_path / "file")
    monkeypatch.setitem(sys.modules, "s4q.comparing.plots", None)  # type: ignore[arg-type]
    with pytest.raises(ImportError, match=r"s4q\[plot\]"):
        found.plot(tmp_path)
