"""The study of fifteen problems counts wins, meetings and losses rightly, and its command keeps what it played."""

import json
from pathlib import Path

import pytest
from benchmarks import fifteen_problems
from benchmarks.fifteen_problems import LEARNERS, OURS, ROWS, Row, judged, scores

import s4q


def test_a_win_a_meeting_and_a_loss() -> None:
    win = judged({OURS: [1.0, 1.1, 0.9], "psrl": [5.0, 6.0, 5.5]})
    assert (win["best"], win["meets"], win["over_the_best"]) == (OURS, True, 1.0)
    meeting = judged({OURS: [1.0, 3.0, 2.0], "psrl": [1.5, 1.6, 1.4]})
    assert (meeting["best"], meeting["meets"]) == ("psrl", True)
    assert meeting["over_the_best"] == pytest.approx(2.0 / 1.5)
    loss = judged({OURS: [3.0, 3.1, 2.9], "psrl": [1.5, 1.6, 1.4]})
    assert (loss["meets"], loss["seeds"]) == (False, 3)
    assert loss["over_the_best"] == pytest.approx(2.0)


def test_returns_become_the_share_that_was_missed() -> None:
    rows = [
        {"learner": OURS, "error": "", "regret": None, "mean_return": -150.0},
        {"learner": OURS, "error": "diverged", "regret": None, "mean_return": None},
    ]
    row = Row("car", "MountainCar-v0", 3, returns=(-200.0, 0.0))
    assert scores(row, s4q.Comparison(rows, {})) == {OURS: [0.75]}


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
        OURS,
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
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert " of 1 (12 of 15 wanted)" in capsys.readouterr().out
    assert first["bellman_closed"]["seeds"] == 2
