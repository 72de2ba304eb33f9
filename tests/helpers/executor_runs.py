"""Small runs for the tests of executors: each kind of collector, with requests of several shards."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
from small_envs import Drift, Waves
from states import bits

import s4q
from s4q.collectors import BatchCollector, EpisodeCollector, FiniteBatch, GymCollector, VectorCollector
from s4q.collectors.sharding import fixed_shards
from s4q.collectors.stepping.stepping_collector import SteppingCollector

RIVER = s4q.problems.river_swim(6, 12)
LOW_RANK = s4q.problems.low_rank()
HORIZON = 6

KINDS = ("replay by episodes", "replay in batches", "sketch", "environment", "vector", "S3Q", "evaluated")


def parts(kind: str) -> tuple[Any, Any, int]:
    """A new learner, a new collector and the number of episodes."""
    if kind == "replay by episodes":
        return s4q.S4Q(RIVER, "realisable", c_replay=60.0), EpisodeCollector(RIVER, seed=3), 9_000
    if kind in ("replay in batches", "evaluated"):
        simulator = FiniteBatch(LOW_RANK)
        collector = BatchCollector(simulator, LOW_RANK.features, LOW_RANK.spec, seed=3, batch_size=128)
        return s4q.S4Q(LOW_RANK, "realisable"), collector, 12_000
    if kind == "sketch":  # phases of several shards, whose steps are kept
        return s4q.S4Q(RIVER, trigger=1500.0), EpisodeCollector(RIVER, seed=3), 3_000
    if kind == "S3Q":
        return s4q.S3Q(RIVER, controller=s4q.UniformPolicy(2), epoch_size=700), EpisodeCollector(RIVER, seed=3), 8_400
    features = Waves(3, 4, dense=False)
    spec = s4q.Spec.of(features, horizon=HORIZON, reward_range=(-1.5, 0.5))
    learner = s4q.S4Q(spec, "realisable", trigger=60.0, c_replay=6.0)
    if kind == "vector":
        env = gym.vector.SyncVectorEnv([Drift] * 3)
        return learner, VectorCollector(env, features, spec, seed=3), 1_200
    return learner, GymCollector(Drift(), features, spec, seed=3), 1_200


def outcome(kind: str, path: Path, executor: Any) -> tuple[s4q.Run, Any]:
    """The run, and every bit of what it learned and counted."""
    learner, collector, episodes = parts(kind)
    share = 0.2 if kind == "evaluated" else None
    path = path.with_name(f"{kind}, {path.name}")  # a file of another run is never written over
    run = s4q.run(learner, collector, episodes, executor=executor, checkpoint=path, evaluation_share=share)
    return run, bits(s4q.load(path))


class Noted(SteppingCollector):
    """An EpisodeCollector with small shards that takes its time, and notes in a file each shard that it begins."""

    def __init__(self, mdp: s4q.FiniteMDP, seed: int, notes: Path, seconds: float) -> None:
        super().__init__(mdp.spec, seed, at_once=64)
        self.notes, self.seconds = notes, seconds
        self._inner = EpisodeCollector(mdp, seed)

    def shards(self, request: Any) -> Any:
        return fixed_shards(request, 64)

    def _play(self, sums: Any, episodes: range) -> Any:
        line = f"{os.getpid()} {sums.request.id} {sums.shard.index}\n"
        with open(self.notes, "a") as file:
            file.write(line)
        time.sleep(self.seconds)
        return self._inner._play(sums, episodes)


class Deadly(Drift):
    """Kills its process, or raises, at a given episode of its life; `harmless` where a file is."""

    def __init__(self, how: str, harmless: Path) -> None:
        super().__init__()
        self.how, self.harmless = how, harmless

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple:
        if seed is not None and seed % 101 == 0 and not self.harmless.exists():
            if self.how == "raises":
                raise ConnectionError("the robot does not answer")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().reset(seed=seed, options=options)


def survivor(call: tuple[Path, int]) -> int:
    """Kills its process so many times, counted in a file, and then says how often it was called."""
    notes, deaths = call
    if deaths < 0:
        raise ValueError(f"deaths must not be negative; got {deaths}")
    with open(notes, "a") as file:
        file.write("x")
    called = len(notes.read_text())
    if called <= deaths:
        os.kill(os.getpid(), signal.SIGKILL)
    return called


def attempts(notes: Path) -> list[int]:
    """Process ids of all shards that Noted collectors began, in their order."""
    return [int(line.split()[0]) for line in notes.read_text().splitlines()] if notes.exists() else []


def marked_processes(mark: str) -> list[int]:
    """Living processes that have this text in their environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (place / "environ").read_bytes() and (place / "cmdline").read_bytes():
                found.append(int(place.name))
        except OSError:  # it has ended, or is another user's
            continue
    return found


def slow_run(folder: Path, executor: Any, seconds: float = 0.05) -> s4q.Run:
    """A run of about 90 shards that takes its time; it goes on from its checkpoint if there is one."""
    path = folder / "run.s4q"
    begun = s4q.load(path) if path.exists() else s4q.S3Q(RIVER, s4q.UniformPolicy(2), epoch_size=500)
    collector = Noted(RIVER, 3, folder / "notes", seconds)
    return s4q.run(begun, collector, 6_000, executor=executor, checkpoint=s4q.Autosave(path, 1e-9))


if __name__ == "__main__":  # a driver to be killed: `python executor_runs.py FOLDER processes|ray`
    import sys

    slow_run(Path(sys.argv[1]), s4q.Processes(3) if sys.argv[2] == "processes" else s4q.Ray(workers=2))
