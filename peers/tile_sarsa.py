"""SARSA(lambda) with tile coding, online and sparse, as Sutton and Barto (2018) describe it in section 12.7.

    for every step (s, a, r, s'), with a' the next action:
        td = r + Q(s', a') - Q(s, a)                # Q(s', a') = 0 where the episode ended
        the traces of the tiles of (s, a) become 1, all others of s's tiles 0 (replacing traces)
        theta += step_size / n_tilings * td * traces
        traces *= lambda

Only the tiles that are touched cost anything, so it takes microseconds where dense features take milliseconds.
"""

from typing import Any

import numpy as np

from s4q.features import Tiles


class TileSarsa:
    """SARSA(lambda) on an environment of Gymnasium.

    Args:
        tiles: The tile coding of the observations.
        n_actions: Number of actions.
        step_size: Step size, shared by the tiles of a state.
        trace: lambda.
        epsilon: Probability of a uniform action in the first episode.
        decay: Factor of epsilon after each episode.
        seed: Seed of the uniform actions and of the environment.
    """

    def __init__(
        self,
        tiles: Tiles,
        n_actions: int,
        *,
        step_size: float = 0.5,
        trace: float = 0.9,
        epsilon: float = 0.1,
        decay: float = 0.97,
        seed: int = 0,
    ) -> None:
        self.tiles, self.step_size, self.trace, self.decay = tiles, step_size, trace, decay
        self.epsilon, self.seed = epsilon, seed
        self.theta = np.zeros((n_actions, tiles.dim))
        self._rng = np.random.default_rng(seed)

    def values(self, active: np.ndarray) -> np.ndarray:
        """Q of every action, from the active tiles of a state."""
        return np.asarray(self.theta[:, active].sum(axis=1))

    def action(self, active: np.ndarray, epsilon: float = 0.0) -> int:
        """The greedy action, or a uniform one with probability epsilon; among equals the first."""
        if epsilon and self._rng.random() < epsilon:
            return int(self._rng.integers(len(self.theta)))
        return int(self.values(active).argmax())

    def active(self, observation: Any) -> np.ndarray:
        """The tiles of an observation."""
        return self.tiles.active(np.asarray(observation, dtype=np.float64)[None])[0]

    def episode(self, env: Any, seed: int | None = None) -> None:
        """Play an episode and learn from it."""
        traces: dict[tuple[int, int], float] = {}
        active = self.active(env.reset(seed=seed)[0])
        action, over = self.action(active, self.epsilon), False
        rate = self.step_size / self.tiles.n_tilings
        while not over:
            observation, reward, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
            error = reward - self.theta[action, active].sum()
            for tile in active.tolist():
                for other in range(len(self.theta)):
                    traces.pop((other, tile), None)
                traces[action, tile] = 1.0
            if not terminated:
                following = self.active(observation)
                next_action = self.action(following, self.epsilon)
                error += self.theta[next_action, following].sum()
                active_next, action_next = following, next_action
            rows, columns = np.array(list(traces), dtype=np.int64).T
            self.theta[rows, columns] += rate * error * np.array(list(traces.values()))
            traces = {key: self.trace * value for key, value in traces.items() if value > 0.01}
            if not over:
                active, action = active_next, action_next
        self.epsilon *= self.decay
