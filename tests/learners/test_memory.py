"""Resident memory while learning does not grow with the number of episodes."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import gc, sys
import numpy as np
import s4q
from s4q.collectors import BatchCollector, FiniteBatch, GymCollector
from small_envs import MDPEnv

kind, first, second = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
mdp = s4q.problems.river_swim(4, horizon=3)
env = FiniteBatch(mdp)

class Hoarder:
    '''Planted: a simulator that never forgets a state.'''
    n_states, mdp = mdp.n_states, mdp
    def __init__(self): self.seen = []
    def start(self, n, rng): return env.start(n, rng)
    def step(self, h, states, actions, rng):
        self.seen.append(states)
        return env.step(h, states, actions, rng)

if kind == "gym":
    collector = GymCollector(MDPEnv(mdp), mdp.features, mdp.spec)
else:
    collector = BatchCollector(Hoarder() if kind == "hoard" else env, mdp.features, mdp.spec)

def resident():
    gc.collect()
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS"))

learner = s4q.S4Q(mdp, "realisable")
s4q.run(learner, collector, first)
before, held = resident(), learner.nbytes / 2**20
s4q.run(learner, collector, second - first)
print(resident() - before - (learner.nbytes / 2**20 - held))
"""


def growth(kind: str, first: int, second: int) -> float:
    """MB that the process grew by between two numbers of episodes, the learner's own policies left out."""
    root = Path(__file__).parents[2]
    path = f"{root / 'src'}:{root / 'tests' / 'helpers'}"
    command = [sys.executable, "-c", SCRIPT, kind, str(first), str(second)]
    done = subprocess.run(command, env={"PYTHONPATH": path}, capture_output=True, text=True, check=True)
    return float(done.stdout)


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="resident size is read from /proc")


@needs_proc
@pytest.mark.slow
def test_memory_at_a_hundred_thousand_and_two_million_episodes() -> None:
    assert growth("batch", 10**5, 2 * 10**6) < 5


@needs_proc
@pytest.mark.slow
def test_the_memory_test_notices_what_is_kept() -> None:
    assert growth("hoard", 10**5, 10**6) > 10


@needs_proc
@pytest.mark.slow
def test_memory_of_a_stepped_env() -> None:
    assert growth("gym", 5_000, 50_000) < 5
