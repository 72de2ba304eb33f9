"""The audit of S3Q without a bonus: Theorem 2 at the end of every epoch, and what its proof rests on.

`theorem2` checks one fit; `audited_s3q`, which `s4q audit --algorithm s3q` calls, plays a run and checks all of it.
`_Witness` stands between collector and learner and adds up what is returned, so that nothing here is taken from the
learner but what it learned.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple, final

import numpy as np

from s4q.collectors import CountCollector
from s4q.core.blocks import Array
from s4q.core.linear_q import LinearQ
from s4q.core.messages import Regress, Request, Shard
from s4q.core.policies import Mixture, Policy, UniformPolicy
from s4q.core.spec import Spec
from s4q.core.validation import require_count
from s4q.learners.fit_record import FitRecord, add_answer
from s4q.learners.s3q import S3Q
from s4q.problems import FiniteMDP
from s4q.running.accounting import Run
from s4q.running.loop import run
from s4q.theory import bounds, definitions, lemmas
from s4q.theory.auditing import Audit, AuditRow, row_of
from s4q.theory.bounds import TheoryName, theorem2_floats, theorem2_work
from s4q.theory.definitions import bellman_backup, bellman_errors, comparator_errors, next_values
from s4q.theory.evidence import lowest_value, promised_value
from s4q.theory.lemmas import Claim, Part, between, claim
from s4q.theory.population_fits import population_fit, reachable_pairs
from s4q.theory.run_checks import Samples, refit_error, replayed_grams, targets
from s4q.theory.statements import EXACT

RIDGE = 1.0  # Algorithm 1, unless the user says otherwise


class Theorem2(NamedTuple):
    """Its parts, and what follows for the greedy policy."""

    errors: Claim  # (a): |err + Delta| <= U at every reachable pair
    value: Claim  # (b): where E(Vbest - V*) lies
    gap: Claim  # V* - V^greedy


def theorem2(
    mdp: FiniteMDP,
    controller: Policy | Mixture,
    q: LinearQ,
    *,
    n: int,
    epoch: int,
    delta: float,
    ridge: float = 1.0,
    theory: TheoryName = "tight",
    grams: Array | None = None,
) -> Theorem2:
    """Theorem 2 for one fit of S3Q; with probability 1 - delta it holds for all epochs jointly.

    Args:
        mdp: The problem.
        controller: The policy that S3Q played.
        q: The fit at the end of the epoch.
        n: Episodes of the epoch, for each level.
        epoch: Its number, 1 for the first.
        delta: Failure probability.
        ridge: The ridge of the fit; 1 is that of Algorithm 1.
        theory: The constants of the excess-risk radius: "paper" as printed, "tight" (default) the best in each step.
        grams: (H, n_blocks, k, k), those of the epoch (`S3Q.grams`). With them the radius is the sharp one for exact
            features in balls that no backup leaves. None (default): the excess-risk radius.

    >>> import s4q
    >>> mdp, uniform = s4q.problems.low_rank(), s4q.UniformPolicy(4)
    >>> learner = s4q.S3Q(mdp, uniform, epoch_size=1000)
    >>> result = s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=0), 3000)
    >>> all(part.holds() for part in theorem2(mdp, uniform, result.q, n=1000, epoch=1, delta=0.05))
    True
    """
    expected = n * definitions.expected_grams(mdp, controller)
    levels = []
    for h in range(mdp.horizon):
        own = None if grams is None else grams[h]
        alpha = bounds.s3q_radius(mdp.spec, h, n=n, epoch=epoch, delta=delta, ridge=ridge, theory=theory, gram=own)
        radius = np.full(mdp.spec.n_blocks, alpha)
        levels.append(bounds.uncertainty(mdp.features.level(h), expected[h] if own is None else own, ridge, radius))
    u, errors, comparators = np.stack(levels), bellman_errors(mdp, q), comparator_errors(mdp, controller, q)
    best, greedy, here = definitions.optimal_occupancies(mdp), mdp.occupancies(q), reachable_pairs(mdp)
    terr = max(abs(definitions.expected_sum(meets, comparators)) for meets in (best, greedy))
    low, high = bounds.theorem2_values(best, greedy, u, terr)
    return Theorem2(
        lemmas.sandwich(errors[here], comparators[here], u[here], np.zeros(int(here.sum()))),
        between(low, promised_value(mdp, q) - mdp.v_star, high),
        claim(mdp.v_star - mdp.value(q), bounds.theorem2_gap(best, greedy, u, terr)),
    )


@final
class _Witness:
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
            known = bool(self.fits) and self.fits[-1].request == request.id
            epoch = 1 + (len(self.fits) - known) // self.mdp.horizon
            add_answer(self.fits, epoch, [], request, answer)
        return answer

    def collect(self, request: Any) -> Any:
        raise NotImplementedError("a run plays shard by shard")


class _Epoch(NamedTuple):
    """A finished epoch of S3Q."""

    number: int
    q: LinearQ
    n_played: int  # episodes of the run at its end
    fits: tuple[FitRecord, ...]  # what the collector returned for its fits, level 0 first

    @property
    def n_level(self) -> int:
        """Episodes behind each level's fit."""
        return min(fit.n_episodes for fit in self.fits)


def audited_s3q(mdp: FiniteMDP, episodes: int, seed: int, delta: float) -> Audit:
    """Run S3Q with a uniform controller, by counts, and audit it.

    Args:
        mdp: The problem.
        episodes: Episodes to play; at least 2 for each level, so that one epoch is finished.
        seed: Of the episodes.
        delta: Failure probability of Theorem 2, for all epochs jointly.

    >>> import s4q
    >>> audited_s3q(s4q.problems.low_rank(6, 2, 3, 2), 10**5, seed=0, delta=0.05).holds
    True
    """
    require_count("episodes", episodes, f"at least one epoch: 2 for each of {mdp.horizon} levels", 2 * mdp.horizon)
    witness, learner = _Witness(CountCollector(mdp, seed=seed)), S3Q(mdp, UniformPolicy(mdp.n_actions))
    seen: list[Run] = []
    result = run(learner, witness, episodes, callback=seen.append)
    epochs = []
    for i, so_far in enumerate(seen):
        fits = sorted(witness.fits[i * mdp.horizon : (i + 1) * mdp.horizon], key=lambda fit: fit.level)
        epochs.append(_Epoch(i + 1, so_far.q, so_far.episodes, tuple(fits)))
    rows = _rows(mdp, epochs, result.episodes, delta, nbytes=max(each.nbytes for each in (result, *seen)))
    title = f"S3Q, uniform controller, {result.episodes:.4g} episodes on {mdp}"
    return Audit(title, delta, tuple(replace(row, place=row.place.replace("phase", "epoch")) for row in rows))


def _rows(mdp: FiniteMDP, epochs: list[_Epoch], episodes: int, delta: float, nbytes: int) -> tuple[AuditRow, ...]:
    """The rows of Theorem 2; it holds for any features, with a sharper radius where they are exact."""
    spec = mdp.spec
    sharp = spec.well_specified and _error(mdp, epochs) <= EXACT
    found = [_theorem2(mdp, epoch, delta, sharp) for epoch in epochs]
    note = "" if sharp else "with the radius of an excess-risk bound"
    most = mdp.v_star - lowest_value(mdp)
    gaps = [Part(part.gap, i, high=most) for i, part in enumerate(found, start=1)]
    values = [Part(part.value, i) for i, part in enumerate(found, start=1)]
    work = claim(spec.n_actions * spec.block_dim + spec.block_dim**2 + 2 * spec.block_dim, theorem2_work(spec))
    exact = [Part(claim(_error(mdp, epochs, np.inf), EXACT))] if spec.well_specified else []
    floats = claim(nbytes / 8, theorem2_floats(spec))
    lengths = _fits(epochs, lambda epoch, fit: claim(abs(fit.n_episodes / 2**epoch.number - 1), 1e-11))
    refits = _fits(epochs, lambda epoch, fit: _refit(spec, epoch.q, fit))
    samples = list(_samples(mdp, epochs))
    return (
        row_of("assumed: features are exact", "asm:InherentBellman", "always", exact),
        row_of("Theorem 2 (a): |err + Delta| <= U", "thm:Q-learning", "delta", _errors(mdp, found), note),
        row_of("Theorem 2 (b): E(V - V*)", "thm:Q-learning", "delta", values, note),
        row_of("Theorem 2 (b): V* - V^greedy", "thm:Q-learning", "delta", gaps),
        row_of("Theorem 2: floats held", "thm:Q-learning", "always", [Part(floats)]),
        row_of("Theorem 2: products a step", "thm:Q-learning", "identity", [Part(work)], "counted, not timed"),
        row_of("samples of a level", "lem:OrderOfUpdates", "always", _sample_count(mdp, epochs, episodes)),
        row_of("episodes of a level and 2^e", "alg:S3Qlearning", "always", lengths),
        row_of("fit = least squares of its samples", "lem:EquivalenceWithLeastSquares", "always", refits),
        row_of("Gram of a fit and its mean", "sampling", "rarely", replayed_grams(mdp, samples)),
        row_of("targets of a fit and their mean", "sampling", "rarely", targets(mdp, episodes, samples)),
    )


def _error(mdp: FiniteMDP, epochs: list[_Epoch], radius: float | None = None) -> float:
    """The largest error of the best fit of a target, in the ball of its level or in another; over the value bound."""
    uniform = UniformPolicy(mdp.n_actions)
    errors = [comparator_errors(mdp, uniform, epoch.q, radius)[mdp.reachable] for epoch in epochs]
    return max(float(np.abs(each).max()) for each in errors) / mdp.spec.value_bound[0]


def _theorem2(mdp: FiniteMDP, epoch: _Epoch, delta: float, sharp: bool) -> Theorem2:
    """With the Gram matrices that the collector returned, where the features are exact."""
    uniform = UniformPolicy(mdp.n_actions)
    grams = np.stack([fit.gram for fit in epoch.fits]) if sharp else None
    return theorem2(mdp, uniform, epoch.q, n=epoch.n_level, epoch=epoch.number, delta=delta, grams=grams)


def _errors(mdp: FiniteMDP, found: list[Theorem2]) -> list[Part]:
    """Part (a), split by level: its entries are the reachable pairs in order."""
    pairs = mdp.reachable.sum(axis=1) * mdp.n_actions
    ends = np.cumsum(pairs)[:-1]
    parts = []
    for i, each in enumerate(found, start=1):
        columns = [np.split(np.ravel(x), ends) for x in each.errors]
        parts += [Part(Claim(*level), i, h) for h, level in enumerate(zip(*columns, strict=True))]
    return parts


def _sample_count(mdp: FiniteMDP, epochs: list[_Epoch], episodes: int) -> list[Part]:
    """The newest finished epoch has T/(4H) samples a level, also just before the next one ends."""
    ends = [*(epoch.n_played - 1 for epoch in epochs[1:]), episodes]
    rows = zip(epochs, ends, strict=True)
    return [Part(lemmas.sample_count(one.n_level, end, mdp.horizon), one.number) for one, end in rows]


def _fits(epochs: list[_Epoch], test: Callable[[_Epoch, FitRecord], Claim]) -> list[Part]:
    """A claim about every fit."""
    return [Part(test(epoch, fit), epoch.number, fit.level) for epoch in epochs for fit in epoch.fits]


def _refit(spec: Spec, q: LinearQ, fit: FitRecord) -> Claim:
    """The distance of a learned parameter from the least squares of its samples."""
    h = fit.level
    return refit_error(q.theta[h], fit, RIDGE, np.asarray(spec.radius[h]), spec.value_bound[h])


def _samples(mdp: FiniteMDP, epochs: list[_Epoch]) -> Iterable[Samples]:
    """The fits with the law of their samples."""
    occupancy = mdp.occupancies(UniformPolicy(mdp.n_actions))
    solvers = [population_fit(mdp, occupancy, h) for h in range(mdp.horizon)]
    for epoch in epochs:
        after = next_values(mdp, epoch.q)
        for fit in epoch.fits:
            h = fit.level
            best = solvers[h].solve(bellman_backup(mdp, h, after[h]).ravel(), np.inf)
            yield Samples(epoch.number, fit, occupancy, best, after[h])
