"""The file of finished runs: killed comparisons go on, other code is played again, damaged files are refused."""

import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from comparisons import SMALL, finished, invoked, plain, shown
from signalled import TIMES, signalled

import s4q
from s4q.comparing.results_file import PLAYING_CODE, ResultsFile, ResultsFileError, digest_of_code

SCRIPT = """
import sys, s4q
if __name__ == "__main__":
    names = ["s4q", "q_learning", "ucb_q", "psrl"]
    s4q.compare(["chain"], names, seeds=2, episodes=int(sys.argv[2]), processes=2, results=sys.argv[1])
"""


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
