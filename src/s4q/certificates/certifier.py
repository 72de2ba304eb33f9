"""Certificates: how far a policy can be from the best one, from what a run of S4Q has seen and nothing else.

In each phase p the main loop plays one policy from fresh start states, and so do the evaluations of that policy, where
a run spends a share of its episodes on them. Two bounds come out of their sums:

    V*        <=  mean of Q^(p) at the start states + deviation        as Q^(p) lies above Q* (optimism)
    V^policy  >=  mean return - deviation

They hold for all phases, and at every episode of each, jointly with probability 1 - delta. So the smallest upper bound
and the policy with the largest lower bound may be picked afterwards, and a run may stop when their difference is small.
delta in quarters: the fits of all phases and their covariances (the two that optimism needs; see `presets`), the start
states, the returns; each of the last two with a share 1/(p (p + 1)) for phase p. Evaluations cost no delta of their
own: in the order in which they were played, main loop and evaluations of a phase are one sequence with one mean.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple, Protocol, final

import numpy as np

from s4q.certificates.confidence_sequences import mean_at_least, mean_at_least_by_variance, mean_at_most
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Returns
from s4q.core.spec import Spec
from s4q.learners.explanation import broken_proof
from s4q.learners.main_loop import PhaseRecord, Record
from s4q.learners.presets import Constants


@final
@dataclass(frozen=True, eq=False, slots=True)
class Certificate:
    """With probability 1 - delta, V* <= upper and the value of `policy` >= lower; in the user's units."""

    upper: float  # on V*, the best expected return of an episode
    lower: float  # on the expected return of an episode of `policy`
    gap: float  # what the policy may fall short of V* at most; infinite when the bounds contradict each other
    largest_gap: float  # what the gap can be at most anyway: as far as returns can lie apart
    delta: float
    phase: int  # whose policy is certified; 0 before the first episode
    n_episodes: int  # episodes of that policy, those of its main loop and its evaluations
    policy: LinearQ | None  # None before the first episode
    assumptions: tuple[str, ...] = ()  # what is taken on trust

    @property
    def vacuous(self) -> bool:
        """Does it say nothing that was not known before the first episode?"""
        return self.gap >= self.largest_gap

    @property
    def contradictory(self) -> bool:
        """Does the policy seem better than the best? Then an assumption is wrong, or the chance of delta came up."""
        return self.gap == inf

    def __str__(self) -> str:
        return f"{self._claim()}\nassumed: {'; '.join(self.assumptions)}" if self.assumptions else self._claim()

    def _claim(self) -> str:
        if self.contradictory:
            return (
                f"contradictory: V* <= {self.upper:.6g}, yet the policy of phase {self.phase} is worth >= "
                f"{self.lower:.6g}; the features are not exact or a declared bound is wrong (or, with probability "
                f"{self.delta:g}, bad luck)"
            )
        if self.vacuous:
            return (
                f"vacuous: the gap is only known to be at most {self.gap:.6g}, and it cannot exceed "
                f"{self.largest_gap:.6g} anyway; play more episodes, or declare a smaller value_bound if you know one"
            )
        episodes = f"{self.n_episodes:,} episode{'' if self.n_episodes == 1 else 's'}"
        return (
            f"with probability {1 - self.delta:g}: V* <= {self.upper:.6g}, the policy of phase {self.phase} is worth "
            f">= {self.lower:.6g} (from {episodes}), so it is within {self.gap:.6g} of the best"
        )


class Bounds(NamedTuple):
    """What one phase says, in rewards shifted to start at 0."""

    upper: float  # on V*
    lower: float  # on the value of the phase's policy


@final
@dataclass(frozen=True, eq=False, slots=True)
class Certified:
    """What finished phases have shown, for going on later."""

    upper: float  # the smallest bound on V*, in shifted rewards
    phase: PhaseRecord | None = None  # the one with the best lower bound; None before the first episode
    evaluated: Returns | None = None  # of its policy


class Phased(Protocol):
    """What a certificate reads of an S4Q."""

    @property
    def constants(self) -> Constants: ...
    @property
    def last_phase(self) -> PhaseRecord | None: ...
    @property
    def open_phase(self) -> PhaseRecord | None: ...


def certify(source: Record | Phased) -> Certificate:
    """How far a policy of an S4Q can be from the best one, with probability 1 - delta.

    Refused when nothing proves that the learner's Q lies above Q*. Valid for any problem, finite or not, that is as
    its Spec says.

    Args:
        source: The record of a run, or a learner, which remembers its last two phases and no evaluations.

    >>> import s4q
    >>> mdp = s4q.problems.river_swim(6, horizon=12)
    >>> learner = s4q.S4Q(mdp, "realisable")
    >>> run = s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=0), episodes=10**6, record=True)
    >>> found = certify(run.record)
    >>> found.lower <= mdp.value(found.policy) <= mdp.v_star <= found.upper, found.gap < 0.2, found.vacuous
    (True, True, False)
    """
    if not hasattr(source, "constants"):  # a Run, perhaps
        kept = getattr(source, "record", None)
        if kept is None:
            raise ValueError(
                "a certificate is made from an S4Q, or from a run that kept its phases: run(..., record=True); got "
                f"{type(source).__name__}"
            )
        return certify(kept)
    certifier = Certifier(source.constants)
    evaluations: Mapping[int, Returns] = {}
    if isinstance(source, Record):
        finished, running, evaluations = source.phases, source.unfinished, source.evaluations
    else:
        last = source.last_phase
        finished, running = () if last is None else (last,), source.open_phase
    for phase in finished:
        certifier.add(phase, evaluations.get(phase.phase))
    return certifier.certificate(running, None if running is None else evaluations.get(running.phase))


@final
class Certifier:
    """Takes finished phases one by one; remembers the smallest upper bound and the best policy, nothing else."""

    def __init__(self, constants: Constants, before: Certified | None = None) -> None:
        """Start from nothing, or from what an earlier run has shown.

        Args:
            constants: Of the S4Q whose phases are added; refused if they prove no optimism.
            before: What a Certifier with the same constants has `certified`. None (default): nothing yet.
        """
        reason = refusal(constants)
        if reason is not None:
            raise ValueError(f"no certificate: {reason}")
        self._constants = constants
        self.certified = Certified(constants.spec.value_bound[0]) if before is None else before
        best = self.certified.phase
        self._lower = 0.0 if best is None else bounds(constants, best, self.certified.evaluated).lower

    def add(self, phase: PhaseRecord, evaluated: Returns | None = None) -> None:
        """Take a finished phase.

        Args:
            phase: Its record.
            evaluated: What the evaluations of its policy came to. None (default): there were none.
        """
        self.certified, self._lower = self._with(phase, evaluated)

    def certificate(self, running: PhaseRecord | None = None, evaluated: Returns | None = None) -> Certificate:
        """From all phases added and, as far as it has come, the running one.

        Args:
            running: The phase that is not finished. None (default): there is none.
            evaluated: What the evaluations of its policy came to.
        """
        known, lower = (self.certified, self._lower) if running is None else self._with(running, evaluated)
        spec, best = self._constants.spec, known.phase
        return Certificate(
            upper=_user_units(spec, known.upper),
            lower=_user_units(spec, lower),
            gap=known.upper - lower if lower <= known.upper else inf,
            largest_gap=spec.value_bound[0],
            delta=self._constants.delta,
            phase=0 if best is None else best.phase,
            n_episodes=0 if best is None else _played(best, known.evaluated).n_returns,
            policy=None if best is None else best.q,
            assumptions=assumptions(self._constants) + self._about_cuts(known),
        )

    @staticmethod
    def _about_cuts(known: Certified) -> tuple[str, ...]:
        best = known.phase
        cut = 0 if best is None else _played(best, known.evaluated).n_truncated
        return (
            (f"the {cut:,} episodes that were cut were cut for no reason that has to do with their return",)
            if cut
            else ()
        )

    def _with(self, phase: PhaseRecord, evaluated: Returns | None) -> tuple[Certified, float]:
        """What is certified with one phase more, and its lower bound."""
        if _played_or_none(phase, evaluated) is None:
            return self.certified, self._lower
        found = bounds(self._constants, phase, evaluated)
        upper = min(self.certified.upper, found.upper)
        if found.lower >= self._lower:  # also in the first phase: no lower bound is below 0
            return Certified(upper, phase, evaluated), found.lower
        return replace(self.certified, upper=upper), self._lower


def bounds(constants: Constants, phase: PhaseRecord, evaluated: Returns | None = None) -> Bounds:
    """The two bounds of one phase, in shifted rewards. evaluated: what more episodes of its policy came to.

    Optimistic values lie in [0, v_0]: they are clipped there. A return may exceed v_0, which bounds expectations, so
    it is only taken to lie in what the reward range allows.
    """
    played = _played(phase, evaluated)
    n, delta = played.n_returns, phase_delta(constants.delta, phase.phase)
    most_value, most_return = constants.spec.value_bound[0], largest_return(constants.spec)
    upper = 1.0 if played.start_value_sum is None else mean_at_most(played.start_value_sum / most_value, n, delta)
    returns = played.return_sum / most_return
    if played.return_sum_sq is None:
        lower = mean_at_least(returns, n, delta)
    else:
        lower = mean_at_least_by_variance(returns, played.return_sum_sq / most_return**2, n, delta)
    return Bounds(most_value * upper, most_return * lower)


def _played(phase: PhaseRecord, evaluated: Returns | None) -> Returns:
    """All episodes of the policy of a phase; the steps of its main loop are not known."""
    main = Returns(phase.n_episodes, phase.return_sum, phase.return_sum_sq, phase.start_value_sum, 0, phase.n_truncated)
    return main if evaluated is None else main + evaluated


def _played_or_none(phase: PhaseRecord, evaluated: Returns | None) -> Returns | None:
    """The same; None where no episode was played to its end. An episode that was cut has no return to go by."""
    if phase.n_episodes == 0 and evaluated is None:
        return None
    played = _played(phase, evaluated)
    return played if played.n_returns else None


def phase_delta(delta: float, phase: int) -> float:
    """Failure probability of one of the two deviations of a phase; over all phases they add up to a quarter of delta.

    >>> round(sum(phase_delta(0.05, p) for p in range(1, 10**4)), 4)
    0.0125
    """
    return delta / (4 * phase * (phase + 1))


def largest_return(spec: Spec, level: int = 0) -> float:
    """What an episode can pay from a level on, in shifted rewards: the largest reward, then that or an early end's 0.

    >>> from s4q import problems
    >>> largest_return(problems.chain().spec)  # though no policy gets more than 1 on average
    10.0
    """
    later = max(spec.reward_max, 0.0) - spec.reward_min
    most = spec.reward_max - spec.reward_min + (spec.horizon - 1 - level) * later
    return max(most, spec.value_bound[level])  # never 0, also where all rewards are the same


def assumptions(constants: Constants) -> tuple[str, ...]:
    """What a certificate takes on trust, in words.

    >>> from s4q import problems
    >>> from s4q.learners.presets import constants
    >>> features, radius, value_bound, pooling = assumptions(constants(problems.chain().spec, "realisable"))
    >>> features, value_bound
    ('the features are exact (well_specified)', 'values stay within value_bound, 1 at the start (declared)')
    """
    spec, radii = constants.spec, constants.radius()
    low, high = f"{radii.min():.4g}", f"{radii.max():.4g}"
    radius = low if low == high else f"{low} to {high}"
    how = {"computed": "computed from the tables", "declared": "declared", "default": "the default, an assumption"}
    implied = all(v >= largest_return(spec, h) * (1 - 1e-12) for h, v in enumerate(spec.value_bound))
    where = "follows from the reward range" if implied else "declared"
    return (
        "the features are exact (well_specified)",
        f"the true parameters lie within the radius {radius} ({how[spec.radius_from]})",
        f"values stay within value_bound, {_user_units(spec, spec.value_bound[0]):.4g} at the start ({where})",
        *(("every level behaves the same (stationary, pooled)",) if constants.pool else ()),
    )


def refusal(constants: Constants) -> str | None:
    """Why no certificate can be given with these constants, and the cure; None when one can."""
    if constants.preset == "practical":
        return 'the preset "practical" proves nothing; use "realisable" (exact features) for a certified run'
    if not constants.spec.well_specified and constants.preset == "realisable":
        return (
            "the features are not declared exact; if they are, pass well_specified=True to FiniteMDP, Spec.of or Agent"
        )
    broken = broken_proof(constants)
    if broken is not None:
        return f"the proof of optimism is void, since {broken}; keep the preset's own constants"
    if not constants.spec.well_specified:
        return (
            f'with "{constants.preset}" Q may lie below Q* by the transfer error, which is not known; declare '
            "well_specified=True if the features are exact"
        )
    return None


def _user_units(spec: Spec, value: float) -> float:
    return float(spec.to_user_units(0, np.array(value)))
