"""MainLoop: the part of a phase of S4Q in which its policy plays until some direction has enough new data."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import final

import numpy as np

from s4q.core.blocks import Array
from s4q.core.codec import Reader, State
from s4q.core.factors import whitener
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Explore, Returns, Visits
from s4q.core.validation import require_finite
from s4q.learners.fit_record import FitRecord
from s4q.learners.presets import Constants


@final
@dataclass(frozen=True, eq=False, slots=True)
class PhaseRecord:
    """A finished phase: what was fitted, what its main loop saw. Rewards are shifted to start at 0."""

    phase: int
    q: LinearQ
    ridge: Array  # (H,)
    cov_ref: Array  # (H, n_blocks, k, k), or (1, ...) with pooled steps; ridge not included
    increment: Array  # like cov_ref: what the main loop added
    residuals: Array  # (H,): residual variance of the fits
    n_episodes: int
    return_sum: float
    return_sum_sq: float | None  # None where the collector cannot tell
    start_value_sum: float | None  # what Q promised at the start states that were seen

    def state(self) -> State:
        """For a checkpoint."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_state(cls, reader: Reader) -> "PhaseRecord":
        """From a checkpoint."""
        q = reader.one("q", LinearQ)
        horizon, n_blocks, k = q.theta.shape
        cov_ref = reader.floats("cov_ref", (None, n_blocks, k, k))
        if len(cov_ref) not in (1, horizon):
            raise ValueError(f"cov_ref needs one Gram matrix, or one a level ({horizon}); got {len(cov_ref)}")
        return cls(
            phase=reader.integer("phase", at_least=1),
            q=q,
            ridge=reader.floats("ridge", (horizon,)),
            cov_ref=cov_ref,
            increment=reader.floats("increment", cov_ref.shape),
            residuals=reader.floats("residuals", (horizon,)),
            n_episodes=reader.integer("n_episodes"),
            return_sum=reader.number("return_sum"),
            return_sum_sq=reader.number("return_sum_sq") if reader.has("return_sum_sq") else None,
            start_value_sum=reader.number("start_value_sum") if reader.has("start_value_sum") else None,
        )


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
class MainLoop:
    """Sums over the episodes of one policy; the policy and Sigma_ref stand still."""

    def __init__(
        self, phase: int, q: LinearQ, ridge: Array, cov_ref: Array, residuals: Array, whiteners: Array | None = None
    ) -> None:
        self.phase = phase
        self.q = q
        self.ridge = ridge
        self.cov_ref = cov_ref  # without the ridge
        self.residuals = residuals
        if whiteners is None:
            # Pooled steps have one Gram matrix; the trigger then takes the ridge of the first level.
            whiteners = np.stack([whitener(gram, lam) for gram, lam in zip(cov_ref, ridge, strict=False)])
        self.whitener = whiteners
        self.increment: Array = np.zeros_like(cov_ref)
        self.progress: Array = np.zeros(len(cov_ref))
        self.n_episodes = 0
        self.n_cached = 0  # how many of them are in the cache
        self.return_sum = 0.0
        self.return_sum_sq: float | None = 0.0
        self.start_value_sum: float | None = 0.0

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays, the policy included."""
        return self.q.nbytes + self.cov_ref.nbytes + self.whitener.nbytes + self.increment.nbytes

    def request(self, request_id: int, threshold: tuple[float, float], max_episodes: int, keep: int) -> Explore:
        """Go on until the trigger, for at most `max_episodes`."""
        return Explore(
            id=request_id,
            policy=self.q,
            whitener=self.whitener,
            threshold=threshold,
            n_episodes=max_episodes,
            keep=min(keep, max_episodes),
            pool=len(self.cov_ref) < self.q.horizon,
            done=self.n_episodes,
            progress=self.progress,
        )

    def add(self, request: Explore, answer: Visits) -> bool:
        """Take an answer; True when the trigger has fired."""
        self._check(request, answer)
        self.progress = self.progress + answer.progress
        self.increment = self.increment + answer.grams
        self.n_episodes += answer.n_episodes
        self.n_cached += 0 if answer.kept is None else min(request.keep, answer.n_episodes)
        self.return_sum += answer.return_sum
        self.return_sum_sq = _plus(self.return_sum_sq, answer.return_sum_sq)
        self.start_value_sum = _plus(self.start_value_sum, answer.start_value_sum)
        return request.crossed(self.progress, self.n_episodes)

    def record(self) -> PhaseRecord:
        """What is worth knowing of the phase once it is over."""
        return PhaseRecord(
            phase=self.phase,
            q=self.q,
            ridge=self.ridge,
            cov_ref=self.cov_ref,
            increment=self.increment,
            residuals=self.residuals,
            n_episodes=self.n_episodes,
            return_sum=self.return_sum,
            return_sum_sq=self.return_sum_sq,
            start_value_sum=self.start_value_sum,
        )

    def state(self) -> State:
        """For a checkpoint. The whitener too: made again by another BLAS it might differ in its last bits."""
        return {
            "record": self.record(),
            "whitener": self.whitener,
            "progress": self.progress,
            "n_cached": self.n_cached,
        }

    @classmethod
    def from_state(cls, reader: Reader) -> "MainLoop":
        """From a checkpoint."""
        record = reader.one("record", PhaseRecord)
        whiteners = reader.floats("whitener", record.cov_ref.shape)
        loop = cls(record.phase, record.q, record.ridge, record.cov_ref, record.residuals, whiteners)
        loop.increment = record.increment
        loop.progress = reader.floats("progress", (len(record.cov_ref),))
        loop.n_episodes = record.n_episodes
        loop.n_cached = reader.integer("n_cached")
        loop.return_sum = record.return_sum
        loop.return_sum_sq = record.return_sum_sq
        loop.start_value_sum = record.start_value_sum
        return loop

    def _check(self, request: Explore, answer: Visits) -> None:
        if request.done != self.n_episodes or request.policy is not self.q:
            raise ValueError(
                f"request {request.id} (from episode {request.done} on) is not the open one, which goes on from "
                f"episode {self.n_episodes}; tell each answer once, right after its ask"
            )
        if not 1 <= answer.n_episodes <= request.n_episodes:
            raise ValueError(f"answer holds {answer.n_episodes} episodes, not 1 to {request.n_episodes} as asked")
        want = self.cov_ref.shape
        if answer.grams.shape != want or answer.progress.shape != self.progress.shape:
            raise ValueError(
                f"answer.grams and answer.progress must have shapes {want}, {self.progress.shape}; "
                f"got {answer.grams.shape}, {answer.progress.shape}"
            )
        require_finite("answer.grams", answer.grams)
        require_finite("answer.progress", answer.progress)
        require_finite("answer.return_sum", np.asarray(answer.return_sum))


def _plus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b
