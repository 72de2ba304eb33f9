"""What a run shows while it goes on: the numbers are those of the run, lines are few, and showing changes nothing."""

import io
import os
import pty
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from rich.console import Console
from states import bits

import s4q
from s4q.running import live_progress
from s4q.running.accounting import Accounting
from s4q.running.live_progress import LiveLines, LiveNumbers, PlainLines, Speed, bars, plain_line
from s4q.running.progress import Progress

NUMBERS = LiveNumbers(
    phases=3, doing="playing its policy", stage="refining", episodes=250, budget=1_000, steps=5_000, max_steps=None,
    promise=0.75, mean_return=0.5, best_return=0.625, share_seen=0.875, certified_gap=0.25, trigger=(0.1, 0.6),
    nbytes=1_500_000,
)  # fmt: skip


class Clock:
    """A clock that goes on by so many seconds whenever it is looked at."""

    def __init__(self, tick: float) -> None:
        self.now, self.tick = 0.0, tick

    def monotonic(self) -> float:
        self.now += self.tick
        return self.now


def lines_of(ticks: float, looks: int, phases: Any = lambda look: look) -> list[str]:
    """The plain lines of a run that is looked at so many times, once in `ticks` seconds."""
    file, look = io.StringIO(), iter(range(looks + 1))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(live_progress, "time", Clock(ticks))
        shown = PlainLines(lambda: NUMBERS, file)
        for _ in range(looks):
            i = next(look) + 1
            shown._numbers = lambda i=i: replace(NUMBERS, phases=phases(i), episodes=i)  # type: ignore[misc]
            shown.advance()
    return file.getvalue().splitlines()


def test_a_line_has_everything() -> None:
    speed = Speed()
    speed.add(10.0, replace(NUMBERS, episodes=150))
    speed.add(11.0, replace(NUMBERS, episodes=200))
    speed.add(12.0, NUMBERS)
    assert plain_line(NUMBERS, speed) == (
        "phase 3: 250 of 1,000 episodes, refining, 88% seen, gets 0.5, promises 0.75, best 0.625, gap at most 0.25, "
        "next policy 60%, 1.5 MB, 50 episodes/s, about 15 s left"
    )


def test_the_terminal_has_everything() -> None:
    console = Console(width=100, file=io.StringIO(), record=True, force_terminal=True)
    console.print(LiveLines(lambda: NUMBERS))
    said = console.export_text()
    for words in (
        "25%",
        "250 of 1,000 episodes",
        "phase    4, refining, playing its policy",
        "gets 0.5, promises 0.75, best 0.625",
        "gap      at most 0.25, proved",
        "88% of the directions",
        "60% of the way to the next policy ▂▅ by level",
        "1.5 MB",
    ):
        assert words in said
    assert all(len(line) <= 100 for line in said.splitlines())


def test_what_is_not_known_is_not_shown() -> None:
    bare = replace(
        NUMBERS, promise=None, best_return=None, share_seen=None, certified_gap=None, trigger=(), stage=""
    )  # fmt: skip
    assert plain_line(bare, Speed()) == "phase 3: 250 of 1,000 episodes, gets 0.5, 1.5 MB"
    assert [name for name, _ in live_progress.topics(bare, "", with_bars=True)] == ["phase", "return", "memory"]


def test_a_limit_on_steps_is_what_is_counted() -> None:
    """`total_timesteps` alone allows as many episodes as steps, so the share by episodes would be far too small."""
    by_steps = replace(NUMBERS, budget=10_000, max_steps=10_000)
    assert by_steps.share == 0.5
    assert by_steps.done_of_all() == "5,000 of 10,000 steps, 250 episodes"
    by_episodes = replace(NUMBERS, budget=300, max_steps=1_000_000)
    assert by_episodes.share == pytest.approx(250 / 300)
    assert by_episodes.done_of_all() == "250 of 300 episodes"


def test_speed_is_that_of_the_last_seconds() -> None:
    speed = Speed()
    assert str(speed) == ""
    for second in range(100):  # 1 episode a second, then 10
        speed.add(float(second), replace(NUMBERS, episodes=second if second < 50 else 50 + 10 * (second - 50)))
    assert speed.episodes_a_second == pytest.approx(10.0)
    assert speed.seconds_left == pytest.approx((1_000 - 540) / 10)


def test_a_run_that_goes_faster_and_faster_is_expected_to_go_on_so() -> None:
    """Twice the episodes every second: 20 seconds are left where the present speed would need hours."""
    speed = Speed()
    for tenth in range(201):
        numbers = replace(NUMBERS, budget=2**40, episodes=int(2 ** (tenth / 10)), by_counts=True)
        speed.add(tenth / 10, numbers)
    assert speed.seconds_left == pytest.approx(20.0, rel=0.1)


def test_episodes_played_one_by_one_are_not_expected_to_go_faster_and_faster() -> None:
    """The second episodes of a run are faster than the first ones, and that says nothing of a million of them."""
    speed = Speed()
    for now, episodes in [(0.0, 0), (1.0, 2), (2.0, 5), (3.0, 16), (4.0, 37)]:
        speed.add(now, replace(NUMBERS, budget=1_000_000, episodes=episodes))
    assert speed.seconds_left == pytest.approx((1_000_000 - 37) / (37 / 4))
    by_steps = Speed()
    for now, steps in [(0.0, 0), (1.0, 100), (2.0, 300), (4.0, 2_000)]:
        by_steps.add(now, replace(NUMBERS, budget=10**6, max_steps=10**6, steps=steps, episodes=steps // 20))
    assert by_steps.seconds_left == pytest.approx((10**6 - 2_000) / 500)


@pytest.mark.parametrize("counted", [True, False])
def test_a_run_says_whether_it_counts(counted: bool) -> None:
    mdp = s4q.problems.chain()
    collector = (s4q.collectors.CountCollector if counted else s4q.collectors.EpisodeCollector)(mdp, seed=0)
    accounting = Accounting(s4q.S4Q(mdp), collector, Progress(budget=10), certify=False)
    assert accounting.live_numbers().by_counts is counted


def test_lines_are_at_most_one_a_second_and_fewer_in_long_runs() -> None:
    assert len(lines_of(0.01, 1_000)) <= 10  # ten seconds with a hundred phases each
    day = lines_of(1.0, 86_400)
    assert 50 < len(day) < 150
    assert lines_of(0.001, 900) == []  # a run of less than a second prints nothing


def test_a_line_a_phase_and_a_rare_one_within_a_long_phase() -> None:
    each = lines_of(1.5, 6)
    assert [line.split(":")[0] for line in each] == [f"phase {i}" for i in range(1, 7)]
    long_phase = lines_of(1.0, 40, phases=lambda look: 3)
    assert 1 <= len(long_phase) <= 4


def test_bars_show_the_fullest_of_many_levels() -> None:
    shares = [0.0] * 400
    shares[205] = 1.0
    drawn = bars(tuple(shares))
    assert len(drawn) == 40
    assert drawn.index("█") == 20
    assert drawn.count("▁") == 39


@pytest.mark.parametrize("pooled", [False, True])
def test_numbers_are_those_of_the_learner(monkeypatch: pytest.MonkeyPatch, pooled: bool) -> None:
    """Trigger, phases, bytes and returns after every shard, beside what the learner says of itself."""
    seen: list[tuple[LiveNumbers, Any]] = []
    mdp = s4q.problems.river_swim(4, horizon=5)
    learner = s4q.S4Q(mdp, "realisable", pool=pooled, trigger=40.0)

    class Watching:
        def __init__(self, numbers: Any, file: Any) -> None:
            self.numbers = numbers

        def advance(self) -> None:
            seen.append((self.numbers(), learner.ask(1)))
            assert seen[-1][0].nbytes == learner.nbytes
            assert seen[-1][0].best_return == learner.progress.best_return
            assert seen[-1][0].promise == learner.progress.promise

    monkeypatch.setattr(live_progress, "PlainLines", Watching)
    run = s4q.run(
        learner, s4q.collectors.EpisodeCollector(mdp, seed=0), 30_000, progress_bar=True, evaluation_share=0.2
    )
    assert seen[-1][0].episodes == run.episodes == 30_000
    assert seen[-1][0].phases == run.phases
    compared = 0
    for numbers, following in seen:
        if isinstance(following, s4q.Explore) and following.done and numbers.doing == "playing its policy":
            threshold = following.threshold[0] + following.threshold[1] * np.log(following.done)
            np.testing.assert_allclose(numbers.trigger, following.progress / threshold, rtol=1e-6)
            assert len(numbers.trigger) == (1 if pooled else 5)
            compared += 1
    assert compared > 3
    assert {numbers.doing.split(" for ")[0] for numbers, _ in seen} == {
        "playing its policy",
        "replaying past policies",
        "evaluating",
    }
    gaps = [numbers.certified_gap for numbers, _ in seen if numbers.certified_gap is not None]
    assert gaps[-1] == run.certificate.gap  # type: ignore[union-attr]


@pytest.mark.parametrize(("trigger", "n"), [(1e-9, 40), (2.0, 40), (2.0, 1)])
def test_the_way_to_the_next_policy_is_at_most_all_of_it(
    monkeypatch: pytest.MonkeyPatch, trigger: float, n: int
) -> None:
    """A phase that must have some episodes is not nearly over because it has the data that it needs."""
    seen: list[tuple[LiveNumbers, Any]] = []
    learner = s4q.S4Q(s4q.problems.river_swim(4, horizon=5), episodes_per_phase=n, trigger=trigger)

    class Watching:
        def __init__(self, numbers: Any, file: Any) -> None:
            self.numbers = numbers

        def advance(self) -> None:
            seen.append((self.numbers(), learner.ask(1)))

    monkeypatch.setattr(live_progress, "PlainLines", Watching)
    collector = s4q.collectors.EpisodeCollector(s4q.problems.river_swim(4, horizon=5), seed=0)
    s4q.run(learner, collector, 400, progress_bar=True)
    ways = [max(numbers.trigger) for numbers, _ in seen]
    assert 0 <= min(ways) <= max(ways) <= 1
    if trigger < 1 < n:  # the number of episodes alone decides
        inside = [(way, asked.done) for way, (_, asked) in zip(ways, seen, strict=True) if asked.done]
        assert len(inside) > 3
        assert [way for way, _ in inside] == [pytest.approx(done / n) for _, done in inside]


def test_learners_without_progress_show_what_they_have(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(live_progress, "time", Clock(2.0))
    mdp = s4q.problems.low_rank()
    learner = s4q.S3Q(mdp, s4q.UniformPolicy(mdp.n_actions))
    s4q.run(learner, s4q.collectors.CountCollector(mdp), 50, progress_bar=True)
    assert re.search(r"^phase \d+: \d+ of 50 episodes, ", capsys.readouterr().err, re.M)


def test_watching_changes_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(live_progress, "time", Clock(2.0))

    def learned(progress_bar: bool) -> Any:
        agent = s4q.Agent(gym.make("FrozenLake-v1"), horizon=10, seed=1).learn(60, progress_bar=progress_bar)
        return bits(agent.learner)

    quiet = learned(False)
    assert capsys.readouterr().err == ""
    watched = learned(True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.search(r"^phase \d+: \d+ of 60 episodes, exploring, \d+% seen, gets ", captured.err, re.M)
    assert quiet == watched


def on_a_terminal(code: str, stdout: Any = None) -> str:
    """All that a program writes to a terminal; `stdout` may be a file elsewhere."""
    mine, theirs = pty.openpty()
    env = {**os.environ, "COLUMNS": "100", "LINES": "30", "TERM": "xterm"}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=stdout or theirs, stderr=theirs, stdin=theirs, env=env
    ) as ran:
        os.close(theirs)
        said = b""
        while True:
            try:
                piece = os.read(mine, 65_536)
            except OSError:  # Linux says so when the other end is closed
                break
            if not piece:
                break
            said += piece
        os.close(mine)
    assert ran.returncode == 0, said.decode()
    return said.decode()


def test_on_a_terminal_it_is_live_and_goes_away() -> None:
    code = """
import s4q
from s4q.running import live_progress
live_progress._REFRESH = 0.0  # each answer is looked at, so nothing depends on the speed of the machine
mdp = s4q.problems.river_swim(4, horizon=5)
learner = s4q.S4Q(mdp, "practical")  # it never replays, so there always is a way to the next policy
s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=0), 10**5, progress_bar=True)
print("over")
"""
    said = on_a_terminal(code)
    assert "of 100,000 episodes" in said
    assert "of the way to the next policy" in said
    assert said.rstrip().endswith("over")
    assert "\x1b[2K" in said  # lines are taken away again


def test_what_a_run_prints_stays_on_standard_output(tmp_path: Path) -> None:
    """Also while lines are live on the terminal of standard error."""
    code = """
import s4q
def stop(run):
    print("a shard is over")
    return False
mdp = s4q.problems.river_swim(4, horizon=5)
s4q.run(s4q.S4Q(mdp), s4q.collectors.CountCollector(mdp, seed=0), 100, progress_bar=True, stop=stop)
"""
    with (tmp_path / "printed").open("w") as file:
        said = on_a_terminal(code, file)
    assert "of 100 episodes" in said
    assert "a shard is over" not in said
    assert set((tmp_path / "printed").read_text().splitlines()) == {"a shard is over"}
