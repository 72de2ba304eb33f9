"""The audit of an S4Q run: every statement of the paper, a row each, for one run or over many seeds.

`s4q audit` and users call `audit` and `over_seeds`, and print what they return. The rows are listed in `statements` and
`run_checks`; this module decides which of them a preset claims, and shows them. It measures nothing itself.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, final

from s4q.problems import FiniteMDP
from s4q.running.accounting import Run
from s4q.theory.evidence import Evidence, Kind, Needs, Statement, gather
from s4q.theory.lemmas import RARE, Part, Worst, home, joined
from s4q.theory.run_checks import AS_PRESCRIBED
from s4q.theory.statements import ASSUMPTIONS, IN_THE_PAPER, clipped_away

if TYPE_CHECKING:
    from rich.table import Table


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
    kind: Kind  # how often it may fail
    place: str  # the phase and level that come nearest to failing; empty: the whole run
    note: str

    @property
    def slack(self) -> float | None:
        """The distance to the bound, negative where the statement fails; rounding is no failure."""
        if self.measured is None or self.bound is None:
            return None
        slack = Worst(self.measured, self.bound, self.above).slack
        return max(slack, 0.0) if self.holds else slack

    @property
    def verdict(self) -> str:
        """In a word: "yes", "identity" or "NO"; "(w.p.)" if a share of the seeds may fail; "-" for not claimed."""
        if self.holds is None:
            return "-"
        if self.holds and self.kind == "identity":
            return "identity"
        return ("yes" if self.holds else "NO") + (" (w.p.)" if self.kind in ("rarely", "delta") else "")


@final
@dataclass(frozen=True, slots=True)
class SeedRow:
    """One statement over many seeds."""

    statement: str
    seeds: int  # for how many it was claimed and there was something to check
    failures: int
    least_slack: float | None  # of the seeds for which it holds
    allowed: float  # the share of seeds that may fail
    place: str  # of the seed that comes nearest to failing
    note: str

    @property
    def holds(self) -> bool | None:
        """None: never claimed."""
        return self.failures <= self.allowed * self.seeds if self.seeds else None


class _Report:
    """What the audit of one run and that of many seeds have in common."""

    __slots__ = ()
    rows: tuple[AuditRow, ...] | tuple[SeedRow, ...]

    @property
    def holds(self) -> bool:
        """Does everything hold that is claimed, and all that the claims assume?"""
        return not self.failing

    @property
    def failing(self) -> tuple[str, ...]:
        """The statements that do not hold."""
        return tuple(row.statement for row in self.rows if row.holds is False)

    def table(self) -> "Table":
        """For a rich Console."""
        raise NotImplementedError

    def __str__(self) -> str:
        from rich.console import Console  # late, so that `import s4q` stays light

        console = Console(width=180)
        with console.capture() as capture:
            console.print(self.table())
        return capture.get()


@final
@dataclass(frozen=True, slots=True)
class Audit(_Report):
    """All rows of one run. `print(audit)` shows the table."""

    title: str
    delta: float
    rows: tuple[AuditRow, ...]

    def __getitem__(self, statement: str) -> AuditRow:
        """The row of a statement.

        Args:
            statement: Its name, or the beginning of it.
        """
        for row in self.rows:
            if row.statement.startswith(statement):
                return row
        raise KeyError(f"no statement begins with {statement!r}; there are {[row.statement for row in self.rows]}")

    def table(self) -> "Table":
        """For a rich Console."""
        from rich.table import Table  # late, so that `import s4q` stays light

        chances = f"a share delta = {self.delta} of seeds; rows of replay weights and sampling: {RARE:g}"
        table = Table(title=self.title, caption=f"identity: holds by algebra; (w.p.): for all but {chances}")
        for header in ("statement", "paper", "measured", "", "bound", "slack", "holds", "where", "note"):
            right = header in ("measured", "bound", "slack")
            whole = right or header in ("statement", "where")
            least = len("yes (w.p.)") if header == "holds" else None  # a narrow terminal must not hide the verdict
            side: Literal["left", "right"] = "right" if right else "left"
            table.add_column(header, justify=side, overflow="fold", no_wrap=whole, min_width=least)
        for row in self.rows:
            shown = [_number(row.measured), _number(row.bound), _number(row.slack)]
            relation = "" if row.measured is None else ">=" if row.above else "<="
            table.add_row(row.statement, row.where, shown[0], relation, *shown[1:], row.verdict, row.place, row.note)
        return table


@final
@dataclass(frozen=True, slots=True)
class SeedAudit(_Report):
    """Audits of many seeds together: statements that may fail do so in at most a share delta of the seeds."""

    title: str
    rows: tuple[SeedRow, ...]

    def table(self) -> "Table":
        """For a rich Console."""
        from rich.table import Table  # late, so that `import s4q` stays light

        table = Table(title=self.title, caption="least slack: of the seeds for which the statement holds")
        for header in ("statement", "seeds", "failures", "allowed", "least slack", "holds", "where", "note"):
            right = header in ("seeds", "failures", "allowed", "least slack")
            table.add_column(header, justify="right" if right else "left", overflow="fold")
        for row in self.rows:
            verdict = {True: "yes", False: "NO", None: "-"}[row.holds]
            counts = (f"{row.seeds}", f"{row.failures}", f"{row.allowed * row.seeds:.4g}", _number(row.least_slack))
            table.add_row(row.statement, *counts, verdict, row.place, row.note)
        return table


def audit(run: Run, mdp: FiniteMDP) -> Audit:
    """Check every statement of the paper on a run of S4Q that was recorded from its first phase.

    All expectations are exact. Statements that the preset does not prove are shown as not claimed, with the reason.

    Args:
        run: The run; made with record=True and memory="policies", without pooling and evaluations.
        mdp: The problem it was played on.

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
    assumed = [_row(each, evidence) for each in ASSUMPTIONS]
    if not constants.spec.well_specified:
        assumed[0] = _not_declared(assumed[0], needed=constants.preset == "realisable")
    broken = next((row.statement for row in assumed if row.holds is False), "")
    rows = [_row(statement, evidence, broken) for statement in (*AS_PRESCRIBED, *IN_THE_PAPER)]
    return Audit(title, constants.delta, (*assumed, *rows))


def _not_declared(exact: AuditRow, needed: bool) -> AuditRow:
    """The row of exact features where nobody has declared them exact."""
    if needed:
        return replace(exact, holds=False, note="not declared, and the preset needs it: well_specified=True")
    return replace(exact, note="not declared: the statements allow for the transfer error")


def over_seeds(audits: Sequence[Audit]) -> SeedAudit:
    """Count the failures of each statement in audits of the same problem with different seeds.

    Args:
        audits: At least one, all with the same rows.

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
    for same in zip(*(each.rows for each in audits), strict=True):
        here = [row for row in same if row.holds is not None]
        allowed = {"delta": audits[0].delta, "rarely": RARE}.get(same[0].kind, 0.0)
        good = [row for row in here if row.holds and row.slack is not None]
        nearest = min(good, key=lambda row: row.slack or 0.0, default=None)
        slack, place = (None, "") if nearest is None else (nearest.slack, nearest.place)
        failures, note = sum(row.holds is False for row in here), _notes([row.note for row in same])
        rows.append(SeedRow(same[0].statement, len(here), failures, slack, allowed, place, note))
    return SeedAudit(f"{len(audits)} seeds: {audits[0].title}", tuple(rows))


def _notes(notes: Sequence[str]) -> str:
    """The notes of all seeds: the one they share, else each kind (numbers left aside) with how many seeds have it."""
    kinds = Counter(re.sub(r"\d[\d.e+-]*", "...", note) for note in notes if note)
    if len(kinds) == 1 and kinds.total() == len(notes):
        return notes[0]
    return "; ".join(f"{kind} ({n} of {len(notes)} seeds)" for kind, n in kinds.items())


def row_of(
    statement: str, where: str, kind: Kind, parts: Sequence[Part], note: str = "", unclaimed: str = ""
) -> AuditRow:
    """The row with its worst entry, the one nearest to failing.

    Args:
        statement: Its name.
        where: Its label in the paper.
        kind: How often it may fail.
        parts: What was measured; none if there is nothing to check.
        note: Shown instead of a note of this function's own.
        unclaimed: Why the statement is not claimed; empty if it is.
    """
    note, found = unclaimed or note, joined(parts)
    if not found.measured.size:
        note = note or "nothing to check in this run"
        return AuditRow(statement, where, None, None, False, None, kind, "", note)
    worst = found.worst()
    part = home(parts, worst)
    if not note and part.says_nothing(worst):
        limit = f"at least {_number(part.low)}" if worst.above else f"at most {_number(part.high)}"
        note = f"vacuous: {limit} anyway"
    return AuditRow(statement, where, *worst, None if unclaimed else found.holds(), kind, part.place, note)


def _row(one: Statement, evidence: Evidence, broken: str = "") -> AuditRow:
    """The row of a statement; not measured where its bound does not exist."""
    reason = unclaimed(one.needs, evidence, broken)
    measured = one.needs != "theorem 1" or evidence.prescribed.proved
    return row_of(one.name, one.where, one.kind, one.test(evidence) if measured else [], one.note, reason)


def unclaimed(needs: Needs, evidence: Evidence, broken: str = "") -> str:
    """Why a preset does not claim a statement; empty if it does. broken: the assumption that does not hold."""
    constants, proved = evidence.constants, evidence.prescribed.proved
    if needs == "nothing":
        return ""
    if constants.preset == "practical":
        return "not claimed: practical proves nothing"
    if broken:
        return f"not claimed: it needs what is not true, see {broken!r}"
    if constants.fixed_width is not None or (proved and constants.fixed_ridge is not None):
        return "not claimed: width or ridge was set by hand"
    meant = "previous" if proved else "own"
    if constants.bonus_from != meant:
        return f"not claimed: the statement is about bonus_from={meant!r}"
    if needs == "theorem 1" and not proved:
        return "not claimed: realisable proves optimism, its ridge and trigger are too small for this"
    if needs == "theorem 1" and constants.fixed_trigger is not None:
        return "not claimed: the trigger was set by hand"
    hidden = any((clipped_away(evidence, p) & evidence.reachable).any() for p in evidence.phases)
    if needs in ("optimism", "theorem 1") and evidence.off and hidden:
        return "not claimed: a best fit is beyond the clip of Q"
    return ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
