"""The study of fifteen problems counts wins, meetings and losses rightly, and its command keeps what it played."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import fifteen_problems
from benchmarks.fifteen_problems import (
    LEARNERS,
    OURS,
    ROWS,
    Row,
    failures,
    interval,
    judged,
    ratio_interval,
    scores,
    table,
    verdict,
)
from rich.console import Console

import s4q


def test_a_win_a_meeting_and_a_loss() -> None:
    win = judged({OURS: [1.0, 1.1, 0.9], "psrl": [5.0, 6.0, 5.5]}, {})
    assert (win["best"], win["meets"], win["over_the_best"]) == (OURS, True, 1.0)
    meeting = judged({OURS: [1.0, 3.0, 2.0], "psrl": [1.5, 1.6, 1.4]}, {})
    assert (meeting["best"], meeting["meets"]) == ("psrl", True)
    assert meeting["over_the_best"] == pytest.approx(2.0 / 1.5)
    loss = judged({OURS: [3.0, 3.1, 2.9], "psrl": [1.5, 1.6, 1.4]}, {})
    assert (loss["meets"], loss["seeds"]) == (False, 3)
    assert loss["over_the_best"] == pytest.approx(2.0)
    assert win["ratio"] is None
    assert meeting["ratio"][0] < 1 < meeting["ratio"][1]
    assert 1.8 < loss["ratio"][0] < 2 < loss["ratio"][1] < 2.2
    assert "nowhere" in verdict({"a": meeting})[-1]
    assert verdict({"a": meeting, "b": loss})[-1].endswith("above 1): b")


def test_intervals_miss_as_often_as_they_say() -> None:
    """20 values of a skewed law: about 5 in 100 miss, and percentile intervals of so few some more."""
    rng = np.random.default_rng(3)
    samples = rng.gamma(2.0, size=(2, 400, 20))
    means = [interval(values) for values in samples[0]]
    assert 0.03 < np.mean([not low <= 2.0 <= high for _, low, high in means]) < 0.13
    ratios = [ratio_interval(a, b) for a, b in zip(*samples, strict=True)]
    assert 0.03 < np.mean([not low <= 1.0 <= high for low, high in ratios]) < 0.13  # type: ignore[misc]
    assert interval([2.0]) == (2.0, 2.0, 2.0)
    assert ratio_interval([1.0], [1.0, 2.0]) is None


def test_returns_become_the_share_that_was_missed() -> None:
    rows = [
        {"learner": OURS, "error": "", "regret": None, "mean_return": -150.0},
        {"learner": OURS, "error": "diverged", "regret": None, "mean_return": None},
    ]
    row = Row("car", "MountainCar-v0", 3, returns=(-200.0, 0.0))
    found = s4q.Comparison(rows, {})
    assert scores(row, found) == {OURS: [0.75]}
    assert failures(found) == {OURS: {"runs": 1, "why": "diverged"}}


def shown(results: dict[str, Any]) -> str:
    console = Console(width=200, record=True, file=StringIO())
    console.print(table(results))
    return console.export_text()


def test_a_failed_run_of_the_default_learner_is_never_met() -> None:
    """It would be the best by its finished runs."""
    other = {"psrl": [5.0, 6.0, 5.5]}
    for ours in ({OURS: [1.0, 1.1]}, {}):
        one = judged({**ours, **other}, {OURS: {"runs": 3 - len(ours.get(OURS, ())), "why": "diverged"}})
        assert (one["meets"], one["over_the_best"], one["seeds"]) == (False, None, 3)
        results = {"chain": {"episodes": 7, **json.loads(json.dumps(one))}}
        lines = verdict(results)
        assert lines[0].startswith("best, or meets the best, on 0 of 1")
        assert lines[-1] == f"missed, because runs of {OURS} failed: chain"
        assert f"{OURS} {one['failed'][OURS]['runs']}" in shown(results)


def test_failed_runs_of_a_baseline_are_shown_and_its_mean_still_counts() -> None:
    one = judged({OURS: [2.0, 2.0, 2.0], "sarsa_tuned": [1.0]}, {"sarsa_tuned": {"runs": 2, "why": "diverged"}})
    assert (one["best"], one["meets"], one["over_the_best"], one["seeds"]) == ("sarsa_tuned", False, 2.0, 3)
    assert "sarsa_tuned 2" in shown({"chain": {"episodes": 7, **one}})
    gone = judged({OURS: [2.0]}, {"sarsa_tuned": {"runs": 1, "why": "diverged"}})
    assert (gone["best"], gone["meets"], gone["seeds"]) == (OURS, True, 1)
    nothing = judged({}, {OURS: {"runs": 1, "why": "diverged"}})
    assert (nothing["best"], nothing["meets"]) == (None, False)
    assert "none finished" in shown({"chain": {"episodes": 7, **nothing}})
    assert "no problem was finished" in verdict({"chain": {"episodes": 7, **nothing}})


def test_learners_that_do_not_play_again_are_kept() -> None:
    whole = judged({OURS: [3.0, 3.1, 2.9], "psrl": [1.5, 1.6, 1.4]}, {"sarsa_tuned": {"runs": 3, "why": "diverged"}})
    better = judged({OURS: [1.0, 1.1, 0.9, 1.0]}, {}, whole)
    assert better["intervals"]["psrl"] == whole["intervals"]["psrl"]
    assert better["failed"] == whole["failed"]
    assert (whole["best"], whole["meets"]) == ("psrl", False)
    assert (better["best"], better["meets"], better["seeds"]) == (OURS, True, 3)
    both = judged({OURS: [1.0] * 4, "psrl": [2.0] * 4, "sarsa_tuned": [3.0] * 4}, {}, whole)
    assert (both["seeds"], both["failed"]) == (4, {})


def test_the_command_tells_of_a_run_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A learner that cannot play: every run of the default learner fails."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise ValueError("a planted failure")

    monkeypatch.setattr("s4q.comparing.cells.run", refuse)
    line = ["--rows", "bellman", "--learners", OURS, "--seeds", "2", "--processes", "1", "--episodes", "3"]
    fifteen_problems.main([*line, "--results", str(tmp_path / "runs.sqlite"), "--figure", str(tmp_path / "all.png")])
    told = capsys.readouterr().out
    assert f"{OURS}: 2 failed, a planted failure" in told
    assert "missed, because runs of s4q failed: bellman_closed" in told


def test_fifteen_problems_that_exist() -> None:
    assert len(ROWS) == len({row.name for row in ROWS}) == 15
    assert set(LEARNERS) <= set(s4q.baselines.LEARNERS)
    for row in ROWS:
        s4q.compare([row.problem], [OURS], seeds=1, episodes=1, processes=1)


def test_the_command_goes_on_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept, picture = tmp_path / "kept.json", tmp_path / "all.png"
    line = [
        "--rows",
        "bellman",
        "--learners",
        "q_learning_tuned",
        "--seeds",
        "2",
        "--processes",
        "1",
        "--episodes",
        "60",
    ]
    line += ["--results", str(tmp_path / "runs.sqlite"), "--json", str(kept)]
    fifteen_problems.main(line)
    first = json.loads(kept.read_text())
    fifteen_problems.main([*line, "--figure", str(picture)])
    assert json.loads(kept.read_text()) == first
    alone = [OURS if word == "q_learning_tuned" else word for word in line]
    fifteen_problems.main(alone)
    again = json.loads(kept.read_text())["bellman_closed"]
    assert "played them" not in capsys.readouterr().out
    kept.write_text(kept.read_text().replace(f'"code": "{again["code"]}"', '"code": "older"'))
    fifteen_problems.main(alone)
    assert "learners that do not play now are kept as code older played them" in capsys.readouterr().out
    other = tmp_path / "other.json"
    other.write_text(kept.read_text())
    fifteen_problems.main([*alone[: alone.index("--json")], "--json", str(other), "--first-seed", "7"])
    assert set(json.loads(other.read_text())["bellman_closed"]["scores"]) == {OURS}  # baselines of other seeds are gone
    other.write_text('{"chain": {"episodes": 3}}')
    with pytest.raises(SystemExit):
        fifteen_problems.main([*alone[: alone.index("--json")], "--json", str(other)])
    assert again["intervals"] == first["bellman_closed"]["intervals"]
    assert picture.read_bytes()[:4] == b"\x89PNG"
    fifteen_problems.main(line)
    assert " of 1 (12 of 15 wanted)" in capsys.readouterr().out
    assert first["bellman_closed"]["seeds"] == 2
    assert set(first["bellman_closed"]["intervals"]) == {OURS, "q_learning_tuned"}
