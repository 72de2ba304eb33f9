"""`s4q train --out`: a folder holds all of a run. Repeated from its folder, or interrupted, it has the same bits."""

import json
import os
import re
import shlex
import signal
import sys
import tomllib
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec
from signalled import TIMES, signalled
from small_envs import Drift
from states import bits, log_lines
from typer.testing import CliRunner

import s4q
from s4q.cli import app
from s4q.cli.run_folder import RunFolder
from s4q.cli.train_options import Config, TrainOptions, config_text, read_config, versions
from s4q.running.archive import previous_of

RIVER = ["train", "river_swim", "--preset", "realisable", "--episodes", "200", "--evaluation-share", "0.1"]
LAKE = ["train", "FrozenLake-v1", "--horizon", "9", "--episodes", "25", "--evaluate", "20", "--value-bound", "1"]
CAR = [
    "train",
    "MountainCar-v0",
    "--horizon",
    "8",
    "--episodes",
    "6",
    "--evaluate",
    "3",
    "--features",
    "rbf:centres=3,width=0.4",
]


def invoke(*arguments: object, code: int = 0, quiet: bool = True) -> Any:
    words = [str(one) for one in arguments]
    result = CliRunner(env={"COLUMNS": "300"}).invoke(app, [*words, "--quiet"] if quiet else words)
    assert result.exit_code == code, result.output
    return result


def same(one: Path, other: Path) -> None:
    """Two folders hold the same run: state, curve, log and policy, whatever time it took."""
    assert bits(s4q.load(one / "checkpoint.s4q")) == bits(s4q.load(other / "checkpoint.s4q"))
    assert list(log_lines(one / "metrics.jsonl")) == list(log_lines(other / "metrics.jsonl"))
    assert (one / "best.policy").read_bytes() == (other / "best.policy").read_bytes()
    assert (one / "config.toml").read_text() == (other / "config.toml").read_text()


@pytest.mark.parametrize("command", [RIVER, LAKE, CAR], ids=["counts", "table", "features"])
def test_a_run_repeated_from_its_own_folder_has_the_same_bits(command: list[str], tmp_path: Path) -> None:
    """Also without a seed on the command line: the one that was drawn is in the folder."""
    first = invoke(*command, "--out", tmp_path / "first")
    second = invoke("train", "--config", tmp_path / "first" / "config.toml", "--out", tmp_path / "second")
    same(tmp_path / "first", tmp_path / "second")
    drawn = re.search(r"seed (\d+)", first.stdout)
    assert drawn is not None
    assert tomllib.loads((tmp_path / "first" / "config.toml").read_text())["seed"] == int(drawn[1])
    score = [re.sub(r"cpu_seconds=\S+|^(seed|run:).*", "", said.stdout, flags=re.M).split() for said in (first, second)]
    assert score[0] == score[1]
    other = invoke("train", "--config", tmp_path / "first" / "config.toml", "--out", tmp_path / "other", "--seed", "1")
    assert other.stderr == ""
    with pytest.raises(AssertionError):  # the comparison sees another seed
        same(tmp_path / "first", tmp_path / "other")


def test_the_folder_holds_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("s4q.report.page.inline_svg", lambda *_: "<svg></svg>")  # it takes most of the time
    said = invoke(*LAKE, "--seed", "5", "--out", tmp_path / "a" / "lake", "--report")
    folder = RunFolder(tmp_path / "a" / "lake")
    there = {path.name for path in folder.path.iterdir()}
    assert there - {"checkpoint.s4q.previous"} == {
        "config.toml", "metrics.jsonl", "checkpoint.s4q", "best.policy", "report.html"
    }  # fmt: skip
    assert "(config.toml, metrics.jsonl, checkpoint.s4q, best.policy, report.html)" in said.stdout
    config = tomllib.loads(folder.config.read_text())
    assert config["versions"] == versions()
    assert config["versions"]["s4q"] == s4q.__version__
    assert (config["problem"], config["episodes"], config["seed"], config["horizon"]) == ("FrozenLake-v1", 25, 5, 9)
    assert config["history"]["budgets"] == [25]
    for name in TrainOptions.__dataclass_fields__:  # all options, also those that were not given
        assert re.search(rf"^({name} = |# {name}: not given)", folder.config.read_text(), re.M)
    agent = s4q.Agent.load(folder.checkpoint, env="FrozenLake-v1")
    policy = s4q.Policy.load(folder.policy)
    assert [policy.act(one, 2) for one in range(16)] == [agent.policy.act(one, 2) for one in range(16)]
    assert s4q.JsonLines(folder.metrics).lines()[-1]["event"] == "end"
    assert "FrozenLake-v1" in folder.report.read_text()
    for command in ("explain", "evaluate"):
        assert invoke(command, folder.path, quiet=False).stdout


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    invoke(*RIVER, "--seed", "5", "--out", tmp_path / "first")
    config = tmp_path / "first" / "config.toml"
    invoke("train", "chain", "--config", config, "--episodes", "50", "--preset", "practical", "--evaluation-share", "0",
           "--out", tmp_path / "second")  # fmt: skip
    found = read_config(tmp_path / "second" / "config.toml").options
    assert (found.problem, found.episodes, found.preset, found.seed) == ("chain", 50, "practical", 5)
    assert s4q.load(tmp_path / "second" / "checkpoint.s4q").progress.episodes == 50


@pytest.mark.parametrize(("command", "n"), [(RIVER, 250), (LAKE, 35)], ids=["counts", "table"])
def test_a_run_goes_on_and_the_folder_says_so(command: list[str], n: int, tmp_path: Path) -> None:
    invoke(*command, "--seed", "5", "--out", tmp_path / "run")
    invoke("train", "--out", tmp_path / "run", "--resume", "--episodes", n)
    found = read_config(tmp_path / "run" / "config.toml")
    assert found.options.episodes == s4q.load(tmp_path / "run" / "checkpoint.s4q").progress.episodes == n
    assert len(found.budgets) == 2
    invoke("train", "--out", tmp_path / "run", "--resume")  # nothing is left to do
    assert read_config(tmp_path / "run" / "config.toml").budgets == found.budgets
    again = invoke("train", "--config", tmp_path / "run" / "config.toml", "--out", tmp_path / "again")
    assert f"and then {n} episodes; played at once they have the same law, and other bits" in again.stderr
    assert read_config(tmp_path / "again" / "config.toml").budgets == (n,)


def test_other_versions_are_said(tmp_path: Path) -> None:
    text = config_text(TrainOptions(problem="chain", episodes=20, seed=0), [20])
    (tmp_path / "old.toml").write_text(re.sub(r'numpy = ".*"', 'numpy = "0.9"', text))
    said = invoke("train", "--config", tmp_path / "old.toml").stderr
    assert re.search(r"^note: .*old\.toml: it was written with numpy 0\.9 \(here [\d.]+\), so the bits", said)


def test_options_survive_the_file(tmp_path: Path) -> None:
    """Hostile texts too."""
    options = TrainOptions(
        problem='a "b" \\ \n \x7f é ]', episodes=10**30, seed=2**48, reward_range=[-1.5, 0.0], value_bound=1e-7
    )
    (tmp_path / "config.toml").write_text(config_text(options, [3, 4]), encoding="utf-8")
    assert read_config(tmp_path / "config.toml") == Config(options, versions(), (3, 4))


def test_json(tmp_path: Path) -> None:
    said = json.loads(invoke(*RIVER, "--out", tmp_path / "river", "--json").stdout)
    found = s4q.load(tmp_path / "river" / "checkpoint.s4q")
    assert (said["problem"], said["seed"]) == ("river_swim", found.seed)
    assert said["run"]["episodes"] == 200
    assert said["run"]["regret"] == found.progress.regret
    assert said["certificate"]["delta"] == 0.05
    assert said["evaluation"] is None
    assert Path(said["files"]["policy"]).is_file()
    lake = json.loads(invoke(*LAKE, "--json").stdout)
    assert lake["evaluation"]["n_episodes"] == 20
    assert lake["files"] == {}


def test_a_gap_that_ends_the_run_is_kept(tmp_path: Path) -> None:
    """`--stop-gap` is the short name. The run that stopped is over, and is repeated with its stop."""
    more = ["--episodes", "1e6", "--preset", "realisable", "--evaluation-share", "0.1", "--stop-gap", "0.5"]
    invoke("train", "low_rank", *more, "--out", tmp_path / "first")
    invoke("train", "--config", tmp_path / "first" / "config.toml", "--out", tmp_path / "second")
    same(tmp_path / "first", tmp_path / "second")
    episodes = s4q.load(tmp_path / "first" / "checkpoint.s4q").progress.episodes
    assert episodes < 10**6
    said = json.loads(invoke("explain", tmp_path / "first", "--json", quiet=False).stdout)
    assert "--stop-when-gap 0.5" in said["command"]
    assert said["in_progress"] is False
    invoke("train", "--out", tmp_path / "first", "--resume")
    assert s4q.load(tmp_path / "first" / "checkpoint.s4q").progress.episodes == episodes


@pytest.mark.parametrize("kill", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_interrupted_it_says_how_to_go_on_and_that_works(tmp_path: Path, kill: signal.Signals) -> None:
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    for times in TIMES:
        episodes, folder = times * 5_000, tmp_path / f"a run, {times}"
        plain = ["train", "low_rank", "--preset", "realisable", "--episodes", str(episodes), "--seed", "3"]
        line = [sys.executable, "-m", "s4q", *plain, "--out", str(folder)]
        begun = previous_of(folder / "checkpoint.s4q").exists
        code, said = signalled(line, begun, kill, env)
        if s4q.load(folder / "checkpoint.s4q").progress.episodes < episodes:
            break
    else:
        pytest.fail("no run was interrupted before its end")
    assert code == 128 + kill
    assert "Traceback" not in said
    assert (folder / "best.policy").is_file()
    words = re.fullmatch(r"interrupted: go on with: s4q (train .*)", said.splitlines()[-1])
    assert words is not None
    invoke(*shlex.split(words[1]))
    invoke(*plain, "--out", tmp_path / "whole")
    same(folder, tmp_path / "whole")


def test_a_refused_run_leaves_nothing_behind(tmp_path: Path) -> None:
    for wrong in (["--stop-gap", "0.1"], ["--episodes", "0"], ["--memory-bytes", "3"], ["--seed", "-1"]):
        invoke("train", "chain", *wrong, "--out", tmp_path / "new", code=2)
        assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    invoke("train", "chain", "--episodes", "0", "--out", tmp_path / "mine", code=2)
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("problem = 3", "problem must be a text; got 3"),
        ("episodes = 2.5", "episodes must be a whole number; got 2.5"),
        ("episodes = true", "episodes must be a whole number; got True"),
        ("reward_range = [1]", "--reward-range must be a list of two numbers; got [1]"),
        ('reward_range = [1, "a"]', "--reward-range must be a list of two numbers"),
        ("colour = 3", "has an entry 'colour'; known are problem, "),
        ("problem =", "is no TOML file"),
        ('problem = "chain"\npreset = "best"', "preset must be"),
        ('problem = "chain"\nmemory = "much"', "memory must be"),
        ('problem = "nowhere"', "problem must be one of low_rank"),
        ("episodes = 5", "PROBLEM must be given"),
    ],
)
def test_a_wrong_config_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    said = invoke("train", "--config", tmp_path / "config.toml", code=2).stderr
    assert message in said
    assert len(said.splitlines()) == 2


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    invoke("train", "chain", "--episodes", "5", "--out", tmp_path / "run")
    (tmp_path / "file").touch()
    for arguments, message in (
        (["chain", "--out", tmp_path / "run"], "is there already: pass --resume"),
        (["chain", "--out", tmp_path / "file"], "--out: the folder"),
        (["chain", "--out", tmp_path / "b", "--log", tmp_path / "log"], "leave --checkpoint and --log out"),
        (["chain", "--report"], "--report is written into the folder of the run: add --out FOLDER"),
        (["--config", tmp_path / "no.toml"], "no.toml cannot be read"),
        (["--out", tmp_path / "empty", "--resume"], "checkpoint.s4q to go on from: leave --resume out"),
        (["deep_sea", "--out", tmp_path / "run", "--resume"], "holds a run of chain, not of deep_sea"),
        (["chain", "--features", "fourier:order=1"], "--features is for environments; chain has its own"),
        (["MountainCar-v0", "--features", "wavelets"], "--features must be one of fourier, random_fourier, rbf, tiles"),
        (["MountainCar-v0", "--features", "fourier"], "--features fourier: missing 1 required keyword-only argument"),
        (["MountainCar-v0", "--features", "fourier:order=x"], "settings are written name:key=value"),
        (["MountainCar-v0", "--features", "fourier:order=-1"], "order"),
        (["CartPole-v1", "--features", "fourier:order=1"], "finite low < high"),
    ):
        said = invoke("train", *arguments, code=2).stderr
        assert message in said
        assert len(said.splitlines()) == 2


def test_an_environment_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line; the checkpoint before it is whole. With --debug there is a traceback, of the environment too."""

    class Fails(Drift):
        def step(self, action: Any) -> Any:
            raise RuntimeError("the robot\nfell over")

    monkeypatch.setitem(gym.registry, "Fails-v0", EnvSpec("Fails-v0", Fails, max_episode_steps=5))
    line = ["train", "Fails-v0", "--reward-range", "0", "1", "--episodes", "9", "--seed", "0"]
    error, _ = invoke(*line, "--out", tmp_path / "run", code=2).stderr.splitlines()
    assert "env.step raised RuntimeError: the robot fell over; correct the env" in error
    assert s4q.load(tmp_path / "run" / "checkpoint.s4q").progress.episodes == 0
    debugged = invoke("--debug", *line, code=2).stderr
    assert "Traceback" in debugged
    assert 'raise RuntimeError("the robot' in debugged
