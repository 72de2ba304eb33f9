"""EpisodeLearner: what the baselines share. Play a policy for some episodes, take their steps, choose the next one.

It fits the wall between learners and collectors: it asks for an `Explore` that never stops early and returns all steps.
Any collector can answer. Nothing here knows how a policy is chosen.

A policy never changes inside an episode. With one parameter a level this costs nothing: an update at level h changes
only what was played already, so that updating after the episode gives what updating along the way gives.
"""

from abc import ABC, abstractmethod
from math import inf

import numpy as np

from s4q.core.blocks import Array
from s4q.core.linear_q import LinearQ
from s4q.core.messages import A, Asks, Explore, Policy, Spec, Transitions, Visits
from s4q.core.validation import require_count

_DIVERGED = 1e100


class EpisodeLearner(ABC):
    """Asks for all steps of some episodes of one policy, again and again.

    Args:
        spec: The problem.
        pool: True if one matrix for all levels is enough where a request wants one a level.
    """

    def __init__(self, spec: Spec, *, pool: bool = True) -> None:
        self.spec = spec
        self.n_episodes = 0  # answered so far
        self.phases = 0  # policies that are finished
        self._pool = pool
        self._metric = np.zeros((1 if pool else spec.horizon, *spec.gram_shape))  # Explore wants one; nothing reads it
        self._metric.setflags(write=False)
        self._requests = 0  # answered in full
        self._begin()

    @abstractmethod
    def _choose(self) -> tuple[LinearQ, Policy, int]:
        """Q, the policy that plays next, and for how many episodes. The same policy object means: no new policy."""

    @abstractmethod
    def _take(self, steps: Transitions, answer: Visits) -> None:
        """Learn from episodes of the running policy.

        Args:
            steps: Their steps.
            answer: The answer they came with: its number of episodes and its sums.
        """

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes held by the learner's arrays."""

    @property
    def _base_nbytes(self) -> int:
        """Bytes of the newest Q, of that of the policy that plays where it is an older one, and of the metric."""
        played = getattr(self._played_policy, "q", self._played_policy)
        others = played.nbytes if isinstance(played, LinearQ) and played is not self._q else 0
        return self._q.nbytes + others + self._metric.nbytes

    def _require_finite(self, theta: Array) -> None:
        """Refuse to go on with a parameter that has diverged."""
        largest = float(np.abs(theta).max())
        if not largest < _DIVERGED:
            raise ValueError(
                f"{type(self).__name__} has diverged: a parameter is {largest:.3g} after {self.n_episodes} episodes; "
                "choose smaller steps, or a learner that cannot diverge, such as S3Q"
            )

    def _begin(self) -> None:
        self._q, self._played_policy, self._length = self._choose()
        self._played = 0  # episodes of this request

    @property
    def q(self) -> LinearQ:
        """The newest Q."""
        return self._q

    @property
    def policy(self) -> LinearQ:
        """The greedy policy of `q`: the one to deploy. What is played may explore beside it."""
        return self._q

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_episodes} episodes, {self.phases} policies, {self.nbytes} bytes)"

    def ask(self, max_episodes: int) -> Explore:
        """The next request: play the policy, and return every transition. Changes nothing.

        Args:
            max_episodes: The most episodes it may ask for.
        """
        require_count("max_episodes", max_episodes, "the budget left")
        n = min(max_episodes, self._length - self._played)
        return Explore(
            id=self._requests,
            policy=self._played_policy,
            whitener=self._metric,
            threshold=(inf, 0.0),  # never stops early
            n_episodes=n,
            keep=n,
            pool=self._pool,
            done=self._played,
        )

    def tell(self, request: Asks[A], answer: A) -> None:
        """Learn from the transitions of a request, or of a part of it.

        Args:
            request: The request that was asked last.
            answer: What a collector answered.
        """
        if not (isinstance(request, Explore) and isinstance(answer, Visits) and answer.kept is not None):
            raise ValueError(f"{type(answer).__name__} does not answer the open request; tell what was asked last")
        open_one = (self._requests, self._played)
        if request.policy is not self._played_policy or (request.id, request.done) != open_one:
            raise ValueError(f"request {request.id} is not the open one; tell each answer once, right after its ask")
        if not 1 <= answer.n_episodes <= request.n_episodes:
            raise ValueError(f"answer holds {answer.n_episodes} episodes, not 1 to {request.n_episodes} as asked")
        answer.kept.require_fit(self.spec)
        self._take(answer.kept, answer)
        self.n_episodes += answer.n_episodes
        self._played += answer.n_episodes
        if self._played == self._length:
            before = self._played_policy
            self._requests += 1
            self._begin()
            self.phases += self._played_policy is not before


def one_percent(n_episodes: int) -> int:
    """How long a policy is kept where planning is expensive: for 1 % of the episodes so far, and one at least."""
    return max(1, n_episodes // 100)
