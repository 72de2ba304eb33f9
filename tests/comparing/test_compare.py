"""`s4q.compare` and `s4q compare`: rows against single runs, resuming, errors, intervals, tables and plots."""

import gc
import inspect
import json
import math
import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from signalled import TIMES, signalled
from typer.testing import CliRunner

import s4q
from s4q.baselines import LEARNERS, PSRL
from s4q.baselines.named_learners import named_learner
from s4q.baselines.random_numbers import learner_rng
from s4q.baselines.tabular import NotOneHot
from s4q.cli import app
from s4q.collectors.sharding import generator
from s4q.comparing.cells import Cell, Outcome, TimedLearner, kept_points, play
from s4q.comparing.comparison import compare_plan
from s4q.comparing.plan import Named, plan_of, read_plan, written
from s4q.comparing.report_page import render
from s4q.comparing.results import interval
from s4q.comparing.results_file import PLAYING_CODE, ResultsFile, ResultsFileError, digest_of_code
from s4q.core.messages import Shard
from s4q.running.curve import Point

SMALL = "chain:n_states=3,horizon=3"
MEASURED = ("cpu_seconds", "learner_seconds", "curve")


def plain(rows: Any) -> list[dict[str, Any]]:
    """Rows without what depends on the speed of the machine."""
    return [{key: value for key, value in row.items() if key not in MEASURED} for row in rows]


@pytest.mark.parametrize("name", LEARNERS)
def test_every_named_learner_plays(name: str) -> None:
    [row] = s4q.compare([SMALL], [name], seeds=1, episodes=5, processes=1)
    assert row["error"] == ""
    assert row["regret"] > 0
    assert row["nbytes"] > 0
    assert LEARNERS[name].about
    if LEARNERS[name].kind == "tuned" and name != "ucbvi_tuned":
        assert name.removesuffix("_tuned") in LEARNERS


def regret(name: str, problem: str, **more: Any) -> float:
    [row] = s4q.compare([problem], [name], seeds=1, episodes=300, processes=1, **more)
    return float(row["regret"])


def test_named_learners_are_what_their_names_say() -> None:
    """Each ablation does what it is called, and no tuned learner is another one under a second name."""
    sketch = LEARNERS["sketch"].build(s4q.problems.low_rank(), 0, 300, {})
    assert isinstance(sketch, s4q.S4Q)
    s4q.run(sketch, s4q.collectors.EpisodeCollector(s4q.problems.low_rank(), seed=0), 300)
    assert sketch.memory.n_thinnings > 0  # type: ignore[union-attr]
    assert regret("experience_replay", "low_rank") == regret("s4q", "low_rank") != regret("sketch", "low_rank")
    assert regret("bonus_off", "deep_sea:size=6") > 290 > 30 > regret("s4q", "deep_sea:size=6")
    for problem in ("chain:n_states=4,horizon=4", "low_rank"):
        tuned = [name for name in LEARNERS if LEARNERS[name].kind == "tuned"]
        dense = [name for name in tuned if name not in ("ucb_q_tuned", "ucbvi_tuned")]
        regrets = [regret(name, problem) for name in (dense if problem == "low_rank" else tuned)]
        assert len(set(regrets)) == len(regrets), problem


NUMBER = re.compile(r"\b(beta|sigma|epsilon|step|c|c_replay) (\d[\d.]*\d|\d)")


@pytest.mark.parametrize("name", LEARNERS)
def test_what_is_said_of_a_named_learner_is_set(name: str) -> None:
    """Every number and switch of its description, against what its class is called with."""
    named, spec = LEARNERS[name], s4q.problems.chain().spec
    usual = {one.name: one.default for one in inspect.signature(named.make).parameters.values()}
    used = {**usual, **named.settings, **{key: rule(spec, 100) for key, rule in named.of_run.items()}}
    for what, number in NUMBER.findall(named.about):
        assert used[{"step": "step_size"}.get(what, what)] == float(number), what
    if "SARSA" in named.about:
        assert used["trace"] == float(re.search(r"SARSA\(([\d.]+)\)", named.about)[1])  # type: ignore[index]
    assert bool(used.get("optimistic")) == ("optimistic" in named.about)
    assert (used.get("switch") == "determinant") == ("rare switching" in named.about)
    assert ("pool" in named.of_run) == ("levels pooled" in named.about)
    assert (used.get("preset") == "realisable") == ("realisable" in named.about)
    assert (used.get("keep", 1.0) == 0.5) == ("halved" in named.about)
    assert (used.get("epochs") == "doubling") == ("doubling" in named.about)
    assert (used.get("memory") == "policies" or used.get("preset") == "realisable") == (
        "policy replay" in named.about or name == "s4q_doubling"
    )
    if "theorem" in named.about:
        assert used.get("beta", used.get("c")) == pytest.approx(
            {
                "lsvi_ucb_paper": 20 * math.log(2 * 20 * 1000 / 0.05) ** 0.5,
                "ucb_q_paper": math.log(20 * 1000 / 0.05) ** 0.5,
            }[name]
        )


def held_arrays(learner: Any) -> int:
    """Bytes of all arrays that hang on a learner, remembered factors included; the problem itself left out."""
    seen, buffers, waiting = {id(learner.spec)}, dict[int, int](), [learner]
    leaves = (type, ModuleType, FunctionType, MethodType, CodeType)
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, leaves):
            continue
        seen.add(id(one))
        if isinstance(one, np.ndarray):
            while isinstance(one.base, np.ndarray):
                one = one.base
            buffers[id(one)] = one.nbytes
        waiting.extend(gc.get_referents(one))
    return sum(buffers.values())


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_counts_all_arrays_that_it_holds(name: str) -> None:
    for mdp in (s4q.problems.chain(5, 5), s4q.problems.low_rank()):
        try:
            learner = LEARNERS[name].build(mdp, 0, 150, {})
        except NotOneHot:
            continue
        s4q.run(learner, s4q.collectors.EpisodeCollector(mdp, seed=0), 150)
        # S4Q counts an array twice that two of its parts share. A memory of sums does not count remembered factors.
        most = 1.6 if LEARNERS[name].make is s4q.S4Q else 1.06
        least = 0.8 if name == "no_replay_discounted" else 0.97
        assert least * held_arrays(learner) <= learner.nbytes <= most * held_arrays(learner)


def test_a_learner_and_a_collector_with_one_seed_share_no_dice() -> None:
    """RLSVI drew its noise from the very numbers that a CountCollector then made its episodes of."""
    mdp = s4q.problems.low_rank()
    for n in range(4):
        asked = replace(s4q.S3Q(mdp, s4q.UniformPolicy(4)).ask(2), id=n)
        for index in range(3):
            theirs = generator(7, asked, Shard(index, 1)).random(4)
            for place in ((n,), (n, index), (n, 0), (index, n)):
                assert not np.any(learner_rng(7, *place).random(4) == theirs)
    assert np.all(learner_rng(7, 1, 2).random(4) == learner_rng(7, 1, 2).random(4))


def test_rows_are_those_of_single_runs() -> None:
    found = s4q.compare([SMALL, "low_rank"], ["s4q", "rlsvi"], seeds=2, episodes=20, processes=1)
    assert [(row["problem"], row["learner"], row["seed"]) for row in found] == [
        (problem, learner, seed) for problem in (SMALL, "low_rank") for learner in ("s4q", "rlsvi") for seed in (0, 1)
    ]
    for row in found:
        mdp = s4q.problems.chain(3, 3) if row["problem"] == SMALL else s4q.problems.low_rank()
        learner = s4q.S4Q(mdp) if row["learner"] == "s4q" else s4q.baselines.RLSVI(mdp, seed=row["seed"])
        run = s4q.run(learner, s4q.collectors.EpisodeCollector(mdp, seed=row["seed"]), 20)
        for name in ("regret", "mean_return", "gap", "phases", "steps", "nbytes"):
            assert row[name] == getattr(run, name), name
        assert 0 < row["learner_seconds"] < row["cpu_seconds"]
        episodes, regret, mean, cpu, nbytes = row["curve"][-1]
        assert (episodes, regret, nbytes) == (20, run.regret, run.nbytes)
        assert mean == pytest.approx(run.mean_return)
        assert 0 < cpu <= row["cpu_seconds"]


def test_processes_change_nothing() -> None:
    arguments: dict[str, Any] = {"seeds": 2, "episodes": 30}
    names = ["s4q", "q_learning", "psrl", "rlsvi", "replay_q"]  # the last three draw numbers of their own
    alone = s4q.compare([SMALL], names, processes=1, **arguments)
    together = s4q.compare([SMALL], names, processes=2, **arguments)
    assert plain(alone) == plain(together)


SCRIPT = """
import sys, s4q
if __name__ == "__main__":
    names = ["s4q", "q_learning", "ucb_q", "psrl"]
    s4q.compare(["chain"], names, seeds=2, episodes=int(sys.argv[2]), processes=2, results=sys.argv[1])
"""


def finished(path: Path) -> int:
    if not path.exists():
        return 0
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
            return int(database.execute("SELECT COUNT(*) FROM cells").fetchone()[0])
    except sqlite3.Error:
        return 0


@pytest.mark.slow
def test_a_killed_comparison_goes_on_and_gives_the_same_rows(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    for times in TIMES:
        episodes, path = times * 100, tmp_path / f"results{times}.sqlite"
        line = [sys.executable, str(script), str(path), str(episodes)]
        signalled(line, lambda path=path: finished(path) >= 1, signal.SIGKILL, os.environ)  # type: ignore[misc]
        with sqlite3.connect(path) as database:
            before = dict(database.execute("SELECT problem || learner || seed, outcome FROM cells").fetchall())
        if len(before) < 8:
            break
    else:
        pytest.fail("no comparison was killed before its end")
    assert before
    subprocess.run(line, check=True, timeout=3600)
    with sqlite3.connect(path) as database:
        after = dict(database.execute("SELECT problem || learner || seed, outcome FROM cells").fetchall())
    assert len(after) == 8
    assert {key: after[key] for key in before} == before  # not played again: even their CPU time is the same
    names = ["s4q", "q_learning", "ucb_q", "psrl"]
    resumed = s4q.compare(["chain"], names, seeds=2, episodes=episodes, processes=1, results=path)
    fresh = s4q.compare(["chain"], names, seeds=2, episodes=episodes, processes=1)
    assert plain(resumed) == plain(fresh)
    mine, theirs = ([one[0] for one in map(shown, found.tables())] for found in (resumed, fresh))
    assert mine == theirs


def shown(table: Any) -> list[list[str]]:
    """The cells of a table, the columns of CPU time left out."""
    return [[str(cell) for cell in column.cells] for column in table.columns if "CPU" not in str(column.header)]


LIMITED = """
import resource, sys
from s4q.cli import app
if __name__ == "__main__":
    if int(sys.argv[1]):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
    app(sys.argv[2:])
"""


def test_a_file_that_cannot_grow_ends_in_one_line_and_keeps_what_is_finished(tmp_path: Path) -> None:
    script, path = tmp_path / "script.py", tmp_path / "results.sqlite"
    script.write_text(LIMITED)
    line = ["compare", "-p", SMALL, "-l", "q_learning", "-l", "s4q", "--seeds", "6", "--episodes", "30"]
    line += ["--processes", "1", "--results", str(path), "--json"]

    usual = {**os.environ, "COLUMNS": "1000"}

    def ran(limit: int) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, str(script), str(limit), *line]
        return subprocess.run(command, capture_output=True, text=True, timeout=600, env=usual)

    failed = ran(20_000)
    assert failed.returncode == 2
    message = " ".join(failed.stderr.replace("│", " ").split())
    assert f"{path} could not be written" in message
    assert "finished cells in it are kept" in message
    assert "Traceback" not in failed.stderr
    kept = finished(path)
    assert 0 < kept < 12
    assert f"the {kept} finished cells" in message
    whole = ran(0)
    assert whole.returncode == 0
    fresh = s4q.compare([SMALL], ["q_learning", "s4q"], seeds=6, episodes=30, processes=1)
    assert plain(json.loads(whole.stdout)) == plain(fresh)
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_a_results_file_knows_a_cell_by_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    table = {"name": "my chain", "problem": "chain", "horizon": 3, "n_states": 3}
    first = s4q.compare([table], ["psrl"], seeds=2, episodes=20, processes=1, results=path)
    assert finished(path) == 2
    again = s4q.compare([SMALL], [{"learner": "psrl"}], seeds=2, episodes=20, processes=1, results=path)
    assert finished(path) == 2
    assert [row["cpu_seconds"] for row in first] == [row["cpu_seconds"] for row in again]
    assert [row["problem"] for row in (*first, *again)] == ["my chain"] * 2 + [SMALL] * 2
    s4q.compare([SMALL], ["psrl"], seeds=2, episodes=21, processes=1, results=path)
    assert finished(path) == 4


def test_results_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("no database, but some text that is long enough to be read as a header of one" * 20)
    for bad in (path, tmp_path / "no" / "folder.sqlite", tmp_path):
        with pytest.raises(ResultsFileError, match=r"no results file|no folder|cannot be written"):
            ResultsFile(bad)
    other = tmp_path / "other.sqlite"
    ResultsFile(other).close()
    with sqlite3.connect(other) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(ResultsFileError, match="schema 99"):
        ResultsFile(other)
    damaged = tmp_path / "damaged.sqlite"
    s4q.compare([SMALL], ["psrl"], seeds=1, episodes=5, processes=1, results=damaged)
    with sqlite3.connect(damaged) as database:
        database.execute("UPDATE cells SET outcome = '{\"regret\": '")
    with pytest.raises(ResultsFileError, match="is damaged"):
        s4q.compare([SMALL], ["psrl"], seeds=1, episodes=5, processes=1, results=damaged)


@pytest.mark.parametrize("table", ["other (a TEXT)", "cells (a TEXT)"])
def test_a_database_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path, table: str) -> None:
    path = tmp_path / "mine.sqlite"
    with sqlite3.connect(path) as database:
        database.execute(f"CREATE TABLE {table}")
    before = path.read_bytes()
    with pytest.raises(ResultsFileError, match=r"mine\.sqlite is a database of another program.*choose another name"):
        ResultsFile(path)
    assert path.read_bytes() == before


def test_runs_of_other_code_are_played_again_and_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, arguments = tmp_path / "results.sqlite", {"seeds": 2, "episodes": 5, "processes": 1}
    with monkeypatch.context() as patch:
        patch.setattr("s4q.comparing.results_file.PLAYING_CODE", "0.0.9 older")
        s4q.compare([SMALL], ["psrl"], results=path, **arguments)  # type: ignore[arg-type]
    with sqlite3.connect(path) as database:
        database.execute("UPDATE cells SET outcome = replace(outcome, '\"regret\": ', '\"regret\": 999')")
    with pytest.warns(UserWarning, match=r"holds 2 of these runs as another version .* played them \(0\.0\.9 older;"):
        again = s4q.compare([SMALL], ["psrl"], results=path, **arguments)  # type: ignore[arg-type]
    assert plain(again) == plain(s4q.compare([SMALL], ["psrl"], **arguments))  # type: ignore[arg-type]
    assert finished(path) == 4
    s4q.compare([SMALL], ["psrl"], results=path, **arguments)  # type: ignore[arg-type]  # a warning would be an error
    assert finished(path) == 4


def test_the_code_that_plays_is_known_by_its_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One changed constant of a learner is other code; a changed picture is not."""
    copy = tmp_path / "s4q"
    shutil.copytree(Path(s4q.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr("s4q.comparing.results_file._PACKAGE", copy)
    assert digest_of_code() == PLAYING_CODE
    (copy / "comparing" / "plots.py").write_text("other = 1")
    assert digest_of_code() == PLAYING_CODE
    widths = copy / "learners" / "widths.py"
    widths.write_text(widths.read_text().replace("TABLE = DataScale(errors=0.25", "TABLE = DataScale(errors=0.3"))
    assert digest_of_code() != PLAYING_CODE
    monkeypatch.undo()
    monkeypatch.setattr("s4q.comparing.results_file.version", lambda library: f"1.0 of {library}")
    assert digest_of_code() != PLAYING_CODE  # another NumPy rounds and draws differently


def test_a_worker_with_other_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers import the files of today; this process may have begun with those of yesterday."""
    path = tmp_path / "results.sqlite"
    for module in ("comparison", "results_file"):
        monkeypatch.setattr(f"s4q.comparing.{module}.PLAYING_CODE", "0.0.9 older")
    with pytest.raises(RuntimeError, match=r"other code .* than this process \(0\.0\.9 older\)"):
        s4q.compare([SMALL], ["psrl"], seeds=2, episodes=5, processes=2, results=path)
    assert finished(path) == 0


def test_failed_runs_are_kept_until_they_are_to_be_tried_again(tmp_path: Path) -> None:
    path, arguments = tmp_path / "results.sqlite", {"seeds": 1, "episodes": 5, "processes": 1}
    s4q.compare([SMALL], ["psrl"], results=path, **arguments)  # type: ignore[arg-type]
    with sqlite3.connect(path) as database:
        database.execute("UPDATE cells SET outcome = ?", (json.dumps({"error": "the simulator was lost"}),))
    kept = s4q.compare([SMALL], ["psrl"], results=path, **arguments)  # type: ignore[arg-type]
    assert [row["error"] for row in kept] == ["the simulator was lost"]
    again = s4q.compare([SMALL], ["psrl"], results=path, retry_failed=True, **arguments)  # type: ignore[arg-type]
    assert [row["error"] for row in again] == [""]
    line = ["-p", SMALL, "-l", "psrl", "--seeds", "1", "--episodes", "5", "--results", str(path), "--json"]
    with sqlite3.connect(path) as database:
        database.execute("UPDATE cells SET outcome = ?", (json.dumps({"error": "lost"}),))
    shown = [json.loads(invoked(*line, *more).stdout) for more in ([], ["--retry-failed"])]
    assert [one[0]["error"] for one in shown] == ["lost", ""]


def test_the_command_says_that_runs_are_of_other_code(tmp_path: Path) -> None:
    line = ["-p", SMALL, "-l", "psrl", "--seeds", "1", "--episodes", "5", "--results", str(tmp_path / "r.sqlite")]
    assert "note:" not in invoked(*line).stderr
    with sqlite3.connect(tmp_path / "r.sqlite") as database:
        database.execute("UPDATE cells SET code = '0.0.9'")
    assert f"note: {tmp_path}/r.sqlite holds 1 of these runs as another version of s4q" in invoked(*line).stderr


def test_a_learner_that_does_not_suit_a_problem_is_left_out_there() -> None:
    found = s4q.compare([SMALL, "low_rank"], ["psrl", "s4q"], seeds=1, episodes=10, processes=1)
    assert [(row["problem"], row["learner"]) for row in found] == [(SMALL, "psrl"), (SMALL, "s4q"), ("low_rank", "s4q")]
    assert list(found.refused) == [("low_rank", "psrl")]
    assert "psrl: not played" in str(found.tables()[1].caption)
    assert repr(found) == "Comparison(3 runs, 0 failed, 1 pairs refused)"


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


def test_a_run_that_fails_does_not_stop_the_others() -> None:
    found = s4q.compare([SMALL], ["q_learning:step_size=50.0", "s4q"], seeds=1, episodes=300, processes=1)
    failed, fine = found.rows
    assert "QLearning has diverged" in failed["error"]
    assert fine["error"] == ""
    lines = found.summary()
    assert [(one["runs"], one["failed"], one["best"]) for one in lines] == [(0, 1, False), (1, 0, True)]
    assert "1 of 1 runs failed; seed 0: QLearning has diverged" in str(found.tables()[0].caption)


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


def row(learner: str, seed: int, regret: float) -> dict[str, Any]:
    """A run of ten episodes with returns near 0.5."""
    numbers = {"regret": regret, "mean_return": 0.5, "gap": 0.1, "phases": 3, "nbytes": 8}
    costs = {"steps": 1, "cpu_seconds": 1.0, "learner_seconds": 0.5, "curve": [], "error": ""}
    return {"problem": "p", "learner": learner, "seed": seed, "episodes": 10, **numbers, **costs}


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


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no terminals here")
def test_the_progress_bar_shows_names_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", terminal)
    learner = {"learner": "psrl", "name": "x [/y] [red]"}
    s4q.compare([SMALL], [learner], seeds=1, episodes=5, processes=1, progress_bar=True)
    assert "x [/y] [red] on chain" in terminal.getvalue()


def test_rounding_decides_nothing() -> None:
    """Regrets of ten episodes that differ by less than the last bits of ten values are the same; a real one is not."""
    rows = [row("exact", 0, 0.0), row("rounded", 0, 3e-13), row("worse", 0, 1e-9)]
    found = s4q.Comparison(rows, {}).summary()
    assert {one["learner"]: one["best"] for one in found} == {"exact": True, "rounded": True, "worse": False}


def test_a_table_of_failed_runs_names_no_score() -> None:
    found = s4q.compare([SMALL], ["q_learning:step_size=50.0"], seeds=1, episodes=300, processes=1)
    assert found.tables()[0].columns[1].header == "score, IQM [95 %]"


def test_a_script_without_a_guard_is_told_of_it(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text(f"import s4q\ns4q.compare(['{SMALL}'], ['s4q'], seeds=2, episodes=5, processes=2)\n")
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith("RuntimeError: worker processes end as they begin; in a script")


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


KILLER = """
import multiprocessing, os, signal
from pathlib import Path
import gymnasium as gym

class Killer(gym.Env):
    observation_space, action_space = gym.spaces.Discrete(2), gym.spaces.Discrete(2)

    def __init__(self, deaths):
        self.deaths, self.place = deaths, Path(__file__).parent / "deaths"

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if multiprocessing.parent_process() is not None:
            dead = len(self.place.read_text()) if self.place.exists() else 0
            if dead < self.deaths:
                self.place.write_text("x" * (dead + 1))
                os.kill(os.getpid(), signal.SIGKILL)
        return 0, {}

    def step(self, action):
        return 1, float(action), True, False, {}

gym.register(f"{__name__}-v0", Killer)
"""


@pytest.mark.parametrize("deaths", [1, 3])
def test_a_run_whose_worker_is_killed_is_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    module = f"killer_{deaths}"
    (tmp_path / f"{module}.py").write_text(KILLER)
    monkeypatch.syspath_prepend(tmp_path)
    text = f"{module}:{module}-v0:horizon=1,reward_range=[0,1],env_kwargs={{deaths={deaths}}}"
    if deaths == 3:
        with (
            pytest.warns(UserWarning, match="a worker process was lost"),
            pytest.raises(RuntimeError, match="3 times in a row a worker process ended before a run did"),
        ):
            s4q.compare([text], ["q_learning"], seeds=2, episodes=3, processes=2)
        return
    with pytest.warns(UserWarning, match="a worker process was lost; the runs that were not finished are played again"):
        found = s4q.compare([text], ["q_learning", "s4q"], seeds=1, episodes=3, processes=2)
    assert len((tmp_path / "deaths").read_text()) == 1
    alone = s4q.compare([text], ["q_learning", "s4q"], seeds=1, episodes=3, processes=1)
    assert plain(found) == plain(alone)


def test_lost_workers_are_counted_from_the_last_finished_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five runs and four deaths, but never three in a row."""

    def one_then_dead(cells: list[Cell], processes: int) -> Iterator[tuple[Cell, Outcome]]:
        yield cells[0], play(cells[0])
        if len(cells) > 1:
            raise BrokenProcessPool

    monkeypatch.setattr("s4q.comparing.comparison._played_by_processes", one_then_dead)
    with pytest.warns(UserWarning, match="a worker process was lost"):
        found = s4q.compare([SMALL], ["psrl"], seeds=5, episodes=3, processes=2)
    assert plain(found) == plain(s4q.compare([SMALL], ["psrl"], seeds=5, episodes=3, processes=1))


class Burning:
    """A learner that takes CPU time to ask, or to tell."""

    def __init__(self, **seconds: float) -> None:
        self._seconds = seconds

    def ask(self, max_episodes: int) -> None:
        burn(self._seconds.get("ask", 0.0))

    def tell(self, request: object, answer: object) -> None:
        burn(self._seconds.get("tell", 0.0))


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_the_time_of_a_learner_is_that_of_both_its_calls() -> None:
    for name in ("ask", "tell"):
        timed = TimedLearner(Burning(**{name: 0.02}))  # type: ignore[arg-type]
        timed.ask(1)
        timed.tell(None, None)  # type: ignore[arg-type, type-var]
        assert timed.seconds >= 0.02


def test_a_run_that_fails_in_any_way_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError("no room for counts")

    monkeypatch.setattr(PSRL, "_take", full)
    found = s4q.compare([SMALL], ["psrl", "ucbvi"], seeds=1, episodes=3, processes=1)
    assert [row["error"] for row in found] == ["MemoryError: no room for counts", ""]
    assert found.notes(SMALL)[1] == "psrl: 1 of 1 runs failed; seed 0: MemoryError: no room for counts."


def test_a_problem_that_no_learner_suits_is_said(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"^low_rank is not played, because no learner suits it: psrl: problem must"):
        found = s4q.compare([SMALL, "low_rank"], ["psrl", "ucbvi"], seeds=1, episodes=3, processes=1)
    assert (found.problems, found.not_played) == ([SMALL], ["low_rank"])
    assert "low_rank was not played, because no learner suits it." in render(found)
    said = invoked("-p", SMALL, "-p", "low_rank", "-l", "psrl", "--seeds", "1", "--episodes", "3", "-q").stderr
    assert said.startswith("note: low_rank is not played, because no learner suits it")


def test_regret_that_is_rounding_is_zero_and_ranks_nobody() -> None:
    found = s4q.compare(["baird"], ["q_learning", "sarsa"], seeds=2, episodes=30, processes=1)
    assert {(one["iqm"], one["mean"], one["best"]) for one in found.summary()} == {(0.0, 0.0, True)}
    assert "no run lost anything, whatever it played: nobody is better here." in found.notes("baird")
    lost = s4q.compare([SMALL], ["q_learning"], seeds=2, episodes=30, processes=1)
    assert not [note for note in lost.notes(SMALL) if "nobody" in note]


def test_without_a_terminal_there_are_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments: Any = {"seeds": 3, "episodes": 5, "processes": 1, "progress_bar": True}
    s4q.compare([SMALL], ["psrl"], **arguments)
    assert capsys.readouterr().err == ""  # it was over at once
    times = iter(range(0, 1000, 12))
    monkeypatch.setattr("s4q.comparing.comparison.monotonic", lambda: float(next(times)))
    s4q.compare([SMALL], ["psrl"], **arguments)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"{n} of 3 runs, the last one psrl on {SMALL}" for n in (1, 2, 3)]
    s4q.compare([SMALL], ["psrl"], **{**arguments, "progress_bar": False})
    assert capsys.readouterr().err == ""


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


def test_environments_of_gymnasium() -> None:
    """FrozenLake has a table, so that its regret is exact. MountainCar has none: its score is the mean return."""
    car = {"problem": "MountainCar-v0", "reward_range": [-1, 0], "horizon": 30, "order": 1, "name": "car"}
    found = s4q.compare(["FrozenLake-v1:horizon=8", car], ["s4q", "sarsa"], seeds=2, episodes=3, processes=1)
    lake, hill = ([row for row in found if row["problem"] == problem] for problem in found.problems)
    exact = s4q.problems.from_gymnasium("FrozenLake-v1", horizon=8)
    assert all(0 < row["regret"] <= 3 * exact.v_star + 1e-12 for row in lake)
    assert all(row["regret"] is None and row["mean_return"] == -30 for row in hill)
    assert {one["score"] for one in found.summary() if one["problem"] == "car"} == {"mean_return"}
    assert "mean return" in str(found.tables()[1].columns[1].header)


PLAN = """
problems = ["chain", {name = "DeepSea 4", problem = "deep_sea", size = 4}]
learners = ["s4q", {learner = "lsvi_ucb", beta = 0.3}]
seeds = 3
episodes = 70
"""


def test_a_plan_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    plan = read_plan(path, {"seeds": 2})
    assert (plan.seeds, plan.episodes, plan.first_seed) == (2, 70, 0)
    assert plan.problems == (Named("chain", "chain"), Named("DeepSea 4", "deep_sea", {"size": 4}))
    assert plan.learners == (Named("s4q", "s4q"), Named("lsvi_ucb:beta=0.3", "lsvi_ucb", {"beta": 0.3}))


def test_seeds_begin_with_the_first_one(tmp_path: Path) -> None:
    """Alike from Python, from a file and from the flag; each seed's run is the same wherever the seeds begin."""
    later = s4q.compare([SMALL], ["s4q"], seeds=2, first_seed=3, episodes=20, processes=1)
    assert [row["seed"] for row in later] == [3, 4]
    whole = s4q.compare([SMALL], ["s4q"], seeds=5, episodes=20, processes=1)
    assert [row["regret"] for row in later] == [row["regret"] for row in whole][3:]
    path = tmp_path / "plan.toml"
    path.write_text(f"problems = ['{SMALL}']\nlearners = ['s4q']\nseeds = 2\nepisodes = 20\nfirst_seed = 2\n")
    line = ["compare", str(path), "--first-seed", "3", "--json", "--processes", "1"]
    shown = json.loads(CliRunner().invoke(app, line).stdout)
    assert [(row["seed"], row["regret"]) for row in shown] == [(row["seed"], row["regret"]) for row in later]
    assert [row["seed"] for row in compare_plan(read_plan(path), processes=1)] == [2, 3]


def test_arguments_of_an_environment() -> None:
    calm = {"problem": "FrozenLake-v1", "horizon": 6, "env_kwargs": {"is_slippery": False, "map_name": "4x4"}}
    text = 'FrozenLake-v1:horizon=6,env_kwargs={is_slippery=false, map_name="4x4"}'
    found = s4q.compare([calm, text, "FrozenLake-v1:horizon=6"], ["psrl"], seeds=1, episodes=200, processes=1)
    regrets = [row["regret"] for row in found]
    assert regrets[0] == regrets[1] != regrets[2]
    assert [row["mean_return"] + row["regret"] / 200 for row in found][:2] == pytest.approx([1.0, 1.0])


def test_settings_in_a_string_are_those_of_a_table() -> None:
    text = 'X-v0:reward_range=[-1, 0],horizon=3,low=[0.0,1.0],name_of="a b"'
    [one] = plan_of([text], ["s4q"], 1, 1).problems
    assert one.settings == {"reward_range": [-1, 0], "horizon": 3, "low": [0.0, 1.0], "name_of": "a b"}
    table = {"problem": "X-v0", "horizon": 3, "low": [0.0, 1.0], "reward_range": [-1, 0], "name_of": "a b", "name": "y"}
    [other] = plan_of([table], ["s4q"], 1, 1).problems
    assert (one.name, other.name, one.key) == (text, "y", other.key)
    [whole], [real] = (plan_of(["chain"], [f"lsvi_ucb:beta={beta}"], 1, 1).learners for beta in ("1", "1.0"))
    assert whole.key == real.key
    kinds = ("1", "1.0")  # which the code of an environment may tell apart
    [whole], [real] = (plan_of([f"My-v0:env_kwargs={{size={one}}}"], ["s4q"], 1, 1).problems for one in kinds)
    assert whole.key != real.key


SETTINGS = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(),
    lambda ones: st.lists(ones, max_size=3) | st.dictionaries(st.text(), ones, max_size=3),
    max_leaves=6,
)


NAMES = st.text(max_size=5) | st.builds("Some-v0:{}".format, st.text(max_size=5))
KEYS = st.from_regex(r"[a-z_]+", fullmatch=True).filter(lambda key: key not in ("name", "problem"))


@given(st.none() | NAMES, st.dictionaries(KEYS, SETTINGS, max_size=3))
def test_what_a_page_says_to_type_is_what_was_played(name: str | None, settings: dict[str, Any]) -> None:
    given_name = {} if name is None else {"name": name}
    [one] = plan_of([{"problem": "Some-v0", **given_name, **settings}], ["s4q"], 1, 1).problems
    [again] = plan_of([written(one)], ["s4q"], 1, 1).problems
    assert (again.name, again.what, again.key) == (one.name, one.what, one.key)


def test_an_id_may_name_its_module() -> None:
    ids = ["my_module:My-v0", "my_module:Mine-v0:horizon=5", 'Some-v0:horizon=5,name_of="a:b"', "chain:n_states=3"]
    plan = plan_of(ids, ["s4q"], 1, 1)
    assert [one.what for one in plan.problems] == ["my_module:My-v0", "my_module:Mine-v0", "Some-v0", "chain"]
    assert [one.settings for one in plan.problems][1:3] == [{"horizon": 5}, {"horizon": 5, "name_of": "a:b"}]
    assert [written(one) for one in plan.problems][:2] == ids[:2]


def test_a_name_may_stand_in_a_string() -> None:
    plan = plan_of(['chain:n_states=3,name="my chain, short"', {"problem": "chain", "n_states": 3}], ["s4q"], 1, 1)
    named, same = plan.problems
    assert (named.name, named.key) == ("my chain, short", same.key)
    assert [written(one) for one in plan.problems] == ['chain:n_states=3,name="my chain, short"', "chain:n_states=3"]


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    """The same cell whether a script got its numbers from NumPy or not."""
    learner = {"learner": "lsvi_ucb", "beta": np.float64(0.5), "name": "x"}
    problem = {"problem": "chain", "n_states": np.int64(3), "horizon": 2, "name": "p"}
    counts = {"seeds": np.int64(2), "episodes": np.int32(4), "first_seed": np.uint8(250)}
    rows = s4q.compare([problem], [learner], **counts, processes=1, results=tmp_path / "r.sqlite").rows  # type: ignore[arg-type]
    assert json.dumps(rows[0])  # holds no number of NumPy
    same = [{**problem, "n_states": 3}], [{**learner, "beta": 0.5}]
    plain_ones = s4q.compare(*same, seeds=2, episodes=4, first_seed=250, processes=1, results=tmp_path / "r.sqlite")
    assert list(plain_ones) == rows  # from the file: the CPU times are the same too


BAD: list[tuple[str, Callable[[], object], str]] = [
    ("learner", lambda: s4q.compare(["chain"], ["s5q"]), r"learner must be one of s4q, .*got 's5q'"),
    (
        "problem",
        lambda: s4q.compare(["chian"], ["s4q"]),
        r"problem must be one of .*got 'chian', did you mean chain\? \(",
    ),
    ("size", lambda: s4q.compare(["chain:length=3"], ["s4q"]), r"chain has no length; it has n_states, horizon"),
    ("runs", lambda: s4q.compare(["chain"], ["s4q"], seeds=10**9), r"seeds must leave at most 1,000,000 runs in all"),
    (
        "twice",
        lambda: s4q.compare(["chain:n_states=3,n_states=4"], ["s4q"]),
        r"^n_states is there twice in 'chain:n_st",
    ),
    ("round", lambda: s4q.compare(["Some-v0:reward_range=(0,1)"], ["s4q"]), r"lists and ranges in \[\.\.\.\]"),
    (
        "no number",
        lambda: s4q.compare(["chain"], ['q_learning:discount="a"']),
        r"^q_learning:discount=\"a\" on chain: discount is the factor of the next value, so .* in \(0, 1\]; got 'a'$",
    ),
    ("flag", lambda: s4q.compare(["chain"], ["no_replay:keep=true"]), r"keep is the share .*in \(0, 1\]; got True$"),
    ("trace", lambda: s4q.compare(["chain"], ["sarsa:trace=[]"]), r"trace is lambda, .*in \[0, 1\]; got \[\]$"),
    ("power", lambda: s4q.compare(["chain"], ["sarsa:decay=1.5"]), r"decay is the power of n .*in \[0, 1\]; got 1.5$"),
    ("star", lambda: s4q.compare(['baird:discount="a"'], ["s4q"]), r"discount is the chance .*in \(0, 1\]; got 'a'$"),
    ("forever", lambda: s4q.compare(["baird:discount=1"], ["s4q"]), r"discount is the chance .*below 1; got 1$"),
    (
        "text for a number",
        lambda: s4q.compare(["CartPole-v1:order=2,low=['a',1,1,1],high=[1,1,1,1]"], ["s4q"]),
        r"low must be an array of numbers",
    ),
    ("setting", lambda: s4q.compare(["chain"], ["psrl:c=3"]), r"PSRL has no setting 'c'; it has seed"),
    ("value", lambda: s4q.compare(["chain"], ["ucbvi:c=-1"]), r"ucbvi:c=-1 on chain: c is .*got -1"),
    ("text", lambda: s4q.compare(["chain:n_states"], ["s4q"]), r"settings are written name:key=value"),
    ("twice", lambda: s4q.compare(["chain"], ["s4q", "s4q"]), r"'s4q' is there twice; add name"),
    ("none", lambda: s4q.compare([], ["s4q"]), r"problems must name at least one"),
    ("string", lambda: s4q.compare("chain", ["s4q"]), r"problems must be a list of names; got 'chain'"),
    ("number", lambda: s4q.compare([3], ["s4q"]), r"a problem is a name, or a table.*got 3"),  # type: ignore[list-item]
    ("misfit", lambda: s4q.compare(["low_rank"], ["psrl"]), r"no learner suits any problem: .*one-hot"),
    ("like", lambda: s4q.compare(["CartPole-v1:ordr=3"], ["s4q"]), r"got 'ordr', did you mean order\?$"),
    (
        "env",
        lambda: s4q.compare(["CartPole-v1:x=3"], ["s4q"]),
        r"settings of an environment are .*order, env_kwargs; got 'x'$",
    ),
    (
        "one number",
        lambda: s4q.compare(["MountainCar-v0:reward_range=5"], ["s4q"]),
        r"reward_range .*got 5",
    ),
    (
        "infinite range",
        lambda: s4q.compare(["CartPole-v1:order=3"], ["s4q"]),
        r"^a Fourier basis needs the range of each observation.*add low=\[\.\.\.\] and high",
    ),
    (
        "argument of the env",
        lambda: s4q.compare(['FrozenLake-v1:env_kwargs={map="8x8"}'], ["s4q"]),
        r"^FrozenLake-v1 cannot be made: .*map",
    ),
    ("arguments", lambda: s4q.compare(["FrozenLake-v1:env_kwargs=3"], ["s4q"]), r"env_kwargs must be a table.*got 3"),
    (
        "whole numbers",
        lambda: s4q.compare(["FrozenLake-v1:order=2"], ["s4q"]),
        r"^order is for a Fourier basis of real numbers, but observations are Discrete\(16\)",
    ),
    (
        "too few",
        lambda: s4q.compare(["CartPole-v1:order=2,low=[-1,-1],high=[1,1]"], ["s4q"]),
        r"^low must have a number for each dimension of an observation, so the shape \(4,\); got \[-1, -1\]",
    ),
    ("capitals", lambda: named_learner("S4Q"), r"did you mean s4q\?$"),
    ("range", lambda: s4q.compare(["Pendulum-v1"], ["s4q"]), r"DiscreteActions"),
    ("seeds", lambda: s4q.compare(["chain"], ["s4q"], seeds=0), r"seeds .*got 0"),
    ("episodes", lambda: s4q.compare(["chain"], ["s4q"], episodes=0), r"episodes .*got 0"),
    ("first seed", lambda: s4q.compare(["chain"], ["s4q"], first_seed=-1), r"first_seed .*got -1"),
    (
        "large seed",
        lambda: s4q.compare(["chain"], ["s4q"], first_seed=2**63 - 3),
        r"first_seed must .* 2\*\*63; got 92",
    ),
    ("large episodes", lambda: s4q.compare(["chain"], ["s4q"], episodes=2**64), r"episodes must .*2\*\*63; got 184"),
    ("kind", lambda: s4q.compare([{"problem": "chain", "horizon": 3j}], ["s4q"]), r"horizon must be a number.*got 3j"),
    ("quote", lambda: s4q.compare(['X-v0:env_kwargs={a="b}'], ["s4q"]), r"settings are written name:key=value"),
    ("processes", lambda: s4q.compare(["chain"], ["s4q"], processes=0), r"processes .*got 0"),
    ("ray", lambda: s4q.compare(["chain"], ["s4q"], ray="local"), r"ray must be s4q.Ray\(\), or None.*got 'local'"),  # type: ignore[arg-type]
    ("like a learner", lambda: named_learner("ucbiv"), r"got 'ucbiv', did you mean ucbvi\?$"),
    ("name", lambda: named_learner("x"), r"learner must be one of .*got 'x'"),
]


@pytest.mark.parametrize(("call", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


TOML: list[tuple[str, str]] = [
    ("problems = [", r"is no TOML file: Invalid value"),
    ("problems = ['chain']", r"has no learners; add a line"),
    ("problems = ['chain']\nlearners = ['s4q']\nseed = 3", r"has an entry 'seed'; known are problems"),
    ("problems = ['chain']\nlearners = ['s4q']\nseeds = 'many'", r"seeds is the number of seeds.*got 'many'"),
    ("problems = 'chain'\nlearners = ['s4q']", r"problems must be a list of names; got 'chain'"),
    ("problems = [{name = 'x'}]\nlearners = ['s4q']", r"a table with problem"),
    ("problems = ['chain']\nlearners = ['nobody']", r"learner must be one of .*got 'nobody'"),
]


@pytest.mark.parametrize(("text", "message"), TOML)
def test_malformed_files_are_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as refused:
        read_plan(path)
    assert "\n" not in str(refused.value)
    result = CliRunner(env={"COLUMNS": "1000"}).invoke(app, ["compare", str(path)])
    assert result.exit_code == 2
    assert str(path) in result.output
    with pytest.raises(ValueError, match="cannot be read"):
        read_plan(tmp_path / "nowhere.toml")


def invoked(*arguments: str) -> Any:
    return CliRunner(env={"COLUMNS": "1000"}).invoke(app, ["compare", *arguments])


@pytest.mark.parametrize(("more", "processes"), [([], 2), (["--workers", "3"], 3), (["--processes", "1"], 1)])
def test_the_command_says_how_many_runs_are_played_at_a_time(
    monkeypatch: pytest.MonkeyPatch, more: list[str], processes: int
) -> None:
    told: list[Any] = []

    def noted(*_: Any, **given: Any) -> s4q.Comparison:
        told.append((given["processes"], given["ray"]))
        return s4q.compare([SMALL], ["psrl"], seeds=1, episodes=1, processes=1)

    monkeypatch.setattr("s4q.cli.compare_command.compare_plan", noted)
    assert invoked("-p", SMALL, "-l", "psrl", *more).exit_code == 0
    assert told == [(processes, None)]


def test_runs_that_failed_are_said_and_the_exit_code_tells_when_all_did(tmp_path: Path) -> None:
    line = ["-p", SMALL, "-l", "q_learning:step_size=50.0", "--seeds", "1", "--episodes", "300", "--processes", "1"]
    none = invoked(*line)
    assert none.exit_code == 1
    assert none.stderr.endswith("note: 1 of 1 runs failed\n")
    kept = invoked(*line, "--results", str(tmp_path / "r.sqlite"))
    assert f"note: 1 of 1 runs failed; --retry-failed plays those in {tmp_path / 'r.sqlite'} again\n" in kept.stderr
    assert "best:" not in kept.stdout
    some = invoked(*line, "-l", "s4q", "--json")
    assert (some.exit_code, len(json.loads(some.stdout))) == (0, 2)
    assert "note: 1 of 2 runs failed" in some.stderr


@pytest.mark.parametrize("option", ["--report", "--plots"])
def test_a_folder_that_cannot_be_written_to_is_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setattr("s4q.cli.compare_command.compare_plan", None)  # nothing is played
    monkeypatch.setattr("os.access", lambda place, mode: not (Path(place) == tmp_path and mode == os.W_OK))
    place = tmp_path / ("page.html" if option == "--report" else "new/plots")
    refused = invoked("-p", SMALL, "-l", "s4q", option, str(place))
    assert refused.exit_code == 2
    assert f"{option}: nothing can be written to {tmp_path}; name another folder" in refused.output


def test_the_command_prints_tables_json_and_plots(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    usual = [
        str(path),
        "--processes",
        "1",
        "--seeds",
        "2",
        "--episodes",
        "2e1",
        "--results",
        str(tmp_path / "r.sqlite"),
    ]
    result = invoked(*usual, "--plots", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "DeepSea 4: 20 episodes, 2 seeds" in result.output
    assert "lsvi_ucb:beta=0.3" in result.output
    assert (tmp_path / "DeepSea_4.png").exists()
    rows = json.loads(invoked(*usual, "--json").stdout)
    assert len(rows) == 8
    found = compare_plan(read_plan(path, {"seeds": 2, "episodes": 20}), processes=1)
    assert plain(rows) == plain(found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "pass a TOML file, or --problem at least once"),
        (["-p", "chain"], "--learner at least once"),
        (["-p", "chain", "-l", "s5q"], "learner must be one of"),
        (["-p", "chian", "-l", "s4q"], "problem must be one of"),
        (["-p", "CartPole-v1:x=3", "-l", "s4q"], "settings of an environment are horizon, reward_range, value_bound"),
        (["-p", "chain", "-l", "s4q", "--episodes", "many"], "a whole number is needed"),
        (["-p", "chain", "-l", "s4q", "--seeds", "0"], "seeds is the number of seeds"),
        (["-p", "chain", "-l", "s4q", "--episodes", "0"], "episodes is the number of episodes"),
    ],
)
def test_the_command_refuses_nonsense(arguments: list[str], message: str) -> None:
    result = invoked(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
