"""How many functions and files of s4q one Gymnasium episode passes through: fewer hops are easier to read.

Run by hand: `python -m benchmarks.hops`. It plays FrozenLake with a preset's own requests, so the learner's classes are
those of a real run, and counts only what a warm collector enters during one more episode. It must not be imported.
"""

import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import gymnasium as gym

import s4q
from s4q.collectors import GymCollector
from s4q.core.messages import Explore, Regress, Shard
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
    """Print the counts for one episode of an Explore and of a Regress."""
    env = gym.make("FrozenLake-v1", max_episode_steps=HORIZON)
    features = OneHot(16, n_actions=4)
    spec = s4q.Spec.of(features, horizon=HORIZON, reward_range=(0, 1))
    collector = GymCollector(env, features, spec)
    learner = s4q.S4Q(spec, "realisable", trigger=4.0)
    warm: dict[type, Any] = {}
    for _ in range(500):  # until both kinds of requests have been answered several times
        request = learner.ask(10**6)
        if isinstance(request, Explore) or request.level == 1:  # a level that nearly every episode reaches
            warm[type(request)] = request
        shard = next(iter(collector.shards(request)))
        small = Shard(shard.index, min(shard.n_episodes, 8))
        start = request.start() if isinstance(request, Explore) else None
        learner.tell(request, collector.play(request, small, start))
    for kind in (Explore, Regress):
        request = warm[kind]
        shard = Shard(request.done, 1)
        start = request.start() if kind is Explore else None
        codes = entered(lambda r=request, s=shard, b=start: collector.play(r, s, b))  # type: ignore[misc]
        files = {code.co_filename for code in codes}
        print(f"{kind.__name__}: {len(codes)} functions in {len(files)} files")
        if "-v" in sys.argv:
            for code in sorted(codes, key=lambda c: (c.co_filename, c.co_firstlineno)):
                print("   ", Path(code.co_filename).relative_to(SOURCE), code.co_qualname)


if __name__ == "__main__":
    main()
