"""Small runs for tests of plots, pages and commands: made once, in a second or two."""

from pathlib import Path
from typing import Any

import s4q
from s4q.report import RunSource


def counted_run(episodes: int = 400, **options: Any) -> tuple[s4q.FiniteMDP, s4q.S4Q, s4q.Run]:
    """A replaying run on a small DeepSea, whose values are exact."""
    mdp = s4q.problems.deep_sea(4)
    learner = s4q.S4Q(mdp, "realisable")
    return mdp, learner, s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=0), episodes, **options)


def counted_source(**changes: Any) -> RunSource:
    """What a report of that run is made from."""
    mdp, learner, run = counted_run()
    known: dict[str, Any] = {"problem": "deep_sea(4)", "run": run, "learner": learner, "mdp": mdp, "seed": 0}
    return RunSource(**known | changes)


def stepped_agent(episodes: int = 30) -> s4q.Agent:
    """A short run on MountainCar with few features, far from solving it."""
    import gymnasium

    env = gymnasium.make("MountainCar-v0", max_episode_steps=20)
    features = s4q.features.PerAction(s4q.features.Fourier(env.observation_space, order=1), 3)
    return s4q.Agent(env, features, reward_range=(-1, 0), seed=0, trigger=20.0).learn(episodes)


def lake_checkpoint(folder: Path, episodes: int = 150) -> Path:
    """A run on FrozenLake, saved as `s4q train` saves it."""
    import gymnasium

    path = folder / "lake.s4q"
    settings = {"problem": "FrozenLake-v1", "preset": "practical", "horizon": 20, "reward_range": None}
    agent = s4q.Agent(gymnasium.make("FrozenLake-v1"), horizon=20, seed=0)
    agent.learn(episodes, checkpoint=s4q.Autosave(path, extra={"train": settings}))
    return path
