"""Your own loop: a live system that calls `act` and `observe`, and cannot be reset early."""

import sys

import numpy as np

import s4q

EPISODES = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000


class Machine:
    """Eight settings; the right knob moves up most of the time, the wrong one down. Setting 7 pays."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._right = [0, 1, 1, 0, 1, 0, 0, 1]

    def start(self) -> int:
        self._setting = 0
        return self._setting

    def apply(self, knob: int) -> tuple[float, int, bool]:
        """Reward, new setting, and whether the machine has stopped."""
        up = knob == self._right[self._setting] and self._rng.random() < 0.9
        self._setting = min(self._setting + 1, 7) if up else max(self._setting - 1, 0)
        return float(self._setting == 7), self._setting, False


system = Machine(seed=0)
features = s4q.features.OneHot(8, n_actions=2)
spec = s4q.Spec.of(features, horizon=20, reward_range=(0, 1), stationary=True, well_specified=True)
stream = s4q.Stream(s4q.S4Q(spec), features, seed=0)

earned = []
for _ in range(EPISODES):
    observation, over, total = system.start(), False, 0.0
    while not over:
        reward, observation, ended = system.apply(stream.act(observation))
        over = stream.observe(reward, observation, terminated=ended)
        total += reward
    earned.append(total)

tenth = max(EPISODES // 10, 1)
first, last = np.mean(earned[:tenth]), np.mean(earned[-tenth:])
print(f"mean return of the first {tenth} episodes {first:.2f}, of the last {last:.2f}")
print(stream.learner)
