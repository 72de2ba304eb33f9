"""When it fails, say why: signs that a run of S4Q is in trouble, each with a suggestion."""

from dataclasses import dataclass
from math import sqrt
from typing import final

import numpy as np

from s4q.core.messages import Spec
from s4q.learners.main_loop import PhaseRecord
from s4q.learners.presets import Constants


@final
@dataclass(frozen=True, slots=True)
class Finding:
    """One sign of trouble."""

    name: str
    says: str
    suggestion: str

    def __str__(self) -> str:
        return f"{self.name}: {self.says}. {self.suggestion}."


def diagnose(constants: Constants, record: PhaseRecord | None, n_main: int, n_replayed: int) -> list[Finding]:
    """What is wrong, if anything, after the last finished phase."""
    spec, practical = constants.spec, constants.preset == "practical"
    findings: list[Finding] = []
    if record is None:
        if n_main == 0:
            return [Finding("nothing was played", "the learner has seen no episode", "Play some episodes first")]
        return [
            Finding(
                "no phase has ended",
                f"{n_main:,} episodes were not enough to reach the trigger once",
                "Play more episodes, or "
                + ("pass a smaller trigger" if practical else "use the preset practical")
                + "; explain() says how long a first phase takes",
            )
        ]
    findings += _promise_findings(spec, record, practical)
    findings += _residual_findings(spec, record)
    findings += _level_findings(record)
    return findings + _replay_findings(constants, n_main, n_replayed)


def _replay_findings(constants: Constants, n_main: int, n_replayed: int) -> list[Finding]:
    share = n_replayed / max(n_main + n_replayed, 1)
    if share <= 0.9:
        return []
    voids = "" if constants.preset == "practical" else "; it voids the guarantee"
    return [
        Finding(
            "replay takes over",
            f"{share:.0%} of all episodes replay past policies",
            f'Keep steps instead (memory="sketch"{voids}), or use a shorter horizon, a smaller c_replay or a larger '
            "trigger",
        )
    ]


def _promise_findings(spec: Spec, record: PhaseRecord, practical: bool) -> list[Finding]:
    """Optimism: what Q promised against what the policy got, and against the value bound."""
    if record.start_value_sum is None:
        return []
    n, bound = record.n_episodes, spec.value_bound[0]
    promised, got = record.start_value_sum / n, record.return_sum / n
    at_bound = promised >= 0.999 * bound or got > bound
    if got > promised + 3 * _standard_error(record, bound):
        width = "The width is too small or the features do not represent the values: raise bonus_width, add features"
        return [
            Finding(
                "not optimistic",
                f"Q promised {promised:.4g} and the policy got {got:.4g} (shifted rewards)",
                "The value_bound is too small: declare a larger one" if at_bound else width,
            )
        ]
    if at_bound and got < 0.9 * promised:
        return [
            Finding(
                "still at the bound",
                f"after {record.phase} phases Q still promises the value bound {bound:.4g}, as if nothing were known",
                "Play more episodes"
                + ("" if practical else " (practical needs fewest)")
                + "; declare a smaller value_bound if you know one",
            )
        ]
    return []


def _standard_error(record: PhaseRecord, bound: float) -> float:
    """Of the mean return; the largest it can be where squares are not known."""
    n = record.n_episodes
    if record.return_sum_sq is None or n < 2:
        return bound / 2 / sqrt(n)
    variance = max(record.return_sum_sq / n - (record.return_sum / n) ** 2, 0.0)
    return sqrt(variance / (n - 1)) + bound / n


def _residual_findings(spec: Spec, record: PhaseRecord) -> list[Finding]:
    if spec.well_specified:
        return []  # what is left over is then the noise of rewards and moves
    spread = np.sqrt(record.residuals) / np.array([2 * spec.half_range(h) for h in range(spec.horizon)])
    level = int(spread.argmax())
    if spread[level] <= 0.25:
        return []
    return [
        Finding(
            "large residuals",
            f"at level {level} targets lie {spread[level]:.0%} of their range away from the fit (root mean square)",
            "The features do not represent the values, or rewards are very noisy: look at the features of that level",
        )
    ]


def _level_findings(record: PhaseRecord) -> list[Finding]:
    seen = np.trace(record.cov_ref + record.increment, axis1=-2, axis2=-1).sum(axis=-1)
    missing = np.flatnonzero(seen <= 0)
    if not len(missing):
        return []
    return [
        Finding(
            "a level was never reached",
            f"no step was taken at level {', '.join(str(h) for h in missing[:5])}: every episode ended before",
            "Check the horizon, and whether episodes end too early",
        )
    ]
