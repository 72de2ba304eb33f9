"""Agent: a Gymnasium environment in, a policy out.

It puts features, an S4Q, a collector and checkpoints together for a user who wants none of them in particular. The
algorithm is in `learners/s4q.py`, the loop in `running/loop.py`; nothing is computed here.
"""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from s4q.certificates.certifier import Certificate, certify
from s4q.collectors import GymCollector, VectorCollector
from s4q.collectors.stepping.action_numbers import ActionNumbers
from s4q.collectors.stepping.env_explanation import WarmUp, explain_env
from s4q.collectors.stepping.env_facts import (
    env_name,
    horizon_of,
    is_vector,
    made_env,
    require_fit,
    reward_range_of,
    spaces_of,
    time_limit,
)
from s4q.collectors.stepping.facts_of_gymnasium import declared_facts
from s4q.collectors.stepping.foreign_envs import require_no_picture
from s4q.collectors.stepping.logged_steps import read_log
from s4q.collectors.stepping.observations import batch_of
from s4q.collectors.stepping.warm_up import n_warm_up_episodes, random_play
from s4q.core.linear_q import LinearQ
from s4q.core.messages import MOST_STEPS, Evaluate, FeatureMap, Spec
from s4q.core.validation import drawn_seed, require_count
from s4q.deployed_policy import Policy
from s4q.features import default_features, registry
from s4q.features.layout import is_raw
from s4q.features.unmeasured import Unmeasured
from s4q.learners.diagnostics import Finding
from s4q.learners.learning_progress import LearningProgress
from s4q.learners.presets import MemoryName, PresetName
from s4q.learners.s4q import S4Q
from s4q.learners.warm_start import require_warm_start
from s4q.running import checkpoint as checkpoints
from s4q.running.accounting import Answered, Run
from s4q.running.archive import refusal
from s4q.running.callbacks import Callback, listeners
from s4q.running.checkpoint import Autosave, Checkpoint
from s4q.running.executors.executor import Executor, Serial, collect, require_executor
from s4q.running.loop import run
from s4q.running.policy_evaluation import Evaluation
from s4q.running.printing import PrintedPhases
from s4q.running.progress import Progress
from s4q.running.same_problem import description_of, differences

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WhichPolicy = Literal["best", "newest", "no_bonus"]
_OVERRIDE = "pass allow_other=True if it is the same problem all the same"
_MANY_CALLS = 20  # of `predict` without a state: no longer a look at the first step
_EVALUATION = 0  # request id that no run uses for its evaluations


@final
class _Interrupted:
    """Keeps a run that ended by an exception, so that it is not lost and can be finished."""

    def __init__(self) -> None:
        self.begun = False
        self.run: Run | None = None
        self.progress: Progress | None = None

    def on_start(self, run: Run) -> None:
        """Nothing was refused."""
        del run
        self.begun = True

    def on_phase(self, run: Run) -> None:
        del run

    on_end = on_phase

    def on_request(self, answered: Answered) -> None:
        del answered

    def on_interrupted(self, run: Run, progress: Progress) -> None:
        """Keep what was learned and what it cost."""
        self.run, self.progress = run, progress


@final
class Agent:
    """Learns a Gymnasium environment (or VectorEnv) with finitely many actions.

    Args:
        env: The environment, or the id of one: Agent("CartPole-v1"). Its actions are Discrete, MultiDiscrete or
            MultiBinary.
        features: Feature map of the observations. None (default): one-hot for whole numbers, a small Fourier basis per
            action for up to 8 real numbers, both for mixtures; see features.default_features. Ranges that the space
            leaves open are measured on the first episodes of `learn`.
        horizon: Steps of an episode. None (default): the env's time limit, else the declared one for Gymnasium's own
            environments. The cost of a phase grows with it; `explain` says if less would do.
        preset: Constants of S4Q, "practical" by default; see S4Q.
        reward_range: Lowest and highest reward of a step. None (default): the declared one of Gymnasium's own
            environments, else that of the env's table, where it has one.
        stationary: True if dynamics and rewards do not depend on the step. None (default): the feature map's
            `stationary`.
        value_bound: Bound on the return of an episode, 1 when it pays once. None (default): the declared one of
            Gymnasium's own environments if reward_range is None too, else the highest reward at every step.
        well_specified: True if the features are exact. None (default): True for one-hot features only.
        radius: Bound on the norm of the true parameters, as of Spec.of. Only presets with a proof read it. None
            (default): an assumption, named by `learner.explain()`.
        seed: Seed of all episodes, 0 by default. The same seed gives the same bits, whatever the number of sub-envs.
            None draws one; `agent.seed` says which.
        delta: Failure probability of the guarantees, as of S4Q.
        bonus_width: Size of the bonus, as of S4Q; 0 switches it off. None (default): that of the preset.
        trigger: When a phase ends, as of S4Q. None (default): that of the preset.
        c_replay: Episodes of a replay over those of the memory, as of S4Q. None (default): that of the preset.
        memory: What is remembered of past episodes, "sketch", "all" or "policies", as of S4Q. None (default): that of
            the preset.
        memory_bytes: Budget of "sketch", as of S4Q. None (default): 64 MiB.
        episodes_per_phase: Episodes that each policy plays at least, as of S4Q, so that workers can share them. 1 by
            default.
        executor: Who plays the episodes: `s4q.Processes(n)` or `s4q.Ray()`. It changes no bit of the result. None
            (default): they are played here, one after the other.
        verbose: 0 (default) prints nothing. 1 prints about a line a second while it learns, 2 a line a phase.

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
        episodes_per_phase: int = 1,
        executor: Executor | None = None,
        verbose: int = 0,
    ) -> None:
        if verbose not in (0, 1, 2):
            raise ValueError(f"verbose is how much is printed, so it must be 0, 1 or 2; got {verbose!r}")
        env = made_env(env)
        facts = declared_facts(env)
        if features is None:
            require_no_picture(env, spaces_of(env)[0], env_name(env))
            low, high = (None, None) if facts is None or facts.observation_range is None else facts.observation_range
            features = default_features(*spaces_of(env), low=low, high=high)
        if facts is not None:
            if horizon is None and time_limit(env) is None:
                horizon = facts.horizon
            if reward_range is None:
                reward_range = facts.reward_range
                value_bound = facts.value_bound if value_bound is None else value_bound
        spec = Spec.of(
            features,
            horizon=horizon_of(env, horizon),
            reward_range=reward_range_of(env, reward_range),
            value_bound=value_bound,
            radius=radius,
            stationary=bool(getattr(features, "stationary", False)) if stationary is None else stationary,
            well_specified=bool(getattr(features, "exact", False)) if well_specified is None else well_specified,
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
            episodes_per_phase=episodes_per_phase,
        )
        self._assemble(env, features, learner, drawn_seed(seed), executor)
        self.verbose = verbose
        self.last_run = self._interrupted = None

    last_run: Run | None  # the newest `learn`, also if it was interrupted
    verbose: int
    _interrupted: Checkpoint | None
    _warm_up: WarmUp | None = None  # what measured the ranges of the features
    _without_state = 0  # calls of `predict` in a row that had none
    _learning = False  # is a run going on? Its executor is busy then

    def _assemble(self, env: Any, features: FeatureMap, learner: S4Q, seed: int, executor: Executor | None) -> None:
        self.executor: Executor = Serial() if executor is None else executor
        require_executor(self.executor)
        self.collector = (VectorCollector if is_vector(env) else GymCollector)(env, features, learner.spec, seed)
        require_fit(features, spaces_of(env)[0], env_name(env))
        self.env = env
        self.features = features
        self.learner = learner
        self._policies: dict[WhichPolicy, tuple[Policy, LinearQ]] = {}  # made when first asked for; of which fit

    @property
    def n_episodes(self) -> int:
        """Episodes learned from, over all calls of `learn`."""
        return self.learner.n_episodes

    @property
    def seed(self) -> int:
        """The seed of all episodes: the one given, or the one drawn for seed=None."""
        return self.collector.seed

    @property
    def best(self) -> Policy:
        """The policy to deploy: the best by its own returns so far. `agent.best.save(path)` writes it to a file."""
        return self._deployed("best")

    @property
    def policy(self) -> Policy:
        """The same as `best`: what `predict` and `evaluate` use."""
        return self._deployed("best")

    @property
    def newest(self) -> Policy:
        """The newest policy, which explores next. It may be worse than `best`."""
        return self._deployed("newest")

    @property
    def no_bonus(self) -> Policy:
        """The newest policy without its bonus: it takes the action whose fitted value is highest.

        The fitted values of a step hold the bonuses of later steps, so they are still optimistic where little was seen.
        It was better than `best` on Blackjack, where returns vary much and most was seen often. It was never played, so
        no return speaks for it: evaluate it first.
        """
        return self._deployed("no_bonus")

    def _deployed(self, which: WhichPolicy) -> Policy:
        if which not in get_args(WhichPolicy):
            raise ValueError(
                f'policy must be "best" (by its own returns), "newest" or "no_bonus" (the newest, without its bonus); '
                f"got {which!r}"
            )
        q = self.learner.best if which == "best" else self.learner.policy
        known, made_of = self._policies.get(which, (None, None))
        if known is None or made_of is not q:
            space, actions = spaces_of(self.env)
            known = Policy(
                q.without_bonus() if which == "no_bonus" else q,
                self.features,
                self.learner.spec,
                actions=ActionNumbers.of(actions).many(np.arange(self.learner.spec.n_actions)),
                observation_shape=None if is_raw(space) else space.shape or (),
                env=env_name(self.env),
                space=space,
            )
            self._policies[which] = (known, q)
        return known

    @property
    def horizon(self) -> int:
        """Steps of an episode."""
        return self.learner.spec.horizon

    @property
    def value_bound(self) -> float:
        """The most that an episode returns, in your units: as declared, or as the reward range allows."""
        spec = self.learner.spec
        return float(spec.to_user_units(0, np.array(spec.value_bound[0])))

    def __repr__(self) -> str:
        return f"Agent({env_name(self.env)}, {self.n_episodes} episodes, {self.learner!r})"

    def learn_from(self, transitions: Any) -> "Agent":
        """Learn from logged steps before the first episode, and return the agent itself.

        The steps are samples like those that `learn` plays: the same steps give the same fit. They are no episodes:
        they have no returns, so the best policy is chosen by what `learn` plays. Nothing changes if a step is refused.

        Each step must carry its level, the number of steps of its episode before it, unless the problem is stationary.
        Time limits are no ends: `terminated` is True only where the episode was over for good. Refused after the first
        episode, and with memory="policies". Ranges that are still open are measured on the logged steps.

        Args:
            transitions: A dict of arrays: observations, actions, rewards, next_observations, terminated and, if known,
                levels; or in their place truncated, where the steps stand in order. Or a list of steps (observation,
                action, reward, next_observation, terminated[, level]). Or Minari's dataset or episodes. Observations
                with parts (Dict and Tuple spaces) are taken one by one, or with an array for each part.
        """
        if self._interrupted is not None:
            raise ValueError("learn_from comes before `learn`, and this agent is in the middle of one; call resume")
        learner, (space, actions) = self.learner, spaces_of(self.env)
        require_warm_start(learner.constants, learner.n_episodes, levels_known=True)  # before a long log is read
        first = ActionNumbers.of(actions)(0)
        if not isinstance(first, int):
            raise ValueError(f"learn_from reads actions of a Discrete space; this env has {actions}; wrap it")
        log = read_log(transitions, learner.spec, space, first, learner.constants.pool)
        waiting = self.features
        known = waiting.measured(list(log.visited))[0] if isinstance(waiting, Unmeasured) else waiting
        with threadpool_limits(limits=1):  # bits depend on their number
            learner.learn_from(log.pieces(known, learner.spec), log.n_episodes, levels_known=log.levels is not None)
        if isinstance(waiting, Unmeasured):  # only now: a refused log changes nothing
            self._assemble(self.env, known, learner, self.seed, self.executor)
            self._warm_up = WarmUp(waiting.dimensions, 0, len(log), logged=True)
        return self

    def learn(
        self,
        episodes: int | None = None,
        progress_bar: bool = False,
        callback: Callback | Iterable[Callback] | None = None,
        *,
        total_timesteps: int | None = None,
        checkpoint: str | PathLike[str] | Autosave | None = None,
        stop: Callable[[Run], bool] | None = None,
        stop_when_gap: float | None = None,
        evaluation_share: float | None = None,
    ) -> "Agent":
        """Learn from more episodes, and return the agent itself. `last_run` says what they cost.

        After Ctrl-C the agent is whole: `last_run` holds the run so far, and `resume()` finishes it.

        Args:
            episodes: The most episodes to play. None (default): as many as `total_timesteps` allows.
            total_timesteps: The number of steps to play; the episode in which it is reached is finished. None
                (default): as many as `episodes` has. With both, the run ends at whichever is reached first.
            progress_bar: True shows how far it has come: live on a terminal, elsewhere a line when a phase ends, at
                most one a second.
            callback: Function of the Run so far, called after each phase; or a Listener; or a list of them.
            checkpoint: File to write while learning, or an Autosave; `Agent.load(...).resume()` goes on from it. A file
                that holds another run is refused, not written over.
            stop: Function of the Run so far; True ends the run.
            stop_when_gap: End once a certificate proves that the policy is this close to the best, as of `s4q.run`.
            evaluation_share: Share of the episodes that only evaluate, for the certificate, as of `s4q.run`.
        """
        if episodes is None and total_timesteps is None:
            raise ValueError(
                "episodes must be given: the number of episodes to play; or total_timesteps, that of steps"
            )
        if total_timesteps is not None:
            require_count("total_timesteps", total_timesteps, "the number of steps to play")
        # An episode has a step at least.
        most = min(int(total_timesteps or 0), MOST_STEPS // self.horizon) if episodes is None else episodes
        require_count("episodes", most, "the number of episodes to play")
        steps = most if total_timesteps is None else total_timesteps // self.horizon
        warm_up = self._measure_ranges(max(min(int(most), steps), 1))
        kept = _Interrupted()
        self._learning = True
        try:
            self.last_run = run(
                self.learner,
                self.collector,
                most,
                progress_bar=progress_bar,
                callback=self._listeners(callback, kept),
                checkpoint=self._autosave(checkpoint),
                stop=stop,
                stop_when_gap=stop_when_gap,
                evaluation_share=evaluation_share,
                max_steps=total_timesteps,
                executor=self.executor,
                warm_up=warm_up,
            )
        finally:
            self._learning = False
            self._keep(kept)
        return self

    def _measure_ranges(self, episodes: int) -> tuple[int, int]:
        """Let waiting features measure their ranges; the episodes and steps it took."""
        waiting = self.features
        if not isinstance(waiting, Unmeasured):
            return (0, 0)
        observations, played = random_play(self.collector, n_warm_up_episodes(episodes))
        features, _ = waiting.measured(observations)
        self._assemble(self.env, features, self.learner, self.seed, self.executor)
        self._warm_up = WarmUp(waiting.dimensions, played.n_episodes, played.n_steps)
        return played.n_episodes, played.n_steps

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
            progress_bar: As of `learn`.
            callback: As of `learn`.
            checkpoint: As of `learn`; pass the same file to go on writing it.
            stop: As of `learn`.
            stop_when_gap: As of `learn`.
        """
        if self._interrupted is None:
            raise ValueError(
                "resume finishes an interrupted learn, and this agent has none: it was neither loaded from a "
                "checkpoint of one nor stopped by Ctrl-C; call learn(episodes) to go on"
            )
        begun, kept = self._interrupted, _Interrupted()
        self._learning = True
        try:
            self.last_run = run(
                begun,
                self.collector,
                begun.progress.budget if episodes is None else episodes,
                progress_bar=progress_bar,
                callback=self._listeners(callback, kept),
                checkpoint=self._autosave(checkpoint),
                stop=stop,
                stop_when_gap=stop_when_gap,
                executor=self.executor,
            )
        finally:
            self._learning = False
            self._keep(kept)
        return self

    def _listeners(self, callback: Callback | Iterable[Callback] | None, kept: _Interrupted) -> list[Callback]:
        printed = [PrintedPhases(self.verbose)] if self.verbose else []
        return [*listeners(callback), *printed, kept]

    def _keep(self, kept: _Interrupted) -> None:
        """Keep a run that was interrupted, if one was. One that was refused changes nothing."""
        if kept.begun:
            self._interrupted = None
        if kept.run is not None and kept.progress is not None:
            self.last_run = kept.run
            self._interrupted = Checkpoint(learner=self.learner, seed=self.seed, progress=kept.progress)

    def predict(
        self,
        observation: ArrayLike,
        state: ArrayLike | None = None,
        episode_start: ArrayLike | None = None,
        deterministic: bool = True,
        *,
        policy: WhichPolicy = "best",
    ) -> tuple[Any, NDArray[np.int64]]:
        """The action for an observation, or for a batch of them, and the next state; called as in Stable-Baselines3.

        Actions are the env's own numbers. After the horizon the policy starts over, as at the first step.

        Args:
            observation: One observation, or a batch with one more axis.
            state: Step of each episode, as the last call returned it. None (default): the first step.
            episode_start: True where an episode begins anew. None (default): nowhere.
            deterministic: Ignored, because the policy is greedy.
            policy: "best" (default), by its own returns, "newest", or "no_bonus": the newest, without its bonus.
        """
        del deterministic
        self._note_state(state is None and episode_start is None)
        chosen_by, (batch, single) = self._deployed(policy), batch_of(spaces_of(self.env)[0], observation)
        steps = self._steps(batch, state)
        steps[_one_each("episode_start", episode_start, len(steps), "biuf", "True where an episode begins") > 0] = 0
        actions = chosen_by.act(batch, steps)
        return (actions[0], (steps + 1).reshape(())) if single else (actions, steps + 1)

    def _note_state(self, missing: bool) -> None:
        """Warn where `predict` is called many times in a row without the state that it returned; once in such a row."""
        self._without_state = self._without_state + 1 if missing else 0
        if self._without_state == _MANY_CALLS and self.horizon > 1:
            warnings.warn(
                f"predict was called {_MANY_CALLS} times in a row without `state`, so each call played the first step "
                "of an episode; pass back what it returned: action, state = agent.predict(observation, state), and "
                "None when an episode begins",
                UserWarning,
                stacklevel=3,
            )

    def _steps(self, batch: NDArray[Any], state: ArrayLike | None) -> NDArray[np.int64]:
        return _one_each("state", state, len(batch), "iu", "the step of each episode, as the last call returned it")

    def q_values(
        self, observation: ArrayLike, state: ArrayLike | None = None, *, policy: WhichPolicy = "best"
    ) -> NDArray[np.float64]:
        """What the policy promises for each action, in your units: the return from this step on, bonus included.

        Args:
            observation: One observation, or a batch with one more axis.
            state: Step of each episode, as `predict` returned it. None (default): the first step.
            policy: As of `predict`. "no_bonus" leaves the bonus of this step out; those of later steps are inside.

        Returns:
            One number per action, (n_actions,), or one row per observation of a batch.
        """
        batch, single = batch_of(spaces_of(self.env)[0], observation)
        promised = self._deployed(policy).q_values(batch, self._steps(batch, state))
        return promised[0] if single else promised

    def evaluate(self, episodes: int, *, first: int = 0, policy: WhichPolicy = "best") -> Evaluation:
        """Play the policy without learning. The same episodes are played every time; `learn` never plays them.

        Args:
            episodes: Number of episodes.
            first: Number of the first of them, 0 by default; another one plays other episodes.
            policy: "best" (default), by its own returns, "newest", or "no_bonus": the newest, without its bonus.
        """
        require_count("episodes", episodes, "the number of episodes to play")
        require_count("first", first, "the number of the first episode", at_least=0)
        request = Evaluate(_EVALUATION, self._deployed(policy).q, int(episodes), done=int(first))
        executor = Serial() if self._learning else self.executor  # in a callback it is busy with the run
        with threadpool_limits(limits=1), executor.session(self.collector) as session:
            seen = collect(session, request)
        return Evaluation.of(seen, self.learner.spec)

    def set_env(self, env: Any, *, allow_other: bool = False) -> None:
        """Go on with another environment object: a copy, or a vector instead of one. What was learned stays.

        Args:
            env: The environment. Its spaces must be those of the present one.
            allow_other: True accepts an environment that is not the same problem by its id, arguments and wrappers.
                False (default): it is refused.
        """
        env = made_env(env)
        spaces, others = spaces_of(self.env), spaces_of(env)
        if spaces != others:
            raise ValueError(f"env must have the spaces of the present one, {spaces}; got {others}; make a new Agent")
        found = [] if allow_other else differences(self._extra()["problem"], env, self.features, self.horizon)
        if found:
            raise ValueError(f"env is another problem: {'; '.join(found)}; {_OVERRIDE}")
        self._assemble(env, self.features, self.learner, self.seed, self.executor)

    @property
    def progress(self) -> LearningProgress:
        """How far it is: what was explored, what the policies promise and what they get, and the best one; print it."""
        return self.learner.progress

    def explain(self) -> str:
        """What is assumed of the problem, and where the constants of the learner come from; print it."""
        spec = self.learner.spec
        low, high = spec.reward_min, spec.reward_max
        most = float(spec.to_user_units(0, np.array(spec.value_bound[0])))
        problem = f"{spec.horizon} steps an episode, rewards in [{low:g}, {high:g}], returns up to {most:g}"
        curve = () if self.last_run is None else self.last_run.curve
        lengths = [point.mean_length for point in curve if point.mean_length is not None]
        about = "\n".join(explain_env(self.env, self.features, spec, self._warm_up, lengths))
        return f"{env_name(self.env)}: {problem}\n{about}\n{self.learner.explain()}"

    def diagnose(self) -> list[Finding]:
        """Signs of trouble in what was learned so far, each with a suggestion; empty when there are none."""
        return self.learner.diagnose()

    def certify(self) -> Certificate:
        """A proof of how far the policy can be from the best one.

        It is the certificate of the newest `learn` where that made one, else it is made from the learner's last two
        phases. Refused where nothing is proved, as with the preset `practical`.
        """
        made = None if self.last_run is None else self.last_run.certificate
        return certify(self.learner) if made is None else made

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Return and promise of every phase of the newest `learn`; needs `pip install "s4q[report]"`.

        Args:
            ax: The Axes to draw on. None (default): new ones; `ax.figure.savefig(path)` writes them.
        """
        if self.last_run is None:
            why = "its file does not hold the curve" if self.n_episodes else "it has not learned yet"
            raise ValueError(f"there is nothing to plot of this agent: {why}; call learn(episodes) first")
        return self.last_run.plot(ax)

    def plot_value(
        self,
        dims: tuple[int, int] = (0, 1),
        level: int = 0,
        *,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
        at: ArrayLike | None = None,
        ax: "Axes | None" = None,
    ) -> "Axes":
        """What the policy promises from a step on, over two numbers of the observation; needs "s4q[report]".

        Args:
            dims: Which two numbers of the observation to draw: across and up.
            level: The step of the episode, 0 by default.
            low: Lowest observation to draw. None (default): that of the features or of the env.
            high: Highest observation to draw. None (default): that of the features or of the env.
            at: The observation whose other numbers are held still. None (default): the middle of the ranges.
            ax: The Axes to draw on. None (default): new ones.
        """
        from s4q.report.value_plots import box_ranges, plot_value

        ranges = box_ranges(spaces_of(self.env)[0], self.features, low, high)
        return plot_value(self.learner.best, self.features, self.learner.spec, ranges, dims, level=level, at=at, ax=ax)

    def save(self, path: str | PathLike[str]) -> None:
        """Write learner, seed and the description of the features to one file. The file before it is kept.

        An interrupted `learn` is kept with it: the agent that `load` makes can `resume` it.

        Args:
            path: The file to write.
        """
        begun = None if self._interrupted is None else self._interrupted.progress
        checkpoints.save(path, self.learner, seed=self.collector.seed, progress=begun, extra=self._extra())

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        env: Any,
        features: FeatureMap | None = None,
        *,
        allow_other: bool = False,
        executor: Executor | None = None,
    ) -> "Agent":
        """The agent of a file that `save` or a checkpoint of `learn` wrote.

        The file describes the environment (id, arguments, wrappers) and the features. Others are refused, because a
        policy would act on them without a warning.

        Args:
            path: The file to read.
            env: The environment, made again, or its id.
            features: The feature map, needed only where it holds your own code. None (default): the one of the file.
            allow_other: True accepts an environment and features that are not those of the file. False (default): they
                are refused.
            executor: As of Agent; it is not kept in the file.
        """
        found = checkpoints.load(path)
        problem = found.extra.get("problem")
        if not isinstance(found.learner, S4Q) or not isinstance(problem, dict):
            raise ValueError(
                f"{path} holds a {type(found.learner).__name__} without the environment and the features of an Agent; "
                "read it with s4q.load(path) and go on with s4q.run"
            )
        agent = cls.__new__(cls)
        if features is None:
            features = _features_of(path, problem.get("features"), found.learner.spec.n_actions)
        env = made_env(env)
        agent._assemble(env, features, found.learner, found.seed, executor)
        others = [] if allow_other else differences(problem, env, agent.features, agent.horizon)
        if others:
            raise ValueError(f"{path} holds another problem: {'; '.join(others)}; {_OVERRIDE}")
        agent.last_run, agent.verbose = None, 0
        agent._interrupted = found if found.begun else None
        agent._warm_up = WarmUp.from_config(found.extra.get("warm_up"))
        return agent

    def _autosave(self, where: str | PathLike[str] | Autosave | None) -> Autosave | None:
        if where is None:
            return None
        plain = checkpoints.as_autosave(where)
        return replace(plain, extra={**plain.extra, **self._extra()})

    def _extra(self) -> dict[str, Any]:
        warm_up = None if self._warm_up is None else asdict(self._warm_up)
        return {"problem": description_of(self.env, self.features, self.horizon), "warm_up": warm_up}


def _features_of(path: str | PathLike[str], config: Any, n_actions: int) -> Any:
    """The feature map that a file describes. Its number of actions is compared before arrays of that size are made."""
    if isinstance(config, dict) and config.get("custom"):
        raise ValueError(
            f"{path} was learned with the feature map {config.get('name')}, which holds code of your own that no file "
            "carries; pass the map again: features=..."
        )
    try:
        described = config["parameters"].get("n_actions", n_actions)
        if described != n_actions:
            raise ValueError(f"they are for {described} actions, and the learner has {n_actions}")
        with np.errstate(all="ignore"):  # what overflows is refused by the map
            return registry.from_config(config)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise refusal(Path(path), f"its features cannot be made again: {error or type(error).__name__}") from None


def _one_each(name: str, value: ArrayLike | None, n: int, kinds: str, meaning: str) -> NDArray[np.int64]:
    """Whole numbers of at least 0, one for each of n observations; None means 0."""
    if value is None:
        return np.zeros(n, dtype=np.int64)
    array = np.asarray(value)
    if array.size != n or (n and array.dtype.kind not in kinds) or (array < 0).any():
        raise ValueError(f"{name} must hold {meaning}, one for each of {n} observations; got {value!r}")
    return array.reshape(n).astype(np.int64)
