"""Errors planted on purpose in learner and collector, and the rows of `s4q audit` that catch them.

`python -m benchmarks.audit_planted` prints the table of docs/audit.md; a slow test keeps it true.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np

import s4q
from s4q.cli.audit_command import audited, small_problem
from s4q.collectors import CountCollector
from s4q.core.messages import Regression, Visits
from s4q.core.policies import Mixture
from s4q.learners import s3q
from s4q.learners.policy_replay import PolicyReplayMemory
from s4q.learners.presets import Constants, PresetName
from s4q.problems import FiniteMDP
from s4q.theory import Audit

RUNS: tuple[tuple[PresetName, int], ...] = (("realisable", 20_000), ("tight", 10**10))
DELTA = 0.05


@dataclass(frozen=True)
class Plant:
    """One error: a name for the table, and how to plant it while a run is made."""

    name: str
    plant: Callable[[], AbstractContextManager[Any]]
    problem: Callable[[], FiniteMDP] = lambda: small_problem("low_rank", {})


def _changed(owner: Any, name: str, change: Callable[..., Any]) -> Callable[[], AbstractContextManager[Any]]:
    """Replace owner.name; `change` gets the honest function first."""
    honest = getattr(owner, name)
    return lambda: mock.patch.object(owner, name, lambda *args, **options: change(honest, *args, **options))


def _scaled(owner: Any, name: str, factor: float) -> Callable[[], AbstractContextManager[Any]]:
    return _changed(owner, name, lambda honest, *args, **options: honest(*args, **options) * factor)


def _bonus(factor: float) -> Callable[[], AbstractContextManager[Any]]:
    def scaled(honest: Callable[..., Any], *args: Any) -> Any:
        bonus = honest(*args)
        return replace(bonus, width=bonus.width * factor)

    return _changed(Constants, "with_bonus", scaled)


def _trigger(factor: float) -> Callable[[], AbstractContextManager[Any]]:
    def scaled(honest: Callable[..., tuple[float, float]], *args: Any, **options: Any) -> tuple[float, float]:
        first, slope = honest(*args, **options)
        return first * factor, slope * factor

    return _changed(Constants, "threshold", scaled)


def _answers(change: Callable[[Any], Any]) -> Callable[[], AbstractContextManager[Any]]:
    """The collector's answers are changed on their way to the learner."""
    return _changed(CountCollector, "play", lambda honest, *args: change(honest(*args)))


def _seen(factor: float) -> Callable[[Any], Any]:
    """Pairs are counted `factor` times too often, in regressions and in main loops."""

    def change(answer: Any) -> Any:
        if isinstance(answer, Regression):
            m = answer.moments
            sums = {"gram": m.gram * factor, "moment": m.moment * factor, "moment_sq": m.moment_sq * factor}
            return replace(answer, moments=replace(m, **sums, sum_y2=m.sum_y2 * factor, known=None))
        assert isinstance(answer, Visits)
        return replace(answer, grams=answer.grams * factor, progress=answer.progress * factor)

    return change


def _paid(factor: float) -> Callable[[Any], Any]:
    """Targets are too large."""

    def change(answer: Any) -> Any:
        if not isinstance(answer, Regression):
            return answer
        m = answer.moments
        sums = {"moment": m.moment * factor, "moment_sq": m.moment_sq * factor**2, "sum_y2": m.sum_y2 * factor**2}
        return replace(answer, moments=replace(m, **sums))

    return change


def _remembered(factor: float) -> Callable[[], AbstractContextManager[Any]]:
    """The memory counts a policy's trajectories wrongly."""

    def change(honest: Callable[..., None], memory: PolicyReplayMemory, policy: Any, n: int) -> None:
        honest(memory, policy, max(1, round(n * factor)))

    return _changed(PolicyReplayMemory, "append", change)


def _newest_only(honest: Callable[..., Mixture], memory: PolicyReplayMemory) -> Mixture:
    del honest
    return Mixture([memory.entries[-1].policy], np.ones(1))


def falsely_exact() -> FiniteMDP:
    """perturbed_low_rank, whose features are not exact, declared to be so behind the back of FiniteMDP's check."""
    mdp = s4q.problems.perturbed_low_rank(20, 4, 3, 2)
    mdp.spec = replace(mdp.spec, well_specified=True)
    return mdp


PLANTS = (
    Plant("ridge / 100", _scaled(Constants, "ridge", 0.01)),
    Plant("replays a tenth as long", _changed(Constants, "replay_slots", lambda f, c, n: max(2, f(c, n) // 10))),
    Plant("only the newest policy replayed", _changed(PolicyReplayMemory, "controller", _newest_only)),
    Plant("visits counted half", _answers(_seen(0.5))),
    Plant("visits counted +10 %", _answers(_seen(1.1))),
    Plant("trajectories remembered half", _remembered(0.5)),
    Plant("trajectories remembered +10 %", _remembered(1.1)),
    Plant("theta x 0.9", _scaled(s3q, "constrained_fit", 0.9)),
    Plant("theta + 1e-4", _changed(s3q, "constrained_fit", lambda f, *args: f(*args) + 1e-4)),
    Plant("targets x 1.05", _answers(_paid(1.05))),
    Plant("a false well_specified", nullcontext, falsely_exact),
    Plant("bonus x 0.5", _bonus(0.5)),
    Plant("bonus x 2", _bonus(2.0)),
    Plant("trigger x 0.1", _trigger(0.1)),
    Plant("trigger x 10", _trigger(10.0)),
    Plant("ball x 0.3", _scaled(Constants, "radius", 0.3)),
)


def caught_by(plant: Plant, preset: PresetName, episodes: int, seed: int) -> set[str]:
    """The rows that fail in the audit of one run made with the error."""
    return failing(planted(plant, preset, episodes, seed))


def planted(plant: Plant, preset: PresetName, episodes: int, seed: int) -> Audit:
    """The run is made with the error; so is the audit, which must not depend on what was changed."""
    with plant.plant():
        return audited(plant.problem(), preset, episodes, seed, DELTA)


def failing(audit: Audit) -> set[str]:
    """The rows that fail."""
    return {row.statement for row in audit.rows if row.holds is False}


def markdown(seeds: range = range(3)) -> str:
    """The table of docs/audit.md: rows that fail with every seed."""
    titles = [f"`{preset}`, {episodes:.0e} episodes" for preset, episodes in RUNS]
    lines = [f"| planted | {' | '.join(titles)} |", "|---|---|---|"]
    for plant in PLANTS:
        cells = []
        for preset, episodes in RUNS:
            always = set.intersection(*(caught_by(plant, preset, episodes, seed) for seed in seeds))
            cells.append("; ".join(sorted(always)).replace("|", "\\|") or "**nothing**")
        lines.append(f"| {plant.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    print(markdown())


if __name__ == "__main__":
    main()
