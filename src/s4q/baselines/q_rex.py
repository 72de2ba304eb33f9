"""Q-Rex: Q-learning with a target network and reverse experience replay, in an episodic form.

Agarwal, Chaudhuri, Jain, Nagaraj, Netrapalli (2021): Online target Q-learning with reverse experience replay,
Algorithm 1.

    for every buffer of a few episodes:
        for every step (h, s, a, r, s') of the buffer, the last one first:
            td = r + max_a' phi(s', a') . target_{h+1} - phi(s, a) . theta_h
            theta_h += rate * td * phi(s, a)
        after every `target_every` buffers:  target = theta
    the next episode plays the greedy policy of the target, with a uniform action with probability epsilon

What differs from the paper. Its problem is discounted and has no episodes: one long trajectory of a fixed behaviour
policy is cut into buffers with gaps between them. Here a buffer is some whole episodes, which need no gaps, the
behaviour changes with the target, and there is one parameter a level unless shared=True. With one-hot features and one
parameter a level the order inside an episode changes nothing, because the target stands still.
"""

from typing import final

from s4q.baselines.first_order import FirstOrderLearner, Step, best_next
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Policy, Spec, Transitions, Visits
from s4q.core.spec import HasSpec
from s4q.core.validation import require_count


@final
class QRex(FirstOrderLearner):
    """Q-Rex; ask and tell.

    Args:
        problem: A Spec, or anything with `.spec`, such as a FiniteMDP.
        epsilon: Probability of a uniform action. 0.1 by default; 1 for a fixed uniform behaviour.
        step_size: The first step size. 0.1 by default.
        decay: The n-th step in a block has step_size / n^decay. 0 by default.
        buffer_episodes: Episodes of a buffer. 1 by default.
        target_every: Buffers between two copies of the target. 10 by default.
        optimistic: True starts every entry of the parameter at the value bound. False by default.
        shared: True for one parameter for all levels. False by default.
        discount: Factor of the next value. 1 by default; less only with shared weights.

    >>> import s4q
    >>> mdp = s4q.problems.chain(4, 4)
    >>> run = s4q.run(QRex(mdp, optimistic=True), s4q.collectors.EpisodeCollector(mdp, seed=0), episodes=600)
    >>> run.episodes, bool(run.gap < 0.01)
    (600, True)
    """

    def __init__(
        self,
        problem: Spec | HasSpec,
        epsilon: float = 0.1,
        *,
        step_size: float = 0.1,
        decay: float = 0.0,
        buffer_episodes: int = 1,
        target_every: int = 10,
        optimistic: bool = False,
        shared: bool = False,
        discount: float = 1.0,
    ) -> None:
        require_count("buffer_episodes", buffer_episodes, "the number of episodes of a buffer")
        require_count("target_every", target_every, "the number of buffers between two copies of the target")
        self.buffer_episodes, self.target_every = buffer_episodes, target_every
        self._buffer: list[Step] = []
        self._n_buffered = self._n_buffers = 0
        self._new_target = True
        super().__init__(
            problem,
            epsilon,
            step_size=step_size,
            decay=decay,
            optimistic=optimistic,
            shared=shared,
            discount=discount,
        )

    def _take(self, steps: Transitions, answer: Visits) -> None:
        self._buffer += self._in_order(steps)
        self._n_buffered += answer.n_episodes
        if self._n_buffered < self.buffer_episodes:
            return
        for step in reversed(self._buffer):
            theta = self.theta[step.row, step.block]
            td_error = step.reward + self.discount * best_next(self.target, step) - theta @ step.phi
            self.theta[step.row, step.block] = theta + self._next_rate(step) * td_error * step.phi
        self._buffer, self._n_buffered = [], 0
        self._n_buffers += 1
        self._new_target = self._n_buffers % self.target_every == 0

    def _choose(self) -> tuple[LinearQ, Policy, int]:
        if not self._new_target:
            self._require_finite(self.theta)  # the copies in between would hide that it has diverged
            return self._q, self._played_policy, 1
        self._new_target = False
        self.target = self.theta.copy()
        return super()._choose()

    @property
    def nbytes(self) -> int:
        """Bytes held by the learner's arrays, the target and the buffer included."""
        buffered = sum(step.next_phi.nbytes + step.phi.nbytes + step.next_blocks.nbytes + 40 for step in self._buffer)
        return super().nbytes + self.target.nbytes + buffered
