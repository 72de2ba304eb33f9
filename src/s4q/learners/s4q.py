"""Algorithm 2: S4Q-learning. Explore by replaying past policies.

    memory = []
    for phase p = 1, 2, ...:
        m_tot = trajectories of all main loops so far
        controller = before each episode, draw policy j of the memory with probability m_j / m_tot
        Q, Sigma_ref = S3Q(controller, c H m_tot episodes, bonus)              # no call in the first phase: theta = 0
        pi = greedy policy of Q
        repeat: play an episode of pi; m += 1; at each level h
                    progress_h += |phi_h|^2 in the metric of Sigma_ref_h;   Sigma_h += phi_h phi_h^T
        until some progress_h reaches the trigger
        memory += (pi, m);   bonus_h = width_h |phi_h| in the metric of Sigma_h

The learner asks for a `Regress` per level while S3Q runs and for one `Explore` per phase. Memory grows with the
number of phases, which is of order log(episodes), and with nothing else. That is `memory="policies"`. With the two
other memories S3Q fits the steps that are held: it asks for no episode, and the memory is a `StepMemory`.
"""

from collections.abc import Iterable
from copy import copy, deepcopy
from dataclasses import replace
from typing import Annotated, final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array
from s4q.core.codec import AnySize, Positive, SavedAs
from s4q.core.least_squares import Moments
from s4q.core.linear_q import LinearQ
from s4q.core.messages import A, Asks, Explore, Regress, Regression, Spec, Transitions, Visits
from s4q.core.optimism import QLevel
from s4q.core.policies import Mixture
from s4q.core.spec import HasSpec, spec_of
from s4q.core.validation import require_count, require_positive, require_shape
from s4q.learners.best_policy import BestPolicy, Candidate
from s4q.learners.bonus_rules import BonusRule, FixedBonus, OwnGramBonus, zero_fit
from s4q.learners.diagnostics import Finding, diagnose
from s4q.learners.explanation import explain
from s4q.learners.learning_progress import ExplorationHistory, LearningProgress, directions_seen
from s4q.learners.main_loop import MainLoop, PhaseRecord
from s4q.learners.memory import HeldSamples, Memory
from s4q.learners.policy_replay import PolicyReplayMemory
from s4q.learners.presets import BonusFrom, Constants, Epochs, MemoryName, PresetName, constants
from s4q.learners.s3q import S3Q
from s4q.learners.signs import Signs
from s4q.learners.step_memory import StepMemory
from s4q.learners.warm_start import WarmStart, require_warm_start


@final
class S4Q:
    """Explores with bounded memory, and with a guarantee if the preset has one; ask and tell.

    Every constant of a preset can be replaced. `print(learner.explain())` says where each comes from.

    Args:
        problem: A Spec, or anything with `.spec`, such as a FiniteMDP.
        preset: "practical" (few episodes, no proof), "realisable" (optimistic when the features are exact), "tight"
            or "paper" (Theorem 1).
        delta: Probability with which a guarantee of the preset may fail. 0.05 by default.
        ridge: Added to the diagonal of every Gram matrix: one number, or one per level. None (default) means the
            preset's.
        bonus_width: Size of the bonus: one number, or one per level. With "practical" it is the number of
            standard errors and multiplies all that the data says: 0.25 for tables (0.5 with one level, 0.35 with two,
            0.29 with three), 0.5 for other exact features, 0.2 where the features are not exact. It grows slowly with
            the samples. Else it is the width itself. 0 means no bonus. None (default) means the preset's.
        trigger: When a phase ends: once some direction has this much new data. A number, or (a, b) for a + b log n
            after n episodes of the phase. None (default) means the preset's.
        c_replay: Episodes that a new policy replays, for each level and each past episode. Only memory="policies" reads
            it. None (default) means the preset's.
        epochs: "single" for one epoch per call of S3Q, "doubling" for the paper's. None (default) means the preset's.
        bonus_from: "previous" for the covariance of the phase before, "own" for the Gram matrix of the fit itself.
            None (default) means the preset's.
        max_episodes: Ridge and bonus are computed for at least this many episodes. None (default) means the preset's
            rule: for the episodes played so far. "practical" does not use this number.
        memory: "policies" replays past policies, as the paper does, and has its guarantee. "all" keeps every step and
            replays nothing (LSVI-UCB with rare switching). "sketch" does the same within a budget of bytes and beyond
            it keeps exact sums and a sample of the steps. None (default) means "sketch" for "practical", and
            "policies" for the presets with a proof, whose guarantee the two others void.
        memory_bytes: The budget of "sketch". None (default) means 64 MiB.
        episodes_per_phase: A phase has at least so many episodes of one policy, whatever the trigger says, so that
            workers can play them side by side. Policies are then older than they need be, which costs regret. 1 by
            default. Only "practical" takes more.
        pool: True if every step is a sample for every level. None (default) means: if the problem is stationary and
            the preset is not one of Theorem 1.

    >>> import s4q
    >>> mdp = s4q.problems.river_swim(6, horizon=12)
    >>> run = s4q.run(s4q.S4Q(mdp), s4q.collectors.CountCollector(mdp, seed=0), episodes=10**4)
    >>> run.episodes, run.phases > 10, bool(run.gap < mdp.v_star)
    (10000, True, True)
    """

    constants: Constants
    memory: Annotated[Memory, SavedAs(PolicyReplayMemory | StepMemory)]
    last_phase: PhaseRecord | None  # the last finished one
    _gram: Annotated[Array, "n B K K"]  # raw Sigma of the phase before: one a level, or one in all with pooled steps
    _ridge: Annotated[Array, "H"]  # of the running phase
    _s3q: S3Q | None  # the call in progress; None in a main loop
    _loop: MainLoop  # of the running phase, or of the phase before while S3Q prepares the next
    _phase: Positive
    _next_id: int
    _replay_budget: AnySize  # of the S3Q call in progress, in episodes
    _best: BestPolicy  # of the finished phases
    _signs: Signs  # of trouble: read by `diagnose` alone
    _history: ExplorationHistory  # of the finished phases: read by `progress` alone
    _logged: WarmStart  # what `learn_from` took before the first episode
    _n_main: int  # episodes so far
    _n_replayed: int

    def __init__(
        self,
        problem: Spec | HasSpec,
        preset: PresetName = "practical",
        *,
        delta: float = 0.05,
        ridge: ArrayLike | None = None,
        bonus_width: ArrayLike | None = None,
        trigger: float | tuple[float, float] | None = None,
        c_replay: float | None = None,
        epochs: Epochs | None = None,
        bonus_from: BonusFrom | None = None,
        max_episodes: int | None = None,
        memory: MemoryName | None = None,
        memory_bytes: int | None = None,
        episodes_per_phase: int = 1,
        pool: bool | None = None,
    ) -> None:
        self.constants = constants(
            spec_of(problem),
            preset,
            delta=delta,
            ridge=ridge,
            bonus_width=bonus_width,
            trigger=trigger,
            c_replay=c_replay,
            epochs=epochs,
            bonus_from=bonus_from,
            max_episodes=max_episodes,
            memory=memory,
            memory_bytes=memory_bytes,
            episodes_per_phase=episodes_per_phase,
            pool=pool,
        )
        self.last_phase = self._s3q = None
        self._n_main = self._n_replayed = self._next_id = self._phase = self._replay_budget = 0
        self.memory = PolicyReplayMemory()  # [Alg2:Initialize]
        if self.constants.memory != "policies":
            self.memory = StepMemory(self.spec, self.constants.pool, self.constants.memory_bytes)
        self._best = BestPolicy(self.spec.value_bound[0])
        self._signs = Signs.of(self.spec, by_level=self._keeps_levels)
        self._history, self._logged = ExplorationHistory(), WarmStart()
        self._gram = np.zeros(self._gram_shape)
        self._begin_phase()

    def check_restored(self) -> None:
        """Parts read from a file must be of one problem."""
        s3q = self._s3q
        if s3q is not None and (s3q.spec != self.spec or s3q.pool != self.constants.pool):
            raise ValueError("the parts of an S4Q must be of one problem, and agree whether steps are pooled")
        self.memory.require_fit(self.constants)
        if (self._signs.by_level is not None) != self._keeps_levels:
            raise ValueError("the signs of an S4Q must hold sums by level if pooled steps are kept, and only then")
        require_positive("ridge", float(self._ridge.min()), "added to the Gram matrix")
        for name, array in (("gram", self._gram), ("cov_ref", self._loop.cov_ref)):
            require_shape(name, array, self._gram_shape, "(H or 1, n_blocks, k, k)")
        if self._best.best is not None:
            require_shape("theta", self._best.best.policy.theta, self.spec.theta_shape, "(H, n_blocks, k)")
        if self._loop.phase != self._phase - (self._s3q is not None):
            stage = "a main loop" if self._s3q is None else "S3Q"
            raise ValueError(f"S4Q cannot be in {stage} of phase {self._phase} with the loop of {self._loop.phase}")
        if s3q is not None:
            self._check_restored_s3q(s3q)

    def _check_restored_s3q(self, s3q: S3Q) -> None:
        require_shape("grams", s3q.grams, self._gram_shape, "(H or 1, n_blocks, k, k)")
        if s3q.finished or s3q.n_episodes >= self._replay_budget:
            raise ValueError(
                f"S3Q must have something left to do; it played {s3q.n_episodes} of {self._replay_budget} episodes"
            )
        if self.memory.keeps_steps:
            raise ValueError("S3Q cannot be at work in an S4Q that holds steps: it fits those at once")

    @property
    def spec(self) -> Spec:
        """The numbers of the problem."""
        return self.constants.spec

    @property
    def _gram_shape(self) -> tuple[int, ...]:
        return (1 if self.constants.pool else self.spec.horizon, *self.spec.gram_shape)

    @property
    def _share(self) -> bool:
        """The data-scaled bonus of `practical` shares one Gram matrix between levels when steps are pooled."""
        return self.constants.pool and self.constants.preset == "practical"

    @property
    def _keeps_levels(self) -> bool:
        """Pooled steps lose their levels, so that sums by level are kept of them."""
        return self.constants.pool and self.memory.keeps_steps

    @property
    def _knows_levels(self) -> bool:
        """The sums by level are of all steps that are held."""
        return self._keeps_levels and self._logged.n_without_level == 0

    @property
    def q(self) -> LinearQ:
        """The newest optimistic Q: that of the running phase, or of the phase before while S3Q prepares the next.

        It is an older one where the best policy plays again: see `_unless_refuted`.
        """
        return self._loop.q

    @property
    def policy(self) -> LinearQ:
        """The greedy policy of `q`."""
        return self._loop.q

    @property
    def best(self) -> LinearQ:
        """The policy to deploy: the one whose own returns speak best for it; see `best_policy`. Not the newest."""
        best = self._choice.best
        return self.policy if best is None else best.policy

    @property
    def _choice(self) -> BestPolicy:
        """The best policy, and what chose it; the running phase counts too."""
        if self._s3q is None and self._loop.record().n_returns:
            return self._best.with_candidate(Candidate.of(self._loop.record()))
        return self._best

    @property
    def phases(self) -> int:
        """Finished phases."""
        return self._phase - 1

    @property
    def n_episodes(self) -> int:
        """Answered so far, replay included."""
        return self._n_main + self._n_replayed

    @property
    def n_logged(self) -> int:
        """Steps that `learn_from` took before the first episode. They are no part of `n_episodes`."""
        return self._logged.n_steps

    @property
    def open_phase(self) -> PhaseRecord | None:
        """The phase whose main loop is running, as far as it has come; None while S3Q prepares one."""
        return None if self._s3q is not None else self._loop.record()

    @property
    def nbytes(self) -> int:
        """Bytes held by the learner's arrays; the last finished phase, kept for diagnosis, included."""
        s3q = 0 if self._s3q is None else self._s3q.nbytes
        last = self.last_phase
        kept = 0 if last is None else last.q.nbytes + last.cov_ref.nbytes + last.increment.nbytes
        best = self._best.best
        others = [*self.memory.policies, self._loop.q, *([] if last is None else [last.q])]
        if best is not None and not any(best.policy is one for one in others):
            kept += best.policy.nbytes
        return self.memory.nbytes + self._loop.nbytes + self._gram.nbytes + s3q + kept + self._signs.nbytes

    @property
    def progress(self) -> LearningProgress:
        """How far it has come: what was explored, what the policies promise and what they get; print it."""
        return LearningProgress.of(
            self.spec,
            self._history,
            self._choice,
            phases=self.phases,
            running=self.open_phase,
            n_grams=len(self._gram),
            logged_steps=self.n_logged,
            seen_at_start=self._logged.directions_seen,
        )

    def explain(self) -> str:
        """Where the constants come from, and what they mean in numbers of episodes; print it."""
        return explain(self.constants, self._logged)

    def diagnose(self) -> list[Finding]:
        """Signs of trouble, each with a suggestion; empty when there are none."""
        return diagnose(
            self.constants,
            self._signs,
            last=self.last_phase,
            running=self.open_phase,
            n_main=self._n_main,
            n_replayed=self._n_replayed,
            sampled_steps=self.memory.sampled_steps,
            pooled_gram=self._loop.cov_ref[0] + self._loop.increment[0] if self._knows_levels else None,
        )

    def __repr__(self) -> str:
        stage = "main loop" if self._s3q is None else "S3Q"
        return f"S4Q({self.constants.preset}, phase {self._phase}, {stage}, {self.nbytes} bytes)"

    def learn_from(self, steps: Iterable[Transitions], n_episodes: int, *, levels_known: bool = True) -> None:
        """Take logged steps into the memory before the first episode, and fit the first policy to them.

        Nothing is changed if it fails. It can be called several times.

        Args:
            steps: The steps, in as many pieces as you like. `Agent.learn_from` makes them.
            n_episodes: The number of episodes they stand for, at least 1.
            levels_known: False if their levels mean nothing. Steps must then be pooled. True by default.
        """
        require_count("n_episodes", n_episodes, "the number of episodes that the steps stand for")
        require_warm_start(self.constants, self.n_episodes, levels_known)
        warm, n_steps = copy(self), 0
        warm.memory, warm._signs = deepcopy(self.memory), deepcopy(self._signs)
        for piece in steps:
            piece.require_fit(self.spec)
            warm.memory.add(piece, 0)
            n_steps += int(piece.weights.sum())
            if levels_known:
                warm._signs = warm._signs.with_steps(piece, self.spec.horizon)
        warm.memory.add(Transitions.none(self.spec), n_episodes)
        warm._phase = 0
        warm._begin_phase()  # the first one again, now with a fit
        warm._gram = warm._loop.cov_ref
        n_without = self._logged.n_without_level + (0 if levels_known else n_steps)
        warm._logged = WarmStart(self.n_logged + n_steps, n_without, directions_seen(warm._gram))
        vars(self).update(vars(warm))  # all at once

    def ask(self, max_episodes: int) -> Regress | Explore:
        """The next request. Changes nothing.

        Args:
            max_episodes: The most episodes it may ask for.
        """
        require_count("max_episodes", max_episodes, "the budget left")
        if self._s3q is not None:
            request = self._s3q.ask(min(max_episodes, self._replay_budget - self._s3q.n_episodes))
            if request is not None:
                return request
        keep = self.memory.keeps_steps
        threshold = self.constants.threshold(self._phase, replaying=not keep and self._phase > 1)
        least = self.constants.episodes_per_phase
        return self._loop.request(self._next_id, threshold, max_episodes, keep=keep, at_least=least)

    def tell(self, request: Asks[A], answer: A) -> None:
        """Take the sums of a request, or of a part of it.

        Args:
            request: The request that was asked last.
            answer: What a collector answered.
        """
        if self._s3q is not None and isinstance(request, Regress) and isinstance(answer, Regression):
            self._add_replay(self._s3q, request, answer)
        elif self._s3q is None and isinstance(request, Explore) and isinstance(answer, Visits):
            self._add_visits(request, answer)
        else:
            raise ValueError(f"{type(answer).__name__} does not answer the open request; tell what was asked last")

    def _add_replay(self, s3q: S3Q, request: Regress, answer: Regression) -> None:
        s3q.tell(request, answer)
        self._n_replayed += answer.n_episodes
        if s3q.finished or s3q.n_episodes == self._replay_budget:
            self._finish_replay(s3q)

    def _add_visits(self, request: Explore, answer: Visits) -> None:
        if answer.kept is not None:
            answer.kept.require_fit(self.spec)
        elif self.memory.keeps_steps:
            raise ValueError("answer.kept is None, but the request asked for the steps of all episodes")
        triggered = self._loop.add(request, answer)
        self._n_main += answer.n_episodes
        self.memory.add(answer.kept, answer.n_episodes)
        if answer.kept is not None:
            self._signs = self._signs.with_steps(answer.kept, self.spec.horizon)
        if triggered:
            self._end_phase()

    def _begin_phase(self) -> None:
        self._phase += 1  # [Alg2:Phase]
        n_total = self.memory.n_episodes
        self._ridge = self.constants.ridge(self._phase, n_total)
        bonus = self._bonus_rule(n_total)
        if n_total == 0:
            nothing_seen = zero_fit(self.spec, bonus, self._share)
            no_residuals = np.zeros(self.spec.horizon)
            self._loop = MainLoop(1, nothing_seen, self._ridge, np.zeros_like(self._gram), no_residuals)
            return
        source = self.memory.source()
        if not isinstance(source, Mixture):
            self._fit_held(source, bonus)
            return
        slots = self.constants.replay_slots(n_total)
        self._replay_budget = self.spec.horizon * slots
        self._s3q = self._call_s3q(  # [Alg2:CallS3Q]
            source, bonus, epoch_size=slots if self.constants.epochs == "single" else None
        )

    def _call_s3q(
        self, controller: Mixture, bonus: BonusRule, epoch_size: int | None = None, held: HeldSamples | None = None
    ) -> S3Q:
        return S3Q(
            self.spec,
            controller,
            bonus=bonus,
            ridge=self._ridge,
            radius=self.constants.radius(),
            epoch_size=epoch_size,
            pool=self.constants.pool,
            held=held,
            share_whitener=self._share,
            keep_grams=held is None,
            first_id=self._next_id,
        )

    def _fit_held(self, samples: HeldSamples, bonus: BonusRule) -> None:
        """Fit what is held, with the targets of the new values."""
        quick = samples.all_levels(self.constants, self._ridge)
        if quick is None:
            unused_controller = Mixture([self.q], np.ones(1))
            s3q = self._call_s3q(unused_controller, bonus, held=samples)
            q, residuals, next_id = s3q.q, s3q.residuals, s3q.next_id
        else:
            q, residuals = LinearQ(quick.levels), quick.residuals
            next_id = self._next_id + self.spec.horizon + 1  # S3Q counts one a level too
        samples.settle()
        self._begin_loop(self._unless_refuted(q), residuals, next_id, samples.grams)

    def _unless_refuted(self, q: LinearQ) -> LinearQ:
        """The new greedy policy, or the best one so far where its returns refute the promise of the phase before.

        That is for held steps and one-hot features that stand for groups of states. A fit averages over a group, and
        can forget a good policy. One more phase of that policy gives the fit steps that speak for it; then the new one
        has its turn.
        """
        best, last = self._best.best, self.last_phase
        grouped = self.spec.block_dim == 1 and not self.spec.well_specified
        if self.constants.preset != "practical" or not grouped or best is None or last is None:
            return q
        return best.policy if self._best.refutes(last) else q

    def _finish_replay(self, s3q: S3Q) -> None:
        """The S3Q call is over: its last finished epoch gives Q and, scaled to m_tot trajectories, Sigma_ref."""
        scale = self.memory.n_episodes / max(s3q.n_fitted, 1)
        cov_ref = scale * s3q.grams  # raw: the ridge is added on use  # [Alg2:CovRef]
        self._begin_loop(s3q.q, s3q.residuals, s3q.next_id, cov_ref)

    def _begin_loop(self, q: LinearQ, residuals: Array, next_id: int, cov_ref: Array) -> None:
        self._next_id, self._s3q = next_id, None
        self._loop = MainLoop(self._phase, q, self._ridge, cov_ref, residuals)

    def _end_phase(self) -> None:
        loop = self._loop
        self.last_phase = loop.record()
        if self.last_phase.n_returns:  # a policy whose episodes were all cut has no return to be judged by
            self._best = self._best.with_candidate(Candidate.of(self.last_phase))
            self._signs = self._signs.with_phase(self.last_phase, self.spec.value_bound[0])
        self._history = self._history.with_phase(self.last_phase)
        self.memory.append(loop.q, loop.n_episodes)  # [Alg2:Append]
        self._gram = loop.cov_ref + loop.increment
        self._next_id += 1
        self._begin_phase()

    def _bonus_rule(self, n_total: int) -> BonusRule:
        """The bonus of the running phase."""
        own = OwnGramBonus(self.constants, self._phase, n_total, self._ridge)
        if self.constants.bonus_from == "own":
            return own
        nothing = Moments.zeros(self.spec.n_blocks, self.spec.block_dim)
        grams = np.broadcast_to(self._gram, (self.spec.horizon, *self.spec.gram_shape))
        fits = [own(h, QLevel(nothing.moment), replace(nothing, gram=gram)) for h, gram in enumerate(grams)]
        return FixedBonus(np.stack([fit.whitener for fit in fits]), np.stack([fit.width for fit in fits]))
