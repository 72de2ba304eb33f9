"""episodes_per_phase: a phase has at least so many episodes, whoever plays them, and the trigger decides after that."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from states import bits
from typer.testing import CliRunner

import s4q
from s4q.cli import app
from s4q.collectors import BatchCollector, CountCollector, EpisodeCollector, FiniteBatch
from s4q.core.messages import Explore, Shard
from s4q.running.executors.playing_ahead import episodes_to_crossing

MDP = s4q.problems.low_rank(20, 3, 4, 3, seed=1)
COLLECTORS: dict[str, Any] = {
    "counts": CountCollector,
    "episodes": EpisodeCollector,
    "batches": lambda mdp, seed: BatchCollector(FiniteBatch(mdp), mdp.features, mdp.spec, seed),
}
POLICY = s4q.UniformPolicy(MDP.n_actions)


def request(threshold: float, at_least: int, n: int = 200) -> Explore:
    whitener = np.tile(np.eye(MDP.spec.block_dim), (MDP.horizon, 1, 1, 1))
    return Explore(5, POLICY, whitener, (threshold, 0.0), n, keep=n, at_least=at_least)


@pytest.mark.parametrize("at_least", [1, 7, 40])
@pytest.mark.parametrize("threshold", [0.0, 4.0, 8.0])
def test_the_first_episode_that_may_end_a_phase_ends_it(threshold: float, at_least: int) -> None:
    """Against the steps of the same episodes, added up here one by one."""
    collector = EpisodeCollector(MDP, seed=2)
    everything = collector.collect(request(np.inf, 1)).kept
    assert everything is not None
    lengths = (everything.vectors**2).sum(axis=1)
    first_step = [*np.flatnonzero(everything.levels == 0).tolist(), len(lengths)]
    progress, n = np.zeros(MDP.horizon), 0
    for begin, end in pairwise(first_step):
        for step in range(begin, end):
            progress[everything.levels[step]] += lengths[step]
        n += 1
        if n >= at_least and progress.max() >= threshold - 1e-12:
            break
    assert collector.collect(request(threshold, at_least)).n_episodes == n


@pytest.mark.parametrize("kind", COLLECTORS)
def test_no_collector_ends_a_phase_too_early_or_too_late(kind: str) -> None:
    """Too late: without its last episode, the phase had not been allowed to end."""
    late = 0
    for seed in range(20):
        for at_least in (1, 30, 90):
            visits = COLLECTORS[kind](MDP, seed=seed).collect(request(6.0, at_least))
            assert visits.n_episodes >= at_least
            late += visits.n_episodes > at_least
            assert visits.progress.max() >= 6.0 - 1e-8
            if visits.n_episodes > at_least:
                assert visits.progress.max() - 1 < 6.0  # one episode adds at most 1 to a level
    assert late >= 20  # with at_least=1 the trigger decides


@pytest.mark.parametrize("n", [1, 25])
def test_every_phase_but_the_last_has_so_many_episodes(n: int) -> None:
    learner = s4q.S4Q(MDP, episodes_per_phase=n)
    run = s4q.run(learner, EpisodeCollector(MDP, seed=0), 600)
    ends = np.array([0] + [point.episodes for point in run.curve[:-1]])
    assert run.phases > 3
    assert np.diff(ends).min() >= n
    if n == 1:
        assert np.diff(ends).min() < 25


def test_one_episode_is_the_default() -> None:
    agents = [s4q.Agent("FrozenLake-v1", horizon=10, seed=1, **given) for given in ({}, {"episodes_per_phase": 1})]
    same, other = (bits(agent.learn(150).learner) for agent in agents)
    assert same == other
    longer = s4q.Agent("FrozenLake-v1", horizon=10, seed=1, episodes_per_phase=30).learn(150).learner
    assert bits(longer) != same
    assert "30 episodes" in longer.explain()


@pytest.fixture(scope="module")
def two() -> Iterator[s4q.Processes]:
    with s4q.Processes(2) as executor:
        yield executor


class Watched:
    """An executor that keeps its sessions, so that one sees what its workers did."""

    def __init__(self, executor: s4q.Processes) -> None:
        self._executor = executor
        self.sessions: list[Any] = []

    @contextmanager
    def session(self, collector: Any) -> Iterator[Any]:
        with self._executor.session(collector) as session:
            self.sessions.append(session)
            yield session


@pytest.mark.parametrize("n", [8, 24])
def test_workers_share_a_phase_and_change_no_bit(n: int, two: s4q.Processes) -> None:
    def learned(executor: Any) -> Any:
        agent = s4q.Agent(
            gym.make("FrozenLake-v1"), horizon=10, seed=1, episodes_per_phase=n, trigger=2.0, executor=executor
        )
        return bits(agent.learn(5 * n + 3).learner)

    watched = Watched(two)
    assert learned(watched) == learned(None)
    assert sum(session.cost.cpu_seconds for session in watched.sessions) > 0  # they did play


def test_all_episodes_of_a_phase_may_be_played_ahead() -> None:
    """They are cut into pieces, and surely needed; without the setting nothing is known before the first answer."""
    asked = request(1e-3, at_least=64)
    collector = EpisodeCollector(MDP, seed=0)
    sure = [shard for shard in collector.shards(asked) if shard.index < 64]
    assert sure == [Shard(first, 8) for first in range(0, 64, 8)]
    assert episodes_to_crossing(asked) == 64
    assert episodes_to_crossing(request(1e-3, at_least=1)) == 0
    assert next(iter(collector.shards(request(1e-3, at_least=1)))).n_episodes == 200


@pytest.mark.parametrize("wrong", [0, -3, 2.5, True, "4"])
def test_what_is_no_number_of_episodes_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"episodes_per_phase is the number of episodes that a phase has at least"):
        s4q.S4Q(MDP, episodes_per_phase=wrong)
    with pytest.raises(ValueError, match="at_least"):
        request(1.0, at_least=wrong)


@pytest.mark.parametrize("preset", ["paper", "tight", "realisable"])
def test_presets_with_a_proof_end_their_phases_at_the_trigger(preset: Any) -> None:
    with pytest.raises(ValueError, match=rf'for preset "practical"; the phases of "{preset}" .* leave .* out; got 4'):
        s4q.S4Q(MDP, preset, episodes_per_phase=4)


def test_the_command_line_takes_it_and_a_checkpoint_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "run.s4q"
    given = ["train", "chain", "--episodes", "200", "--seed", "1", "--checkpoint", str(path)]
    result = CliRunner().invoke(app, [*given, "--episodes-per-phase", "50"])
    assert result.exit_code == 0, result.output
    learner: Any = s4q.load(path).learner
    assert learner.constants.episodes_per_phase == 50
    assert learner.phases <= 4
    other = CliRunner().invoke(app, [*given, "--resume", "--episodes-per-phase", "3"])
    assert other.exit_code == 2
    assert "episodes-per-phase 50, not 3" in other.output.replace("\n", " ")
