"""How many functions and files of s4q one Gymnasium episode passes through: fewer hops are easier to read.

Run by hand: `python -m benchmarks.hops` (`-v` lists the functions). It plays FrozenLake with the requests of a learner
and counts what is entered during one more episode, after warm-up. It measures nothing else.
"""

import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import gymnasium as gym

import s4q
from s4q.collectors import GymCollector
from s4q.core.messages import Explore, Shard
from s4q.features import OneHot

HORIZON = 6
SOURCE = str(Path(s4q.__file__).parent)


def entered(work: Any) -> set[CodeType]:
    """The functions of s4q that were called during `work()`, comprehensions and lambdas left out."""
    found: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        del argument
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE) and frame.f_code.co_name[0] != "<":
            found.add(frame.f_code)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def main() -> None:
    """Print the counts for one episode of an Explore and of a Regress: of the collector, and of `run` as a whole."""
    env = gym.make("FrozenLake-v1", max_episode_steps=HORIZON)
    features = OneHot(16, n_actions=4)
    spec = s4q.Spec.of(features, horizon=HORIZON, reward_range=(0, 1))
    collector = GymCollector(env, features, spec)
    learner = s4q.S4Q(spec, "realisable", trigger=4.0)
    found: dict[type, tuple[set[CodeType], set[CodeType]]] = {}
    for _ in range(500):  # until both kinds of requests have been answered several times
        request = learner.ask(1)
        if isinstance(request, Explore) or request.level == 1:  # a level that nearly every episode reaches
            alone = entered(lambda r=request: collector.play(r, Shard(r.done, 1)))  # type: ignore[misc]
            found[type(request)] = (alone, entered(lambda: s4q.run(learner, collector, 1)))
        else:
            s4q.run(learner, collector, 1)
    for kind, counts in found.items():
        for name, codes in zip(("collector", "run"), counts, strict=True):
            print(f"{kind.__name__}, {name}: {len(codes)} functions in {len({c.co_filename for c in codes})} files")
        if "-v" in sys.argv:
            for code in sorted(counts[0], key=lambda c: (c.co_filename, c.co_firstlineno)):
                print("   ", Path(code.co_filename).relative_to(SOURCE), code.co_qualname)


if __name__ == "__main__":
    main()
