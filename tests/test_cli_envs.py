"""Environments of the command line: their arguments, modules of the current directory, and `train --evaluate`."""

import html
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from states import bits
from typer.testing import CliRunner

import s4q
from s4q.cli import app

LARGE = ["FrozenLake-v1", "--env-kwargs", '{"map_name":  "8x8","is_slippery":false}', "--horizon", "15"]
ASKED = '{"is_slippery": false, "map_name": "8x8"}'  # the same in one spelling
SHORT = ["--episodes", "12", "--evaluate", "3", "--seed", "3", "--quiet"]


def invoke(*arguments: object, code: int = 0) -> str:
    result = CliRunner(env={"COLUMNS": "300"}).invoke(app, [str(one) for one in arguments])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on FrozenLake with a large map."""
    folder = tmp_path_factory.mktemp("trained") / "large"
    invoke("train", *LARGE, *SHORT, "--out", folder)
    return folder


@pytest.fixture
def large(trained: Path, tmp_path: Path) -> Path:
    """A copy of it, that a test may change."""
    return Path(shutil.copytree(trained, tmp_path / "large"))


def test_the_environment_is_made_with_its_arguments(large: Path) -> None:
    env = gym.make("FrozenLake-v1", map_name="8x8", is_slippery=False)
    agent = s4q.Agent(env, horizon=15, seed=3).learn(12)
    found = s4q.load(large / "checkpoint.s4q")
    assert found.learner.spec.n_blocks == 64 * 4
    assert bits(found.learner) == bits(agent.learner)
    assert s4q.Agent.load(large / "checkpoint.s4q", env).horizon == 15
    with pytest.raises(ValueError, match="the env was made with"):
        s4q.Agent.load(large / "checkpoint.s4q", gym.make("FrozenLake-v1", map_name="8x8"))


def test_the_folder_keeps_them_and_a_repeat_has_the_same_bits(large: Path, tmp_path: Path) -> None:
    assert tomllib.loads((large / "config.toml").read_text())["env_kwargs"] == ASKED
    invoke("train", "--config", large / "config.toml", "--out", tmp_path / "again", "--quiet")
    typed = json.loads(invoke("explain", large, "--json"))["command"]
    assert f"--env-kwargs '{ASKED}'" in typed
    invoke(*shlex.split(typed)[1:], "--evaluate", "0", "--quiet", "--out", tmp_path / "typed")
    for other in ("again", "typed"):
        runs = [s4q.load(folder / "checkpoint.s4q").learner for folder in (large, tmp_path / other)]
        assert bits(runs[0]) == bits(runs[1])
    invoke("train", "--config", large / "config.toml", "--env-kwargs", '{"map_name": "8x8"}', "--out", tmp_path / "b")
    assert bits(s4q.load(tmp_path / "b" / "checkpoint.s4q").learner) != bits(runs[0])


def test_the_other_commands_take_them_from_the_folder(large: Path) -> None:
    scored = json.loads(invoke("evaluate", large, "--episodes", "4", "--json"))
    mdp = s4q.problems.from_gymnasium(gym.make("FrozenLake-v1", map_name="8x8", is_slippery=False), horizon=15)
    assert scored["best_value"] == mdp.v_star == 1.0  # the way takes 14 steps, and nobody slips
    assert scored == json.loads(invoke("evaluate", large, "--episodes", "4", "--json", "--env-kwargs", ASKED))
    invoke("train", "--out", large, "--resume", "--episodes", "14", "--quiet")
    assert s4q.load(large / "checkpoint.s4q").progress.episodes == 14


def test_a_run_of_python_is_evaluated_with_them(tmp_path: Path) -> None:
    path, env = tmp_path / "run.s4q", gym.make("FrozenLake-v1", is_slippery=False)
    s4q.Agent(env, horizon=10, seed=0).learn(20, checkpoint=path)
    assert "pass the arguments as --env-kwargs" in invoke("evaluate", path, code=2)
    scored = json.loads(invoke("evaluate", path, "--episodes", "5", "--env-kwargs", '{"is_slippery": false}', "--json"))
    assert scored["n_episodes"] == 5
    assert scored["exact_value"] in (0.0, 1.0)  # nothing is random
    assert "holds another problem" in invoke("evaluate", path, "--env-kwargs", '{"map_name": "8x8"}', code=2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["FrozenLake-v1", "--env-kwargs", "{nope"], "error: --env-kwargs must be a JSON object, such as "),
        (["FrozenLake-v1", "--env-kwargs", "[1]"], "that is no object"),
        (["FrozenLake-v1", "--env-kwargs", '{"a": NaN}'], "--env-kwargs must be a JSON object"),
        (["FrozenLake-v1", "--env-kwargs", '{"nope": 1}'], "error: --env-kwargs: FrozenLake-v1 cannot be made with "),
        (["Nope-v0", "--env-kwargs", '{"nope": 1}'], "the id of a Gymnasium environment; got 'Nope-v0'"),
        (["chain", "--env-kwargs", '{"n": 1}'], "error: --env-kwargs is for environments; chain is built in"),
        (["--out", "LARGE", "--resume", "--env-kwargs", "{}"], f"holds a run with --env-kwargs {ASKED}, not {{}}"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    large: Path, given: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error, hint = invoke("train", *(one.replace("LARGE", str(large)) for one in given), code=2).strip().splitlines()
    assert message in error
    assert hint == "hint: add --help to see what the command takes"


def test_evaluate_refuses_other_arguments_than_those_of_the_run(large: Path, tmp_path: Path) -> None:
    assert "leave --env-kwargs out" in invoke("evaluate", large, "--env-kwargs", "{}", code=2)
    invoke("train", "chain", "--episodes", "20", "--seed", "0", "--quiet", "--out", tmp_path / "chain")
    assert "leave --env-kwargs out" in invoke("evaluate", tmp_path / "chain", "--env-kwargs", "{}", code=2)


def test_evaluate_plays_a_built_in_problem_too(tmp_path: Path) -> None:
    """The same episodes as `s4q evaluate`; without the option none."""
    short = ["train", "chain", "--episodes", "300", "--seed", "5", "--quiet"]
    said = json.loads(invoke(*short, "--evaluate", "20000", "--out", tmp_path / "run", "--json"))["evaluation"]
    assert said["n_episodes"] == 20_000
    again = json.loads(invoke("evaluate", tmp_path / "run", "--episodes", "20000", "--json"))
    assert {name: again[name] for name in said} == said
    # Rewards are 0 or 1 over 10 steps, so a return lies within [0, 10]: 6 standard errors of at most 5.
    assert abs(said["mean"] - again["exact_value"]) < 6 * 5 / 20_000**0.5
    assert "mean return" in invoke(*short, "--evaluate", "7")
    assert "mean return" not in invoke(*short)
    assert tomllib.loads((tmp_path / "run" / "config.toml").read_text())["evaluate"] == 20_000


MODULE = """
import gymnasium as gym

class Coin(gym.Env):
    observation_space, action_space = gym.spaces.Discrete(2), gym.spaces.Discrete(2)

    def __init__(self, prize=1.0):
        self.prize, self.n = prize, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.n = 0
        return 0, {}

    def step(self, action):
        self.n += 1
        return int(action), self.prize * int(action), self.n == 3, False, {}

gym.register("Coin-v0", Coin, max_episode_steps=3)
"""
COIN = ["coin_of_the_user:Coin-v0", "--env-kwargs", '{"prize": 0.5}', "--reward-range", "0", "1", "--horizon", "3"]


def run_script(folder: Path, *arguments: object, code: int = 0, **variables: str) -> Any:
    """The command as it is installed: a script in another folder, so that the current directory is not on its path."""
    script = folder / "bin" / "s4q"
    script.parent.mkdir(exist_ok=True)
    script.write_text("import sys\nfrom s4q.cli import app\nif __name__ == '__main__':\n    sys.exit(app())\n")
    source = str(Path(s4q.__file__).parent.parent)
    env = {**os.environ, "PYTHONPATH": source, **variables}
    words = [sys.executable, str(script), *(str(one) for one in arguments)]
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


def test_modules_of_the_current_directory_are_found(tmp_path: Path) -> None:
    """`train`, `evaluate` and --resume, and workers, which are other processes."""
    (tmp_path / "coin_of_the_user.py").write_text(MODULE)
    run_script(tmp_path, "train", *COIN, *SHORT, "--out", "run")
    scored = json.loads(
        run_script(tmp_path, "evaluate", "run", "--problem", COIN[0], "--episodes", "3", "--json").stdout
    )
    assert scored["mean"] in (0.0, 0.5, 1.0, 1.5)
    run_script(tmp_path, "train", "--out", "run", "--resume", "--episodes", "15", "--quiet", "--workers", "1")
    assert s4q.load(tmp_path / "run" / "checkpoint.s4q").progress.episodes == 15
    refused = run_script(tmp_path, "train", *COIN, *SHORT, code=2, PYTHONSAFEPATH="1")
    assert "No module named 'coin_of_the_user'" in refused.stderr


def test_a_comparison_finds_modules_of_the_current_directory(tmp_path: Path) -> None:
    (tmp_path / "coin_of_the_user.py").write_text(MODULE)
    coin = "coin_of_the_user:Coin-v0:horizon=3,reward_range=[0, 1],env_kwargs={prize = 0.5}"
    words = ["-p", coin, "-l", "s4q", "--seeds", "2", "--episodes", "5", "--report", "page.html"]
    done = run_script(tmp_path, "compare", *words)
    assert "mean return" in done.stdout
    page = html.unescape((tmp_path / "page.html").read_text(encoding="utf-8"))
    command = re.search(r"s4q (compare --problem .*) --seeds 2 --episodes 5", page)
    assert command is not None
    run_script(tmp_path, *shlex.split(command.group(1)), "--seeds", "1", "--episodes", "2")


def test_an_id_without_a_module_does_not_look_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one])
    before = list(sys.path)
    invoke("train", "FrozenLake-v1", "--horizon", "5", *SHORT)
    assert sys.path == before
    invoke("train", "no_such_module:Env-v0", *SHORT, code=2)
    assert sys.path == [str(tmp_path), *before]
