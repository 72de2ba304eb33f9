"""Executors: the same bits whoever plays, in any order of answers, and whatever dies."""

import os
import pickle
import platform
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from executor_runs import HORIZON, KINDS, LOW_RANK, RIVER, Deadly, outcome, parts
from small_envs import Drift, Waves
from states import bits
from typer.testing import CliRunner
from unreliable_workers import Unreliable

import s4q
from s4q.cli import app
from s4q.collectors import CountCollector, EpisodeCollector, GymCollector
from s4q.core.messages import Explore, Shard
from s4q.running.executors import collect, packing, playing_ahead, processes
from s4q.running.executors.playing_ahead import AheadSession, Outcome, Payload, Task, episodes_to_crossing

HELPERS = Path(__file__).parents[1] / "helpers"


@pytest.fixture(scope="module")
def two() -> Iterator[s4q.Processes]:
    with s4q.Processes(2) as executor:
        yield executor


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[s4q.Run, Any]]:
    folder = tmp_path_factory.mktemp("serial")
    return {kind: outcome(kind, folder / "run.s4q", None) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_give_the_bits_of_none(
    kind: str, two: s4q.Processes, serial: dict[str, tuple[s4q.Run, Any]], tmp_path: Path
) -> None:
    run, state = outcome(kind, tmp_path / "run.s4q", two)
    assert state == serial[kind][1]
    assert two._pool is not None
    assert len(two._pool.pids) == 2  # they did play
    assert run.episodes == serial[kind][0].episodes
    assert run.cpu_seconds > 0


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3, 7])
def test_any_number_of_processes_gives_the_same_bits(
    workers: int, serial: dict[str, tuple[s4q.Run, Any]], tmp_path: Path
) -> None:
    with s4q.Processes(workers) as executor:
        for kind in KINDS:
            assert outcome(kind, tmp_path / "run.s4q", executor)[1] == serial[kind][1], kind


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["replay in batches", "sketch", "evaluated"])
def test_late_doubled_reordered_and_lost_answers_are_harmless(
    kind: str, seed: int, serial: dict[str, tuple[s4q.Run, Any]], tmp_path: Path
) -> None:
    executor = Unreliable(3, seed, lose=0.3)
    run, state = outcome(kind, tmp_path / "run.s4q", executor)
    assert state == serial[kind][1]
    assert executor.workers is not None
    assert executor.workers.lost
    assert len(executor.workers.played) >= 8
    assert executor.session_before is not None
    assert executor.session_before.cost.lost_tries == executor.workers.lost
    # Shards of an Explore are played ahead only where they will be needed.
    assert run.discarded_episodes <= run.main_episodes / 4


@pytest.mark.parametrize("kind", ["replay in batches", pytest.param("sketch", marks=pytest.mark.slow)])
def test_shards_beyond_the_crossing_are_played_again_and_counted(
    kind: str, serial: dict[str, tuple[s4q.Run, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playing_ahead, "episodes_to_crossing", lambda request: np.inf)  # always plays ahead
    executor = Unreliable(2, seed=1, lose=0.0)
    run, state = outcome(kind, tmp_path / "run.s4q", executor)
    assert state == serial[kind][1]
    assert run.discarded_episodes > 100
    assert run.episodes == serial[kind][0].episodes
    assert run.regret == serial[kind][0].regret
    # The rule that says which answers may be used is needed: without it the bits are others, or nothing fits.
    monkeypatch.setattr(playing_ahead, "_as_if_started_at", lambda request, task, answer: True)
    with suppress(ValueError):  # the learner may notice
        assert outcome(kind, tmp_path / "other.s4q", Unreliable(2, seed=1, lose=0.0))[1] != serial[kind][1]


def test_what_is_discarded_is_counted_once() -> None:
    """By hand: one worker, an Explore whose second shard crosses; the third is in vain, whenever its answer comes."""
    mdp = RIVER
    collector = EpisodeCollector(mdp, seed=0)
    whitener = np.broadcast_to(np.eye(mdp.spec.block_dim), (mdp.horizon, *mdp.spec.gram_shape)).copy()
    first = Explore(0, s4q.UniformPolicy(2), whitener, (400.0, 0.0), 2_000, done=0)
    part = collector.play(first, Shard(0, 256))
    assert part.n_episodes == 256
    explore = Explore(0, first.policy, whitener, (400.0, 0.0), 1_744, done=256, progress=part.progress)

    class Patient:
        """Plays at once, and answers in the order in which it was asked."""

        n_workers = 1
        room = True

        def __init__(self) -> None:
            self.tasks: list[Task] = []

        def has_room(self) -> bool:
            return len(self.tasks) < 3

        def hand_out(self, task: Task) -> None:
            self.tasks.append(task)

        def wait(self) -> list[Outcome]:
            task = self.tasks.pop(0)
            return [Outcome(task.number, collector.play(task.payload.request, task.shard, task.start))]

        def forget(self, payload: Payload) -> None:
            pass

    workers = Patient()
    session = AheadSession(collector, workers, tries=3)
    session._worth_playing = lambda request: collector.shards(request)  # type: ignore[method-assign]
    answer = session.play(explore)
    assert answer.n_episodes < 256  # it crossed
    assert session.cost.discarded_episodes == 0
    assert [task.shard.index for task in workers.tasks] == [512, 768, 1024]  # played ahead, in vain
    session.end()
    assert session.cost.discarded_episodes == 3 * 256


def test_a_crossing_is_foreseen_from_the_progress() -> None:
    whitener = np.ones((2, 1, 1, 1))
    request = Explore(0, s4q.UniformPolicy(2), whitener, (10.0, 0.0), 1_000)
    assert episodes_to_crossing(request) == 0  # nothing is known
    request = Explore(0, s4q.UniformPolicy(2), whitener, (10.0, 0.0), 1_000, done=100, progress=np.array([2.0, 4.0]))
    assert episodes_to_crossing(request) == pytest.approx(150, rel=1e-6)
    request = Explore(0, s4q.UniformPolicy(2), whitener, (10.0, 0.0), 1_000, done=100, progress=np.zeros(2))
    assert episodes_to_crossing(request) == np.inf


def test_short_requests_start_no_process() -> None:
    with s4q.Processes(2) as executor:
        s4q.run(s4q.S4Q(RIVER), EpisodeCollector(RIVER), 100, executor=executor)
        assert executor._pool is not None
        assert executor._pool.pids == []


def test_counts_are_never_sent(two: s4q.Processes) -> None:
    with two.session(CountCollector(RIVER)) as session:
        assert not isinstance(session, AheadSession)


def test_a_request_is_sent_once_to_each_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, str, int]] = []
    send = processes._Worker.send

    def noted(self: Any, kind: str, content: Any) -> None:
        sent.append((id(self), kind, len(pickle.dumps(content))))
        send(self, kind, content)

    monkeypatch.setattr(processes._Worker, "send", noted)
    learner = s4q.S4Q(LOW_RANK, "realisable")
    collector = EpisodeCollector(LOW_RANK)
    request = s4q.Evaluate(0, learner.policy, 256 * 20)
    with s4q.Processes(2) as executor, executor.session(collector) as session:
        assert collect(session, request) == collector.collect(request)
    for worker in {one for one, _, _ in sent}:
        kinds = [kind for one, kind, _ in sent if one == worker]
        assert kinds.count("request") == kinds.count("collector") == 1
    plays = [size for _, kind, size in sent if kind == "play"]
    assert len(plays) == 20
    assert max(plays) < 500  # bytes: a shard is two numbers


def test_kept_steps_travel_as_the_memory_stores_them() -> None:
    """One row of features for each state, whatever the number of actions and levels."""
    features = Waves(3, 50, dense=False)
    features.same_for_all_actions = True  # type: ignore[attr-defined]
    spec = s4q.Spec.of(features, horizon=HORIZON, reward_range=(-1.5, 0.5))
    collector = GymCollector(Drift(), features, spec, seed=0)
    whitener = np.broadcast_to(np.eye(50), (1, 3, 50, 50)).copy()
    request = Explore(0, s4q.UniformPolicy(3), whitener, (1e9, 0.0), 100, keep=100, pool=True)
    answer = collector.play(request, Shard(0, 100))
    states = answer.n_steps + 100  # one more a state than steps in each episode
    gram = 3 * 50 * 50 * 8
    assert len(pickle.dumps(answer)) < states * 50 * 8 * 1.1 + answer.n_steps * 80 + gram + 5_000


def deadly(how: str, harmless: Path) -> tuple[Any, Any]:
    features = Waves(3, 4, dense=False)
    spec = s4q.Spec.of(features, horizon=HORIZON, reward_range=(-1.5, 0.5))
    env = Deadly(how, harmless)
    return s4q.S4Q(spec, "realisable", trigger=60.0, c_replay=6.0), GymCollector(env, features, spec, seed=3)


@pytest.mark.slow
def test_a_shard_that_always_fails_stops_the_run_with_the_cause(tmp_path: Path) -> None:
    harmless = tmp_path / "harmless"
    with s4q.Processes(2, tries=3) as executor:
        for how, kind, says in (
            ("raises", ValueError, "the robot does not answer"),
            ("dies", RuntimeError, "3 workers died while they played episodes .* of request"),
        ):
            path, whole = tmp_path / f"{how}.s4q", tmp_path / f"{how}, whole.s4q"
            learner, collector = deadly(how, harmless)
            with pytest.raises(kind, match=says):
                s4q.run(learner, collector, 1_200, executor=executor, checkpoint=path)
            begun = s4q.load(path)
            assert 0 < begun.progress.episodes < 1_200
            harmless.touch()  # the fault is repaired
            s4q.run(begun, deadly(how, harmless)[1], 1_200, executor=executor, checkpoint=path)
            resumed = bits(s4q.load(path))
            s4q.run(*deadly(how, harmless), 1_200, checkpoint=whole)
            assert resumed == bits(s4q.load(whole))
            harmless.unlink()


def test_an_error_of_a_worker_is_the_error_of_a_run_without(tmp_path: Path, two: s4q.Processes) -> None:
    told = []
    for executor in (None, two):
        learner, collector = deadly("raises", tmp_path / "harmless")
        with pytest.raises(ValueError, match="the robot") as caught:
            s4q.run(learner, collector, 1_200, executor=executor)
        told.append(str(caught.value))
    assert told[0] == told[1]
    assert "in worker process" in caught.value.__notes__[0]
    assert "ConnectionError" in caught.value.__notes__[0]


def test_a_killed_worker_is_replaced(two: s4q.Processes, tmp_path: Path, serial: dict[str, Any]) -> None:
    kind = "replay by episodes"
    killed: list[int] = []

    def kill(run: s4q.Run) -> bool:
        assert two._pool is not None
        living = [pid for pid in two._pool.pids if pid not in killed]
        if living and len(killed) < 2 and run.replay_episodes > 300 * (1 + len(killed)):
            killed.append(living[0])
            os.kill(killed[-1], signal.SIGKILL)
        return False

    learner, collector, episodes = parts(kind)
    s4q.run(learner, collector, episodes, executor=two, checkpoint=tmp_path / "run.s4q", stop=kill)
    assert bits(s4q.load(tmp_path / "run.s4q")) == serial[kind][1]
    assert len(killed) == 2
    assert two._pool is not None
    assert not set(killed) & set(two._pool.pids)


@pytest.mark.slow
def test_the_process_that_starts_workers_killed_too(two: s4q.Processes, tmp_path: Path, serial: dict[str, Any]) -> None:
    kind = "replay by episodes"
    outcome(kind, tmp_path / "first.s4q", two)
    assert two._pool is not None
    assert two._pool._starter is not None
    for pid in (two._pool._starter.pid, *two._pool.pids):
        os.kill(pid, signal.SIGKILL)
    assert outcome(kind, tmp_path / "run.s4q", two)[1] == serial[kind][1]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_close_ends_the_processes() -> None:
    executor = s4q.Processes(2)
    collector = EpisodeCollector(RIVER)
    with executor.session(collector) as session:
        collect(session, s4q.Evaluate(0, s4q.UniformPolicy(2), 2_000))
    assert executor._pool is not None
    pids = executor._pool.pids
    assert pids
    executor.close()
    end = time.monotonic() + 120  # a machine may be slow
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.01)
    assert not any(map(alive, pids))


def test_an_agent_with_workers(two: s4q.Processes) -> None:
    def agent(executor: Any) -> s4q.Agent:
        made = s4q.Agent(gym.make("FrozenLake-v1"), horizon=10, preset="realisable", seed=1, executor=executor)
        return made.learn(2_000)

    alone, helped = agent(None), agent(two)
    assert helped.policy.q.same_as(alone.policy.q)
    assert helped.evaluate(1_000) == alone.evaluate(1_000)


class Handle(Drift):
    """Holds something that cannot be pickled."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


def test_environments_are_copied_made_from_their_id_or_by_a_function() -> None:
    features = Waves(3, 4, dense=False)
    spec = s4q.Spec.of(features, horizon=HORIZON, reward_range=(-1.5, 0.5))
    changed = Drift()
    changed.x = np.array([7.0, 7.0])
    copy = packing.unpack(packing.pack(GymCollector(changed, features, spec), None))
    assert copy.env.x.tolist() == [7.0, 7.0]  # what was changed after it was made travels too
    with pytest.raises(ValueError, match=r"workers need an environment of their own.*pass make_env="):
        packing.pack(GymCollector(Handle(), features, spec), None)
    gym.register("Handle-v0", Handle)
    try:
        registered = GymCollector(gym.make("Handle-v0"), features, spec)
        made = packing.unpack(packing.pack(registered, None))
        assert isinstance(made.env.unwrapped, Handle)
        assert made.env.unwrapped is not registered.env.unwrapped
    finally:
        del gym.registry["Handle-v0"]
    made = packing.unpack(packing.pack(GymCollector(Drift(), features, spec), Drift))
    assert isinstance(made.env, Drift)


def test_refusals(two: s4q.Processes) -> None:
    with pytest.raises(ValueError, match="workers is the number"):
        s4q.Processes(0)
    with pytest.raises(ValueError, match="make_env must be a function"):
        s4q.Processes(2, make_env="CartPole-v1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"executor must be s4q.Serial\(\)"):
        s4q.run(s4q.S4Q(RIVER), EpisodeCollector(RIVER), 10, executor=2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="EpisodeCollector has none"):
        s4q.run(s4q.S4Q(RIVER), EpisodeCollector(RIVER), 10, executor=s4q.Processes(2, make_env=Drift))
    with (
        two.session(EpisodeCollector(RIVER)),
        pytest.raises(ValueError, match="busy with another run"),
        two.session(EpisodeCollector(RIVER)),
    ):
        pass
    request = Explore(0, s4q.UniformPolicy(2), np.ones((12, 12, 1, 1)), (1.0, 0.0), 10)
    with (
        s4q.Serial().session(EpisodeCollector(RIVER)) as session,
        pytest.raises(ValueError, match="a Regress or"),
    ):
        collect(session, request)


def test_executors_travel_without_their_processes(two: s4q.Processes) -> None:
    copy = pickle.loads(pickle.dumps(two))
    assert (copy.workers, copy._pool) == (2, None)


FAULTS = """
import resource
import numpy as np
np.ones(10**6)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    a = np.ones(10**6 // 8 * 2)
    b = a + a
    del a, b
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the variables are those of glibc")
def test_workers_keep_the_memory_of_freed_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in processes._MALLOC:
        monkeypatch.delenv(name, raising=False)

    def faults(environment: dict[str, str]) -> int:
        env = {**os.environ, **environment}
        return int(subprocess.run([sys.executable, "-c", FAULTS], env=env, capture_output=True, check=True).stdout)

    # Arrays of 2 MB, which are cleared by the system page by page whenever they are new.
    given_back = {"MALLOC_MMAP_THRESHOLD_": "131072"}
    assert faults(given_back) > 10_000 > 5 * faults(processes.worker_environment())
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "5")
    assert not processes._MALLOC.items() & processes.worker_environment().items()  # the user's stays


class Lost(Exception):
    """What Ray raises for a worker that died."""


class Failed(Lost):
    """What Ray raises for a task that raised."""


class LastFirstRay:
    """As much of Ray as `Ray.each` needs. The task that was submitted last ends first; some lose their worker."""

    exceptions = SimpleNamespace(RayError=Lost, RayTaskError=Failed)

    def __init__(self, deaths: dict[Any, int]) -> None:
        self.deaths, self.most, self.cancelled = deaths, 0, list[Any]()

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 3.0}

    def remote(self, **_: Any) -> Any:
        return lambda task: SimpleNamespace(remote=lambda *arguments: (object(), task, arguments))

    def wait(self, references: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        self.most = max(self.most, len(references))
        return references[-num_returns:], references[:-num_returns]

    def get(self, reference: Any) -> Any:
        _, task, (function, argument) = reference
        if self.deaths.get(argument, 0) > 0:
            self.deaths[argument] -= 1
            raise Lost("the worker died")
        try:
            return task(function, argument)
        except ZeroDivisionError as error:
            raise Failed(str(error)) from error

    def cancel(self, reference: Any, *, force: bool) -> None:
        assert force
        self.cancelled.append(reference[2][1])


def test_calls_on_ray_end_in_any_order_and_lost_ones_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = LastFirstRay({4: 2, 1: 1})
    monkeypatch.setitem(sys.modules, "ray", ray)
    found = list(s4q.Ray().each(lambda x: 12 // x, [1, 2, 3, 4, 6]))
    assert dict(found) == {1: 12, 2: 6, 3: 4, 4: 3, 6: 2}
    assert len(found) == 5
    assert (ray.most, ray.deaths, ray.cancelled) == (3, {4: 0, 1: 0}, [])
    ray.deaths[2] = 3
    with pytest.raises(RuntimeError, match="3 workers died over 2; the last one: Lost: the worker died"):
        list(s4q.Ray(tries=3).each(lambda x: x, [1, 2]))
    with pytest.raises(RuntimeError, match=r"a Ray task failed: .*by zero"):
        list(s4q.Ray(workers=2).each(lambda x: 12 // x, [1, 0]))
    assert ray.cancelled == [1, 1]  # of both, the call that was still running
    assert list(s4q.Ray("nowhere:1").each(len, [])) == []


def test_a_missing_extra_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r'^Ray needs pip install "s4q\[ray\]"$'):
        s4q.Ray()


@pytest.mark.slow
def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    """Workers never run the script that starts them, and classes of a script reach them."""
    script = tmp_path / "script.py"
    script.write_text(
        "import s4q, gymnasium as gym\n"
        "class Mine(gym.Wrapper):\n"
        "    pass\n"
        "env = Mine(gym.make('FrozenLake-v1'))\n"
        "agent = s4q.Agent(env, horizon=10, reward_range=(0, 1), preset='realisable', executor=s4q.Processes(2))\n"
        "print(agent.learn(1_500).n_episodes, agent.last_run.phases > 2)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=900, check=False, env=environment
    )
    assert (done.stdout, done.stderr) == ("1500 True\n", "")


@pytest.mark.slow
def test_the_command_with_workers() -> None:
    plain = ["train", "FrozenLake-v1", "--horizon", "10", "--preset", "realisable", "--episodes", "1500", "--seed", "1"]
    alone, helped = (CliRunner().invoke(app, [*plain, *more]) for more in ([], ["--workers", "2"]))
    assert alone.exit_code == helped.exit_code == 0, helped.output

    def without_time(text: str) -> str:
        return re.sub(r"cpu_seconds=[^,)]*", "", text)

    assert without_time(helped.stdout) == without_time(alone.stdout)
    refused = CliRunner().invoke(app, ["train", "chain", "--workers", "2"], env={"COLUMNS": "200"})
    assert refused.exit_code == 2
    assert "--workers and --ray are for environments" in refused.output


def test_the_command_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for line in (["train", "FrozenLake-v1"], ["compare", "-p", "chain", "-l", "s4q"]):
        for address in ([], ["local"], ["10.0.0.1:6379"]):
            told = CliRunner().invoke(app, [*line, "--ray", *address], env={"COLUMNS": "200"})
            assert told.exit_code == 2
            assert told.stderr.splitlines()[0] == 'error: Ray needs pip install "s4q[ray]"'
