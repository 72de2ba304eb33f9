"""EvaluationCallback: plays the agent's policy every so many episodes while it learns, and keeps the best one.

Pass it as `callback` to `Agent.learn`. Its episodes are no part of the run: they are not counted and not learned from.
"""

from os import PathLike
from typing import Any, Protocol, final

from s4q.core.validation import require_count
from s4q.running.accounting import Answered, Run
from s4q.running.policy_evaluation import Evaluation

_FIRST = 10**12  # the number of the first episode: `Agent.evaluate` begins at 0 and never gets here


class Evaluates(Protocol):
    """What the callback needs of an Agent."""

    @property
    def policy(self) -> Any: ...
    def evaluate(self, episodes: int, *, first: int = 0) -> Evaluation: ...
    def save(self, path: str | PathLike[str]) -> None: ...


@final
class EvaluationCallback:
    """Evaluates the policy of an agent between phases, and keeps the one with the best mean return.

    Every evaluation plays other episodes, none of them those of `Agent.evaluate`. The best of many evaluations looks
    better than it is; evaluate it again to report it.

    Args:
        agent: The agent that learns.
        episodes: Episodes of an evaluation, 100 by default.
        every: The least number of learned episodes between two evaluations, 1,000 by default.
        path: File to save the agent to whenever its policy is the best so far; `Agent.load` reads it. None (default):
            nothing is saved.

    Attributes:
        history: Pairs of the run's episodes and the Evaluation made then.
        best: The best Evaluation so far. None before the first.
        best_policy: Its policy, an s4q.Policy that can be saved. None before the first.

    >>> import gymnasium as gym, s4q
    >>> agent = s4q.Agent(gym.make("FrozenLake-v1"), horizon=20)
    >>> watch = EvaluationCallback(agent, episodes=20, every=100)
    >>> agent = agent.learn(300, callback=watch)
    >>> watch.best.mean == max(found.mean for _, found in watch.history), watch.history[-1][0]
    (True, 300)
    """

    def __init__(
        self, agent: Evaluates, episodes: int = 100, every: int = 1_000, path: str | PathLike[str] | None = None
    ) -> None:
        require_count("episodes", episodes, "the number of episodes of an evaluation")
        require_count("every", every, "the number of episodes between two evaluations")
        if not callable(getattr(agent, "evaluate", None)) or isinstance(agent, type):
            raise ValueError(f"agent must be an Agent; got {agent!r}")
        self._agent, self._episodes, self._every, self._path = agent, int(episodes), int(every), path
        self.history: list[tuple[int, Evaluation]] = []
        self.best: Evaluation | None = None
        self.best_policy: Any = None

    def on_start(self, run: Run) -> None:
        del run

    def on_request(self, answered: Answered) -> None:
        del answered

    def on_phase(self, run: Run) -> None:
        """Evaluate, if enough was learned since the last time."""
        last = self.history[-1][0] if self.history else 0
        if run.episodes - last >= self._every or run.episodes < last:  # another run may have begun
            self._evaluate(run)

    def on_end(self, run: Run) -> None:
        """Evaluate what came out."""
        if not self.history or self.history[-1][0] != run.episodes:
            self._evaluate(run)

    def _evaluate(self, run: Run) -> None:
        found = self._agent.evaluate(self._episodes, first=_FIRST + len(self.history) * self._episodes)
        self.history.append((run.episodes, found))
        if self.best is None or found.mean > self.best.mean:
            self.best, self.best_policy = found, self._agent.policy
            if self._path is not None:
                self._agent.save(self._path)
