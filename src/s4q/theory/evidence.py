"""Evidence: all that the statements of the paper speak of, computed exactly from a recorded run.

Values, errors and bonuses are (H, S, A) arrays over all pairs, in rewards shifted to start at 0. Gram matrices are
(H, n_blocks, k, k) and raw: the ridge is added on use.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from s4q.blocks import Array, BoolArray
from s4q.ledger import Run
from s4q.linear_q import LinearQ
from s4q.main_loop import PhaseRecord, Record
from s4q.presets import Constants
from s4q.problems import FiniteMDP
from s4q.theory.bounds import expected_sum, fit_radius, uncertainty
from s4q.theory.covariance import grams_of_occupancies, optimal_occupancies, phases_of
from s4q.theory.effective_dim import EffectiveDim, effective_dims, realised_gain
from s4q.theory.lemmas import trace_ratio
from s4q.theory.structure import bellman_errors, errors_of_fits, next_values


@final
@dataclass(frozen=True, eq=False, slots=True)
class PhaseEvidence:
    """One phase: what it learned, against what it should have."""

    record: PhaseRecord
    finished: bool
    n_before: int  # m_tot, the trajectories of the phases before
    n_level: int  # samples behind each level's fit; 0 in the first phase
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
        """The matrix of one level, (n_blocks, k, k), with the ridge of the phase added."""
        return np.asarray(grams[h] + float(self.record.ridge[h]) * np.eye(grams.shape[-1]))

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
    phases: tuple[PhaseEvidence, ...]
    best: Array  # occupancy of an optimal policy
    reachable: BoolArray  # (H, S, A): the pairs that some policy visits, terminal ones left out
    terr: float  # the largest |sum_h E Delta_h| of a phase, under an optimal policy or the phase's own; 0 if rounding
    off: float  # the largest |Delta| at a reachable pair; 0 if rounding
    off_free: float  # the same if parameters could leave their balls; 0 when the features are exact
    dims: tuple[EffectiveDim, ...]  # of each level, at n = episodes and the ridge of phase 1
    realised: Array  # (H,): the information gathered

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
    occupancies = [mdp.occupancies(phase.q) for phase in phases]
    counts = [phase.n_trajectories for phase in phases]
    found, total, before = [], np.zeros(mdp.rewards.shape), 0
    for i, phase in enumerate(phases):
        controller = total / before if before else occupancies[0]
        previous = phases[i - 1] if i else None
        own = occupancies[i]
        found.append(_phase(mdp, record, phase, previous, own, controller, before, i < len(record.phases)))
        total, before = total + counts[i] * own, before + counts[i]
    best = optimal_occupancies(mdp)
    terr = max(abs(expected_sum(meets, p.comparators)) for p in found for meets in (best, p.occupancy))
    off = _largest(mdp, [p.comparators for p in found])
    free = [errors_of_fits(mdp, p.controller, next_values(mdp, p.record.q), np.inf) for p in found] if off else []
    return Evidence(
        mdp=mdp,
        run=run,
        constants=record.constants,
        phases=tuple(found),
        best=best,
        reachable=np.repeat(mdp.reachable[:, :, None], mdp.n_actions, axis=2),
        terr=terr if terr > 1e-9 * mdp.spec.value_bound[0] else 0.0,
        off=off,
        off_free=_largest(mdp, free),
        dims=tuple(effective_dims(mdp, run.episodes / phases[0].ridge)),
        realised=realised_gain(mdp, record),
    )


def _largest(mdp: FiniteMDP, errors: list[Array]) -> float:
    """The largest error at a reachable pair; 0 if it is rounding, of which directions hardly visited have more."""
    largest = max((float(np.abs(each[mdp.reachable]).max()) for each in errors), default=0.0)
    return largest if largest > 1e-7 * mdp.spec.value_bound[0] else 0.0


def _checked_record(run: Run) -> Record:
    record = run.record
    if record is None:
        raise ValueError("run has no record; an audit needs run(..., record=True)")
    first = record.phases[0] if record.phases else record.unfinished
    if first is None or first.phase != 1 or first.n_trajectories > run.curve[0].main_episodes:
        raise ValueError("run must be recorded from its first episode on: pass record=True to the learner's first run")
    if record.constants.cache_episodes:
        raise ValueError(
            f"run kept the transitions of {record.constants.cache_episodes} episodes, and no statement of the paper "
            "covers a cache; run with cache_episodes=0"
        )
    if record.constants.pool:
        raise ValueError("run pooled its steps, and no statement of the paper covers that; run with pool=False")
    if run.regret is None:
        raise ValueError("run has no exact regret; an audit needs a collector over the FiniteMDP")
    return record


def _phase(
    mdp: FiniteMDP,
    record: Record,
    phase: PhaseRecord,
    previous: PhaseRecord | None,
    own: Array,
    controller: Array,
    before: int,
    finished: bool,
) -> PhaseEvidence:
    constants, levels, q = record.constants, range(mdp.horizon), phase.q
    n_level = constants.samples_a_level(before)
    # Sbar: the controller's mean, times its trajectories.
    expected = grams_of_occupancies(mdp, controller) * before
    if constants.bonus_from == "own":
        covariance = phase.cov_ref * (n_level / max(before, 1))
    else:
        covariance = np.zeros_like(expected) if previous is None else previous.cov_ref + previous.increment
    metric = covariance if constants.theory is None else expected
    linear = LinearQ(q.theta)
    features = [mdp.features.level(h) for h in levels]
    radii = [
        fit_radius(constants, h, phase.phase, before, covariance[h], float(phase.ridge[h])) for h in levels
    ]  # alpha_u
    return PhaseEvidence(
        record=phase,
        finished=finished,
        n_before=before,
        n_level=n_level,
        occupancy=own,
        controller=controller,
        grams=grams_of_occupancies(mdp, own),
        expected=expected,
        covariance=covariance,
        q=np.stack([q.q_values(h, features[h]) for h in levels]),
        linear=np.stack([linear.optimistic(h, features[h]) for h in levels]),
        bonuses=np.stack([q.optimistic(h, features[h]) - linear.optimistic(h, features[h]) for h in levels]),
        uncertainties=np.stack([uncertainty(features[h], metric[h], float(phase.ridge[h]), radii[h]) for h in levels]),
        errors=bellman_errors(mdp, q),
        comparators=errors_of_fits(mdp, controller, next_values(mdp, q), constants.radius()),
        value=mdp.value(q),
        promised=float(mdp.start @ mdp.spec.to_user_units(0, q.value(0, features[0]))),
    )


def _require_played_on(run: Run, mdp: FiniteMDP) -> None:
    """The gap of the newest policy was computed on the run's own problem: another problem has another gap."""
    if run.gap is None:
        raise ValueError("run was not played on a FiniteMDP, so nothing exact is known of it; use s4q.certificate")
    if abs(mdp.v_star - mdp.value(run.policy) - run.gap) > 1e-9 * max(1.0, abs(mdp.v_star)):
        raise ValueError(f"run was played on another problem than {mdp}; pass the one of its collector")
