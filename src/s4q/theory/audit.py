"""The audit: every statement of the paper, checked on a recorded run; a row each, or over many seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from rich.console import Console
from rich.table import Table

from s4q.ledger import Run
from s4q.problems import FiniteMDP
from s4q.theory.evidence import Evidence, gather
from s4q.theory.lemmas import Worst
from s4q.theory.statements import STATEMENTS, Needs, Statement, clipped_away


@final
@dataclass(frozen=True, slots=True)
class AuditRow:
    """One statement: what was measured where it comes nearest to failing, and the bound there."""

    statement: str
    where: str  # in the paper
    measured: float | None  # None: nothing to check in this run
    bound: float | None
    above: bool  # must measured lie above the bound? Else below
    holds: bool | None  # None: not claimed, or nothing to check; the note says why
    always: bool  # for every seed; else for all but a share delta of them
    note: str

    @property
    def slack(self) -> float | None:
        """The distance to the bound; negative where the statement fails."""
        if self.measured is None or self.bound is None:
            return None
        return Worst(self.measured, self.bound, self.above).slack

    @property
    def verdict(self) -> str:
        """In a word: "yes" or "NO", "(w.p.)" if a share delta of the seeds may fail, "-" for not claimed."""
        if self.holds is None:
            return "-"
        return ("yes" if self.holds else "NO") + ("" if self.always else " (w.p.)")


@final
@dataclass(frozen=True, slots=True)
class Audit:
    """All rows of one run. `print(audit)` shows the table."""

    title: str
    delta: float
    rows: tuple[AuditRow, ...]

    @property
    def holds(self) -> bool:
        """Does everything hold that is claimed?"""
        return all(row.holds is not False for row in self.rows)

    def __getitem__(self, statement: str) -> AuditRow:
        """The row whose statement begins so."""
        for row in self.rows:
            if row.statement.startswith(statement):
                return row
        raise KeyError(f"no statement begins with {statement!r}; there are {[row.statement for row in self.rows]}")

    def table(self) -> Table:
        """For a rich Console."""
        table = Table(title=self.title, caption=f"(w.p.): for all but a share delta = {self.delta} of seeds")
        for header in ("statement", "paper", "measured", "", "bound", "slack", "holds", "note"):
            right = header in ("measured", "bound", "slack")
            table.add_column(header, justify="right" if right else "left", overflow="fold", no_wrap=right)
        for row in self.rows:
            shown = [_number(row.measured), _number(row.bound), _rounded(row.slack)]
            side = "" if row.measured is None else ">=" if row.above else "<="
            table.add_row(row.statement, row.where, shown[0], side, *shown[1:], row.verdict, row.note)
        return table

    def __str__(self) -> str:
        return _text(self.table())


@final
@dataclass(frozen=True, slots=True)
class SeedRow:
    """One statement over many seeds."""

    statement: str
    seeds: int  # for how many it was claimed and there was something to check
    failures: int
    least_slack: float | None
    allowed: float  # the share of seeds that may fail

    @property
    def holds(self) -> bool | None:
        """None: never claimed."""
        return self.failures <= self.allowed * self.seeds if self.seeds else None


@final
@dataclass(frozen=True, slots=True)
class SeedAudit:
    """Audits of many seeds together: statements that may fail do so in at most a share delta of the seeds."""

    title: str
    rows: tuple[SeedRow, ...]

    @property
    def holds(self) -> bool:
        return all(row.holds is not False for row in self.rows)

    def table(self) -> Table:
        """For a rich Console."""
        table = Table(title=self.title)
        for header in ("statement", "seeds", "failures", "allowed", "least slack", "holds"):
            table.add_column(header, justify="left" if header in ("statement", "holds") else "right")
        for row in self.rows:
            verdict = {True: "yes", False: "NO", None: "-"}[row.holds]
            allowed = f"{row.allowed * row.seeds:.4g}"
            table.add_row(row.statement, f"{row.seeds}", f"{row.failures}", allowed, _rounded(row.least_slack), verdict)
        return table

    def __str__(self) -> str:
        return _text(self.table())


def audit(run: Run, mdp: FiniteMDP) -> Audit:
    """Check every statement of the paper on a run of S4Q that was recorded from its first phase.

    All expectations are exact. Statements that the preset does not prove are shown as not claimed, with the reason.

    >>> import s4q
    >>> mdp = s4q.problems.low_rank(dim=3, horizon=2)
    >>> learner, collector = s4q.S4Q(mdp, "realisable"), s4q.collectors.CountCollector(mdp, seed=0)
    >>> audit(s4q.run(learner, collector, 10**5, record=True), mdp).holds
    True
    """
    evidence = gather(run, mdp)
    constants = evidence.constants
    title = f"{constants.preset}, {_number(run.episodes)} episodes on {mdp}"
    if evidence.terr:
        title += f", transfer error {evidence.terr:.3g}"
    return Audit(title, constants.delta, tuple(_row(statement, evidence) for statement in STATEMENTS))


def over_seeds(audits: Sequence[Audit]) -> SeedAudit:
    """Count the failures of each statement in audits of the same problem with different seeds.

    >>> import s4q
    >>> mdp, audits = s4q.problems.low_rank(dim=2, horizon=2), []
    >>> for seed in range(3):
    ...     learner, collector = s4q.S4Q(mdp, "realisable"), s4q.collectors.CountCollector(mdp, seed=seed)
    ...     audits.append(audit(s4q.run(learner, collector, 1000, record=True), mdp))
    >>> over_seeds(audits).holds
    True
    """
    if not audits:
        raise ValueError("audits must hold at least one audit; got none")
    rows = []
    for i, first in enumerate(audits[0].rows):
        here = [each.rows[i] for each in audits if each.rows[i].holds is not None]
        slacks = [row.slack for row in here if row.slack is not None]
        failures = sum(row.holds is False for row in here)
        allowed = 0.0 if first.always else audits[0].delta
        rows.append(SeedRow(first.statement, len(here), failures, min(slacks, default=None), allowed))
    return SeedAudit(f"{len(audits)} seeds: {audits[0].title}", tuple(rows))


def _row(statement: Statement, evidence: Evidence) -> AuditRow:
    reason = unclaimed(statement.needs, evidence)
    if statement.needs == "theorem 1" and evidence.constants.theory is None:
        return AuditRow(statement.name, statement.where, None, None, False, None, statement.always, reason)
    found = statement.test(evidence)
    if not found.measured.size:
        note = statement.note or "nothing to check in this run"
        return AuditRow(statement.name, statement.where, None, None, False, None, statement.always, note)
    worst = found.worst()
    holds = None if reason else found.holds()
    note = reason or statement.note
    if not note and statement.trivial is not None and worst.bound >= statement.trivial(evidence):
        note = f"vacuous: at most {_number(statement.trivial(evidence))} anyway"
    return AuditRow(statement.name, statement.where, *worst, holds, statement.always, note)


def unclaimed(needs: Needs, evidence: Evidence) -> str:
    """Why a preset does not claim a statement; empty if it does."""
    constants = evidence.constants
    spec, preset = constants.spec, constants.preset
    if needs == "nothing":
        return ""
    if preset == "practical":
        return "not claimed: practical proves nothing"
    if evidence.off_free and spec.well_specified:
        return f"not claimed: features declared exact, but a best fit is off by {evidence.off_free:.2g}"
    if preset == "realisable" and not spec.well_specified:
        return "not claimed: realisable needs exact features"
    if evidence.off and preset == "realisable" and spec.block_dim > 1:
        return "not claimed: a target leaves the ball, as a reward and the next value bound may"
    if constants.fixed_width is not None or (constants.theory is not None and constants.fixed_ridge is not None):
        return "not claimed: width or ridge was set by hand"
    meant = "own" if constants.theory is None else "previous"
    if constants.bonus_from != meant:
        return f"not claimed: the statement is about bonus_from={meant!r}"
    if needs == "theorem 1" and constants.theory is None:
        return "not claimed: realisable proves optimism, its ridge and trigger are too small for this"
    if needs == "theorem 1" and constants.fixed_trigger is not None:
        return "not claimed: the trigger was set by hand"
    hidden = any((clipped_away(evidence, p) & evidence.reachable).any() for p in evidence.phases)
    if needs in ("optimism", "theorem 1") and evidence.off and hidden:
        return "not claimed: a best fit is beyond the clip of Q"
    return ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _rounded(slack: float | None) -> str:
    return _number(slack if slack is None or abs(slack) > 1e-12 else 0.0)


def _text(table: Table) -> str:
    console = Console(width=150)
    with console.capture() as capture:
        console.print(table)
    return capture.get()
