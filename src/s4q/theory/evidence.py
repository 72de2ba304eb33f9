"""Evidence: all that the statements of the paper speak of, computed exactly from a recorded run.

Values, errors and bonuses are (H, S, A) arrays over all pairs, in rewards shifted to start at 0. Gram matrices are
(H, n_blocks, k, k) and raw: the ridge is added on use.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, final

import numpy as np

from s4q.core.blocks import Array, BoolArray
from s4q.core.linear_q import LinearQ
from s4q.learners.fit_record import FitRecord
from s4q.learners.main_loop import PhaseRecord, Record
from s4q.learners.presets import Constants
from s4q.problems import FiniteMDP, planning
from s4q.running.accounting import Run
from s4q.theory.bounds import expected_sum, uncertainty
from s4q.theory.covariance import grams_of_occupancies, optimal_occupancies, phases_of
from s4q.theory.information_gain import EffectiveDim, effective_dims, realised_gain
from s4q.theory.lemmas import trace_ratio
from s4q.theory.population_fits import population_fit
from s4q.theory.prescribed import Prescribed
from s4q.theory.structure import bellman_errors, errors_of_fits, next_values


@final
@dataclass(frozen=True, eq=False, slots=True)
class PhaseEvidence:
    """One phase: what it learned, against what it should have."""

    record: PhaseRecord
    finished: bool
    n_played: int  # episodes that the collector played in its main loop
    n_before: int  # m_tot: the same of all phases before
    fits: tuple[FitRecord, ...]  # what the collector returned for its fit, one per level; none in the first phase
    call: tuple[FitRecord, ...]  # for all fits of the S3Q call, in order
    ridge: Array  # (H,), as prescribed
    occupancy: Array  # of the phase's own policy
    controller: Array  # occupancy of the controller its fit was made with (in phase 1, without a fit: its own)
    grams: Array  # E phi phi^T under its own policy
    expected: Array  # Sbar, of the trajectories before
    covariance: Array  # the estimate of Sbar that the bonus is made of
    q: Array  # the optimistic value
    linear: Array  # phi . theta
    bonuses: Array  # b
    uncertainties: Array  # U
    errors: Array  # err = Q - T Q
    comparators: Array  # Delta = T Q - phi . theta_pi
    best: Array  # (H, n_blocks, k): theta_pi if no ball were in the way
    value: float  # V^pi
    promised: float  # E V at the start, what Q says of it

    @property
    def backup(self) -> Array:
        """T Q, what the fit aims at."""
        return self.q - self.errors

    @property
    def progress(self) -> list[float]:
        """Sum of |phi|^2 in the metric of Sigma_ref over the main loop, per level."""
        grams = enumerate(self.record.increment)
        return [trace_ratio(self.ridged(self.record.cov_ref, h), gram) for h, gram in grams]

    def ridged(self, grams: Array, h: int) -> Array:
        """The matrix of one level, (n_blocks, k, k), with the prescribed ridge of the phase added."""
        return np.asarray(grams[h] + float(self.ridge[h]) * np.eye(grams.shape[-1]))

    @property
    def n_level(self) -> int:
        """Episodes behind each level's fit; 0 in the first phase."""
        return min((fit.n_episodes for fit in self.fits), default=0)

    @property
    def best_linear(self) -> Array:
        """phi . theta_pi, the best on-policy prediction of the backup."""
        return self.backup - self.comparators


@final
@dataclass(frozen=True, eq=False, slots=True)
class Evidence:
    """A recorded run and everything the statements compare."""

    mdp: FiniteMDP
    run: Run
    constants: Constants
    prescribed: Prescribed
    phases: tuple[PhaseEvidence, ...]
    best: Array  # occupancy of an optimal policy
    reachable: BoolArray  # (H, S, A): the pairs that some policy visits, terminal ones left out
    terr: float  # the largest |sum_h E Delta_h| of a phase, under an optimal policy or the phase's own; 0 if rounding
    off: float  # the largest |Delta| at a reachable pair; 0 if rounding
    dims: tuple[EffectiveDim, ...]  # of each level, at n = episodes and the ridge of phase 1
    realised: Array  # (H,): the information gathered

    @property
    def worst_value(self) -> float:
        """The least expected return of an episode, over all policies; in the user's units."""
        return lowest_value(self.mdp)

    @property
    def finished(self) -> tuple[PhaseEvidence, ...]:
        """The phases whose main loop reached the trigger."""
        return tuple(phase for phase in self.phases if phase.finished)

    @property
    def fitted(self) -> tuple[PhaseEvidence, ...]:
        """The phases with a fit: all but the first."""
        return tuple(phase for phase in self.phases if phase.n_level)

    @property
    def gains(self) -> Array:
        """Upper bounds on the effective dimensions, (H,)."""
        return np.array([dim.upper for dim in self.dims])


def gather(run: Run, mdp: FiniteMDP) -> Evidence:
    """Compute the evidence of a run that was recorded from its first phase on."""
    record = _checked_record(run)
    phases = phases_of(mdp, record)
    _require_played_on(run, mdp)
    prescribed, calls = Prescribed(record.constants), calls_of(record.fits)
    occupancies = [mdp.occupancies(phase.q) for phase in phases]
    counts = _played(run, phases)
    found, total, before = [], np.zeros(mdp.rewards.shape), 0
    for i, phase in enumerate(phases):
        controller = total / before if before else occupancies[0]
        past = _Past(i < len(record.phases), counts[i], before, controller, phases[i - 1] if i else None)
        found.append(_phase(mdp, prescribed, phase, past, occupancies[i], calls.get(phase.phase, ())))
        total, before = total + counts[i] * occupancies[i], before + counts[i]
    best = optimal_occupancies(mdp)
    terr = max(abs(expected_sum(meets, p.comparators)) for p in found for meets in (best, p.occupancy))
    return Evidence(
        mdp=mdp,
        run=run,
        constants=record.constants,
        prescribed=prescribed,
        phases=tuple(found),
        best=best,
        reachable=np.repeat(mdp.reachable[:, :, None], mdp.n_actions, axis=2),
        terr=terr if terr > 1e-9 * mdp.spec.value_bound[0] else 0.0,
        off=_largest(mdp, [p.comparators for p in found]),
        dims=tuple(effective_dims(mdp, run.episodes / found[0].ridge)),
        realised=realised_gain(mdp, record),
    )


def lowest_value(mdp: FiniteMDP) -> float:
    """min over policies of V^pi: no average regret can exceed V* less this."""
    return -float(mdp.start @ planning.optimal_values(mdp.transitions, -mdp.rewards)[0].max(axis=-1))


def calls_of(fits: tuple[FitRecord, ...]) -> dict[int, tuple[FitRecord, ...]]:
    """The fits of every S3Q call, by the phase it prepared."""
    calls: dict[int, tuple[FitRecord, ...]] = {}
    for fit in fits:
        calls[fit.phase] = (*calls.get(fit.phase, ()), fit)
    return calls


def last_epoch(call: tuple[FitRecord, ...], horizon: int) -> tuple[FitRecord, ...]:
    """The fits of the last epoch that was finished, level 0 first: a cut epoch has fewer, or a shorter last one."""
    for end in range(len(call) - len(call) % horizon, 0, -horizon):
        epoch = call[end - horizon : end]
        if len({fit.n_episodes for fit in epoch}) == 1:
            return tuple(sorted(epoch, key=lambda fit: fit.level))
    return ()


def _played(run: Run, phases: tuple[PhaseRecord, ...]) -> list[int]:
    """Main-loop episodes of each phase, as the collector's answers were counted."""
    ends = [0, *(point.main_episodes for point in run.curve)]
    counts = [after - before for before, after in pairwise(ends)]
    return [counts[i] if i < len(counts) else phase.n_episodes for i, phase in enumerate(phases)]


def _largest(mdp: FiniteMDP, errors: list[Array]) -> float:
    """The largest error at a reachable pair; 0 if it is rounding, of which directions hardly visited have more."""
    largest = max((float(np.abs(each[mdp.reachable]).max()) for each in errors), default=0.0)
    return largest if largest > 1e-7 * mdp.spec.value_bound[0] else 0.0


def _checked_record(run: Run) -> Record:
    record = run.record
    if record is None:
        raise ValueError("run has no record; an audit needs run(..., record=True)")
    first = record.phases[0] if record.phases else record.unfinished
    if first is None or first.phase != 1 or first.n_episodes > run.curve[0].main_episodes:
        raise ValueError("run must be recorded from its first episode on: pass record=True to the learner's first run")
    if record.constants.cache_episodes:
        raise ValueError(
            f"run kept the transitions of {record.constants.cache_episodes} episodes, and no statement of the paper "
            "covers a cache; run with cache_episodes=0"
        )
    if record.constants.pool:
        raise ValueError("run pooled its steps, and no statement of the paper covers that; run with pool=False")
    if record.evaluations:
        raise ValueError(
            "run spent episodes on evaluations, which no statement of the paper covers; leave out evaluation_share"
        )
    if run.regret is None:
        raise ValueError("run has no exact regret; an audit needs a collector over the FiniteMDP")
    return record


class _Past(NamedTuple):
    """What came before a phase."""

    finished: bool
    n_played: int
    n_before: int
    controller: Array
    previous: PhaseRecord | None


def _phase(
    mdp: FiniteMDP, prescribed: Prescribed, phase: PhaseRecord, past: _Past, own: Array, call: tuple[FitRecord, ...]
) -> PhaseEvidence:
    levels, q, before = range(mdp.horizon), phase.q, past.n_before
    fits, ridge = last_epoch(call, mdp.horizon), prescribed.ridge(phase.phase, before)
    # Sbar: the controller's mean, times its trajectories.
    expected = grams_of_occupancies(mdp, past.controller) * before
    if prescribed.settings.bonus_from == "own":
        covariance = np.stack([fit.gram for fit in fits]) if fits else np.zeros_like(expected)
    else:
        previous = past.previous
        covariance = np.zeros_like(expected) if previous is None else previous.cov_ref + previous.increment
    metric = expected if prescribed.proved else covariance
    linear = LinearQ.from_arrays(q.theta)
    features = [mdp.features.level(h) for h in levels]
    radii = [prescribed.fit_radius(h, phase.phase, before, covariance[h], float(ridge[h])) for h in levels]  # alpha_u
    errors, values = bellman_errors(mdp, q), np.stack([q.q_values(h, features[h]) for h in levels])
    backup = values - errors
    free = [population_fit(mdp, past.controller, h).solve(backup[h].ravel(), np.inf) for h in levels]
    return PhaseEvidence(
        record=phase,
        finished=past.finished,
        n_played=past.n_played,
        n_before=before,
        fits=fits,
        call=call,
        ridge=ridge,
        occupancy=own,
        controller=past.controller,
        grams=grams_of_occupancies(mdp, own),
        expected=expected,
        covariance=covariance,
        q=values,
        linear=np.stack([linear.optimistic(h, features[h]) for h in levels]),
        bonuses=np.stack([q.optimistic(h, features[h]) - linear.optimistic(h, features[h]) for h in levels]),
        uncertainties=np.stack([uncertainty(features[h], metric[h], float(ridge[h]), radii[h]) for h in levels]),
        errors=errors,
        comparators=errors_of_fits(mdp, past.controller, next_values(mdp, q), prescribed.ball()),
        best=np.stack(free),
        value=mdp.value(q),
        promised=float(mdp.start @ mdp.spec.to_user_units(0, q.value(0, features[0]))),
    )


def _require_played_on(run: Run, mdp: FiniteMDP) -> None:
    """The gap of the newest policy was computed on the run's own problem: another problem has another gap."""
    if run.gap is None:
        raise ValueError("run was not played on a FiniteMDP, so nothing exact is known of it; use s4q.certificate")
    if abs(mdp.v_star - mdp.value(run.policy) - run.gap) > 1e-9 * max(1.0, abs(mdp.v_star)):
        raise ValueError(f"run was played on another problem than {mdp}; pass the one of its collector")
