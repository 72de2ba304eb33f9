"""Diagnostics: each sign of trouble shows on a problem that has it, and a healthy run shows none."""

from dataclasses import replace

import numpy as np
import pytest
from small_problems import random_mdp

import s4q
from s4q.collectors import CountCollector, EpisodeCollector
from s4q.learners.diagnostics import Finding
from s4q.problems import FiniteMDP


def names(findings: list[Finding]) -> set[str]:
    for finding in findings:
        assert finding.suggestion in str(finding)
    return {finding.name for finding in findings}


def test_a_healthy_run_has_nothing_to_report() -> None:
    mdp = s4q.problems.river_swim(6, 12)
    learner = s4q.S4Q(mdp)
    s4q.run(learner, CountCollector(mdp, seed=0), 5000)
    assert learner.diagnose() == []


def test_no_phase_has_ended() -> None:
    mdp = s4q.problems.low_rank()
    learner = s4q.S4Q(mdp, "paper")
    s4q.run(learner, CountCollector(mdp), 1000)
    assert names(learner.diagnose()) == {"no phase has ended"}


def test_no_preset_is_suggested_that_is_in_use() -> None:
    mdp = s4q.problems.chain()
    for preset, says in (("practical", "smaller trigger"), ("realisable", "use the preset practical")):
        learner = s4q.S4Q(mdp, preset, trigger=1e9)  # type: ignore[arg-type]
        s4q.run(learner, CountCollector(mdp), 10)
        [found] = learner.diagnose()
        assert says in found.suggestion
    crowded = s4q.S4Q(mdp, memory="policies", c_replay=50.0, trigger=0.5)
    s4q.run(crowded, CountCollector(mdp), 20_000)
    assert 'Keep steps instead (memory="sketch"), or' in str(crowded.diagnose())


def test_returns_above_the_value_bound_say_so() -> None:
    lake = s4q.problems.from_gymnasium("FrozenLake-v1", 30, value_bound=None)
    spec = s4q.Spec.of(lake.features, horizon=30, reward_range=(0, 1), value_bound=0.01, stationary=True)
    learner = s4q.S4Q(spec)
    s4q.run(learner, EpisodeCollector(lake), 1000)
    [found] = [one for one in learner.diagnose() if one.name == "not optimistic"]
    assert "value_bound is too small" in found.suggestion


def test_replay_takes_over_and_q_is_still_at_the_bound() -> None:
    mdp = s4q.problems.chain()
    learner = s4q.S4Q(mdp, "realisable", pool=False)
    s4q.run(learner, CountCollector(mdp), 20_000)
    assert {"replay takes over", "still at the bound"} <= names(learner.diagnose())


@pytest.mark.parametrize("kind", [CountCollector, EpisodeCollector])
def test_not_optimistic_when_features_cannot_represent_the_values(kind: type) -> None:
    """One feature for all pairs says nothing of where one is; without a bonus worth its name Q promises too little."""
    rewards = np.zeros((3, 2, 2))
    rewards[2, 1] = 1.0
    transitions = np.zeros((3, 2, 2, 2))
    transitions[..., 1] = 1.0
    features = np.array([[[0.2], [0.2]], [[1.0], [1.0]]])
    mdp = FiniteMDP(transitions, rewards, [1.0, 0.0], features, value_bound=1.0, reward_noise="none")
    learner = s4q.S4Q(mdp, "realisable", bonus_width=1e-3, trigger=50.0, ridge=1e-3)
    s4q.run(learner, kind(mdp), 3000)
    assert "not optimistic" in names(learner.diagnose())


def test_large_residuals_of_features_that_cannot_tell_states_apart() -> None:
    rng = np.random.default_rng(0)
    mdp = random_mdp(6, 2, 2, 2, seed=3)
    blind = FiniteMDP(mdp.transitions, (rng.random(mdp.rewards.shape) < 0.5) * 1.0, mdp.start, np.full((6, 2, 1), 0.5))
    learner = s4q.S4Q(blind)
    s4q.run(learner, CountCollector(blind), 5000)
    assert "large residuals" in names(learner.diagnose())


def test_a_level_that_is_never_reached() -> None:
    transitions = np.zeros((2, 1, 2))
    transitions[:, 0, 1] = 1.0
    mdp = FiniteMDP(transitions, [[0.5], [0.0]], [1.0, 0.0], horizon=3, terminal=[False, True])
    learner = s4q.S4Q(mdp, pool=False)
    s4q.run(learner, CountCollector(mdp), 500)
    assert "a level was never reached" in names(learner.diagnose())


def test_the_record_of_a_phase_adds_up() -> None:
    mdp = s4q.problems.low_rank()
    learner = s4q.S4Q(mdp, "realisable")
    seen: list[int] = []
    s4q.run(learner, EpisodeCollector(mdp), 3000, callback=lambda _: seen.append(learner.last_phase.n_episodes))  # type: ignore[union-attr]
    assert sum(seen) == learner.memory.n_episodes
    record = learner.last_phase
    assert record is not None
    assert record.phase == learner.phases == len(seen)
    assert record.return_sum_sq is not None
    assert record.return_sum_sq >= record.return_sum**2 / record.n_episodes - 1e-9
    assert record.start_value_sum is not None
    assert record.start_value_sum / record.n_episodes <= mdp.spec.value_bound[0] + 1e-12
    traces = np.trace(record.increment[:, 0], axis1=1, axis2=2)
    assert np.all(traces <= record.n_episodes + 1e-9)


def test_healthy_runs_have_no_findings() -> None:
    for mdp, episodes in ((s4q.problems.low_rank(), 10**5), (s4q.problems.combination_lock(), 2_000)):
        learner = s4q.S4Q(mdp)
        s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=0), episodes)
        assert learner.diagnose() == []


def test_a_value_bound_that_is_too_small_is_named() -> None:
    mdp = FiniteMDP(np.ones((1, 2, 1)), [[0.2, 0.7]], [1.0], horizon=3)
    learner = s4q.S4Q(replace(mdp.spec, value_bound=(0.1,) * 3), "realisable")
    s4q.run(learner, CountCollector(mdp, seed=0), 10**5)
    assert [found.name for found in learner.diagnose() if "value_bound is too small" in found.suggestion]


def test_before_the_first_episode() -> None:
    assert [found.name for found in s4q.S4Q(s4q.problems.chain()).diagnose()] == ["nothing was played"]
