"""The loop: budget, regret, stopping, going on, determinism."""

import sys

import numpy as np
import pytest
from small_problems import random_mdp
from threadpoolctl import threadpool_info

import s4q
from s4q.collectors import EpisodeCollector
from s4q.core.messages import Mixture


def learner_and_collector(seed: int = 0) -> tuple[s4q.S3Q, EpisodeCollector]:
    mdp = random_mdp(5, 3, 4, 3, seed=1)
    return s4q.S3Q(mdp, s4q.UniformPolicy(3)), EpisodeCollector(mdp, seed=seed)


@pytest.mark.parametrize("episodes", [1, 5, 6, 7, 1000, 3_456])
def test_the_budget_is_used_and_never_exceeded(episodes: int) -> None:
    learner, collector = learner_and_collector()
    run = s4q.run(learner, collector, episodes)
    assert run.episodes == learner.n_episodes == episodes


def test_regret_charges_every_episode_at_its_policys_price() -> None:
    mdp = s4q.problems.chain()
    best = s4q.LinearQ.from_arrays(mdp.q_star.reshape(10, 20, 1))
    mixed = Mixture([best, s4q.UniformPolicy(2)], [0.5, 0.5])
    run = s4q.run(s4q.S3Q(mdp, mixed), EpisodeCollector(mdp), episodes=4000)
    price = mdp.v_star - mdp.value(s4q.UniformPolicy(2))
    assert run.regret is not None
    n_uniform = run.regret / price
    assert n_uniform == pytest.approx(round(n_uniform), abs=1e-6)
    assert abs(n_uniform - 2000) < 5 * np.sqrt(1000)
    assert run.gap == pytest.approx(mdp.v_star - mdp.value(run.policy))
    only = s4q.run(s4q.S3Q(mdp, s4q.UniformPolicy(2)), EpisodeCollector(mdp), episodes=777)
    assert only.regret == pytest.approx(777 * price)


def test_curve_has_a_point_per_epoch_and_one_for_the_end() -> None:
    learner, collector = learner_and_collector()
    seen: list[s4q.Run] = []
    run = s4q.run(learner, collector, 100, callback=seen.append)
    assert [point.episodes for point in run.curve] == [6, 18, 42, 90, 100]
    assert [point.phases for point in run.curve] == [1, 2, 3, 4, 4]
    assert [so_far.episodes for so_far in seen] == [6, 18, 42, 90]
    regrets = [point.regret for point in run.curve]
    assert regrets == sorted(regrets, key=lambda r: r or 0.0)
    assert (run.regret, run.gap, run.nbytes) == (run.curve[-1].regret, run.curve[-1].gap, run.curve[-1].nbytes)
    assert run.steps == run.curve[-1].steps > run.episodes
    assert run.cpu_seconds >= run.curve[0].cpu_seconds >= 0


def test_a_stopping_rule_is_looked_at_between_shards_and_leaves_no_trace() -> None:
    learner, collector = learner_and_collector()
    looked: list[int] = []

    def enough(so_far: s4q.Run) -> bool:
        looked.append(so_far.episodes)
        return so_far.episodes >= 13_000

    run = s4q.run(learner, collector, 10**6, stop=enough)
    assert 13_000 <= run.episodes < 13_000 + 1024
    assert run.episodes == looked[-1] == learner.n_episodes
    assert looked == sorted(looked)
    assert learner.n_level == 2**12  # four shards a level, stopped in the middle of one
    s4q.run(learner, collector, 16_000 - run.episodes)
    whole, other = learner_and_collector()
    s4q.run(whole, other, 16_000)
    np.testing.assert_array_equal(whole.q.theta, learner.q.theta)


def test_same_seed_same_bits_another_seed_differs() -> None:
    thetas = [s4q.run(*learner_and_collector(seed), episodes=3000).q.theta for seed in (0, 0, 1)]
    np.testing.assert_array_equal(thetas[0], thetas[1])
    assert not np.array_equal(thetas[0], thetas[2])


def test_learning_in_pieces_has_the_same_counts() -> None:
    whole = learner_and_collector()
    parts = learner_and_collector()
    s4q.run(*whole, episodes=500)
    for piece in (1, 2, 97, 400):
        s4q.run(*parts, episodes=piece)
    assert parts[0].phases == whole[0].phases
    assert parts[0].n_episodes == whole[0].n_episodes == 500
    assert np.abs(parts[0].q.theta - whole[0].q.theta).max() < 0.5


def test_one_blas_thread_during_a_run_only() -> None:
    inside: list[int] = []
    learner, collector = learner_and_collector()
    before = [pool["num_threads"] for pool in threadpool_info()]
    s4q.run(learner, collector, 10, callback=lambda _: inside.extend(p["num_threads"] for p in threadpool_info()))
    assert set(inside) == {1}
    assert [pool["num_threads"] for pool in threadpool_info()] == before


class WithoutMDP:
    """A collector that plays a FiniteMDP but does not expose it."""

    def __init__(self, inner: EpisodeCollector) -> None:
        self.seed, self.shards, self.play, self.collect = inner.seed, inner.shards, inner.play, inner.collect


def test_regret_and_gap_are_none_when_the_problem_is_not_known() -> None:
    learner, collector = learner_and_collector()
    run = s4q.run(learner, WithoutMDP(collector), 100)
    assert (run.regret, run.gap) == (None, None)


def test_record_keeps_every_phase() -> None:
    mdp = s4q.problems.low_rank()
    learner = s4q.S4Q(mdp, preset="realisable")
    result = s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=0), 10**5, record=True)
    assert result.record is not None
    phases = result.record.phases
    assert [phase.phase for phase in phases] == list(range(1, result.phases + 1))
    played = sum(phase.n_episodes for phase in phases)
    open_phase = result.record.unfinished
    assert played + (0 if open_phase is None else open_phase.n_episodes) == result.main_episodes
    assert phases[0].q is learner.memory.entries[0].policy
    assert result.record.constants is learner.constants


def test_record_needs_s4q() -> None:
    mdp = s4q.problems.low_rank()
    learner = s4q.S3Q(mdp, controller=s4q.UniformPolicy(mdp.n_actions))
    with pytest.raises(ValueError, match="record=True keeps the phases of an S4Q"):
        s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=0), 10, record=True)


def test_the_curve_as_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    mdp = s4q.problems.chain()
    run = s4q.run(s4q.S4Q(mdp), s4q.collectors.CountCollector(mdp), 50)
    table = run.to_dataframe()
    assert isinstance(table, pandas.DataFrame)
    assert table["episodes"].tolist() == [point.episodes for point in run.curve]
    assert table["regret"].tolist() == [point.regret for point in run.curve]
    assert table["mean_return"].dtype == table["gap"].dtype == float
    assert table["phases"].dtype == int
    assert len(table) == run.phases + 1


def test_without_pandas_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    mdp = s4q.problems.chain()
    run = s4q.run(s4q.S4Q(mdp), s4q.collectors.CountCollector(mdp), 5)
    with pytest.raises(ImportError, match=r'to_dataframe needs pandas; install it with: pip install "s4q\[pandas\]"'):
        run.to_dataframe()
