"""Algorithm 1: S3Q-learning. Learn Q* from the episodes of a fixed controller.

    Qtar = 0
    for epoch e = 1, 2, ...:
        for level l = H, ..., 1:                                     # the last level first
            forget the samples of the level before
            for 2^e episodes of the controller, until told to stop:
                at level l, regress  r + max_a' Qtar_{l+1}(s', a')  on  phi_l(s, a)
            project the parameter on the ball, in the norm of Sigma
            Qtar_l = phi . theta,   or   min(v_l, phi . theta + bonus_l)
        Qbest = Qtar                                                 # only a finished epoch is ever returned

During a level the controller, the bonus and Qtar_{l+1} stand still, so all the learner needs is a sum over episodes:
it asks for one `Regress` per level. Only level l is fitted during level l; nothing learned in one epoch enters the
next.
"""

from typing import Annotated, final

import numpy as np
from numpy.typing import ArrayLike

from s4q.core.blocks import Array
from s4q.core.codec import AnySize, Positive, SavedAs
from s4q.core.least_squares import Moments, constrained_fit
from s4q.core.linear_q import LinearQ
from s4q.core.messages import A, Asks, Regress, Regression, Spec
from s4q.core.optimism import QLevel
from s4q.core.policies import Mixture, Policy, as_mixture
from s4q.core.spec import HasSpec, ball_radii, per_level, spec_of
from s4q.core.validation import require_count, require_positive, require_shape
from s4q.learners.bonus_rules import BonusRule, FixedBonus, OwnGramBonus, fitted_level, zero_fit
from s4q.learners.memory import HeldSamples
from s4q.learners.widths import residual_variance

_MOST_EPOCHS = 62  # of 2^62 episodes a level: nobody plays that many


@final
class S3Q:
    """Learns Q* from a fixed controller; ask and tell.

    Args:
        problem: A Spec, or anything with `.spec`, such as a FiniteMDP.
        controller: The policy that plays, or a Mixture, one of which is drawn per episode.
        bonus: A FixedBonus or another BonusRule. Targets are then clipped above at the value bound, and below at 0 if
            the problem is well specified. None (default) means the plain fit.
        ridge: One number, or one per level.
        epoch_size: Episodes a level of a single epoch. None (default) means epochs of 2, 4, 8, ... without end.
        radius: Radius of the parameter ball: one number, one per level (H,), or one per level and block
            (H, n_blocks); infinite for no ball. None (default) means the problem's.
        pool: True if every step of an episode is a sample for every level.
        held: Samples to fit instead of episodes: S4Q passes the steps of its memory. One epoch is then fitted at once,
            and nothing is asked for. None (default) means none.
        share_whitener: True if the bonus of every level uses the whitener of the last one.
        keep_grams: True to keep the Gram matrix of every level, for `grams`.
        first_id: Number of the first request.

    >>> import s4q
    >>> mdp = s4q.problems.chain()
    >>> learner = s4q.S3Q(mdp, controller=s4q.UniformPolicy(mdp.n_actions))
    >>> learner.ask(max_episodes=10**6).n_episodes, learner.fitted
    (2, False)
    """

    spec: Spec
    controller: Mixture
    bonus: Annotated[BonusRule | None, SavedAs(FixedBonus | OwnGramBonus | None)]
    ridge: Annotated[Array, "H"]
    epoch_size: AnySize | None
    radius: Annotated[Array, "..."]  # (H,) or (H, n_blocks), infinite for no ball
    pool: bool
    _share_whitener: bool
    fitted: bool  # has an epoch been finished?
    n_fitted: int  # its episodes a level
    residuals: Annotated[Array, "H"]  # residual variance of each level's fit; 0 before that
    n_episodes: int  # answered so far
    _best: LinearQ
    _best_grams: Annotated[Array, "n B K K"] | None
    # Of the epoch in progress:
    _target: list[QLevel]  # Qtar of the levels that are fitted: level + 1, ..., H - 1
    _grams: Annotated[Array, "n B K K"] | None
    _residuals: Annotated[Array, "H"]
    _epoch: Positive
    _level: int
    _moments: Moments
    _done: int  # episodes of the level
    _next_id: int

    def __init__(
        self,
        problem: Spec | HasSpec,
        controller: Policy | Mixture,
        *,
        bonus: BonusRule | None = None,
        ridge: ArrayLike = 1.0,
        epoch_size: int | None = None,
        radius: ArrayLike | None = None,
        pool: bool = False,
        held: HeldSamples | None = None,
        share_whitener: bool = False,
        keep_grams: bool = False,
        first_id: int = 0,
    ) -> None:
        self.spec = spec_of(problem)
        self.controller = as_mixture(controller, self.spec)
        if not (bonus is None or callable(bonus)):
            raise ValueError(f"bonus must be None, a FixedBonus or another BonusRule; got {type(bonus).__name__}")
        self.bonus = bonus
        self.ridge = per_level("ridge", ridge, self.spec.horizon)
        self.pool, self.epoch_size = pool, epoch_size if held is None else 0
        self.radius = ball_radii(self.spec, radius)
        self._check_settings(least=1 if held is None else 0)
        self._best_grams = self._grams = np.zeros(self._grams_shape) if keep_grams else None
        self.residuals = self._residuals = np.zeros(self.spec.horizon)
        self.fitted = False
        self.n_fitted = self.n_episodes = 0
        self._target, self._share_whitener = [], share_whitener
        self._epoch = 1
        self._next_id = first_id
        self._moments, self._done = Moments.zeros(self.spec.n_blocks, self.spec.block_dim), 0
        self._start_level(self.spec.horizon - 1)
        if held is None:
            self._best = zero_fit(self.spec, bonus, share_whitener)  # [Alg1:Initialize]
            return
        while not self.finished:
            self._finish_level(held.moments(self._level, self._next_target))

    def _check_settings(self, least: int = 1) -> None:
        require_positive("ridge", float(self.ridge.min()), "added to the Gram matrix")
        if self.epoch_size is not None:
            require_count("epoch_size", self.epoch_size, "the number of episodes a level", at_least=least)

    def check_restored(self) -> None:
        """What was read from a file must be of one problem, and in the middle of it."""
        self._check_settings(least=0 if self.fitted else 1)
        as_mixture(self.controller, self.spec)
        if isinstance(self.bonus, FixedBonus):
            self.bonus.require_fit(self.spec)
        require_shape("radius", self.radius, ball_radii(self.spec, self.radius).shape, "(H,) or (H, n_blocks)")
        require_shape("theta", self._best.theta, self.spec.theta_shape, "(H, n_blocks, k)")
        for fit in self._target:
            require_shape("theta", fit.theta, self.spec.theta_shape[1:], "(n_blocks, k)")
        if (self._grams is None) != (self._best_grams is None):
            raise ValueError("S3Q must keep the Gram matrices of all epochs, or of none")
        for grams in (self._grams, self._best_grams):
            if grams is not None:
                require_shape("grams", grams, self._grams_shape, "(H or 1, n_blocks, k, k)")
        if self._epoch > _MOST_EPOCHS or self._level + 1 + len(self._target) != self.spec.horizon:
            raise ValueError(f"S3Q cannot stand at level {self._level} of epoch {self._epoch}")
        if self._done >= self.n_level and not self.finished:
            raise ValueError(f"S3Q cannot stand at level {self._level} after {self._done} of {self.n_level} episodes")

    @property
    def q(self) -> LinearQ:
        """Qbest of the last finished epoch; before that the fit of no samples (0, or the bonus alone; see `fitted`)."""
        return self._best

    @property
    def policy(self) -> LinearQ:
        """The greedy policy of `q`."""
        return self._best

    @property
    def grams(self) -> Array:
        """The Gram matrices (H, n_blocks, k, k) behind `q`, each of its level's own samples, if `keep_grams`.

        With `pool` their mean over the levels, (1, n_blocks, k, k). 0 before the first finished epoch.
        """
        if self._best_grams is None:
            raise ValueError("Gram matrices were not kept; pass keep_grams=True")
        return self._best_grams

    @property
    def _grams_shape(self) -> tuple[int, ...]:
        return (1 if self.pool else self.spec.horizon, *self.spec.gram_shape)

    @property
    def next_id(self) -> int:
        """An id that no request of this learner has had."""
        return self._next_id + 1

    @property
    def phases(self) -> int:
        """Finished epochs."""
        return self._epoch - 1

    @property
    def finished(self) -> bool:
        """True when a single epoch was wanted and it is done."""
        return self.epoch_size is not None and self.fitted

    @property
    def nbytes(self) -> int:
        """Bytes held by the learner's arrays: at most d^2 + 2 d H + 2 d + 2 H floats without bonus."""
        kept = 0 if self._grams is None else 2 * self._grams.nbytes
        target = LinearQ(self._target).nbytes if self._target else 0
        learned = self._moments.nbytes + self._best.nbytes + target
        return learned + self.ridge.nbytes + self.radius.nbytes + kept

    @property
    def _next_target(self) -> QLevel | None:
        """Qtar of the level after the current one; None after the last."""
        return self._target[0] if self._target else None

    @property
    def n_level(self) -> int:
        """Episodes a level in the current epoch."""
        return 1 << self._epoch if self.epoch_size is None else self.epoch_size  # [Alg1:Epoch]

    def __repr__(self) -> str:
        return f"S3Q({self.n_episodes} episodes, {self.phases} epochs, {self.nbytes} bytes)"

    def ask(self, max_episodes: int) -> Regress | None:
        """The rest of the current level; None when finished. Changes nothing.

        Args:
            max_episodes: The most episodes it may ask for.
        """
        require_count("max_episodes", max_episodes, "the budget left")
        if self.finished:
            return None
        n = min(self.n_level - self._done, max_episodes)  # [Alg1:StoppingCondition]
        return Regress(self._next_id, self._level, self.controller, self._next_target, n, self.pool, self._done)

    def tell(self, request: Asks[A], answer: A) -> None:
        """Take the sums of a request, or of a part of it.

        Args:
            request: The Regress that was asked.
            answer: Its Regression.
        """
        if not (isinstance(request, Regress) and isinstance(answer, Regression)):
            got = f"{type(request).__name__} and {type(answer).__name__}"
            raise ValueError(f"tell takes the Regress that was asked and its Regression; got {got}")
        self._check_answer(request, answer)
        self._moments = self._moments + answer.moments  # [Alg1:UpdateRule]
        self._done += answer.n_episodes
        self.n_episodes += answer.n_episodes
        if self._done == self.n_level:
            self._finish_level(self._moments)

    def _start_level(self, level: int) -> None:
        self._level = level
        if self._done:  # a fit of held samples adds none here
            self._moments = Moments.zeros(self.spec.n_blocks, self.spec.block_dim)  # [Alg1:Reset]
        self._done = 0

    def _finish_level(self, moments: Moments) -> None:
        level = self._level
        theta = constrained_fit(moments, float(self.ridge[level]), self.radius[level])
        theta.setflags(write=False)  # the level takes it as it is
        residual = residual_variance(moments, theta, float(self.ridge[level]))
        self._residuals = _with_entry(self._residuals, level, residual)
        shared = self._target[-1].whitener if self._share_whitener and self._target else None
        fit = fitted_level(self.spec, level, theta, moments, self.bonus, shared)
        self._target.insert(0, fit)  # [Alg1:TargetUpdate]
        if self._grams is not None and self.pool:
            before = self._grams if level < self.spec.horizon - 1 else 0.0
            self._grams = before + moments.gram[None] / self.spec.horizon
        elif self._grams is not None:
            self._grams = _with_entry(self._grams, level, moments.gram)
        self._next_id += 1
        if level > 0:
            self._start_level(level - 1)
        else:
            self._finish_epoch()

    def _finish_epoch(self) -> None:
        self._best, self._target = LinearQ(self._target), []  # [Alg1:Qbest]
        self._best_grams, self.residuals = self._grams, self._residuals
        self.fitted = True
        self.n_fitted = self.n_level
        self._epoch += 1
        self._start_level(self.spec.horizon - 1)

    def _check_answer(self, request: Regress, answer: Regression) -> None:
        if request.id != self._next_id or request.done != self._done or self.finished:
            raise ValueError(
                f"request {request.id} (from episode {request.done} on) is not the open one, which is {self._next_id} "
                f"(from episode {self._done} on); tell each answer once, right after its ask"
            )
        if not 1 <= answer.n_episodes <= request.n_episodes:
            raise ValueError(f"answer holds {answer.n_episodes} episodes, but 1 to {request.n_episodes} were asked for")
        answer.moments.require_fit(self.spec.gram_shape)
        if len(answer.episodes_per_policy) != len(self.controller.policies):
            raise ValueError(
                f"answer.episodes_per_policy needs one count for each of {len(self.controller.policies)} policies"
            )


def _with_entry(array: Array, level: int, value: ArrayLike) -> Array:
    """A copy of the array with another entry: other fields may hold the same array."""
    changed = array.copy()
    changed[level] = value
    return changed
