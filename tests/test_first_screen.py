"""The picture of the README's first screen is of real runs beside DQN, and what the README says of them is so."""

import json
import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from benchmarks import first_screen
from matplotlib.figure import Figure

import s4q

ROOT = Path(__file__).parent.parent
RESULTS: dict[str, Any] = json.loads((ROOT / "peers" / "results" / "control_study.json").read_text())
README = (ROOT / "README.md").read_text()


def runs_of(env_id: str, learner: str) -> list[dict[str, Any]]:
    return [run for name, run in RESULTS.items() if name.split()[:2] == [env_id, learner]]


def test_the_first_returns_are_those_of_the_agent_with_its_defaults() -> None:
    """The results are those of this version: the file and a run made now begin alike."""
    run = s4q.Agent(gym.make("MountainCar-v0"), seed=1).learn(episodes=6).last_run
    assert run is not None
    returns = RESULTS["MountainCar-v0 agent 1"]["returns"]
    assert sum(returns[:6]) == -run.steps  # -1 a step


def test_the_readme_says_what_the_results_say() -> None:
    firsts = {
        learner: sorted(
            int(np.flatnonzero(np.array(run["returns"]) > -200)[0]) + 1 for run in runs_of("MountainCar-v0", learner)
        )
        for learner in ("agent", "dqn_tuned")
    }
    said = re.search(r"episode (\d+) to (\d+) of (\w+) runs, DQN in episode (\d+) to (\d+) of (\w+):", README)
    assert said is not None
    assert [int(said[1]), int(said[2])] == [firsts["agent"][0], firsts["agent"][-1]]
    assert [int(said[4]), int(said[5])] == [firsts["dqn_tuned"][0], firsts["dqn_tuned"][-1]]
    words = {3: "three", 5: "five"}
    assert [said[3], said[6]] == [words[len(firsts["agent"])], words[len(firsts["dqn_tuned"])]]
    said = re.search(r"DQN had ([\d,]+) steps of MountainCar and ([\d,]+) of CartPole", README)
    assert said is not None
    for steps, env_id in zip(said.groups(), ("MountainCar-v0", "CartPole-v1"), strict=True):
        for run in runs_of(env_id, "dqn_tuned"):
            assert 0.99 < sum(run["lengths"]) / int(steps.replace(",", "")) <= 1


def test_results_says_what_is_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "picture.png"
    first_screen.main(["--out", str(out)])
    assert out.read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    text = (ROOT / "docs" / "results.md").read_text()
    for env_id, form in (
        ("MountainCar-v0", "mean return of {} in their last 50 episodes (worst {})"),
        ("CartPole-v1", "{} in the last 50 of 100 (worst {})"),
    ):
        found = re.search(rf"^{env_id}, s4q: .*; last 50 episodes (\S+) \((\S+) to ", printed, re.M)
        assert found is not None
        assert form.format(*found.groups()) in " ".join(text.split())


def test_every_run_is_drawn() -> None:
    """The lines of a panel are the runs of the file, smoothed; nothing is left out."""
    for env_id in first_screen.TITLES:
        ax = Figure().subplots()
        first_screen.draw_panel(ax, env_id, first_screen.read_runs(first_screen.RESULTS, env_id))
        drawn = [np.asarray(line.get_ydata()) for line in ax.get_lines()]
        runs = [*runs_of(env_id, "agent"), *runs_of(env_id, "dqn_tuned")]
        assert len(runs_of(env_id, "agent")) == 5
        assert runs_of(env_id, "dqn_tuned")
        n = first_screen.SMOOTHED
        for run in runs:
            smooth = np.convolve(run["returns"], np.full(n, 1 / n), mode="valid")
            alike = [one for one in drawn if len(one) == len(run["returns"]) and np.allclose(one[n - 1 :], smooth)]
            assert len(alike) == 1


def test_the_mean_is_of_the_last_episodes() -> None:
    values = np.random.default_rng(0).normal(size=30)
    found = first_screen.running_mean(values.tolist(), 7)
    assert found == pytest.approx([values[max(0, i - 6) : i + 1].mean() for i in range(30)])
