"""Callbacks and logs: who is told what, once each, also after an interruption."""

import json
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from small_problems import random_mdp
from states import Interrupted, bits, log_lines

import s4q
from s4q.collectors import CountCollector, EpisodeCollector
from s4q.running.accounting import Answered, Run
from s4q.running.callbacks import listeners

DENSE = random_mdp(4, 2, 3, 3, seed=5)


class Notes:
    """Writes down everything it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []
        self.requests: list[Answered] = []

    def on_start(self, run: Run) -> None:
        self.told.append(("start", run.episodes))

    def on_request(self, answered: Answered) -> None:
        self.told.append(("request", answered.episodes))
        self.requests.append(answered)

    def on_phase(self, run: Run) -> None:
        self.told.append(("phase", run.episodes))

    def on_end(self, run: Run) -> None:
        self.told.append(("end", run.episodes))


def test_every_request_and_phase_is_told_once() -> None:
    notes, phases = Notes(), list[int]()
    learner = s4q.S3Q(DENSE, s4q.UniformPolicy(2))
    run = s4q.run(learner, EpisodeCollector(DENSE), 13_000, callback=[notes, lambda r: phases.append(r.episodes)])
    assert notes.told[0] == ("start", 0)
    assert notes.told[-1] == ("end", 13_000)
    assert [n for event, n in notes.told if event == "phase"] == phases == [p.episodes for p in run.curve[:-1]]
    sizes = [2**epoch for epoch in range(1, 13) for _ in range(3)]
    done = [one.n_episodes for one in notes.requests]
    assert done == sizes[: len(done)]  # epochs longer than a shard (1024) are one request
    assert max(done) >= 2048
    assert [one.level for one in notes.requests[:4]] == [2, 1, 0, 2]
    assert [one.id for one in notes.requests] == list(range(len(done)))
    assert notes.requests[-1].episodes == sum(done) <= 13_000


def test_explorations_are_told_with_their_episodes_and_steps() -> None:
    notes = Notes()
    run = s4q.run(s4q.S4Q(DENSE, preset="realisable"), CountCollector(DENSE), 3000, callback=notes)
    explored = [one for one in notes.requests if one.kind == "explore"]
    assert len(explored) == run.phases
    assert all(one.level is None and one.n_steps == 3 * one.n_episodes for one in explored)
    assert sum(one.n_episodes for one in notes.requests) <= 3000
    assert [one.phases for one in explored] == list(range(1, run.phases + 1))


def test_what_can_be_a_callback() -> None:
    assert listeners(None) == ()
    notes = Notes()
    assert listeners(notes) == (notes,)
    assert len(listeners((notes, print, [notes]))) == 3
    for bad in (3, "log", [3]):
        with pytest.raises(ValueError, match="callback must be a function of a Run, a Listener, or a list"):
            listeners(bad)  # type: ignore[arg-type]


def lines_of(tmp_path: Path, name: str) -> list[dict[str, Any]]:
    return list(log_lines(tmp_path / name))


def test_json_lines(tmp_path: Path) -> None:
    log = s4q.JsonLines(tmp_path / "run.jsonl")
    run = s4q.run(s4q.S4Q(DENSE, preset="realisable"), CountCollector(DENSE), 400, callback=log)
    lines = log.lines()
    assert lines[0] == {"event": "start", "episodes": 0, "run": run.name}
    phases = [line for line in lines if line["event"] == "phase"]
    assert [line["regret"] for line in phases] == [point.regret for point in run.curve[:-1]]
    assert lines[-1]["event"] == "end"
    assert lines[-1]["gap"] == run.gap
    s4q.run(s4q.S4Q(DENSE), CountCollector(DENSE), 5, callback=log)  # another run goes below
    assert log.lines()[: len(lines)] == lines
    other = log.lines()[len(lines)]
    assert (other["event"], other["episodes"], other["run"] == run.name) == ("start", 0, False)


def test_a_resumed_log_has_every_line_once(tmp_path: Path) -> None:
    """Also when the log had run ahead of the checkpoint, and when its last line was torn."""
    whole, path = s4q.JsonLines(tmp_path / "whole.jsonl"), tmp_path / "run.s4q"

    def run(source: Any, log: s4q.JsonLines, **options: Any) -> Run:
        return s4q.run(source, CountCollector(DENSE, seed=2), 300, callback=log, **options)

    before = s4q.JsonLines(tmp_path / "run.jsonl")
    for log in (whole, before):
        s4q.run(s4q.S4Q(DENSE), CountCollector(DENSE), 5, callback=log)  # an earlier run in the same file
    run(s4q.S4Q(DENSE, preset="realisable"), whole)
    run(s4q.S4Q(DENSE, preset="realisable"), before, checkpoint=path, stop=lambda r: r.phases == 2)
    run(s4q.load(path), s4q.JsonLines(tmp_path / "run.jsonl"), stop=lambda r: r.phases == 4)  # no checkpoint of this
    with (tmp_path / "run.jsonl").open("a") as file:
        file.write('{"event": "request", "epis')
    run(s4q.load(path), s4q.JsonLines(tmp_path / "run.jsonl"), checkpoint=path)
    assert lines_of(tmp_path, "run.jsonl") == lines_of(tmp_path, "whole.jsonl")
    run(s4q.load(path), s4q.JsonLines(tmp_path / "run.jsonl"))  # finished already
    assert lines_of(tmp_path, "run.jsonl") == lines_of(tmp_path, "whole.jsonl")
    late = s4q.JsonLines(tmp_path / "late.jsonl")  # a log begun with the second part
    s4q.run(s4q.load(path), CountCollector(DENSE, seed=2), 350, callback=late)
    assert (late.lines()[0]["event"], late.lines()[0]["episodes"]) == ("start", 300)


def test_lines_of_another_run_are_left_alone(tmp_path: Path) -> None:
    """Whatever the run that is resumed has written, or has not: it knows its lines by its name."""
    path, log = tmp_path / "run.s4q", tmp_path / "run.jsonl"
    with pytest.raises(Interrupted):  # no end, no checkpoint
        s4q.run(s4q.S4Q(DENSE), CountCollector(DENSE, seed=9), 30, callback=[s4q.JsonLines(log), Dies(6)])
    theirs = lines_of(tmp_path, "run.jsonl")
    assert len(theirs) > 4
    with pytest.raises(Interrupted):  # before its first line
        s4q.run(s4q.S4Q(DENSE), CountCollector(DENSE), 30, callback=[Dies(1), s4q.JsonLines(log)], checkpoint=path)
    run = s4q.run(s4q.load(path), CountCollector(DENSE), 30, callback=s4q.JsonLines(log), checkpoint=path)
    both = lines_of(tmp_path, "run.jsonl")
    assert both[: len(theirs)] == theirs
    assert both[len(theirs)] == {"event": "start", "episodes": 0, "run": run.name}
    whole = tmp_path / "whole.jsonl"  # a log that holds a complete run of somebody else, and more episodes
    s4q.run(s4q.S4Q(DENSE), CountCollector(DENSE, seed=4), 60, callback=s4q.JsonLines(whole))
    before = lines_of(tmp_path, "whole.jsonl")
    s4q.run(s4q.load(path), CountCollector(DENSE), 40, callback=s4q.JsonLines(whole))
    assert lines_of(tmp_path, "whole.jsonl")[: len(before)] == before


class Dies:
    """A listener in whose n-th call the run ends; it keeps what a SIGKILL at that moment would leave of the files."""

    def __init__(self, call: int, *files: Path) -> None:
        self._left, self._files = call, files
        self.left: dict[Path, bytes] = {}

    def _hear(self, _: Any) -> None:
        self._left -= 1
        if self._left == 0:
            self.left = {file: file.read_bytes() for file in self._files if file.exists()}
            raise Interrupted

    on_start = on_request = on_phase = on_end = _hear


@pytest.mark.parametrize("dies_first", [True, False])
@pytest.mark.parametrize("earlier", [True, False])
def test_killed_before_the_first_phase_is_saved(tmp_path: Path, earlier: bool, dies_first: bool) -> None:
    """There is a checkpoint before there is a line in the log, so nothing is begun twice."""
    whole, log, path = (tmp_path / name for name in ("whole.jsonl", "run.jsonl", "run.s4q"))
    for one in (whole, log) if earlier else ():
        s4q.run(s4q.S4Q(DENSE), CountCollector(DENSE), 5, callback=s4q.JsonLines(one))
    s4q.run(s4q.S4Q(DENSE), CountCollector(DENSE, seed=2), 30, callback=s4q.JsonLines(whole))
    for call in (1, 1, 2, 3, 2, 1):  # start, first request, first phase
        source = s4q.load(path) if path.exists() else s4q.S4Q(DENSE)
        told: list[Any] = [s4q.JsonLines(log)]
        dies = Dies(call, path, log)
        told.insert(0 if dies_first else 1, dies)
        with pytest.raises(Interrupted):
            s4q.run(source, CountCollector(DENSE, seed=2), 30, callback=told, checkpoint=path)
        for file, content in dies.left.items():  # what a process that is killed there would leave
            file.write_bytes(content)
        assert s4q.load(path).progress.episodes == 0
    s4q.run(s4q.load(path), CountCollector(DENSE, seed=2), 30, callback=s4q.JsonLines(log), checkpoint=path)
    assert lines_of(tmp_path, "run.jsonl") == lines_of(tmp_path, "whole.jsonl")


def test_a_log_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no folder"):
        s4q.JsonLines(tmp_path / "nowhere" / "run.jsonl")


class FakeWriter:
    """Stands for tensorboardX.SummaryWriter."""

    made: list["FakeWriter"]

    def __init__(self, logdir: str, purge_step: int | None = None) -> None:
        self.logdir, self.purge_step, self.closed = logdir, purge_step, False
        self.scalars: list[tuple[str, float, int]] = []
        FakeWriter.made.append(self)

    def add_scalar(self, tag: str, value: float, global_step: int) -> None:
        self.scalars.append((tag, value, global_step))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def test_tensorboard_gets_the_curve_and_hides_what_is_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, FakeWriter.made = ModuleType("tensorboardX"), []
    fake.SummaryWriter = FakeWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorboardX", fake)
    board, path = s4q.TensorBoard(tmp_path / "board"), tmp_path / "run.s4q"
    learner = s4q.S4Q(DENSE, preset="realisable")
    run = s4q.run(learner, CountCollector(DENSE), 200, callback=board, checkpoint=path)
    s4q.run(s4q.load(path), CountCollector(DENSE), 300, callback=board)
    first, second = FakeWriter.made
    assert (first.purge_step, second.purge_step) == (None, 201)
    assert first.closed
    assert second.closed
    regrets = [(value, step) for tag, value, step in first.scalars if tag == "phase/regret"]
    assert regrets == [(point.regret, point.episodes) for point in run.curve[:-1]]
    assert any(tag == "request/regress_episodes" for tag, _, _ in first.scalars)


def test_tensorboard_writes_event_files(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    s4q.run(s4q.S4Q(DENSE), CountCollector(DENSE), 20, callback=s4q.TensorBoard(tmp_path))
    files = list(tmp_path.glob("events*"))
    assert len(files) == 1
    assert b"phase/regret" in files[0].read_bytes()


def test_tensorboard_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ImportError, match=r"pip install \"s4q\[tensorboard\]\""):
        s4q.TensorBoard(tmp_path)


def test_lines_are_plain_json(tmp_path: Path) -> None:
    log = s4q.JsonLines(tmp_path / "run.jsonl")
    s4q.run(s4q.S4Q(DENSE), CountCollector(DENSE), 20, callback=log)
    for line in (tmp_path / "run.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


@pytest.mark.parametrize("when", [1, 4, 9])
def test_ctrl_c_in_the_midst_of_an_update_waits_for_its_end(
    when: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The learner in memory, the checkpoint and the log are those of a whole shard; both ways on give the same bits."""
    path, end_phase, ended = tmp_path / "run.s4q", s4q.S4Q._end_phase, []

    def interrupted(learner: s4q.S4Q) -> None:
        ended.append(learner.n_episodes)  # the episodes are counted, but the phase is still open
        if len(ended) == when:
            signal.raise_signal(signal.SIGINT)
        end_phase(learner)

    whole, learner, log = s4q.S4Q(DENSE), s4q.S4Q(DENSE), s4q.JsonLines(tmp_path / "run.jsonl")
    s4q.run(whole, CountCollector(DENSE), 60, callback=s4q.JsonLines(tmp_path / "whole.jsonl"))
    with monkeypatch.context() as patch:
        patch.setattr(s4q.S4Q, "_end_phase", interrupted)
        with pytest.raises(KeyboardInterrupt):
            s4q.run(learner, CountCollector(DENSE), 60, callback=log, checkpoint=path)
    assert len(ended) == when
    saved = s4q.load(path)
    assert ended[-1] == saved.n_episodes == learner.n_episodes < 60
    s4q.run(saved, CountCollector(DENSE), 60, callback=log)
    s4q.run(learner, CountCollector(DENSE), 60 - learner.n_episodes)
    assert bits(saved.learner) == bits(whole) == bits(learner)
    assert list(log_lines(log.path)) == list(log_lines(tmp_path / "whole.jsonl"))
