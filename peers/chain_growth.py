"""Regret, CPU and memory of other packages on the chain, and how they grow: `python peers/chain_growth.py --help`.

Each package gets a throw-away environment from the package index. All of them play the same problem (`chain.py`), which
charges their actions itself. CPU is that of learning and playing in one process with one thread; bytes are those of all
objects that the learner holds at the end. The exponents are slopes of a straight line in log K.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from environments import NotInstallable, one_thread, python_with

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "chain_growth.json"
SHORT, LONG = (100, 200, 400, 800), (100, 200, 400, 800, 3200, 12800)
TORCH = ("torch==2.13.0",)  # first, because another one may bring gigabytes of CUDA
PACKAGES: dict[str, tuple[tuple[str, ...], ...]] = {
    "s4q": (),
    "rlberry-scool": (("rlberry-scool==0.7.3",),),
    "rlberry-research": (("rlberry-research",),),
    "rlberry": (("rlberry==0.6.0", "gymnasium<1.0"),),  # the last one with OptQL, which moved to rlberry-research
    "stable-baselines3": (TORCH, ("stable-baselines3>=2.9", "gymnasium>=1.0")),
}
Runs = list[dict[str, Any]] | str  # the runs of a learner, or why there are none
AT, FASTER = 800, 50.0  # where the two LSVI-UCB are compared, and by how much ours must be faster
OWN = ("lsvi_ucb", "lsvi_ucb_their_constants", "lsvi_ucb_tuned")


@dataclass(frozen=True)
class Learner:
    """A learner of a package: the script that plays it, its name there, and the numbers of episodes."""

    package: str
    script: str
    name: str
    episodes: Sequence[int]

    @property
    def key(self) -> str:
        return f"{self.package} {self.name}"


LEARNERS = (
    Learner("s4q", "play_s4q.py", "s4q", LONG),
    Learner("s4q", "play_s4q.py", "lsvi_ucb", LONG),
    Learner("rlberry-scool", "play_rlberry.py", "lsvi_ucb", SHORT),
    Learner("s4q", "play_s4q.py", "lsvi_ucb_levels_apart", SHORT),
    Learner("s4q", "play_s4q.py", "lsvi_ucb_every_episode", SHORT),
    Learner("s4q", "play_s4q.py", "lsvi_ucb_their_constants", LONG),
    Learner("s4q", "play_s4q.py", "lsvi_ucb_tuned", LONG),
    Learner("s4q", "play_s4q.py", "ucbvi", LONG),
    Learner("s4q", "play_s4q.py", "ucb_q", LONG),
    Learner("rlberry-scool", "play_rlberry.py", "ucbvi", LONG),
    Learner("rlberry-research", "play_rlberry.py", "opt_ql", SHORT),
    Learner("rlberry", "play_rlberry.py", "opt_ql", SHORT),
    Learner("stable-baselines3", "play_stable_baselines3.py", "dqn", SHORT),
    Learner("stable-baselines3", "play_stable_baselines3.py", "ppo", SHORT),
)


def played(learner: Learner, python: Path) -> list[dict[str, Any]]:
    """The runs of a learner, one after the other in one process."""
    command = [str(python), str(HERE / learner.script), learner.name, *map(str, learner.episodes)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=one_thread())
    if found.returncode:
        raise RuntimeError(found.stderr.strip().splitlines()[-1] if found.stderr.strip() else "no message")
    runs = [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]
    if not runs:
        raise RuntimeError("the script printed no run")
    return runs


def kept_or_new(before: Runs | None, outcome: Runs) -> Runs:
    """What the results file holds of a learner: an attempt that failed never takes the place of finished runs.

    Args:
        before: What it held; None where it held nothing.
        outcome: The runs of the new attempt, or why it failed.
    """
    return before if isinstance(outcome, str) and isinstance(before, list) else outcome


def exponent(runs: Sequence[dict[str, Any]], column: str) -> float:
    """The slope of log column against log K."""
    return float(np.polyfit(np.log([one["episodes"] for one in runs]), np.log([one[column] for one in runs]), 1)[0])


def table(results: dict[str, Any]) -> Table:
    """A line for each learner: the largest K, and the exponents."""
    shown = Table(title="chain: regret at K = 800, and growth with K")
    for header in ("learner", "regret", "CPU s", "ms an episode, first K", "at 800", "last K", "CPU", "bytes", "held"):
        shown.add_column(header, justify="left" if header == "learner" else "right")
    for key, runs in results["runs"].items():
        if isinstance(runs, str):
            shown.add_row(key, f"not played: {runs}")
            continue
        at = min(runs, key=lambda one: abs(one["episodes"] - AT))
        each = [1e3 * one["cpu_seconds"] / one["episodes"] for one in (runs[0], at, runs[-1])]
        exponents = [f"K^{exponent(runs, column):.2f}" for column in ("cpu_seconds", "bytes")]
        cells = [f"{at['regret']:.1f}", f"{at['cpu_seconds']:.2f}", *(f"{one:.2f}" for one in each)]
        shown.add_row(key, *cells, *exponents, f"{runs[-1]['bytes']:,}")
    return shown


def verdict(results: dict[str, Any]) -> list[str]:
    """Is our LSVI-UCB so much faster than the other one, with no more regret? Is S4Q's CPU an episode flat?

    A question whose runs are missing has the answer "missed", and the line says what is missing.
    """
    runs: dict[str, Runs] = results["runs"]
    theirs, lines = "rlberry-scool lsvi_ucb", []
    for own in OWN:
        lacking = [f"{key}: {why}" for key in (f"s4q {own}", theirs) if (why := _lacks(runs.get(key)))]
        if lacking:
            lines.append(f"{own} at K = {AT}: missed, because a run is missing ({'; '.join(lacking)})")
        else:
            lines.append(_compared(own, _at(runs[f"s4q {own}"]), _at(runs[theirs])))
    for key in (theirs, "s4q s4q"):
        found = runs.get(key)
        if isinstance(found, list) and len({one["episodes"] for one in found}) > 1:
            lines.append(f"the CPU an episode of {key} grows like K^{exponent(found, 'cpu_seconds') - 1:.2f}")
        else:
            lines.append(f"the CPU an episode of {key}: missed, because runs with several K are missing")
    return lines


def _lacks(found: Runs | None) -> str:
    """Why a learner cannot be judged at K = AT; empty where it can."""
    if found is None:
        return "never played"
    if isinstance(found, str):
        return f"not played, {found}"
    return "" if any(one["episodes"] == AT for one in found) else f"no run with {AT} episodes"


def _at(found: Runs) -> dict[str, Any]:
    assert not isinstance(found, str)
    return next(one for one in found if one["episodes"] == AT)


def _compared(name: str, own: dict[str, Any], other: dict[str, Any]) -> str:
    times = other["cpu_seconds"] / own["cpu_seconds"]
    return (
        f"{name} at K = {AT}: {own['cpu_seconds']:.2f} CPU s, regret {own['regret']:.1f}; rlberry-scool's "
        f"{other['cpu_seconds']:.1f} CPU s, regret {other['regret']:.1f}: {times:.0f} times faster (at least "
        f"{FASTER:g} wanted: {'met' if times >= FASTER else 'missed'}; regret no worse: "
        f"{'met' if own['regret'] <= other['regret'] else 'missed'})"
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Other packages on the chain: regret, CPU, memory, growth with K.")
    parser.add_argument("--environments", type=Path, help="folder that keeps the environments (default: thrown away)")
    keys = [learner.key for learner in LEARNERS]
    parser.add_argument("--learners", nargs="+", choices=keys, default=keys, help='such as "s4q lsvi_ucb"')
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="JSON file; runs of other learners in it are kept"
    )
    given = parser.parse_args(argv)
    console = Console(width=150)
    results: dict[str, Any] = json.loads(given.results.read_text()) if given.results.exists() else {"runs": {}}
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as thrown_away:
        folder = given.environments or Path(thrown_away)
        for learner in LEARNERS:
            if learner.key not in given.learners:
                continue
            console.print(f"{learner.key} ...")
            try:
                requirements = PACKAGES[learner.package]
                python = python_with(folder / learner.package, requirements) if requirements else Path(sys.executable)
                outcome: Runs = played(learner, python)
            except (NotInstallable, RuntimeError, OSError, subprocess.CalledProcessError) as error:
                outcome = " ".join(str(error).split())
            runs = kept_or_new(results["runs"].get(learner.key), outcome)
            results["runs"][learner.key] = runs
            if isinstance(outcome, str):
                failed.append(learner.key)
                console.print(f"failed: {outcome}" + ("" if runs == outcome else " (the runs in the file are kept)"))
            given.results.parent.mkdir(parents=True, exist_ok=True)
            beside = given.results.with_name(given.results.name + ".new")
            beside.write_text(json.dumps(results, indent=1) + "\n")
            beside.replace(given.results)  # a file that was half written would lose them all
    console.print(table(results))
    for line in verdict(results):
        console.print(line)
    if failed:
        console.print(f"failed in this run, so shown from an earlier one or not at all: {', '.join(failed)}")


if __name__ == "__main__":
    main()
