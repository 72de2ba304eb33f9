"""Evidence: all that the statements of the paper speak of, computed exactly from a recorded run of S4Q.

`auditing.audit` calls `gather` once; the tests in `statements` and `run_checks` read the result and compute no run of
their own. Values, errors and bonuses are (H, S, A) arrays over all pairs, in rewards shifted to start at 0. Gram
matrices are (H, n_blocks, k, k) and raw: the ridge is added on use.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, final

import numpy as np

from s4q.core.blocks import Array, BoolArray, Phi
from s4q.core.linear_q import LinearQ
from s4q.learners.fit_record import FitRecord
from s4q.learners.main_loop import PhaseRecord, Record
from s4q.learners.presets import Constants
from s4q.problems import FiniteMDP
from s4q.running.accounting import Run
from s4q.theory import definitions
from s4q.theory.bounds import Prescribed, uncertainty
from s4q.theory.definitions import best_return, expected_sum, grams_of_occupancies, optimal_occupancies
from s4q.theory.information_gain import EffectiveDim, effective_dims, realised_gain
from s4q.theory.lemmas import Claim, Part, trace_ratio
from s4q.theory.population_fits import population_fit, reachable_pairs

Needs = Literal["nothing", "width", "optimism", "theorem 1"]  # what a preset must prove for a statement to be claimed
# How often a row may fail: "identity" never, because it is algebra; "always" never; "rarely" with chance RARE;
# "delta" in a share delta of the seeds.
Kind = Literal["identity", "always", "rarely", "delta"]


@final
class PhaseEvidence:
    """One phase: what it learned, against what it should have."""

    def __init__(
        self,
        mdp: FiniteMDP,
        prescribed: Prescribed,
        record: PhaseRecord,
        previous: "PhaseEvidence | None",
        n_played: int,
        finished: bool,
        call: tuple[FitRecord, ...],
    ) -> None:
        self.record, self.finished = record, finished
        self.call = call  # what the collector returned for all fits of the S3Q call, in order
        self.fits = last_epoch(call, mdp.horizon)  # for the fit that was used, one per level; none in phase 1
        self.n_played = n_played  # episodes that the collector played in its main loop
        self.n_before = 0  # m_tot: the same of all phases before
        self.visits = np.zeros(mdp.rewards.shape)  # how often they are expected to have met each pair
        self.occupancy = self.controller = mdp.occupancies(record.q)  # of the phase's own policy
        if previous is not None:
            self.n_before = previous.n_before + previous.n_played
            self.visits = previous.visits + previous.n_played * previous.occupancy
            # The occupancy of the controller that the fit was made with.
            self.controller = self.visits / self.n_before if self.n_before else previous.controller
        self.ridge = prescribed.ridge(record.phase, self.n_before)  # (H,)
        self.grams = grams_of_occupancies(mdp, self.occupancy)  # E phi phi^T under its own policy
        self.expected = grams_of_occupancies(mdp, self.controller) * self.n_before  # Sbar, of the trajectories before
        self.covariance = self._bonus_covariance(prescribed, previous)  # what the bonus takes for Sbar
        levels, q = range(mdp.horizon), record.q
        phi = [mdp.features.level(h) for h in levels]
        self.q = np.stack([q.q_values(h, phi[h]) for h in levels])  # the optimistic value
        self.linear = np.stack([LinearQ.from_arrays(q.theta).optimistic(h, phi[h]) for h in levels])  # phi . theta
        self.bonuses = np.stack([q.optimistic(h, phi[h]) for h in levels]) - self.linear  # b
        self.uncertainties = self._uncertainties(prescribed, phi)  # U
        self.errors = definitions.bellman_errors(mdp, q)  # err = Q - T Q
        after = definitions.next_values(mdp, q)
        # Delta = T Q - phi . theta_pi
        self.comparators = definitions.errors_of_fits(mdp, self.controller, after, prescribed.ball())
        free = [population_fit(mdp, self.controller, h).solve(self.backup[h].ravel(), np.inf) for h in levels]
        self.best = np.stack(free)  # (H, n_blocks, k): theta_pi if no ball were in the way
        self.value = mdp.value(q)  # V^pi
        self.promised = promised_value(mdp, q)  # E V at the start, what Q says of it

    def _bonus_covariance(self, prescribed: Prescribed, previous: "PhaseEvidence | None") -> Array:
        """The estimate of Sbar that the bonus is made of."""
        if prescribed.settings.bonus_from == "own" and self.fits:
            return np.stack([fit.gram for fit in self.fits])
        if prescribed.settings.bonus_from == "own" or previous is None:
            return np.zeros_like(self.expected)
        return previous.record.cov_ref + previous.record.increment

    def _uncertainties(self, prescribed: Prescribed, phi: list[Phi]) -> Array:
        """U, with the radius of the fit and the metric in which the proof knows it."""
        found, metric = [], self.expected if prescribed.proved else self.covariance
        for h, lam in enumerate(self.ridge.tolist()):
            radius = prescribed.fit_radius(h, self.number, self.n_before, self.covariance[h], lam)  # alpha_u
            found.append(uncertainty(phi[h], metric[h], lam, radius))
        return np.stack(found)

    @property
    def number(self) -> int:
        """Of the phase: 1, 2, ..."""
        return self.record.phase

    @property
    def backup(self) -> Array:
        """T Q, what the fit aims at."""
        return self.q - self.errors

    def progress(self, h: int) -> float:
        """Sum of |phi|^2 in the metric of Sigma_ref over the main loop, at one level."""
        return trace_ratio(self.ridged(self.record.cov_ref, h), self.record.increment[h])

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
    reachable: BoolArray  # (H, S, A): the pairs that some policy visits, terminal ones left out
    terr: float  # the largest |sum_h E Delta_h| of a phase, under an optimal policy or the phase's own; 0 if rounding
    off: float  # the largest |Delta| at a reachable pair; 0 if rounding
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


@final
@dataclass(frozen=True, slots=True)
class Statement:
    """One line of the audit of an S4Q run, before anything is measured."""

    name: str
    where: str  # label in the paper's source, or what it is about
    kind: Kind
    test: Callable[[Evidence], list[Part]]  # no parts: nothing to check in this run
    needs: Needs = "nothing"
    note: str = ""


def by_phase(
    phases: Iterable[PhaseEvidence], test: Callable[[PhaseEvidence], Claim], high: float = np.inf
) -> list[Part]:
    """The claim of every phase; `high`: the largest number that can be measured."""
    return [Part(test(p), p.number, high=high) for p in phases]


def by_level(phases: Iterable[PhaseEvidence], test: Callable[[PhaseEvidence, int], Claim]) -> list[Part]:
    """The claim of every phase and level."""
    return [Part(test(p, h), p.number, h) for p in phases for h in range(len(p.ridge))]


def gather(run: Run, mdp: FiniteMDP) -> Evidence:
    """Compute the evidence of a run that was recorded from its first phase on."""
    record = _checked_record(run)
    phases = definitions.phases_of(mdp, record)
    _require_played_on(run, mdp)
    prescribed, found = Prescribed(record.constants), list[PhaseEvidence]()
    for i, (phase, played) in enumerate(zip(phases, _played(run, phases), strict=True)):
        previous, finished = found[-1] if found else None, i < len(record.phases)
        call = tuple(fit for fit in record.fits if fit.phase == phase.phase)
        found.append(PhaseEvidence(mdp, prescribed, phase, previous, played, finished, call))
    best = optimal_occupancies(mdp)
    terr = max(abs(expected_sum(meets, p.comparators)) for p in found for meets in (best, p.occupancy))
    return Evidence(
        mdp=mdp,
        run=run,
        constants=record.constants,
        prescribed=prescribed,
        phases=tuple(found),
        reachable=reachable_pairs(mdp),
        terr=terr if terr > 1e-9 * mdp.spec.value_bound[0] else 0.0,
        off=_largest(mdp, [p.comparators for p in found]),
        dims=tuple(effective_dims(mdp, run.episodes / found[0].ridge)),
        realised=realised_gain(mdp, record),
    )


def lowest_value(mdp: FiniteMDP) -> float:
    """min over policies of V^pi, in the user's units: no average regret can exceed V* less this."""
    return -best_return(mdp, -mdp.rewards)


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
    """The record of a run that the statements of the paper cover."""
    record = run.record
    if record is None:
        raise ValueError("run has no record; an audit needs run(..., record=True)")
    first = record.phases[0] if record.phases else record.unfinished
    if first is None or first.phase != 1 or first.n_episodes > run.curve[0].main_episodes:
        raise ValueError("run must be recorded from its first episode on: pass record=True to the learner's first run")
    if record.constants.memory != "policies":
        raise ValueError(
            f'run kept steps (memory="{record.constants.memory}"), and no statement of the paper covers that; run with '
            'memory="policies"'
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


def promised_value(mdp: FiniteMDP, q: LinearQ) -> float:
    """E V at the start, what Q says of it; in the user's units."""
    return float(mdp.start @ mdp.spec.to_user_units(0, q.value(0, mdp.features.level(0))))


def _require_played_on(run: Run, mdp: FiniteMDP) -> None:
    """The gap of the newest policy was computed on the run's own problem: another problem has another gap."""
    if run.gap is None:
        raise ValueError("run was not played on a FiniteMDP, so nothing exact is known of it; use s4q.certificate")
    if abs(mdp.v_star - mdp.value(run.policy) - run.gap) > 1e-9 * max(1.0, abs(mdp.v_star)):
        raise ValueError(f"run was played on another problem than {mdp}; pass the one of its collector")
