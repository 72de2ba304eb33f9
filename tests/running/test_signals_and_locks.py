"""What a live system does to a run: SIGTERM, SIGHUP and Ctrl-C at any moment, and two processes on one file."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from small_problems import random_mdp

import s4q
from s4q.collectors import CountCollector
from s4q.running.file_locks import locked
from s4q.running.interruption import Terminated

DENSE = random_mdp(5, 3, 4, 3, seed=1)
RAISES = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated, signal.SIGHUP: Terminated}


def bits(learner: Any) -> bytes:
    return learner.q.theta.tobytes() + learner.n_episodes.to_bytes(8, "big")


def whole() -> s4q.S4Q:
    learner = s4q.S4Q(DENSE)
    s4q.run(learner, CountCollector(DENSE), 60)
    return learner


@pytest.mark.parametrize("number", RAISES)
@pytest.mark.parametrize("when", [1, 6])
def test_a_signal_in_the_middle_of_an_update(
    number: signal.Signals, when: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The update is finished, the state after it is written, and the run goes on with the same bits."""
    path, end_phase, ended = tmp_path / "run.s4q", s4q.S4Q._end_phase, []

    def signalled(learner: s4q.S4Q) -> None:
        ended.append(learner.n_episodes)  # counted already, but the phase is still open
        if len(ended) == when:
            signal.raise_signal(number)
            time.sleep(0.001)  # a handler that is not held back runs here
        end_phase(learner)

    learner = s4q.S4Q(DENSE)
    with monkeypatch.context() as patch:
        patch.setattr(s4q.S4Q, "_end_phase", signalled)
        with pytest.raises(RAISES[number]) as caught:
            s4q.run(learner, CountCollector(DENSE), 60, checkpoint=path)
    if number is not signal.SIGINT:
        assert caught.value.code == 128 + number
    assert signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)
    saved = s4q.load(path)
    assert ended[-1] == saved.n_episodes == learner.n_episodes < 60
    assert saved.learner.phases == when
    s4q.run(saved, CountCollector(DENSE), 60, checkpoint=path)
    assert bits(saved.learner) == bits(whole())


@pytest.mark.parametrize("number", RAISES)
def test_a_signal_while_episodes_are_played_or_a_file_is_written(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it comes, the file holds all that was learned before it."""
    path, writes = tmp_path / "run.s4q", 0
    collector = CountCollector(DENSE)
    play, write = collector.play, s4q.running.archive._npy

    def played(request: Any, shard: Any, start: Any = None) -> Any:
        if learner.n_episodes >= 20:
            signal.raise_signal(number)
        return play(request, shard, start)

    def written(numbers: Any) -> bytes:
        nonlocal writes
        writes += 1
        if writes == 20:  # in the seventh file
            signal.raise_signal(number)
        return write(numbers)

    learner = s4q.S4Q(DENSE)
    monkeypatch.setattr(collector, "play", played)
    with pytest.raises(RAISES[number]):
        s4q.run(learner, collector, 60, checkpoint=path)
    assert s4q.load(path).n_episodes == learner.n_episodes >= 20
    learner, path = s4q.S4Q(DENSE), tmp_path / "other.s4q"
    monkeypatch.setattr(s4q.running.archive, "_npy", written)
    with pytest.raises(RAISES[number]):
        s4q.run(learner, CountCollector(DENSE), 60, checkpoint=path)
    assert writes >= 20
    monkeypatch.undo()
    assert s4q.load(path).n_episodes == learner.n_episodes < 60
    assert [file.name for file in tmp_path.glob("*.partial")] == []


def test_signals_are_left_alone_where_nothing_is_written_or_somebody_else_minds_them(tmp_path: Path) -> None:
    seen: list[Any] = []
    s4q.run(s4q.S4Q(DENSE), CountCollector(DENSE), 9, callback=lambda _: seen.append(signal.getsignal(signal.SIGTERM)))
    assert set(seen) == {signal.SIG_DFL}
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append("mine"))
    try:
        path = tmp_path / "run.s4q"
        stop = lambda run: bool(run.episodes == 9 and signal.raise_signal(signal.SIGTERM))  # noqa: E731
        s4q.run(s4q.S4Q(DENSE), CountCollector(DENSE), 12, stop=stop, checkpoint=path)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert s4q.load(path).n_episodes == 12


def test_an_update_that_fails_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The learner knows an answer that the run has not counted, so the file must stay as it was."""
    path, tell, failed = tmp_path / "run.s4q", s4q.S4Q.tell, []

    def fails(learner: s4q.S4Q, request: Any, answer: Any) -> None:
        tell(learner, request, answer)
        if request.done and learner.phases >= 2:  # the second part of a request: the first was not written
            failed.append(learner.n_episodes)
            raise MemoryError

    monkeypatch.setattr(s4q.S4Q, "tell", fails)
    with pytest.raises(MemoryError):
        s4q.run(s4q.S4Q(DENSE, "realisable"), CountCollector(DENSE), 10**4, checkpoint=path)
    monkeypatch.undo()
    saved, one = s4q.load(path), s4q.S4Q(DENSE, "realisable")
    assert saved.n_episodes == saved.progress.episodes < failed[0]
    s4q.run(saved, CountCollector(DENSE), 10**4)
    s4q.run(one, CountCollector(DENSE), 10**4)
    assert bits(saved.learner) == bits(one)


SECOND = """
import sys, s4q
mdp = s4q.problems.chain()
try:
    s4q.run(s4q.S4Q(mdp), s4q.collectors.CountCollector(mdp), 5, {how})
except ValueError as error:
    print(error)
else:
    print("went on")
"""


def second_process(how: str) -> str:
    code = SECOND.format(how=how)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("what", ["checkpoint", pytest.param("callback", marks=pytest.mark.slow)])
def test_a_second_process_is_refused_with_one_line(what: str, tmp_path: Path) -> None:
    """While a run writes a checkpoint or a log, another process may not; afterwards it may."""
    path = tmp_path / "run.file"
    how = f"checkpoint={str(path)!r}" if what == "checkpoint" else f"callback=s4q.JsonLines({str(path)!r})"
    said: list[str] = []

    def try_it(run: s4q.Run) -> bool:
        if not said:
            said.append(second_process(how))
        return False

    mine: dict[str, Any] = {what: path if what == "checkpoint" else s4q.JsonLines(path)}
    learner = s4q.S4Q(DENSE)
    s4q.run(learner, CountCollector(DENSE), 30, stop=try_it, **mine)
    assert said[0].count("\n") == 1
    assert f"run.file is being written by another run, in process {os.getpid()}" in said[0]
    assert bits(learner) == bits_after(30)
    assert not path.with_name("run.file.lock").exists()
    if what == "callback":
        assert second_process(how) == "went on\n"
    else:
        assert "holds a run of 30 episodes" in second_process(how)  # of another problem: refused for another reason


def bits_after(episodes: int) -> bytes:
    learner = s4q.S4Q(DENSE)
    s4q.run(learner, CountCollector(DENSE), episodes)
    return bits(learner)


def test_the_lock_dies_with_its_process_and_not_later(tmp_path: Path) -> None:
    """A killed process leaves the lock file, but no lock; also where a child of it lives on."""
    path = tmp_path / "run.s4q"
    ready, alive = os.pipe()
    child = os.fork()
    if child == 0:
        with locked([path]):
            grandchild = os.fork()
            if grandchild == 0:
                time.sleep(300)
                os._exit(0)
            os.write(alive, f"{grandchild}\n".encode())
            time.sleep(300)
        os._exit(0)
    grandchild = int(os.read(ready, 20))
    try:
        with pytest.raises(s4q.CheckpointError, match=f"in process {child}"), locked([path]):
            pass
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert path.with_name("run.s4q.lock").exists()
        with locked([path]):
            pass
        assert not path.with_name("run.s4q.lock").exists()
    finally:
        os.kill(grandchild, signal.SIGKILL)


def test_two_runs_of_one_process_are_told_apart(tmp_path: Path) -> None:
    """The system does not mind, so the library must; other names of the same file are the same file."""
    path, link = tmp_path / "run.s4q", tmp_path / "link.s4q"
    link.symlink_to(path)
    refused: list[str] = []

    def also() -> None:
        try:
            with locked([link]):
                pass
        except s4q.CheckpointError as error:
            refused.append(str(error))

    with locked([path]):
        thread = threading.Thread(target=also)
        thread.start()
        thread.join()
        also()
    also()
    assert len(refused) == 2
    assert "in this process" in refused[0]


def test_many_processes_and_never_two_at_once(tmp_path: Path) -> None:
    """Six processes take the lock as often as they can; a file that only its owner may make shows two at once."""
    path, inside = tmp_path / "run.s4q", tmp_path / "inside"
    children = []
    for _ in range(6):
        child = os.fork()
        if child == 0:
            got, end = 0, time.monotonic() + 300
            while got < 25 and time.monotonic() < end:
                try:
                    with locked([path]):
                        os.close(os.open(inside, os.O_CREAT | os.O_EXCL))  # fails where another one is inside
                        os.unlink(inside)
                        got += 1
                except s4q.CheckpointError:
                    pass
                except BaseException:
                    os._exit(2)
            os._exit(0 if got == 25 else 1)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 6


def test_a_run_is_not_written_over(tmp_path: Path) -> None:
    """A learner writes over its own checkpoints only: not those of a longer run, another seed or other settings."""
    path = tmp_path / "run.s4q"
    learner = s4q.S4Q(DENSE)
    s4q.run(learner, CountCollector(DENSE), 20, checkpoint=path)
    s4q.run(learner, CountCollector(DENSE), 20, checkpoint=path)  # it goes on, in its own file
    before = path.read_bytes(), path.with_name("run.s4q.previous").read_bytes()
    others = (s4q.S4Q(DENSE), CountCollector(DENSE)), (s4q.S4Q(DENSE, "realisable"), CountCollector(DENSE))
    for other, collector in others:
        with pytest.raises(s4q.CheckpointError, match="holds a run of 40 episodes, which this learner with 0 did not"):
            s4q.run(other, collector, 90, checkpoint=path)
    longer = s4q.S4Q(DENSE)
    s4q.run(longer, CountCollector(DENSE, seed=1), 50)
    with pytest.raises(s4q.CheckpointError, match="which this learner with 50 did not come from"):
        s4q.run(longer, CountCollector(DENSE, seed=1), 50, checkpoint=path)
    assert before == (path.read_bytes(), path.with_name("run.s4q.previous").read_bytes())
    stale = s4q.load(path)
    s4q.run(s4q.load(path), CountCollector(DENSE), 60, checkpoint=path)
    with pytest.raises(s4q.CheckpointError, match="holds a run of 80 episodes, which this learner with 40 did not"):
        s4q.run(stale, CountCollector(DENSE), 60, checkpoint=path)  # read before the other went on
    assert s4q.load(path).n_episodes == 80
    s4q.run(s4q.S4Q(DENSE), CountCollector(DENSE), 7, checkpoint=s4q.Autosave(path, overwrite=True))
    assert s4q.load(path).n_episodes == 7
    path.write_bytes(b"holiday pictures")
    with pytest.raises(s4q.CheckpointError, match="is there already, and is not known to be of this run"):
        s4q.run(s4q.S4Q(DENSE), CountCollector(DENSE), 7, checkpoint=path)
    assert path.read_bytes() == b"holiday pictures"


def test_a_link_stays_a_link_and_a_file_keeps_its_mode(tmp_path: Path) -> None:
    real, link = tmp_path / "disk" / "run.s4q", tmp_path / "run.s4q"
    real.parent.mkdir()
    link.symlink_to(real)
    learner = s4q.S4Q(DENSE)
    s4q.save(link, learner, seed=1)
    real.chmod(0o640)
    s4q.save(link, learner, seed=2)
    assert link.is_symlink()
    assert s4q.load(real).seed == s4q.load(link).seed == 2
    assert real.stat().st_mode & 0o777 == 0o640
    assert sorted(file.name for file in real.parent.iterdir()) == ["run.s4q", "run.s4q.previous"]
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith("run")] == ["run.s4q"]
    real.write_bytes(b"broken")
    with pytest.raises(s4q.CheckpointError, match=r"disk/run\.s4q\.previous"):
        s4q.load(link)


def test_max_steps_is_exceeded_by_less_than_an_episode(tmp_path: Path) -> None:
    path = tmp_path / "run.s4q"
    env_horizon = DENSE.horizon
    for limit in (1, 50, 333):
        run = s4q.run(s4q.S4Q(DENSE), CountCollector(DENSE), 10**6, max_steps=limit)
        assert limit <= run.steps < limit + env_horizon
    stopped = s4q.run(
        s4q.S4Q(DENSE), CountCollector(DENSE), 10**6, max_steps=333, stop=lambda run: run.steps > 90, checkpoint=path
    )
    assert stopped.steps < 333
    resumed = s4q.run(s4q.load(path), CountCollector(DENSE), 10**6)
    assert (resumed.steps, resumed.episodes) == (run.steps, run.episodes)
    assert resumed.q.theta.tobytes() == run.q.theta.tobytes()
    with pytest.raises(ValueError, match=r"max_steps is the number of steps to play.*got 0"):
        s4q.run(s4q.S4Q(DENSE), CountCollector(DENSE), 5, max_steps=0)
    with pytest.raises(ValueError, match="evaluation_share is a share of a number of episodes"):
        s4q.run(s4q.S4Q(DENSE, "realisable"), CountCollector(DENSE), 5, max_steps=9, evaluation_share=0.5)
