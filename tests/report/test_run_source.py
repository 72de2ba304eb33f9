"""What a report takes from a file: every count of the run, whether it is over, and what it was asked for."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from saved_runs import stepped_agent
from typer.testing import CliRunner

import s4q
from s4q.cli import app
from s4q.cli.saved_runs import logged_curve, saved_run
from s4q.report import RunSource, plot_episodes, run_of
from s4q.report.page import configuration
from s4q.report.sentences import KeptPolicy, headline, tiles, where_episodes_went

COUNTS = (
    "episodes", "main_episodes", "replay_episodes", "evaluation_episodes", "warm_up_episodes", "truncated_episodes",
    "discarded_episodes", "steps", "phases", "nbytes",
)  # fmt: skip


def invoke(*arguments: object, code: int = 0) -> str:
    result = CliRunner(env={"COLUMNS": "300"}).invoke(app, [str(one) for one in arguments])
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.parametrize("whole", [True, False], ids=["with its end", "killed before its end"])
def test_the_counts_of_a_log_are_those_of_the_run(tmp_path: Path, whole: bool) -> None:
    """A learner saved by itself has no curve; its log has every number of it."""
    mdp, log = s4q.problems.river_swim(4, horizon=6), tmp_path / "run.jsonl"
    learner = s4q.S4Q(mdp, "realisable")
    run = s4q.run(
        learner,
        s4q.collectors.CountCollector(mdp, seed=0),
        2_000,
        evaluation_share=0.1,
        callback=s4q.JsonLines(log),
        stop=None if whole else lambda run: run.phases >= 7,
    )
    if not whole:
        log.write_text("".join(line for line in log.read_text().splitlines(keepends=True) if '"end"' not in line))
        run = run.curve[-2]  # type: ignore[assignment]
    s4q.save(tmp_path / "alone.s4q", learner, seed=0)
    found = run_of(s4q.load(tmp_path / "alone.s4q"), mdp, logged_curve(log))
    assert {name: getattr(found, name) for name in COUNTS} == {name: getattr(run, name) for name in COUNTS}
    assert run.replay_episodes > 0
    assert run.evaluation_episodes > 30
    assert found.regret == run.regret
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    assert found.cpu_seconds == [line["cpu_seconds"] for line in logged if "cpu_seconds" in line][-1] > 0
    if whole:
        assert found.mean_return == pytest.approx(run.mean_return, rel=1e-12)
        assert found.mean_length == run.mean_length
    points = found.curve[:-1]
    parts = zip([0, *(one.main_episodes for one in points)], points, strict=False)
    total = sum((point.main_episodes - before) * (point.mean_return or 0.0) for before, point in parts)
    if not whole:
        assert found.mean_return == pytest.approx(total / found.main_episodes)


def test_the_counts_of_a_log_of_an_agent(tmp_path: Path) -> None:
    """Rewards below 0, truncated episodes and episodes that measured ranges."""
    env, log = gym.make("CartPole-v1"), tmp_path / "run.jsonl"
    agent = s4q.Agent(gym.wrappers.TimeLimit(env, 9), horizon=20, reward_range=(-1, 1), seed=0)
    agent.learn(8, callback=s4q.JsonLines(log))
    agent.save(tmp_path / "alone.s4q")
    found, run = run_of(s4q.load(tmp_path / "alone.s4q"), None, logged_curve(log)), agent.last_run
    assert run is not None
    assert {name: getattr(found, name) for name in COUNTS} == {name: getattr(run, name) for name in COUNTS}
    assert run.warm_up_episodes > 0
    assert run.truncated_episodes > 0
    assert found.mean_return == (None if run.mean_return is None else pytest.approx(run.mean_return))


def test_episodes_that_measured_ranges_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "cart.s4q"
    agent = s4q.Agent("CartPole-v1", horizon=20, seed=0).learn(9, checkpoint=path)
    run = agent.last_run
    assert run is not None
    n = run.warm_up_episodes
    assert n > 0
    sentence = (
        f"Of 9 episodes {9 - n} tried new policies, {n} played random actions to measure the ranges of the "
        "observations."
    )
    assert where_episodes_went(run) == sentence
    assert f"episodes: {sentence}" in invoke("explain", path)
    assert json.loads(invoke("explain", path, "--json"))["run"]["warm_up_episodes"] == n
    source = saved_run(path).source()
    assert next(tile.note for tile in tiles(source) if tile.name == "episodes") == f"{n} to measure ranges"
    labels = plot_episodes(source.run).get_legend_handles_labels()[1]
    assert "random, to measure ranges" in labels


def test_a_run_without_them_does_not_name_them() -> None:
    run = stepped_agent(5).last_run
    assert run is not None
    assert where_episodes_went(run) == "Of 5 episodes 5 tried new policies."
    labels = plot_episodes(run).get_legend_handles_labels()[1]
    assert labels == ["new policies"]


def stepped(path: Path, **choices: Any) -> Any:
    env = gym.make("FrozenLake-v1")
    s4q.Agent(env, horizon=10, seed=0).learn(checkpoint=path, **choices)
    return saved_run(path, "FrozenLake-v1").source()


def after(episodes: int) -> Any:
    """A callback that stands for Ctrl-C after so many episodes."""

    def callback(run: s4q.Run) -> None:
        if run.episodes >= episodes:
            raise KeyboardInterrupt

    return callback


def interrupted(path: Path, **choices: Any) -> Any:
    """The same, interrupted after 20 episodes."""
    with pytest.raises(KeyboardInterrupt):
        stepped(path, callback=after(20), **choices)
    return saved_run(path, "FrozenLake-v1").source()


def test_a_run_that_has_played_its_steps_is_over(tmp_path: Path) -> None:
    source = stepped(tmp_path / "run.s4q", total_timesteps=300)
    assert 300 <= source.run.steps < 310
    assert not source.in_progress
    assert source.run.episodes < 300
    shown = configuration(source)
    assert (shown["steps"], shown["episodes"]) == ("300", str(source.run.episodes))
    assert json.loads(invoke("explain", tmp_path / "run.s4q", "--json"))["in_progress"] is False


def test_a_run_that_has_steps_left_is_in_progress(tmp_path: Path) -> None:
    source = interrupted(tmp_path / "run.s4q", total_timesteps=3_000)
    assert source.in_progress
    note = next(tile.note for tile in tiles(source) if tile.name == "episodes")
    assert note == f"{source.run.steps:,} of 3,000 steps"


def test_whichever_limit_is_reached_first_ends_a_run(tmp_path: Path) -> None:
    assert not stepped(tmp_path / "a.s4q", episodes=20, total_timesteps=10_000).in_progress
    assert not stepped(tmp_path / "b.s4q", episodes=1_000, total_timesteps=100).in_progress
    source = interrupted(tmp_path / "c.s4q", episodes=1_000, total_timesteps=9_000)
    assert source.in_progress
    assert next(tile.note for tile in tiles(source) if tile.name == "episodes") == "of 1,000"


def test_a_run_that_its_user_stopped_is_over(tmp_path: Path) -> None:
    """`stop` ends a run; Ctrl-C only interrupts it, and so does going on with a run that was stopped."""
    path = tmp_path / "run.s4q"
    source = stepped(path, episodes=1_000, stop=lambda run: run.episodes >= 20)
    assert 20 <= source.run.episodes < 40
    assert not source.in_progress
    assert headline(source).startswith(f"After {source.run.episodes} episodes S4Q")
    assert next(tile.note for tile in tiles(source) if tile.name == "episodes") == ""
    assert json.loads(invoke("explain", path, "--json"))["in_progress"] is False
    agent = s4q.Agent.load(path, gym.make("FrozenLake-v1"))
    with pytest.raises(KeyboardInterrupt):
        agent.resume(checkpoint=path, callback=after(40))
    assert saved_run(path).source().in_progress


def test_the_headline_is_of_the_policy_to_keep() -> None:
    """Not of the newest phases: where the last policies are bad, the one to keep is still the good one."""
    env = gym.make("CartPole-v1")
    agent = s4q.Agent(env, horizon=60, seed=3).learn(25)
    run, far = agent.last_run, agent.learner.progress
    assert run is not None
    assert far.best_return is not None
    assert far.best_phase is not None
    point = run.curve[far.best_phase - 1]  # the curve of the run, which knows nothing of the choice
    assert point.mean_return == pytest.approx(far.best_return)
    source = RunSource(problem="cart", run=run, learner=agent.learner)
    n = point.main_episodes - (run.curve[far.best_phase - 2].main_episodes if far.best_phase > 1 else 0)
    own = "in its only episode" if n == 1 else f"on average in its own {n} episodes"
    assert f"has a policy for cart that got {point.mean_return:.4g} {own} (" in headline(source)
    assert f"a cautious guess is {far.best_lower_bound:.4g}); the first policies got " in headline(source)
    # The same learner after phases that went badly: the sentence stays that of the policy to keep.
    bad = replace(run.curve[-2], mean_return=1.0, main_episodes=run.main_episodes + 5)
    worse = replace(source, run=replace(run, curve=(*run.curve[:-1], bad, run.curve[-1])))
    assert headline(worse) == headline(source)
    assert next(tile.value for tile in tiles(worse) if tile.name == "return lately") == "1"
    assert next(tile.value for tile in tiles(worse) if tile.name == "policy to keep") == f"{far.best_return:.4g}"


def test_a_policy_with_a_single_episode_is_said_to_have_one() -> None:
    once = "in its only episode (it decided the choice, so expect less; a cautious guess is 3)"
    assert KeptPolicy(5.0, 1, 3.0).basis == once
    assert KeptPolicy(5.0, 2, None).basis == "on average in its own 2 episodes"


def test_evaluate_does_not_advise_what_cannot_work(tmp_path: Path) -> None:
    """An environment with arguments is not what its id makes, so --problem would be refused too."""
    path = tmp_path / "run.s4q"
    s4q.Agent(gym.make("FrozenLake-v1", is_slippery=False), horizon=10, seed=0).learn(20, checkpoint=path)
    error, _ = invoke("evaluate", path, code=2).splitlines()
    assert "--problem" not in error
    assert "is of FrozenLake-v1 made in another way than by its id: " in error
    assert "is_slippery" in error
    assert error.endswith("evaluate it in Python, with s4q.Agent.load(path, env).evaluate(episodes)")
    assert s4q.Agent.load(path, gym.make("FrozenLake-v1", is_slippery=False)).evaluate(3).n_episodes == 3
