"""What a user sees on the way: `python -m benchmarks.progress` learns Taxi and prints `agent.progress` at some points.

Taxi pays nothing for long: half way the newest returns look hopeless. The text must say that exploration is going on,
and roughly what is left of it. With a number of episodes as argument it goes that far.
"""

import sys

import gymnasium as gym

import s4q

POINTS = (100, 500, 1_000, 1_500, 2_000, 2_500)


def shown(points: tuple[int, ...] = POINTS, horizon: int | None = None) -> list[str]:
    """The text at each of these numbers of episodes.

    Args:
        points: Numbers of episodes, in order.
        horizon: Steps of an episode. None (default): the time limit, 200.
    """
    agent = s4q.Agent(gym.make("Taxi-v4"), horizon=horizon, seed=0)
    texts = []
    for point in points:
        agent.learn(point - agent.n_episodes)
        texts.append(str(agent.progress))
        print(texts[-1], flush=True)
    return texts


if __name__ == "__main__":
    last = int(sys.argv[1]) if len(sys.argv) > 1 else POINTS[-1]
    shown(tuple(point for point in POINTS if point <= last))
