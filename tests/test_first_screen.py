"""The picture of the README's first screen is of real runs: the returns it draws are those of the agent."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from benchmarks import first_screen

import s4q


def test_the_returns_are_those_of_the_agent_with_its_defaults() -> None:
    outcome = first_screen.play(first_screen.Case(episodes=4, seed=1))
    run = s4q.Agent(gym.make("MountainCar-v0"), seed=1).learn(episodes=4).last_run
    assert run is not None
    assert len(outcome.learning) == len(outcome.random) == 4
    assert np.mean(outcome.learning) == pytest.approx(-run.steps / 4)  # -1 a step
    assert set(outcome.random) == {-200.0}


def test_the_mean_is_of_the_last_episodes() -> None:
    values = np.random.default_rng(0).normal(size=30)
    found = first_screen.running_mean(values, 7)
    assert found == pytest.approx([values[max(0, i - 6) : i + 1].mean() for i in range(30)])


def test_the_command_writes_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "picture.png"
    first_screen.main(["--episodes", "2", "--seeds", "2", "--processes", "1", "--out", str(out)])
    assert out.read_bytes().startswith(b"\x89PNG")
    assert "last 50 episodes -200.0 (worst -200.0)" in capsys.readouterr().out
