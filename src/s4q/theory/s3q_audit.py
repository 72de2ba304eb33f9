"""The audit of an S3Q run without bonus: Theorem 2 at the end of every epoch, and what its proof rests on.

`Witness` stands between collector and learner and adds up what is returned, so that nothing here is taken from the
learner but what it learned.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from s4q.collectors import CountCollector
from s4q.core.blocks import Array
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Regress, Request, Shard
from s4q.core.policies import UniformPolicy
from s4q.core.validation import require_count
from s4q.learners.fit_record import FitRecord, add_answer
from s4q.learners.s3q import S3Q
from s4q.problems import FiniteMDP
from s4q.running.accounting import Run
from s4q.running.loop import run
from s4q.theory import lemmas
from s4q.theory.as_prescribed import refit_error
from s4q.theory.assumptions import EXACT
from s4q.theory.auditing import Audit, row_of
from s4q.theory.bounds import theorem2_floats, theorem2_work
from s4q.theory.evidence import lowest_value
from s4q.theory.lemmas import claim
from s4q.theory.measured import Targets, gram_deviation
from s4q.theory.parts import Part
from s4q.theory.population_fits import population_fit
from s4q.theory.rows import Row
from s4q.theory.s3q_theorem import Theorem2, theorem2
from s4q.theory.structure import bellman_backup, comparator_errors, next_values

RIDGE = 1.0  # Algorithm 1, unless the user says otherwise


@final
class Witness:
    """A collector that remembers the sums it returns for every regression."""

    def __init__(self, collector: CountCollector) -> None:
        self._collector = collector
        self.mdp, self.seed = collector.mdp, collector.seed
        self.fits: list[FitRecord] = []

    def shards(self, request: Request) -> Iterable[Shard]:
        return self._collector.shards(request)

    def play(self, request: Any, shard: Shard, start: Array | None = None) -> Any:
        answer = self._collector.play(request, shard, start)
        if isinstance(request, Regress):
            horizon = self.mdp.horizon
            known = bool(self.fits) and self.fits[-1].request == request.id
            epoch = 1 + (len(self.fits) - known) // horizon
            add_answer(self.fits, epoch, [], request, answer)
        return answer

    def collect(self, request: Any) -> Any:
        raise NotImplementedError("a run plays shard by shard")


@final
@dataclass(frozen=True, eq=False, slots=True)
class S3QEvidence:
    """A run of S3Q with a uniform controller: its epochs, and what the collector returned for their fits."""

    mdp: FiniteMDP
    run: Run
    delta: float
    epochs: tuple[LinearQ, ...]  # Q of each finished epoch
    nbytes: int  # held by the learner, at most
    fits: tuple[tuple[FitRecord, ...], ...]  # of each finished epoch, level 0 first
    n_played: tuple[int, ...]  # episodes at the end of each epoch


def audited_s3q(mdp: FiniteMDP, episodes: int, seed: int, delta: float) -> Audit:
    """Run S3Q with a uniform controller, by counts, and audit it.

    Args:
        mdp: the problem.
        episodes: to play; at least 2 for each level, so that one epoch is finished.
        seed: of the episodes.
        delta: failure probability of Theorem 2, for all epochs jointly.

    >>> import s4q
    >>> audited_s3q(s4q.problems.low_rank(6, 2, 3, 2), 10**5, seed=0, delta=0.05).holds
    True
    """
    require_count("episodes", episodes, f"at least one epoch: 2 for each of {mdp.horizon} levels", 2 * mdp.horizon)
    return audit_s3q(played(mdp, episodes, seed, delta))


def played(mdp: FiniteMDP, episodes: int, seed: int, delta: float) -> S3QEvidence:
    """The run, and what an audit of it needs."""
    witness, learner = Witness(CountCollector(mdp, seed=seed)), S3Q(mdp, UniformPolicy(mdp.n_actions))
    seen: list[tuple[LinearQ, int, int]] = []

    def keep(so_far: Run) -> None:
        seen.append((so_far.q, so_far.nbytes, so_far.episodes))

    result = run(learner, witness, episodes, callback=keep)
    horizon = mdp.horizon
    groups = [witness.fits[i : i + horizon] for i in range(0, len(seen) * horizon, horizon)]
    return S3QEvidence(
        mdp=mdp,
        run=result,
        delta=delta,
        epochs=tuple(q for q, _, _ in seen),
        nbytes=max([result.nbytes, *(held for _, held, _ in seen)]),
        fits=tuple(tuple(sorted(group, key=lambda fit: fit.level)) for group in groups),
        n_played=tuple(n for _, _, n in seen),
    )


def audit_s3q(e: S3QEvidence) -> Audit:
    """The rows of Theorem 2; it holds for any features, with a sharper radius where they are exact."""
    mdp, spec = e.mdp, e.mdp.spec
    sharp = spec.well_specified and _error(e) <= EXACT
    found = [_theorem2(e, i, sharp) for i in range(len(e.epochs))]
    note = "" if sharp else "with the radius of an excess-risk bound"
    most = mdp.v_star - lowest_value(mdp)
    gaps = [Part(part.gap, i + 1, high=most) for i, part in enumerate(found)]
    values = [Part(part.value, i + 1) for i, part in enumerate(found)]
    work = spec.n_actions * spec.block_dim + spec.block_dim**2 + 2 * spec.block_dim
    exact = [Part(claim(_error(e, np.inf), EXACT))] if spec.well_specified else []
    rows = (
        (Row("assumed: features are exact", "asm:InherentBellman", "always"), exact),
        (Row("Theorem 2 (a): |err + Delta| <= U", "thm:Q-learning", "delta", note), _errors(e, found)),
        (Row("Theorem 2 (b): E(V - V*)", "thm:Q-learning", "delta", note), values),
        (Row("Theorem 2 (b): V* - V^greedy", "thm:Q-learning", "delta"), gaps),
        (Row("Theorem 2: floats held", "thm:Q-learning", "always"), [Part(claim(e.nbytes / 8, theorem2_floats(spec)))]),
        (
            Row("Theorem 2: products a step", "thm:Q-learning", "identity", "counted, not timed"),
            [Part(claim(work, theorem2_work(spec)))],
        ),
        (Row("samples of a level", "lem:OrderOfUpdates", "always"), _sample_count(e)),
        (Row("episodes of a level and 2^e", "alg:S3Qlearning", "always"), _lengths(e)),
        (Row("fit = least squares of its samples", "lem:EquivalenceWithLeastSquares", "always"), _least_squares(e)),
        (Row("Gram of a fit and its mean", "sampling", "rarely"), _grams(e)),
        (Row("targets of a fit and their mean", "sampling", "rarely"), _targets(e)),
    )
    title = f"S3Q, uniform controller, {e.run.episodes:.4g} episodes on {mdp}"
    found_rows = [row_of(row, parts) for row, parts in rows]
    return Audit(title, e.delta, tuple(replace(row, place=row.place.replace("phase", "epoch")) for row in found_rows))


def _error(e: S3QEvidence, radius: float | None = None) -> float:
    """The largest error of the best fit of a target, in the ball of its level or in another; over the value bound."""
    uniform = UniformPolicy(e.mdp.n_actions)
    errors = [comparator_errors(e.mdp, uniform, q, radius)[e.mdp.reachable] for q in e.epochs]
    return max(float(np.abs(each).max()) for each in errors) / e.mdp.spec.value_bound[0]


def _theorem2(e: S3QEvidence, i: int, sharp: bool) -> Theorem2:
    """With the Gram matrices that the collector returned, where the features are exact."""
    grams = np.stack([fit.gram for fit in e.fits[i]]) if sharp else None
    n, uniform = min(fit.n_episodes for fit in e.fits[i]), UniformPolicy(e.mdp.n_actions)
    return theorem2(e.mdp, uniform, e.epochs[i], n=n, epoch=i + 1, delta=e.delta, ridge=RIDGE, grams=grams)


def _errors(e: S3QEvidence, found: list[Theorem2]) -> list[Part]:
    """Part (a), split by level: its entries are the reachable pairs in order."""
    pairs = e.mdp.reachable.sum(axis=1) * e.mdp.n_actions
    ends = np.cumsum(pairs)[:-1]
    parts = []
    for i, each in enumerate(found):
        columns = [np.split(np.ravel(x), ends) for x in each.errors]
        parts += [Part(lemmas.Claim(*level), i + 1, h) for h, level in enumerate(zip(*columns, strict=True))]
    return parts


def _sample_count(e: S3QEvidence) -> list[Part]:
    """The newest finished epoch has T/(4H) samples a level, also just before the next one ends."""
    ends = [*(n - 1 for n in e.n_played[1:]), e.run.episodes]
    levels = [min(fit.n_episodes for fit in fits) for fits in e.fits]
    rows = enumerate(zip(levels, ends, strict=True), start=1)
    return [Part(lemmas.sample_count(n, played, e.mdp.horizon), epoch) for epoch, (n, played) in rows]


def _lengths(e: S3QEvidence) -> list[Part]:
    return [
        Part(claim(abs(fit.n_episodes / 2 ** (i + 1) - 1), 1e-11), i + 1, fit.level)
        for i, fits in enumerate(e.fits)
        for fit in fits
    ]


def _least_squares(e: S3QEvidence) -> list[Part]:
    spec, parts = e.mdp.spec, []
    for i, (q, fits) in enumerate(zip(e.epochs, e.fits, strict=True)):
        for fit in fits:
            h = fit.level
            error = refit_error(q.theta[h], fit, RIDGE, np.asarray(spec.radius[h]), spec.value_bound[h])
            parts.append(Part(error, i + 1, h))
    return parts


def _grams(e: S3QEvidence) -> list[Part]:
    occupancy = e.mdp.occupancies(UniformPolicy(e.mdp.n_actions))
    return [
        Part(claim(gram_deviation(e.mdp, fit, occupancy, i + 1), 1.0), i + 1, fit.level)
        for i, fits in enumerate(e.fits)
        for fit in fits
    ]


def _targets(e: S3QEvidence) -> list[Part]:
    occupancy, parts = e.mdp.occupancies(UniformPolicy(e.mdp.n_actions)), []
    solvers = [population_fit(e.mdp, occupancy, h) for h in range(e.mdp.horizon)]
    total = Targets(e.mdp, float(e.run.episodes))
    for i, (q, fits) in enumerate(zip(e.epochs, e.fits, strict=True)):
        after = next_values(e.mdp, q)
        for fit in fits:
            best = solvers[fit.level].solve(bellman_backup(e.mdp, fit.level, after[fit.level]).ravel(), np.inf)
            parts.append(Part(claim(total.add(fit, occupancy, best, after[fit.level], i + 1), 1.0), i + 1, fit.level))
    return [*parts, *total.together()]
