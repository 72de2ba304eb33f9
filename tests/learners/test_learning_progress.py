"""How far is it? Directions, promises and returns, counted here by hand."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from benchmarks import progress as progress_benchmark

import s4q
from s4q.learners.best_policy import BestPolicy, Candidate
from s4q.learners.learning_progress import ExplorationHistory, LearningProgress, Stretch, directions_seen
from s4q.learners.main_loop import PhaseRecord


class Diary(gym.Wrapper):
    """Writes down pairs and returns."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.pairs: set[tuple[int, int]] = set()
        self.returns: list[float] = []

    def reset(self, **options: Any) -> Any:
        self.now, info = self.env.reset(**options)
        self.returns.append(0.0)
        return self.now, info

    def step(self, action: Any) -> Any:
        self.pairs.add((int(self.now), int(action)))
        result = self.env.step(action)
        self.now = result[0]
        self.returns[-1] += float(result[1])
        return result


def record(phase: int, n: int, mean: float, promise: float | None, gram: np.ndarray) -> PhaseRecord:
    q = s4q.LinearQ.from_arrays(np.zeros((1, *gram.shape[:2])))
    nothing, one = np.zeros((1, *gram.shape)), np.zeros(1)
    promised = None if promise is None else n * promise
    return PhaseRecord(phase, q, one + 1, nothing, gram[None], one, n, n * mean, 0.0, promised)


def test_directions_and_returns_are_what_the_environment_saw() -> None:
    env = Diary(gym.make("CliffWalking-v1"))
    agent = s4q.Agent(env, horizon=12, reward_range=(-100, 0), seed=0).learn(200, stop=lambda run: run.phases >= 30)
    found = agent.progress
    assert found.directions == 48 * 4
    assert found.directions_seen == len(env.pairs)
    assert found.share_seen == pytest.approx(len(env.pairs) / 192)
    assert (found.episodes, found.phases) == (len(env.returns), 30)
    assert found.mean_return == pytest.approx(np.mean(env.returns[-found.recent_episodes :]))  # in the user's units
    assert found.recent_episodes >= len(env.returns) / 8
    assert found.most == 0.0
    assert found.mean_return is not None
    assert found.promise is not None
    assert found.mean_return <= found.promise <= found.most
    assert found.best_return is not None
    assert any(found.best_return == pytest.approx(one) for one in [*env.returns, np.mean(env.returns)])


def test_the_promise_is_the_value_at_the_start() -> None:
    """One start state: what the policies of the phases say of it, in the user's units."""
    agent = s4q.Agent(gym.make("CliffWalking-v1"), horizon=12, seed=0)
    promised: list[tuple[int, float]] = []

    def note(run: s4q.Run) -> None:
        last = agent.learner.last_phase
        assert last is not None
        level = last.q.levels[0]
        values = [
            float(level.theta[36 * 4 + a, 0]) + _bonus(level, 36 * 4 + a) for a in range(4)
        ]  # one-hot: the parameter itself
        promised.append((last.n_episodes, min(max(values), level.clip[1]) - 12 * 100))
        assert run.curve[-2].promise == pytest.approx(promised[-1][1])

    agent.learn(150, callback=note, stop=lambda run: run.phases >= 20)
    found = agent.progress
    n, total = 0, 0.0
    for episodes, value in reversed(promised):
        if n >= found.recent_episodes:
            break
        n, total = n + episodes, total + episodes * value
    assert n == found.recent_episodes
    assert found.promise == pytest.approx(total / n)


def _bonus(level: s4q.QLevel, block: int) -> float:
    length = float(level.whitener[block, 0, 0])
    visits = max(1 / length**2 - level.ridge, 0.0)
    theta, second = float(level.theta[block, 0]), float(level.second[block, 0])
    variance = min(max(second - theta**2, 0.0), level.ceiling)
    sigma = ((visits * variance + level.noise) / max(visits, 1.0)) ** 0.5
    return (float(level.width[block]) + level.kappa * (sigma + level.lower_order * length)) * length


def test_directions_of_dense_features_are_counted_by_eigenvalues() -> None:
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    gram = basis @ np.diag([9.0, 2.0, 0.6, 0.4, 0.0, 0.0]) @ basis.T
    assert directions_seen(gram[None, None]) == 3
    assert directions_seen(np.stack([gram[None], 2 * gram[None]])) == 3 + 4  # two levels


def test_the_history_stays_small_and_loses_nothing() -> None:
    history, rng = ExplorationHistory(), np.random.default_rng(1)
    lengths = rng.integers(1, 50, size=3_000)
    total = 0.0
    for phase, n in enumerate(lengths.tolist(), start=1):
        mean = float(rng.uniform())
        total += n * mean
        history = history.with_phase(record(phase, n, mean, 1.0, np.full((2, 1, 1), float(phase > 1_500))))
        assert len(history.stretches) <= 32
    assert history.n_episodes == lengths.sum()
    assert sum(one.return_sum for one in history.stretches) == pytest.approx(total)
    assert sum(one.start_value_sum or 0.0 for one in history.stretches) == pytest.approx(lengths.sum())
    assert [one.directions_seen for one in history.stretches] == sorted(
        one.directions_seen for one in history.stretches
    )
    assert max(one.n_episodes for one in history.stretches) < lengths.sum() / 4  # "lately" stays recent


def shown(
    stretches: list[Stretch], directions: int = 100, choice: BestPolicy | None = None, **options: Any
) -> LearningProgress:
    spec = s4q.Spec.of(s4q.features.OneHot(directions, n_actions=1), horizon=10, reward_range=(-1, 1))
    given: dict[str, Any] = {"phases": 3, "running": None, "n_grams": 1, "logged_steps": 0, "seen_at_start": 0}
    return LearningProgress.of(
        spec, ExplorationHistory(tuple(stretches)), choice or BestPolicy(20.0), **given | options
    )


def test_the_stages() -> None:
    """Shifted rewards: 10 more than the user's."""
    nothing = shown([])
    assert (nothing.stage, nothing.mean_return, nothing.episodes_left) == ("not begun", None, None)
    assert str(nothing).splitlines()[1].split() == ["directions", "0", "of", "100", "seen", "(0%)"]
    exploring = shown([Stretch(100, 500.0, 2_000.0, 20), Stretch(100, 600.0, 2_000.0, 40)])
    assert exploring.stage == "exploring"
    assert exploring.promise == 10.0 == exploring.most
    assert exploring.mean_return == -4.0
    assert (exploring.new_directions, exploring.recent_episodes) == (20, 100)
    assert exploring.episodes_left == 300  # 60 directions at 20 in 100 episodes
    assert "the rest takes about 300 more" in str(exploring)
    assert "the most that is possible" in str(exploring)
    half = Stretch(100, 600.0, 1_600.0, 40)
    refining = shown([half, half, Stretch(100, 1_200.0, 1_400.0, 40), Stretch(100, 1_200.0, 1_400.0, 40)])
    assert (refining.stage, refining.gap, refining.episodes_left) == ("refining", 2.0, None)
    assert refining.earlier_gap == 2.0
    assert "at most 2 may still be gained" in str(refining)
    settled = shown([half, Stretch(100, 1_500.0, 1_540.0, 40)])
    assert settled.stage == "settled"
    assert "gets about what it promises" in str(settled)
    unknown = shown([half, Stretch(100, 1_500.0, None, 40)])
    assert (unknown.stage, unknown.promise, unknown.gap) == ("refining", None, None)
    for one in (exploring, refining, settled, unknown):
        assert str(one).startswith(f"{one.stage}: ")
        assert "40 of 100 seen (40%)" in str(one)


def test_what_may_be_gained_is_never_negative() -> None:
    """New directions are still seen, so it is not settled, but the policies get more than they promise."""
    more = shown([Stretch(100, 1_700.0, 1_500.0, 20), Stretch(100, 1_880.1, 1_700.0, 40)])
    assert (more.stage, more.gap) == ("exploring", pytest.approx(-1.801))
    assert "nothing more is promised" in str(more)
    assert "may still be gained" not in str(more)
    less = shown(
        [Stretch(100, 1_700.0, 1_500.0, 20)] * 2 + [Stretch(50, 600.0, 700.0, 30), Stretch(50, 600.0, 700.0, 40)]
    )
    assert less.earlier_gap == -2.0
    assert "at most 2 may still be gained, which was 0 at half of the episodes" in str(less)


def test_the_best_policy_is_said_to_be_a_lucky_choice() -> None:
    """Means and bound in the user's units: 10 less than the shifted ones."""
    rng, choice = np.random.default_rng(0), BestPolicy(20.0)
    for phase in range(1, 30):
        policy = s4q.LinearQ.from_arrays(np.zeros((1, 1, 1)))
        returns = rng.normal(8.0, 2.0, size=4)
        choice = choice.with_candidate(Candidate(policy, phase, 4, float(returns.sum()), float((returns**2).sum())))
    best = choice.best
    assert best is not None
    found = shown([Stretch(100, 800.0, None, 40)], choice=choice)
    assert found.best_lower_bound == pytest.approx(choice.lower_bound(best) - 10)
    assert found.best_return is not None
    assert found.best_lower_bound < found.best_return == pytest.approx(best.mean - 10)
    assert str(found).splitlines()[-1] == (
        f"  best policy  {best.mean - 10:.4g} is the mean of its own 4 episodes, phase {best.phase}, maybe lucky ones, "
        f"since they decided the choice; a cautious guess is {found.best_lower_bound:.4g}"
    )
    single = BestPolicy(20.0).with_candidate(Candidate(policy, 1, 1, 3.0, None))
    assert str(shown([Stretch(1, 3.0, None, 4)], choice=single)).splitlines()[-1] == (
        "  best policy  -7 was the return of its own episode, phase 1, maybe a lucky one, since it decided the choice; "
        "a cautious guess is -10"
    )  # never below the least possible


@pytest.mark.slow
def test_a_run_that_has_learned_is_settled_and_one_that_has_not_is_exploring() -> None:
    mdp = s4q.problems.river_swim(6, horizon=12)
    learner = s4q.S4Q(mdp)
    collector = s4q.collectors.CountCollector(mdp, seed=0)
    s4q.run(learner, collector, 3)
    early = learner.progress
    assert early.stage == "exploring"
    assert early.promise is not None
    assert early.promise > 3 * mdp.v_star
    s4q.run(learner, collector, 20_000)
    late = learner.progress
    assert late.stage == "settled"
    # The mean of some thousand episodes, within three of its standard errors.
    assert late.mean_return == pytest.approx(mdp.v_star, rel=0.1)
    assert late.promise is not None
    assert late.promise > mdp.v_star - 0.02
    assert late.share_seen > early.share_seen


def test_logs_runs_and_files_have_it(tmp_path: Path) -> None:
    log = s4q.JsonLines(tmp_path / "log.jsonl")
    agent = s4q.Agent(gym.make("FrozenLake-v1"), horizon=10, seed=1).learn(60, callback=log)
    run = agent.last_run
    assert run is not None
    lines = [line for line in log.lines() if line["event"] in ("phase", "end")]
    assert all({"promise", "share_seen", "best_return"} <= set(line) for line in lines)
    seen = [line["share_seen"] for line in lines]
    assert seen == sorted(seen)
    assert 0 < seen[0] < seen[-1] == run.share_seen == agent.progress.share_seen
    assert run.best_return == agent.progress.best_return
    assert run.promise is not None
    agent.save(tmp_path / "agent.s4q")
    assert s4q.Agent.load(tmp_path / "agent.s4q", gym.make("FrozenLake-v1")).progress == agent.progress


def test_learners_that_cannot_tell_have_none() -> None:
    mdp = s4q.problems.low_rank()
    learner = s4q.S3Q(mdp, s4q.UniformPolicy(mdp.n_actions))
    run = s4q.run(learner, s4q.collectors.CountCollector(mdp), 50)
    assert (run.promise, run.share_seen, run.best_return) == (None, None, None)


def test_what_is_left_is_roughly_right() -> None:
    """A lake in which every step must be found: returns are 0 until the end, and the progress says why and how long."""
    agent = s4q.Agent(gym.make("FrozenLake8x8-v1", is_slippery=False), horizon=30, reward_range=(0, 1), seed=0)
    for so_far in (20, 40, 60, 80):
        agent.learn(so_far - agent.n_episodes)
        found = agent.progress
        assert (found.stage, found.mean_return) == ("exploring", 0.0)
        assert found.episodes_left is not None
        assert 0.5 * (110 - so_far) < found.episodes_left < 3 * (130 - so_far)
    while agent.progress.stage == "exploring":
        agent.learn(5)
    assert 110 < agent.n_episodes < 160  # 44 of 256 pairs cannot be reached
    assert agent.progress.directions_seen == 212
    assert agent.progress.best_return == 1.0


def test_the_benchmark_prints_it() -> None:
    first, second = progress_benchmark.shown((3, 6), horizon=8)
    assert first.startswith("exploring: 3 episodes")
    assert second.startswith("exploring: 6 episodes")
