"""`s4q audit` with the constants of the paper: CPU, and whether Theorem 1 says something and holds.

`python -m benchmarks.audit` prints the tables of docs/audit.md.
"""

import time

import numpy as np
from rich.table import Table

import s4q
from s4q.cli.audit_command import audited, small_problem
from s4q.learners.presets import PresetName
from s4q.theory import Audit, audited_s3q, bounds, effective_dims
from s4q.theory.evidence import lowest_value

RUNS: tuple[tuple[PresetName, int], ...] = (("paper", 10**18), ("tight", 10**14))


def measured(preset: PresetName, episodes: int) -> tuple[Audit, float]:
    """The audit of one run on low_rank with d = 3, H = 2, and the CPU seconds of run and audit."""
    start = time.process_time()
    result = audited(small_problem("low_rank", {}), preset, episodes, seed=0, delta=0.05)
    return result, time.process_time() - start


def says_something_from(preset: PresetName) -> float:
    """log10 of the episodes, to a tenth, from which the bound of Theorem 1 is below the largest average regret."""
    mdp = small_problem("low_rank", {})
    most = mdp.v_star - lowest_value(mdp)
    constants = s4q.S4Q(mdp, preset, pool=False).constants
    tenths = 80
    while True:
        tenths += 1
        episodes = int(10 ** (tenths / 10))
        gains = np.array([dim.upper for dim in effective_dims(mdp, episodes / constants.ridge(1, 0))])
        if bounds.theorem1_regret(constants, episodes, gains) < episodes * most:
            return tenths / 10


def table() -> Table:
    result = Table(
        title="s4q audit on low_rank (d = 3, H = 2); targets: CPU <= 120 s, all hold, regret < bound < V* - min V"
    )
    for header in ("preset", "episodes", "average regret", "bound of Theorem 1", "rows that hold", "all", "CPU s"):
        result.add_column(header, justify="right")
    for preset, episodes in RUNS:
        audit, seconds = measured(preset, episodes)
        regret = audit["Theorem 1 (a)"]
        held = sum(row.holds is True for row in audit.rows)
        claimed = sum(row.holds is not None for row in audit.rows)
        cells = (preset, f"{episodes:.0e}", f"{regret.measured:.3g}", f"{regret.bound:.3g}", f"{held} of {claimed}")
        result.add_row(*cells, "yes" if audit.holds else "NO", f"{seconds:.2f}")
    return result


def markdown(audit: Audit) -> str:
    """The audit as a table for the docs."""
    lines = ["| statement | in the paper | measured | | bound | holds | where |", "|---|---|---|---|---|---|---|"]
    for row in audit.rows:
        statement = row.statement.replace("|", "\\|")
        if row.measured is None:
            lines.append(f"| {statement} | `{row.where}` | | | | {row.note} | |")
            continue
        side, vacuous = ">=" if row.above else "<=", ", vacuous" if row.note.startswith("vacuous") else ""
        shown = f"{row.measured:.4g} | {side} | {row.bound:.4g} | {row.verdict}{vacuous} | {row.place}"
        lines.append(f"| {statement} | `{row.where}` | {shown} |")
    return "\n".join(lines)


def main() -> None:
    for preset, episodes in RUNS:
        audit, seconds = measured(preset, episodes)
        print(f"`{preset}`, {episodes:.0e} episodes, {seconds:.1f} CPU s:\n\n{markdown(audit)}\n")
    found = audited_s3q(small_problem("low_rank", {}), 10**6, seed=0, delta=0.05)
    print(f"S3Q, 1e+06 episodes:\n\n{markdown(found)}\n")
    for preset, _ in RUNS:
        print(f"`{preset}` says something from 10^{says_something_from(preset):.1f} episodes on")


if __name__ == "__main__":
    main()
