"""s4q beside DQN, PPO and SARSA(lambda) on classic control: `python peers/control_study.py --help`.

`s4q.Agent(id)` has its defaults. DQN and PPO of Stable-Baselines3 have theirs ("untuned") and the settings of RL
Baselines3 Zoo for the environment ("tuned"). SARSA(lambda) on tiles has one step size, lambda and epsilon for all three
environments. The returns are those of training; a last evaluation of the learned policy stands beside them. Runs that
the results file holds are not played again. `control_figures.py` draws the picture from the same file.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from chain_growth import HERE, PACKAGES
from environments import one_thread, python_with

RESULTS = HERE / "results" / "control_study.json"
# Episodes of our learners, and steps of the others. A run of theirs begins as in the Zoo and stops there.
EPISODES = {
    "agent": {"CartPole-v1": 100, "MountainCar-v0": 150, "Acrobot-v1": 200},
    "sarsa": {"CartPole-v1": 500, "MountainCar-v0": 300, "Acrobot-v1": 200},
}
STEPS = {"CartPole-v1": 30_000, "MountainCar-v0": 40_000, "Acrobot-v1": 40_000}
OTHERS = ("dqn_tuned", "ppo_tuned", "dqn_untuned", "ppo_untuned")
NAMES = {
    "agent": "s4q.Agent, its defaults",
    "sarsa": "SARSA(lambda), tiles",
    "dqn_untuned": "DQN, its defaults",
    "dqn_tuned": "DQN, tuned for the environment",
    "ppo_untuned": "PPO, its defaults",
    "ppo_tuned": "PPO, tuned for the environment",
}
GOOD = {"CartPole-v1": 475.0, "MountainCar-v0": -130.0, "Acrobot-v1": -120.0}  # mean return of 20 episodes in a row
WINDOW = 20


def played(python: Path, learner: str, env_id: str, size: int, seed: int) -> dict[str, Any]:
    """One run, in a process of its own."""
    script = "control_s4q.py" if learner in EPISODES else "control_stable_baselines3.py"
    command = [str(python), str(HERE / script), learner, env_id, str(size), str(seed)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=one_thread())
    if found.returncode:
        raise RuntimeError(found.stderr)
    run: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return run


def good_from(run: dict[str, Any], env_id: str) -> int | None:
    """The first episode that ends 20 episodes with a good mean return, from 1; None where there is none."""
    returns = np.array(run["returns"])
    if len(returns) < WINDOW:
        return None
    means = np.convolve(returns, np.ones(WINDOW) / WINDOW, mode="valid")
    good = np.flatnonzero(means >= GOOD[env_id])
    return int(good[0]) + WINDOW if len(good) else None


def cells(env_id: str, runs: Sequence[dict[str, Any]]) -> list[str]:
    """A line of the table."""
    good = [good_from(run, env_id) for run in runs]
    reached = [(run, one) for run, one in zip(runs, good, strict=True) if one is not None]

    def spread(numbers: Sequence[float], form: str = ",.0f") -> str:
        return "-" if not numbers else f"{min(numbers):{form}} to {max(numbers):{form}}"

    return [
        f"{len(reached)} of {len(runs)}",
        spread([one for _, one in reached]),
        spread([sum(run["lengths"][:one]) for run, one in reached]),
        spread([run["cpu"][one - 1] for run, one in reached], ".1f"),
        spread([run["evaluation"] for run in runs], ".0f"),
        spread([len(run["returns"]) for run in runs]),
        spread([sum(run["lengths"]) for run in runs]),
        spread([run["cpu"][-1] for run in runs if run["cpu"]], ".0f"),
        f"{np.mean([run['bytes'] for run in runs]):,.0f}",
    ]


def table(env_id: str, results: dict[str, Any]) -> Table:
    """What each learner reached on an environment, and what it cost."""
    title = f"{env_id}: the first {WINDOW} episodes in a row with a mean return of {GOOD[env_id]:g} (lowest to highest)"
    shown = Table(title=title)
    headers = ("runs", "episodes", "steps", "CPU s", "evaluation", "all episodes", "all steps", "all CPU s", "bytes")
    for header in ("learner", *headers):
        shown.add_column(header, justify="left" if header == "learner" else "right")
    for learner, name in NAMES.items():
        runs = [run for key, run in results.items() if key.startswith(f"{env_id} {learner} ")]
        if runs:
            shown.add_row(name, *cells(env_id, runs))
    return shown


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="s4q beside DQN, PPO and SARSA(lambda) on classic control.")
    parser.add_argument("--environments", type=Path, help="folder that keeps the environments (default: thrown away)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", nargs="+", choices=list(GOOD), default=list(GOOD))
    parser.add_argument("--learners", nargs="*", choices=list(NAMES), default=[*EPISODES, *OTHERS])
    parser.add_argument("--results", type=Path, default=RESULTS, help="JSON file; the runs in it are kept")
    given = parser.parse_args(argv)
    results: dict[str, Any] = json.loads(given.results.read_text()) if given.results.exists() else {}
    console = Console(width=170)
    jobs = [(seed, one, env_id) for seed in range(given.seeds) for one in given.learners for env_id in given.rows]
    with tempfile.TemporaryDirectory() as thrown_away:
        folder = given.environments or Path(thrown_away)
        for seed, learner, env_id in jobs:
            key = f"{env_id} {learner} {seed}"
            if key in results:
                continue
            ours = learner in EPISODES
            package = "stable-baselines3"
            python = Path(sys.executable) if ours else python_with(folder / package, PACKAGES[package])
            size = EPISODES[learner][env_id] if ours else STEPS[env_id]
            results[key] = played(python, learner, env_id, size, seed)
            given.results.parent.mkdir(parents=True, exist_ok=True)
            lines = [f"{json.dumps(name)}: {json.dumps(run)}" for name, run in sorted(results.items())]
            given.results.write_text("{\n" + ",\n".join(lines) + "\n}\n")
            console.print(key)
    for env_id in given.rows:
        console.print(table(env_id, results))


if __name__ == "__main__":
    main()
