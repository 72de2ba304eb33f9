"""Linear Q-learning with experience replay and a target network: DQN with linear features.

Mnih et al. (2015): Human-level control through deep reinforcement learning; Lin (1992): Self-improving reactive agents.

    after every episode:
        store its steps (h, s, a, r, s')
        several times:
            draw a batch of stored steps, uniformly
            td = r + max_a' phi(s', a') . target_{h+1} - phi(s, a) . theta_h
            theta_h += step_size * mean of td * phi(s, a)       over the drawn steps of one block of level h
        every few episodes:  target = theta
    the next episode plays the greedy policy of theta, with a uniform action with probability epsilon

The memory grows with the episodes, up to `capacity` steps. The mean is taken block by block so that one step size suits
one-hot and dense features. Batches depend on the seed and the episodes so far alone.
"""

from typing import final

import numpy as np

from s4q.baselines.first_order import FirstOrderLearner
from s4q.baselines.random_numbers import learner_rng
from s4q.baselines.step_buffer import StepBuffer
from s4q.core.blocks import Array, IntArray
from s4q.core.messages import Spec, Transitions, Visits
from s4q.core.spec import HasSpec, spec_of
from s4q.core.validation import require_count


@final
class ReplayQ(FirstOrderLearner):
    """Linear Q-learning on a replay buffer; ask and tell.

    Args:
        problem: A Spec, or anything with `.spec`, such as a FiniteMDP.
        epsilon: Probability of a uniform action. 0.1 by default.
        step_size: Step size of a batch. 0.1 by default.
        batch: Steps of a batch. 32 by default.
        updates: Batches after an episode. 10 by default.
        target_every: Episodes between two copies of the target. 10 by default.
        capacity: The most steps that are held. None (default): all.
        optimistic: True starts every entry of the parameter at the value bound. False by default.
        seed: Seed of the batches. 0 by default.

    >>> import s4q
    >>> mdp = s4q.problems.low_rank()
    >>> run = s4q.run(ReplayQ(mdp, step_size=1.0), s4q.collectors.EpisodeCollector(mdp, seed=0), episodes=200)
    >>> run.phases, bool(run.gap < 0.2 * mdp.v_star)
    (200, True)
    """

    _counts_visits = False

    def __init__(
        self,
        problem: Spec | HasSpec,
        epsilon: float = 0.1,
        *,
        step_size: float = 0.1,
        batch: int = 32,
        updates: int = 10,
        target_every: int = 10,
        capacity: int | None = None,
        optimistic: bool = False,
        seed: int = 0,
    ) -> None:
        require_count("batch", batch, "the number of steps of a batch")
        require_count("updates", updates, "the number of batches after an episode")
        require_count("target_every", target_every, "the number of episodes between two copies of the target")
        require_count("seed", seed, "the seed of the batches", at_least=0)
        if capacity is not None:
            require_count("capacity", capacity, "the most steps that are held")
        self.batch, self.updates, self.target_every, self.seed = batch, updates, target_every, int(seed)
        self.buffer = StepBuffer(spec_of(problem), capacity)
        super().__init__(problem, epsilon, step_size=step_size, optimistic=optimistic)
        self.target = self.theta.copy()

    def _take(self, steps: Transitions, answer: Visits) -> None:
        self.buffer.add(steps)
        rng = learner_rng(self.seed, self.n_episodes)
        for drawn in rng.integers(len(self.buffer), size=(self.updates, self.batch)):
            self._update(drawn)
        if (self.n_episodes + answer.n_episodes) % self.target_every == 0:
            self.target = self.theta.copy()

    def _update(self, drawn: IntArray) -> None:
        """One step of the parameter, on these rows of the buffer."""
        levels, blocks, phi = (getattr(self.buffer, name)[drawn] for name in ("levels", "blocks", "vectors"))
        td_errors = self.buffer.rewards[drawn] + self._next_values(drawn) - np.vecdot(self.theta[levels, blocks], phi)
        cells, where, counts = np.unique(levels * self.spec.n_blocks + blocks, return_inverse=True, return_counts=True)
        sums = np.zeros((len(cells), self.spec.block_dim))
        np.add.at(sums, where, td_errors[:, None] * phi)
        rows, columns = np.divmod(cells, self.spec.n_blocks)
        self.theta[rows, columns] += self.step_size.size * sums / counts[:, None]

    def _next_values(self, drawn: IntArray) -> Array:
        """max_a' of the target in the next states; the known value where an episode ended."""
        buffer, last = self.buffer, self.spec.horizon - 1
        levels = buffer.levels[drawn]
        following = self.target[np.minimum(levels + 1, last)[:, None], buffer.next_blocks[drawn]]
        values = np.vecdot(following, buffer.next_vectors[drawn]).max(axis=1)
        known = np.array([self.spec.ended_value(h) for h in levels.tolist()])
        return np.where(buffer.ended[drawn], known, np.where(levels < last, values, 0.0))

    @property
    def nbytes(self) -> int:
        """Bytes held by the learner's arrays, the buffer included."""
        return super().nbytes + self.buffer.nbytes + self.target.nbytes
