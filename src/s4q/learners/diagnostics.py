"""When it fails, say why: signs that a run of S4Q is in trouble, each with a suggestion.

`S4Q.diagnose` calls it with what the learner knows already. Nothing is played and nothing changes. It reads the last
finished phase, the running one, and the `Signs` of the whole run. Numbers are in the user's units.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import final

import numpy as np

from s4q.core.blocks import Array
from s4q.core.factors import Factors
from s4q.core.messages import Spec
from s4q.learners.main_loop import PhaseRecord
from s4q.learners.presets import Constants
from s4q.learners.signs import SURE, Signs, some_return, standard_error

_VISIBLE = 1e-3  # of the value bound: a smaller difference is not worth a word
_ROUNDING = 1e-6
_FEW = 100  # episodes after which a phase can be called long
_STEPS_A_FEATURE = 4  # held by a sketch: with fewer the policies it learns may be poor
_FEW_STEPS = 20  # steps whose next features are compared before anything is said
_TOO_SMALL = "value bound too small"
_LARGER = "The value_bound is too small: declare a larger one"


@final
@dataclass(frozen=True, slots=True)
class Finding:
    """One sign of trouble."""

    name: str
    says: str
    suggestion: str

    def __str__(self) -> str:
        return f"{self.name}: {self.says}. {self.suggestion}."


def diagnose(
    constants: Constants,
    signs: Signs,
    *,
    last: PhaseRecord | None,
    running: PhaseRecord | None,
    n_main: int,
    n_replayed: int,
    sampled_steps: float | None,
    pooled_gram: Array | None,
) -> list[Finding]:
    """What is wrong, if anything.

    What cannot be seen from inside: a wrong policy whose promise agrees with its returns, when no earlier policy got
    more. Such a run looks like success. Whether features tell actions apart and whether levels follow one law is seen
    in kept steps only, so not with memory="policies".

    Args:
        constants: Of the run.
        signs: Of the finished phases and the kept steps.
        last: The last finished phase; None if none has ended.
        running: The phase whose main loop is running; None while S3Q prepares one.
        n_main: Episodes of all main loops.
        n_replayed: Episodes that replayed past policies.
        sampled_steps: Steps held for a level, on average, if steps were dropped; None if none was.
        pooled_gram: Sum of phi phi^T over all steps, (n_blocks, k, k), where steps of all levels are kept as one.
    """
    if n_main == 0:
        return [Finding("nothing was played", "the learner has seen no episode", "Play some episodes first")]
    spec, practical = constants.spec, constants.preset == "practical"
    if running is not None and running.n_episodes == 0:
        running = None
    findings = [
        *_bound_findings(spec, signs, [one for one in (last, running) if one is not None and one.n_returns]),
        *_action_findings(spec, signs),
        *_level_law_findings(constants, signs, n_main, pooled_gram),
        *_sample_findings(constants, sampled_steps),
    ]
    if last is None:
        return [_no_phase(n_main, practical), *findings]
    n_before = n_main - (0 if running is None else running.n_episodes)
    record = last
    if running is not None and running.n_episodes >= last.n_episodes:
        record = running
    else:
        n_before -= last.n_episodes
    proven = any(found.name == _TOO_SMALL for found in findings)
    return [
        *findings,
        *_promise_findings(spec, record, practical, proven),
        *_lost_optimism_findings(spec, record, signs, proven),
        *_stuck_findings(constants, record, n_before),
        *_residual_findings(spec, last),
        *_level_findings(last),
        *_coverage_findings(spec, last, n_main),
        *_replay_findings(constants, n_main, n_replayed),
    ]


def _no_phase(n_main: int, practical: bool) -> Finding:
    return Finding(
        "no phase has ended",
        f"{n_main:,} episodes were not enough to reach the trigger once",
        "Play more episodes, or "
        + ("pass a smaller trigger" if practical else "use the preset practical")
        + "; explain() says how long a first phase takes",
    )


def _shown(spec: Spec, value: float, h: int = 0) -> str:
    """A value from level h on, in the user's units."""
    return f"{float(spec.to_user_units(h, np.array(value))):.4g}"


def _bound_findings(spec: Spec, signs: Signs, records: list[PhaseRecord]) -> Iterator[Finding]:
    """A return above its bound, or a bound that the declared rewards contradict."""
    bounds, slack = np.array(spec.value_bound), 1 + _ROUNDING
    largest = max([signs.largest_return, *(some_return(one) for one in records)])
    least = int(bounds.argmin())
    suggestion = f"{_LARGER}. It should bound the return of every episode, from every level on"
    if largest > slack * bounds[0]:
        seen, declared = _shown(spec, largest), _shown(spec, bounds[0])
        says = f"an episode returned at least {seen}, more than the value bound {declared}"
    elif spec.reward_max - spec.reward_min > slack * bounds[least] + spec.reward_slack:
        declared = _shown(spec, bounds[least], least)
        says = f"a step may pay {spec.reward_max:.4g}, but the value bound of level {least} is {declared}"
        suggestion += "; or declare a smaller reward range"
    else:
        return
    yield Finding(_TOO_SMALL, says, suggestion)


def _action_findings(spec: Spec, signs: Signs) -> Iterator[Finding]:
    if spec.n_actions > 1 and signs.n_compared >= _FEW_STEPS and not signs.actions_differ:
        yield Finding(
            "features do not tell actions apart",
            f"at each of {signs.n_compared:,} steps the features of the next state were the same for every action",
            "No action can be preferred: put the action into the features, for example with features.PerAction(...)",
        )


def _level_law_findings(constants: Constants, signs: Signs, n_main: int, gram: Array | None) -> Iterator[Finding]:
    """Is a problem that was declared stationary really so?"""
    if signs.by_level is None or gram is None:
        return
    ridge = float(constants.ridge(1, n_main)[0])
    effect = signs.by_level.strongest(gram, ridge, constants.spec.well_specified)
    if effect is not None:
        yield Finding(
            "levels are not alike",
            f"the problem is declared stationary, but at features of block {effect.block} the level explains "
            f"{effect.share:.0%} of what the features leave open of the {effect.outcome}",
            "Declare stationary=False, or put what changes with time into the features",
        )


def _promise_findings(spec: Spec, record: PhaseRecord, practical: bool, proven: bool) -> Iterator[Finding]:
    """Optimism: what Q promised against what the policy got, and against the value bound."""
    if record.start_value_sum is None or not record.n_returns:
        return
    n, bound = record.n_returns, spec.value_bound[0]
    promised, got = record.start_value_sum / n, record.return_sum / n
    at_bound = promised >= 0.999 * bound or got > bound
    if got > promised + SURE * standard_error(record, bound):
        width = "The width is too small or the features do not represent the values: raise bonus_width, add features"
        yield Finding(
            "not optimistic",
            f"Q promised {_shown(spec, promised)} and the policy got {_shown(spec, got)}",
            _LARGER if at_bound or proven else width,
        )
    elif at_bound and got < 0.9 * promised and not proven:
        yield Finding(
            "still at the bound",
            f"after {record.phase} phases Q still promises the value bound {_shown(spec, bound)}, as if nothing were "
            "known",
            "Play more episodes"
            + ("" if practical else " (practical needs fewest)")
            + "; declare a smaller value_bound if you know one",
        )


def _lost_optimism_findings(spec: Spec, record: PhaseRecord, signs: Signs, proven: bool) -> Iterator[Finding]:
    """An optimistic promise is never below what some policy can get, so never below what one got."""
    best, bound = signs.best, spec.value_bound[0]
    if best is None or best.phase == record.phase or record.start_value_sum is None or not record.n_returns:
        return
    n = record.n_returns
    promised, got = record.start_value_sum / n, record.return_sum / n
    if got >= best.lower:  # as where the best policy plays again, for which Q promised nothing
        return
    # Other start states may promise other values: their spread is at most that of returns.
    if best.lower - promised <= _VISIBLE * bound + SURE * standard_error(record, bound):
        return
    at_bound = proven or promised >= 0.999 * bound
    width = "Raise bonus_width, add features, or play the policy `best` and not the newest"
    yield Finding(
        "lost optimism",
        f"the policy of phase {record.phase} promises {_shown(spec, promised)} and got {_shown(spec, got)} over {n:,} "
        f"episodes, but the one of phase {best.phase} got {_shown(spec, best.mean)} over {best.n_episodes:,}",
        _LARGER if at_bound else width,
    )


def _stuck_findings(constants: Constants, record: PhaseRecord, n_before: int) -> Iterator[Finding]:
    """A phase longer than all before it, whose policy gets less than promised.

    The promise may exceed the returns by about twice the bonus along the way. What exceeds it by more is not lack of
    data: a new policy will not cure it. With a trigger that is too large the bonus is out of date instead.
    """
    n, spec = record.n_episodes, constants.spec
    bound = spec.value_bound[0]
    if record.start_value_sum is None or record.phase == 1 or n < max(_FEW, n_before):
        return
    if not record.n_returns:
        return
    promised, got = record.start_value_sum / record.n_returns, record.return_sum / record.n_returns
    short = promised - got - SURE * standard_error(record, bound)
    if short <= 0.02 * bound:
        return
    if short > 3 * expected_bonus(record):
        cure = "The features do not represent the values: add features"
        cure += ", or declare stationary=False if something depends on the level" if constants.pool else ""
    elif constants.preset == "practical" and n >= 10 * n_before:
        cure = "The trigger is too large: pass a smaller one, so that a new policy learns from these episodes"
    else:
        return
    yield Finding(
        "stuck",
        f"the policy of phase {record.phase} has played {n:,} episodes, {n_before:,} came before; it promises "
        f"{_shown(spec, promised)} and gets {_shown(spec, got)}",
        cure,
    )


def expected_bonus(record: PhaseRecord) -> float:
    """About the sum of the bonuses that the policy of a phase met in an episode; rather too large.

    The steps of the phase are known as sums of phi phi^T, from which the mean of |W phi|^2 in each block is exact.
    """
    total, pooled = 0.0, len(record.increment) == 1
    for h, level in enumerate(record.q.levels):
        gram = record.increment[0 if pooled else h]
        steps = record.n_episodes * (record.q.horizon if pooled else 1)
        norm_sq = np.einsum("bij,bjk,bik->b", level.whitener, gram, level.whitener) / steps
        size = np.trace(gram, axis1=1, axis2=2)
        norm = np.sqrt(np.clip(norm_sq * size / max(float(size.sum()), 1e-300), 0.0, None))
        spread = level.kappa * (sqrt(level.noise) + level.lower_order * sqrt(max(float(norm_sq.sum()), 0.0)))
        total += float((level.width + spread) @ norm)
    return total


def _residual_findings(spec: Spec, record: PhaseRecord) -> Iterator[Finding]:
    if spec.well_specified:
        return  # what is left over is then the noise of rewards and moves
    spread = np.sqrt(record.residuals) / np.array([2 * spec.half_range(h) for h in range(spec.horizon)])
    level = int(spread.argmax())
    if spread[level] > 0.25:
        yield Finding(
            "large residuals",
            f"at level {level} targets lie {spread[level]:.0%} of their range away from the fit (root mean square)",
            "The features do not represent the values, or rewards are very noisy: look at the features of that level",
        )


def _level_findings(record: PhaseRecord) -> Iterator[Finding]:
    seen = np.trace(record.cov_ref + record.increment, axis1=-2, axis2=-1).sum(axis=-1)
    missing = np.flatnonzero(seen <= 0)
    if len(missing):
        yield Finding(
            "a level was never reached",
            f"no step was taken at level {', '.join(str(h) for h in missing[:5])}: every episode ended before",
            "Check the horizon, and whether episodes end too early",
        )


def _coverage_findings(spec: Spec, record: PhaseRecord, n_main: int) -> Iterator[Finding]:
    """Most features were never seen, and nearly every episode still meets a new one.

    Exact features, such as those of a table, cannot be fewer: nothing is said of them.
    """
    if spec.well_specified or record.phase < 10 or n_main >= min(2 * record.phase, spec.dim):
        return
    grams = record.cov_ref + record.increment
    level = int((np.diagonal(grams, axis1=-2, axis2=-1) > 0).sum(axis=(-2, -1)).argmax())  # where most was seen
    seen = float(Factors(grams[level]).directions_seen(float(record.ridge[level])).sum())
    if seen < spec.dim / 2:
        yield Finding(
            "more features than the episodes can cover",
            f"{n_main:,} episodes for {spec.dim:,} features are {n_main / spec.dim:.2g} episodes per feature: about "
            f"{seen:,.0f} directions were seen, and nearly every episode meets a new one",
            "Use fewer features (a lower order, fewer tiles or centres), or play more episodes",
        )


def _sample_findings(constants: Constants, sampled_steps: float | None) -> Iterator[Finding]:
    """A sketch that holds few steps cannot follow the values as they change."""
    dim = constants.spec.dim
    if sampled_steps is not None and sampled_steps < _STEPS_A_FEATURE * dim:
        yield Finding(
            "the sketch is small",
            f"within {constants.memory_bytes:,} bytes it holds about {sampled_steps:,.0f} steps a level for {dim:,} "
            "features",
            f"Raise memory_bytes, to {_STEPS_A_FEATURE} steps a feature or more, or use fewer features",
        )


def _replay_findings(constants: Constants, n_main: int, n_replayed: int) -> Iterator[Finding]:
    share = n_replayed / max(n_main + n_replayed, 1)
    if share <= 0.9:
        return
    voids = "" if constants.preset == "practical" else "; it voids the guarantee"
    yield Finding(
        "replay takes over",
        f"{share:.0%} of all episodes replay past policies",
        f'Keep steps instead (memory="sketch"{voids}), or use a shorter horizon, a smaller c_replay or a larger '
        "trigger",
    )
