"""Agent: a Gymnasium environment in, a policy out.

It puts features, an S4Q, a collector and checkpoints together for a user who wants none of them in particular. The
algorithm is in `learners/s4q.py`, the loop in `running/loop.py`; nothing is computed here.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import inf, sqrt
from os import PathLike
from typing import Any, cast, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from s4q.certificates.certifier import Certificate, certify
from s4q.collectors import GymCollector, VectorCollector
from s4q.collectors.stepping.env_facts import (
    env_name,
    horizon_of,
    is_vector,
    require_fit,
    reward_range_of,
    spaces_of,
)
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Evaluate, FeatureMap, Spec
from s4q.core.validation import drawn_seed, require_count
from s4q.features import OneHot, default_features, registry
from s4q.learners.presets import MemoryName, PresetName
from s4q.learners.s4q import S4Q
from s4q.running import checkpoint as checkpoints
from s4q.running.accounting import Run
from s4q.running.callbacks import Callback
from s4q.running.checkpoint import Autosave, Checkpoint
from s4q.running.executors.executor import Executor, Serial, collect, require_executor
from s4q.running.loop import run

_EVALUATION = 0  # request id that no run uses for its evaluations
_Z = 1.959963984540054  # 95 % of a normal law lie within this many standard errors


@final
@dataclass(frozen=True, slots=True)
class Evaluation:
    """The mean return of a policy, in the user's units. `Agent.evaluate` makes it.

    Attributes:
        mean: Mean return of the episodes.
        low: Lower end of its 95 % interval (normal approximation; infinite for a single episode).
        high: Upper end.
        n_episodes: Episodes played.
        n_steps: Steps played.
    """

    mean: float
    low: float
    high: float
    n_episodes: int
    n_steps: int

    def __str__(self) -> str:
        return (
            f"mean return {self.mean:.6g}, 95 % interval [{self.low:.6g}, {self.high:.6g}], "
            f"{self.n_episodes:,} episodes, {self.n_steps:,} steps"
        )


@final
class Agent:
    """Learns a Gymnasium environment (or VectorEnv) with finitely many actions.

    Args:
        env: The environment. Its actions must be a Discrete space.
        features: Feature map of the observations. None (default): one-hot for whole numbers, a Fourier basis per action
            for small boxes.
        horizon: Steps of an episode. None (default): the env's time limit.
        preset: Constants of S4Q, "practical" by default; see S4Q.
        reward_range: Lowest and highest reward of a step. None (default): that of the env's table, where it has one.
        stationary: True if dynamics and rewards do not depend on the step. None (default): the feature map's
            `stationary`.
        value_bound: Bound on the return of an episode, 1 when it pays once. None (default): the highest reward at every
            step.
        well_specified: True if the features are exact. None (default): True for one-hot features only.
        radius: Bound on the norm of the true parameters, as of Spec.of. Only presets with a proof read it. None
            (default): an assumption, named by `learner.explain()`.
        seed: Seed of all episodes, 0 by default. The same seed gives the same bits, whatever the number of sub-envs.
            None draws one; `agent.seed` says which.
        delta: Failure probability of the guarantees, as of S4Q.
        bonus_width: Size of the bonus, as of S4Q. None (default): that of the preset.
        trigger: When a phase ends, as of S4Q. None (default): that of the preset.
        c_replay: Episodes of a replay over those of the memory, as of S4Q. None (default): that of the preset.
        memory: What is remembered of past episodes, "sketch", "all" or "policies", as of S4Q. None (default): that of
            the preset.
        memory_bytes: Budget of "sketch", as of S4Q. None (default): 64 MiB.
        executor: Who plays the episodes: `s4q.Processes(n)` or `s4q.Ray()`. It changes no bit of the result. None
            (default): they are played here, one after the other.

    >>> import gymnasium as gym
    >>> agent = Agent(gym.make("FrozenLake-v1"), horizon=20, seed=0).learn(episodes=500)
    >>> action, state = agent.predict(0)
    >>> action in range(4), state.tolist(), agent.n_episodes
    (True, 1, 500)
    """

    def __init__(
        self,
        env: Any,
        features: FeatureMap | None = None,
        *,
        horizon: int | None = None,
        preset: PresetName = "practical",
        reward_range: tuple[float, float] | None = None,
        stationary: bool | None = None,
        value_bound: ArrayLike | None = None,
        well_specified: bool | None = None,
        radius: ArrayLike | None = None,
        seed: int | None = 0,
        delta: float = 0.05,
        bonus_width: ArrayLike | None = None,
        trigger: float | tuple[float, float] | None = None,
        c_replay: float | None = None,
        memory: MemoryName | None = None,
        memory_bytes: int | None = None,
        executor: Executor | None = None,
    ) -> None:
        spaces = spaces_of(env)
        features = default_features(*spaces) if features is None else features
        spec = Spec.of(
            features,
            horizon=horizon_of(env, horizon),
            reward_range=reward_range_of(env, reward_range),
            value_bound=value_bound,
            radius=radius,
            stationary=bool(getattr(features, "stationary", False)) if stationary is None else stationary,
            well_specified=isinstance(features, OneHot) if well_specified is None else well_specified,
        )
        learner = S4Q(
            spec,
            preset,
            delta=delta,
            bonus_width=bonus_width,
            trigger=trigger,
            c_replay=c_replay,
            memory=memory,
            memory_bytes=memory_bytes,
        )
        self._assemble(env, features, learner, drawn_seed(seed), executor)

    def _assemble(self, env: Any, features: FeatureMap, learner: S4Q, seed: int, executor: Executor | None) -> None:
        self.executor: Executor = Serial() if executor is None else executor
        require_executor(self.executor)
        self.env = env
        self.features = features
        self.learner = learner
        self.collector = (VectorCollector if is_vector(env) else GymCollector)(env, features, learner.spec, seed)
        require_fit(features, spaces_of(env)[0], env_name(env))
        self.last_run: Run | None = None  # the newest `learn`
        self._interrupted: Checkpoint | None = None

    @property
    def n_episodes(self) -> int:
        """Episodes learned from, over all calls of `learn`."""
        return self.learner.n_episodes

    @property
    def seed(self) -> int:
        """The seed of all episodes: the one given, or the one drawn for seed=None."""
        return self.collector.seed

    @property
    def policy(self) -> LinearQ:
        """The policy that `predict` and `evaluate` use: the best by its own returns so far, not the newest."""
        return self.learner.best

    @property
    def horizon(self) -> int:
        """Steps of an episode."""
        return self.learner.spec.horizon

    def __repr__(self) -> str:
        return f"Agent({env_name(self.env)}, {self.n_episodes} episodes, {self.learner!r})"

    def learn(
        self,
        episodes: int,
        progress_bar: bool = False,
        callback: Callback | Iterable[Callback] | None = None,
        *,
        checkpoint: str | PathLike[str] | Autosave | None = None,
        stop: Callable[[Run], bool] | None = None,
        stop_when_gap: float | None = None,
        evaluation_share: float | None = None,
    ) -> "Agent":
        """Learn from more episodes, and return the agent itself. `last_run` says what they cost.

        Args:
            episodes: The most episodes to play.
            progress_bar: True shows a bar, on a terminal only.
            callback: Function of the Run so far, called after each phase; or a Listener; or a list of them.
            checkpoint: File to write while learning, or an Autosave; `Agent.load(...).resume()` goes on from it.
            stop: Function of the Run so far; True ends the run.
            stop_when_gap: End once a certificate proves that the policy is this close to the best, as of `s4q.run`.
            evaluation_share: Share of the episodes that only evaluate, for the certificate, as of `s4q.run`.
        """
        self._interrupted = None
        self.last_run = run(
            self.learner,
            self.collector,
            episodes,
            progress_bar=progress_bar,
            callback=callback,
            checkpoint=self._autosave(checkpoint),
            stop=stop,
            stop_when_gap=stop_when_gap,
            evaluation_share=evaluation_share,
            executor=self.executor,
        )
        return self

    def resume(
        self,
        episodes: int | None = None,
        progress_bar: bool = False,
        callback: Callback | Iterable[Callback] | None = None,
        *,
        checkpoint: str | PathLike[str] | Autosave | None = None,
        stop: Callable[[Run], bool] | None = None,
        stop_when_gap: float | None = None,
    ) -> "Agent":
        """Finish the interrupted `learn`; bit-identical to an uninterrupted run.

        Args:
            episodes: Episodes of that `learn` in all. None (default): as many as it was called with.
            progress_bar: True shows a bar, on a terminal only.
            callback: As of `learn`.
            checkpoint: As of `learn`; pass the same file to go on writing it.
            stop: As of `learn`.
            stop_when_gap: As of `learn`.
        """
        if self._interrupted is None:
            raise ValueError(
                "resume finishes an interrupted learn, and this agent was not loaded from a checkpoint of one; call "
                "learn(episodes) to go on"
            )
        begun, self._interrupted = self._interrupted, None
        self.last_run = run(
            begun,
            self.collector,
            begun.progress.budget if episodes is None else episodes,
            progress_bar=progress_bar,
            callback=callback,
            checkpoint=self._autosave(checkpoint),
            stop=stop,
            stop_when_gap=stop_when_gap,
            executor=self.executor,
        )
        return self

    def predict(
        self,
        observation: ArrayLike,
        state: ArrayLike | None = None,
        episode_start: ArrayLike | None = None,
        deterministic: bool = True,
    ) -> tuple[Any, NDArray[np.int64]]:
        """The action for an observation, or for a batch of them, and the next state; called as in Stable-Baselines3.

        Actions are the env's own numbers. After the horizon the policy starts over, as at the first step.

        Args:
            observation: One observation, or a batch with one more axis.
            state: Step of each episode, as the last call returned it. None (default): the first step.
            episode_start: True where an episode begins anew. None (default): nowhere.
            deterministic: Ignored, because the policy is greedy.
        """
        del deterministic
        space, actions = spaces_of(self.env)
        array = np.asarray(observation)
        single = array.shape == (space.shape or ())
        if not single and array.shape[1:] != (space.shape or ()):
            raise ValueError(
                f"observation must have the shape {space.shape} of the env's observations, or a first axis more for a "
                f"batch of them; got {array.shape}"
            )
        batch = array[None] if single else array
        steps = _one_each("state", state, len(batch), "iu", "the step of each episode, as the last call returned it")
        steps[_one_each("episode_start", episode_start, len(batch), "biuf", "True where an episode begins") > 0] = 0
        chosen = np.zeros(len(batch), dtype=np.int64)
        levels = steps % self.horizon
        policy = self.policy
        for h in np.unique(levels).tolist():
            rows = np.flatnonzero(levels == h)
            chosen[rows] = policy.greedy(h, self.features(h, batch[rows]))
        chosen += int(actions.start)
        return (chosen[0], (steps + 1).reshape(())) if single else (chosen, steps + 1)

    def evaluate(self, episodes: int) -> Evaluation:
        """Play the policy without learning. The same episodes are played every time; `learn` never plays them.

        Args:
            episodes: Number of episodes.
        """
        require_count("episodes", episodes, "the number of episodes to play")
        spec = self.learner.spec
        with threadpool_limits(limits=1), self.executor.session(self.collector) as session:
            seen = collect(session, Evaluate(_EVALUATION, self.policy, int(episodes)))
        mean, n = seen.return_sum / seen.n_episodes, seen.n_episodes
        squares = cast(float, seen.return_sum_sq)  # known wherever episodes are stepped
        spread = max(squares / n - mean**2, 0.0)
        error = _Z * sqrt(spread / (n - 1)) if n > 1 else inf  # one episode does not show the spread
        mean += spec.horizon * spec.reward_min
        return Evaluation(mean, mean - error, mean + error, n, seen.n_steps)

    def certify(self) -> Certificate:
        """A proof of how far the policy can be from the best one.

        It is the certificate of the newest `learn` where that made one, else it is made from the learner's last two
        phases. Refused where nothing is proved, as with the preset `practical`.
        """
        made = None if self.last_run is None else self.last_run.certificate
        return certify(self.learner) if made is None else made

    def save(self, path: str | PathLike[str]) -> None:
        """Write learner, seed and the description of the features to one file. The file before it is kept.

        Args:
            path: The file to write.
        """
        checkpoints.save(path, self.learner, seed=self.collector.seed, extra=self._extra())

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        env: Any,
        features: FeatureMap | None = None,
        executor: Executor | None = None,
    ) -> "Agent":
        """The agent of a file that `save` or a checkpoint of `learn` wrote.

        Args:
            path: The file to read.
            env: The environment, made again.
            features: The feature map, needed only where it holds your own code. None (default): the one of the file.
            executor: As of Agent; it is not kept in the file.
        """
        found = checkpoints.load(path)
        config = found.extra.get("features")
        if not isinstance(found.learner, S4Q) or config is None:
            raise ValueError(f"{path} holds a bare {type(found.learner).__name__} and no Agent; read it with s4q.load")
        agent = cls.__new__(cls)
        made = registry.from_config(config) if features is None else features
        agent._assemble(env, made, found.learner, found.seed, executor)
        agent._interrupted = found if found.begun else None  # `save` leaves nothing to finish
        return agent

    def _autosave(self, where: str | PathLike[str] | Autosave | None) -> Autosave | None:
        if where is None:
            return None
        plain = checkpoints.as_autosave(where)
        return replace(plain, extra={**plain.extra, **self._extra()})

    def _extra(self) -> dict[str, Any]:
        return {"features": registry.to_config(self.features), "env": env_name(self.env)}


def _one_each(name: str, value: ArrayLike | None, n: int, kinds: str, meaning: str) -> NDArray[np.int64]:
    """Whole numbers of at least 0, one for each of n observations; None means 0."""
    if value is None:
        return np.zeros(n, dtype=np.int64)
    array = np.asarray(value)
    if array.size != n or (n and array.dtype.kind not in kinds) or (array < 0).any():
        raise ValueError(f"{name} must hold {meaning}, one for each of {n} observations; got {value!r}")
    return array.reshape(n).astype(np.int64)
