"""The command `s4q compare`."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from comparisons import PLAN, SMALL, invoked, plain

import s4q
from s4q.comparing.comparison import compare_plan
from s4q.comparing.plan import read_plan


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
