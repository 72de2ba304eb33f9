"""The policy to keep: the best by a lower confidence bound on its own returns."""

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import s4q
from s4q.collectors import CountCollector, EpisodeCollector
from s4q.core.codec import pack, unpack
from s4q.learners.best_policy import BestPolicy, Candidate


def candidate(phase: int, returns: Any, *, squares: bool = True) -> Candidate:
    values = np.asarray(returns, dtype=np.float64)
    policy = s4q.LinearQ.from_arrays(np.full((1, 1, 1), float(phase)))
    return Candidate(policy, phase, len(values), float(values.sum()), float(values @ values) if squares else None)


def literal_worth(all_returns: list[Any], one: Any) -> float:
    """The rule of the docstring with numpy's own variances."""
    every = np.concatenate(all_returns)
    n, n_all = len(one), len(every)
    total = np.var(every)
    within = min(total, (sum(len(r) * np.var(r) for r in all_returns) + total) / (n_all - len(all_returns) + 1))
    own = np.var(one, ddof=1) if n > 1 else 0.0
    error = ((n - 1) * own + 30 * within) / (n + 29) / n
    apart = max(total - within, total / 100)
    trust = apart / (apart + error) if total > 0 else 0.0
    return float((1 - trust) * np.mean(every) + trust * np.mean(one) - 2 * np.sqrt(trust * error))


@pytest.mark.parametrize("seed", range(5))
def test_the_bound_against_its_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    returns = [rng.normal(rng.normal(), rng.uniform(0.1, 2.0), size=rng.integers(1, 30)) for _ in range(12)]
    found = BestPolicy(value_bound=10.0)
    for phase, one in enumerate(returns, start=1):
        found = found.with_candidate(candidate(phase, one))
        for other in returns[:phase]:
            worth = found.lower_bound(candidate(1, other))
            assert worth == pytest.approx(literal_worth(returns[:phase], other), abs=1e-9)


def test_one_lucky_episode_does_not_beat_many_good_ones_and_a_better_policy_does() -> None:
    rng = np.random.default_rng(0)
    good, lucky, better = rng.normal(1.0, 0.5, size=100), [1.6], rng.normal(2.0, 0.5, size=20)
    found = BestPolicy(value_bound=5.0).with_candidate(candidate(1, good)).with_candidate(candidate(2, lucky))
    assert found.best is not None
    assert found.best.phase == 1
    later = found.with_candidate(candidate(3, better))
    assert later.best is not None
    assert later.best.phase == 3
    assert found.best.phase == 1  # nothing is written


def test_without_squares_the_value_bound_says_how_far_returns_can_spread() -> None:
    found = BestPolicy(value_bound=4.0).with_candidate(candidate(1, np.ones(100), squares=False))
    assert found.lower_bound(candidate(1, np.ones(16))) == pytest.approx(1.0 - 4.0 / 4.0)
    few = found.with_candidate(candidate(2, [1.5, 1.5], squares=False))
    assert few.best is not None
    assert few.best.phase == 1


@pytest.mark.parametrize("kind", [EpisodeCollector, CountCollector])
def test_a_good_policy_that_is_lost_again_is_kept(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not played again: the newest policy earns nothing, the best one nearly all there is."""
    monkeypatch.setattr(BestPolicy, "refutes", lambda self, phase: False)
    mdp = s4q.problems.aggregated_deep_sea(10, seed=1)
    learner = s4q.S4Q(mdp)
    run = s4q.run(learner, kind(mdp, seed=1), 300)
    assert mdp.value(learner.policy) < 0.1 * mdp.v_star
    assert mdp.value(learner.best) > 0.9 * mdp.v_star
    assert run.best is learner.best
    assert run.policy is learner.policy


@pytest.mark.parametrize("kind", [EpisodeCollector, CountCollector])
@pytest.mark.parametrize("seed", range(4))
def test_a_good_policy_of_groups_of_states_is_not_lost(kind: Any, seed: int) -> None:
    mdp = s4q.problems.aggregated_deep_sea(10, seed=seed)
    run = s4q.run(s4q.S4Q(mdp), kind(mdp, seed=seed), 500)
    assert run.gap == pytest.approx(0.0, abs=1e-9)  # 0.99 where no policy is played again: see the test before


def test_a_policy_that_plays_again_is_one_candidate_with_all_its_returns() -> None:
    rng = np.random.default_rng(0)
    good, more, other = rng.normal(5.0, 1.0, size=8), rng.normal(5.0, 1.0, size=6), rng.normal(1.0, 1.0, size=9)
    first = candidate(1, good)
    found = BestPolicy(10.0).with_candidate(first).with_candidate(candidate(2, other))
    again = found.with_candidate(replace(candidate(3, more), policy=first.policy))
    whole = BestPolicy(10.0).with_candidate(candidate(1, np.append(good, more))).with_candidate(candidate(2, other))
    assert again.best is not None
    assert whole.best is not None
    assert (again.best.phase, again.best.n_episodes, again.n_candidates) == (3, 14, 2)
    assert again.lower_bound(again.best) == pytest.approx(whole.lower_bound(whole.best), rel=1e-12)


def test_the_running_phase_counts_and_nothing_played_means_the_newest() -> None:
    mdp = s4q.problems.chain()
    learner = s4q.S4Q(mdp)
    assert learner.best is learner.policy
    request = learner.ask(1)
    learner.tell(request, EpisodeCollector(mdp, seed=0).collect(request))
    assert learner.best is not None


def test_a_resumed_learner_keeps_the_same_policy(tmp_path: Any) -> None:
    mdp = s4q.problems.aggregated_deep_sea(10, seed=1)
    whole = s4q.run(s4q.S4Q(mdp), EpisodeCollector(mdp, seed=1), 300)
    part = s4q.S4Q(mdp)
    s4q.run(part, EpisodeCollector(mdp, seed=1), 150)
    s4q.save(tmp_path / "part.s4q", part, seed=1)
    again = s4q.load(tmp_path / "part.s4q").learner
    assert isinstance(again, s4q.S4Q)
    assert again.best.same_as(part.best)
    done = s4q.run(again, EpisodeCollector(mdp, seed=1), 150)
    assert isinstance(done.best, s4q.LinearQ)
    assert isinstance(whole.best, s4q.LinearQ)
    assert done.best.same_as(whole.best)


def test_an_agent_deploys_it() -> None:
    agent = s4q.Agent(gym.make("FrozenLake-v1", is_slippery=False), horizon=20, seed=0).learn(100)
    assert agent.policy.q is agent.learner.best
    other = s4q.LinearQ.from_arrays(np.zeros(agent.learner.spec.theta_shape))
    state, steps = 0, []
    for h in range(6):
        action, _ = agent.predict(state, state=h)
        steps.append(int(action) == int(agent.policy.q.greedy(h, agent.features(h, np.array([state])))[0]))
    assert all(steps)
    assert not agent.policy.q.same_as(other)
    assert agent.evaluate(5).mean == 1.0


def test_a_file_whose_best_policy_is_of_another_problem_is_refused() -> None:
    mdp = s4q.problems.chain()
    learner = s4q.S4Q(mdp)
    s4q.run(learner, CountCollector(mdp, seed=0), 50)
    assert learner._best.best is not None
    short = s4q.LinearQ(learner._best.best.policy.levels[1:])
    learner._best = replace(learner._best, best=replace(learner._best.best, policy=short))
    with pytest.raises(ValueError, match="theta must have shape"):
        unpack(pack(learner), s4q.S4Q)


def test_where_one_policy_varies_as_much_as_all_a_lucky_episode_is_not_believed_and_else_it_is() -> None:
    """Returns of 0 and 1, as on a slippery lake; and returns that never vary within a policy."""
    rng = np.random.default_rng(1)
    slippery, still = BestPolicy(value_bound=1.0), BestPolicy(value_bound=1.0)
    for phase in range(1, 40):
        slippery = slippery.with_candidate(candidate(phase, rng.random(3) < 0.1))
        still = still.with_candidate(candidate(phase, [0.0, 0.0]))
    tested = rng.random(500) < 0.2
    slippery, still = (
        one.with_candidate(candidate(40, tested if one is slippery else [0.0] * 500)) for one in (slippery, still)
    )
    slippery, still = (one.with_candidate(candidate(41, [1.0])) for one in (slippery, still))
    assert slippery.best is not None
    assert still.best is not None
    assert (slippery.best.phase, still.best.phase) == (40, 41)
