"""A run that is killed again and again: `python storm.py FOLDER KIND KILLS SEED` prints what came of it as JSON.

The library is loaded once and each attempt is a fork of this process, so that moments of death fall in the run and
not in its imports. Every death is a SIGKILL at a random moment, of an Agent every third a SIGTERM; after
each the file must be whole.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from small_problems import random_mdp

import s4q
from s4q.collectors import CountCollector, EpisodeCollector
from s4q.running.interruption import Terminated

RIVER = s4q.problems.river_swim(6, 12)
DENSE = random_mdp(5, 3, 4, 3, seed=1)
SKETCHED, REPLAYED, FIXED = "practical, counts", "realisable, counts", "S3Q, episodes"
EVALUATED, WARM = "realisable, counts, evaluated", "practical, counts, after logged steps"
LEARNED, LEARNED_EPISODES = "Agent.learn", 120
CUT = "Agent.learn after learn_from, episodes cut before the horizon"
AGENTS = (LEARNED, CUT)


def parts(kind: str) -> tuple[Any, Any, int]:
    """A new learner, a collector and the number of episodes; each run takes some tenths of a second."""
    if kind == SKETCHED:
        return s4q.S4Q(RIVER, memory_bytes=1200), CountCollector(RIVER, seed=7), 120
    if kind == WARM:
        learner = s4q.S4Q(RIVER, memory_bytes=1200)
        logged = CountCollector(RIVER, seed=99).collect(learner.ask(20))
        learner.learn_from([logged.kept], logged.n_episodes)
        return learner, CountCollector(RIVER, seed=7), 120
    if kind in (REPLAYED, EVALUATED):
        return s4q.S4Q(RIVER, preset="realisable"), CountCollector(RIVER, seed=7), 10**4
    return s4q.S3Q(DENSE, s4q.UniformPolicy(3)), EpisodeCollector(DENSE, seed=7), 12_000


def logged_steps() -> dict[str, Any]:
    """Some steps of FrozenLake without ice: along the upper row and back."""
    cells = np.array([0, 1, 2, 3, 2, 1])
    after, actions = np.roll(cells, -1), np.array([2, 2, 2, 0, 0, 0])
    flags = np.zeros(6, dtype=bool)
    return {
        "observations": cells,
        "actions": actions,
        "rewards": np.zeros(6),
        "next_observations": after,
        "terminated": flags,
        "levels": np.arange(6),
    }


def learn(path: Path, kind: str, minutes: float) -> None:
    """The same with an Agent."""
    env = gym.make("FrozenLake-v1", max_episode_steps=7 if kind == CUT else 100)
    options: dict[str, Any] = {"callback": s4q.JsonLines(path.with_suffix(".jsonl"))}
    autosave = s4q.Autosave(path, minutes)
    if path.exists():
        s4q.Agent.load(path, env).resume(checkpoint=autosave, **options)
        return
    agent = s4q.Agent(env, horizon=12, seed=7)
    if kind == CUT:
        agent.learn_from(logged_steps())
    agent.learn(LEARNED_EPISODES, checkpoint=autosave, **options)


def play(path: Path, kind: str, minutes: float = 1e-9) -> None:
    """From the checkpoint, or from the beginning; a checkpoint after every shard."""
    if kind in AGENTS:
        learn(path, kind, minutes)
        return
    learner, collector, episodes = parts(kind)
    source = s4q.load(path) if path.exists() else learner
    log = s4q.JsonLines(path.with_suffix(".jsonl"))
    share = 0.3 if kind == EVALUATED and source is learner else None  # resumed, a run has its own
    autosave = s4q.Autosave(path, minutes)
    s4q.run(source, collector, episodes, checkpoint=autosave, callback=log, evaluation_share=share)


def killed(path: Path, kind: str, seconds: float, number: int = signal.SIGKILL) -> bool:
    """Play in a process of its own and kill it after a while; False when it was done before."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            play(path, kind)
            status = 0
        except Terminated as end:
            status = end.code
        finally:
            os._exit(status)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG) != (0, 0):
            return False
        time.sleep(0.0005)
    os.kill(child, number)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) in (-number, 128 + number)


def storm(folder: Path, kind: str, kills: int, seed: int) -> dict[str, Any]:
    """Kill until there were enough deaths; run after run if one is not enough. The last one is left to finish."""
    before = time.monotonic()
    play(folder / "whole.s4q", kind)
    whole = time.monotonic() - before
    rng = np.random.default_rng(seed)
    deaths = rounds = torn = inside = 0
    end = LEARNED_EPISODES if kind in AGENTS else parts(kind)[2]
    while deaths < kills or not inside:  # on a machine that became slow, the first deaths come before any work is done
        rounds += 1
        path = folder / f"round{rounds}.s4q"
        alive = True
        while alive:
            longest = 1.5 * whole / min(kills, 8) * max(1, 2 + deaths - kills)
            wait = float(rng.uniform(0, longest)) if deaths < kills or not inside else 600.0
            number = signal.SIGTERM if kind in AGENTS and deaths % 3 == 2 else signal.SIGKILL
            alive = killed(path, kind, wait, number)
            deaths += alive
            for file in (path, Path(f"{path}.previous")):
                if file.exists():
                    try:
                        inside += alive and 0 < s4q.load(file).progress.episodes < end
                    except s4q.CheckpointError:
                        torn += 1
    return {"deaths": deaths, "rounds": rounds, "torn": torn, "inside": inside}


if __name__ == "__main__":
    print(json.dumps(storm(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
