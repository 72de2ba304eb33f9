"""MainLoop: the part of a phase of S4Q in which its policy plays until some direction has enough new data."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, final

import numpy as np

from s4q.core.blocks import Array
from s4q.core.codec import Positive
from s4q.core.factors import whitener
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Explore, Returns, Spec, Visits, sum_if_known
from s4q.core.validation import require_finite, require_shape
from s4q.learners.fit_record import FitRecord
from s4q.learners.presets import Constants


@final
@dataclass(frozen=True, eq=False, slots=True)
class PhaseRecord:
    """A finished phase: what was fitted, what its main loop saw. Rewards are shifted to start at 0.

    Where an earlier policy played again, `q` is that one, and ridge, cov_ref and residuals are of the fit it replaced.
    """

    phase: Positive
    q: LinearQ
    ridge: Annotated[Array, "H"]
    cov_ref: Annotated[Array, "n B K K"]  # n = H, or 1 with pooled steps; ridge not included
    increment: Annotated[Array, "n B K K"]  # what the main loop added
    residuals: Annotated[Array, "H"]  # residual variance of the fits
    n_episodes: int
    return_sum: float
    return_sum_sq: float | None  # None where the collector cannot tell
    start_value_sum: float | None  # what Q promised at the start states that were seen
    n_truncated: int = 0  # episodes that were cut before their horizon; they are in none of the last three sums

    @property
    def n_returns(self) -> int:
        """Episodes whose return is known."""
        return self.n_episodes - self.n_truncated

    def promise(self, spec: Spec) -> float | None:
        """What Q promised an episode, in the user's units; None where it is not known.

        Args:
            spec: The problem.
        """
        if self.start_value_sum is None or not self.n_returns:
            return None
        return self.start_value_sum / self.n_returns + spec.horizon * spec.reward_min

    def check_restored(self) -> None:
        """Parts read from a file must be of one problem."""
        n, horizon = len(self.cov_ref), len(self.ridge)
        require_shape("theta", self.q.theta, (horizon, *self.cov_ref.shape[1:3]), "(H, n_blocks, k)")
        if self.n_truncated > self.n_episodes:
            raise ValueError(f"{self.n_truncated} of {self.n_episodes} episodes cannot have been cut")
        if n not in (1, horizon):
            raise ValueError(f"cov_ref needs one Gram matrix, or one a level ({horizon}); got {n}")


@final
@dataclass(frozen=True, eq=False, slots=True)
class Record:
    """A run of S4Q as an auditor needs it: its constants, its phases and the answers behind its fits.

    Grows by one policy a phase, and by the sums of its fits.
    """

    constants: Constants
    phases: tuple[PhaseRecord, ...]  # finished ones, in order
    unfinished: PhaseRecord | None  # the phase whose main loop was cut by the end of the run; None: none had begun
    evaluations: Mapping[int, Returns] = field(default_factory=dict)  # of the policies of phases, by their numbers
    fits: tuple[FitRecord, ...] = ()  # what the collector returned for each regression, in order


@final
@dataclass(eq=False)
class MainLoop:
    """Sums over the episodes of one policy; the policy and Sigma_ref stand still."""

    phase: Positive
    q: LinearQ
    ridge: Annotated[Array, "H"]
    cov_ref: Annotated[Array, "n B K K"]  # without the ridge
    residuals: Annotated[Array, "H"]
    # Saved too: made again by another BLAS it might differ in its last bits.
    whitener: Annotated[Array, "n B K K"] = field(init=False)
    increment: Annotated[Array, "n B K K"] = field(init=False)
    progress: Annotated[Array, "n"] = field(init=False)
    n_episodes: int = 0
    return_sum: float = 0.0
    return_sum_sq: float | None = 0.0
    start_value_sum: float | None = 0.0
    n_truncated: int = 0

    def __post_init__(self) -> None:
        # Pooled steps have one Gram matrix; the trigger then takes the ridge of the first level.
        pairs = zip(self.cov_ref, self.ridge, strict=False)
        self.whitener = np.stack([whitener(gram, lam) for gram, lam in pairs])
        self.increment = np.zeros_like(self.cov_ref)
        self.progress = np.zeros(len(self.cov_ref))

    def check_restored(self) -> None:
        """Parts read from a file must be of one problem."""
        self.record().check_restored()

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays, the policy included."""
        return self.q.nbytes + self.cov_ref.nbytes + self.whitener.nbytes + self.increment.nbytes

    def request(
        self, request_id: int, threshold: tuple[float, float], max_episodes: int, keep: bool, at_least: int = 1
    ) -> Explore:
        """The request that goes on until the trigger, for at most `max_episodes`.

        Args:
            request_id: Its number.
            threshold: Of the trigger.
            max_episodes: The most episodes it may ask for.
            keep: True if it must return the steps of its episodes.
            at_least: Episodes of the phase before the trigger is looked at. 1 by default.
        """
        return Explore(
            id=request_id,
            policy=self.q,
            whitener=self.whitener,
            threshold=threshold,
            n_episodes=max_episodes,
            keep=max_episodes if keep else 0,
            pool=len(self.cov_ref) < self.q.horizon,
            done=self.n_episodes,
            progress=self.progress,
            at_least=at_least,
        )

    def add(self, request: Explore, answer: Visits) -> bool:
        """Take an answer; True when the trigger has fired."""
        self._check(request, answer)
        self.progress = self.progress + answer.progress
        self.increment = self.increment + answer.grams
        self.n_episodes += answer.n_episodes
        self.n_truncated += answer.n_truncated
        self.return_sum += answer.return_sum
        self.return_sum_sq = sum_if_known(self.return_sum_sq, answer.return_sum_sq)
        self.start_value_sum = sum_if_known(self.start_value_sum, answer.start_value_sum)
        return request.crossed(self.progress, self.n_episodes)

    def record(self) -> PhaseRecord:
        """What is worth knowing of the phase once it is over."""
        return PhaseRecord(**{one.name: getattr(self, one.name) for one in fields(PhaseRecord)})

    def _check(self, request: Explore, answer: Visits) -> None:
        if request.done != self.n_episodes or request.policy is not self.q:
            raise ValueError(
                f"request {request.id} (from episode {request.done} on) is not the open one, which goes on from "
                f"episode {self.n_episodes}; tell each answer once, right after its ask"
            )
        if not 1 <= answer.n_episodes <= request.n_episodes:
            raise ValueError(f"answer holds {answer.n_episodes} episodes, not 1 to {request.n_episodes} as asked")
        if not 0 <= answer.n_truncated <= answer.n_episodes:
            raise ValueError(f"answer.n_truncated must lie in 0..{answer.n_episodes}; got {answer.n_truncated}")
        want = self.cov_ref.shape
        if answer.grams.shape != want or answer.progress.shape != self.progress.shape:
            raise ValueError(
                f"answer.grams and answer.progress must have shapes {want}, {self.progress.shape}; "
                f"got {answer.grams.shape}, {answer.progress.shape}"
            )
        require_finite("answer.grams", answer.grams)
        require_finite("answer.progress", answer.progress)
        require_finite("answer.return_sum", np.asarray(answer.return_sum))
