"""Evaluate and its answers, and the share of a run that is spent on them."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import floor, log, sqrt
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from asking import regress_request
from small_envs import MDPEnv
from small_problems import TablePolicy, cliff, random_policy, random_q
from states import FailsAfter, Interrupted, bits, differences, log_lines, run_bits
from test_certificate import a_phase, one_step, walk
from typer.testing import CliRunner

import s4q
from s4q.certificates import certifier, confidence_sequences
from s4q.certificates.certifier import bounds
from s4q.cli import app
from s4q.collectors import (
    BatchCollector,
    CountCollector,
    EpisodeCollector,
    FiniteBatch,
    GymCollector,
    VectorCollector,
)
from s4q.collectors.sharding import address
from s4q.core.messages import Evaluate, Explore, Mixture, Regress, Returns
from s4q.problems import FiniteMDP
from s4q.running.evaluations import Evaluations, Schedule

COLLECTORS: dict[str, Callable[[FiniteMDP, int], Any]] = {
    "count": lambda mdp, seed: CountCollector(mdp, seed=seed),
    "episode": lambda mdp, seed: EpisodeCollector(mdp, seed=seed),
    "batch": lambda mdp, seed: BatchCollector(FiniteBatch(mdp), mdp.features, mdp.spec, seed),
    "gym": lambda mdp, seed: GymCollector(MDPEnv(mdp), mdp.features, mdp.spec, seed),
    "vector": lambda mdp, seed: VectorCollector(vector_of(mdp), mdp.features, mdp.spec, seed),
}
STEPPED = ("gym", "vector")
N = {"count": 10**6, "episode": 2000, "batch": 10**5, "gym": 600, "vector": 600}


def vector_of(mdp: FiniteMDP) -> gym.vector.VectorEnv:
    return gym.vector.SyncVectorEnv([lambda: MDPEnv(mdp)] * 3)


def tabular(horizon: int, seed: int, *, noise: Any = "none", low: float = -0.5, ends: bool = True) -> FiniteMDP:
    """Four states, three actions, one-hot features, levels that differ; the last state may end the episode."""
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.ones(4), size=(horizon, 4, 3))
    rewards = rng.uniform(low, 1.0, size=(horizon, 4, 3))
    start = np.append(rng.dirichlet(np.ones(3)), 0.0)
    mask = np.array([False, False, False, ends])
    if ends:
        transitions[:, 3], rewards[:, 3] = np.eye(4)[3], 0.0
    return FiniteMDP(transitions, rewards, start, reward_range=(low, 1.0), terminal=mask, reward_noise=noise)


def moments_of_returns(mdp: FiniteMDP, table: np.ndarray) -> tuple[float, float, float]:
    """E[G], E[G^2] in the user's units and E[steps] of a policy (H, S, A), backwards through the levels."""
    horizon, n_states, n_actions = table.shape
    low, high = mdp.spec.reward_min, mdp.spec.reward_max
    mean, square, steps = np.zeros(n_states), np.zeros(n_states), np.zeros(n_states)
    for h in reversed(range(horizon)):
        new_mean, new_square, new_steps = np.zeros(n_states), np.zeros(n_states), np.zeros(n_states)
        for s, a in product(range(n_states), range(n_actions)):
            r = float(mdp.rewards[h, s, a])
            p = (r - low) / (high - low)
            r_sq = r * r if mdp.reward_noise == "none" else p * high**2 + (1 - p) * low**2
            for after in range(n_states):
                chance = table[h, s, a] * mdp.transitions[h, s, a, after]
                on = 0.0 if mdp.terminal[after] else 1.0
                new_mean[s] += chance * (r + on * mean[after])
                new_square[s] += chance * (r_sq + on * (2 * r * mean[after] + square[after]))
                new_steps[s] += chance * (1 + on * steps[after])
        mean, square, steps = new_mean, new_square, new_steps
    return float(mdp.start @ mean), float(mdp.start @ square), float(mdp.start @ steps)


def surprise(mdp: FiniteMDP, table: np.ndarray, seen: Returns) -> float:
    """By how many standard errors the mean return differs from that of the policy."""
    mean, square, _ = moments_of_returns(mdp, table)
    got = seen.return_sum / seen.n_episodes + mdp.horizon * mdp.spec.reward_min
    return abs(got - mean) / sqrt(max(square - mean**2, 1e-12) / seen.n_episodes)


@pytest.mark.parametrize("horizon", [1, 2, 3])
@pytest.mark.parametrize("kind", COLLECTORS)
def test_the_law_of_evaluations(kind: str, horizon: int) -> None:
    for noise in ("none",) if kind in STEPPED else ("none", "bernoulli"):
        mdp = tabular(horizon, seed=horizon, noise=noise)
        policy, best = random_policy(mdp, 1), np.eye(3)[mdp.q_star.argmax(axis=2)]
        seen = COLLECTORS[kind](mdp, 5).collect(Evaluate(3, policy, N[kind]))
        assert seen.n_episodes == N[kind]
        assert surprise(mdp, policy.table, seen) < 4.5
        assert surprise(mdp, best, seen) > 4.5  # it would be noticed
        mean, square, steps = moments_of_returns(mdp, policy.table)
        assert seen.n_steps / seen.n_episodes == pytest.approx(steps, rel=0.1)
        assert seen.start_value_sum is None  # the policy has no values
        if kind == "count":
            assert seen.return_sum_sq is None
        else:
            shift = horizon * mdp.spec.reward_min
            assert seen.return_sum_sq is not None
            got = seen.return_sum_sq / seen.n_episodes
            assert got == pytest.approx(square - 2 * shift * mean + shift**2, rel=0.1)


@pytest.mark.parametrize("horizon", [1, 2, 3])
@pytest.mark.parametrize("kind", COLLECTORS)
def test_without_chance_they_are_exact(kind: str, horizon: int) -> None:
    """0 -> 1 -> 2 under the good action, the end under the other; start at 0; every level pays differently."""
    for forward in (True, False):
        transitions = np.zeros((horizon, 4, 2, 4))
        for state in range(3):
            transitions[:, state, 0, min(state + 1, 2)] = transitions[:, state, 1, 3] = 1.0
        transitions[:, 3, :, 3] = 1.0
        rewards = -np.arange(1.0, 1 + horizon * 8).reshape(horizon, 4, 2) / 32
        rewards[:, 3] = 0.0
        mdp = FiniteMDP(
            transitions, rewards, [1.0, 0, 0, 0], reward_range=(-1.0, 0.0), reward_noise="none",
            terminal=[False, False, False, True],
        )  # fmt: skip
        theta = np.zeros((horizon, 8, 1))
        theta[:, [0 if forward else 1, 2, 4]] = 0.25
        q = s4q.LinearQ.from_arrays(theta)
        steps = horizon if forward else 1
        paid = sum(float(rewards[h, min(h, 2), 0]) for h in range(horizon)) if forward else float(rewards[0, 0, 1])
        shifted = paid + horizon
        seen = COLLECTORS[kind](mdp, 0).collect(Evaluate(0, q, 7))
        assert seen.return_sum == pytest.approx(7 * shifted, abs=1e-12)
        assert seen.return_sum_sq is None if kind == "count" else seen.return_sum_sq == pytest.approx(7 * shifted**2)
        assert (seen.n_episodes, seen.n_steps) == (7, 7 * steps)
        assert seen.start_value_sum == pytest.approx(7 * 0.25)


@pytest.mark.parametrize("kind", COLLECTORS)
def test_start_values_and_early_ends(kind: str) -> None:
    mdp = cliff()
    q = random_q(mdp, 3, clip=True)
    n = 400 if kind in STEPPED else 2000
    seen = COLLECTORS[kind](mdp, 1).collect(Evaluate(0, q, n))
    table = np.zeros((mdp.horizon, 5, 4))
    values = np.einsum(
        "hsak,hsak->hsa", mdp.features.vectors, q.theta[np.arange(8)[:, None, None], mdp.features.blocks]
    )
    for h, s in product(range(mdp.horizon), range(5)):
        table[h, s, values[h, s].argmax()] = 1.0
    assert surprise(mdp, table, seen) < 4.5
    bound = float(mdp.spec.value_bound[0])
    starts = np.clip(values[0].max(axis=1), 0.0, bound)
    spread = sqrt(float(mdp.start @ starts**2 - (mdp.start @ starts) ** 2))
    assert seen.start_value_sum is not None
    assert abs(seen.start_value_sum / n - mdp.start @ starts) < 4.5 * spread / sqrt(n)


@pytest.mark.parametrize("kind", COLLECTORS)
def test_the_same_episodes_every_time_in_parts_too(kind: str) -> None:
    mdp = tabular(3, 0)
    policy = random_policy(mdp, 1)
    make = COLLECTORS[kind]
    n = 300 if kind in (*STEPPED, "episode") else 1200  # more than a shard
    request = Evaluate(5, policy, n)
    collector = make(mdp, 0)
    whole = collector.collect(request)
    assert whole == collector.collect(request)
    shards = list(collector.shards(request))
    assert sum(shard.n_episodes for shard in shards) == n
    assert len(shards) == (1 if kind == "count" else 2)
    parts = None
    for shard in shards:  # asked again for the rest, as a run does
        rest = replace(request, n_episodes=n - shard.index, done=shard.index)
        answer = make(mdp, 0).play(rest, next(iter(make(mdp, 0).shards(rest))))
        parts = answer if parts is None else parts + answer
    assert parts == whole
    assert collector.collect(replace(request, id=6)) != whole
    assert make(mdp, 1).collect(request) != whole
    with pytest.raises(ValueError, match="a Regress, an Explore or an Evaluate"):
        collector.play("evaluate", shards[0])


def test_one_env_and_a_vector_give_the_same_bits() -> None:
    mdp = tabular(3, 0)
    request = Evaluate(2, random_q(mdp, 1), 50)
    assert COLLECTORS["gym"](mdp, 3).collect(request) == COLLECTORS["vector"](mdp, 3).collect(request)


def state_of(key: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(np.random.SeedSequence(0, spawn_key=key).generate_state(4).tolist())


def test_no_dice_are_shared() -> None:
    """Words of 32 bits: ids and shards of any size, side by side."""
    mdp = tabular(1, 0)
    q, white = s4q.LinearQ.from_arrays(np.zeros((1, 12, 1))), np.zeros((1, 12, 1, 1))
    mixture = Mixture([q], [1.0])
    sizes = [0, 1, 2, 2**29, 2**31, 2**32 - 2, 2**32 + 1, 2**33, 5 * 2**32 + 2**29, 2**40]
    indices = [*sizes, 2**32 - 1, 2**32]
    learned = [regress_request(i, 0, mixture, q, 1) for i in sizes if i < 2**32 - 1]
    learned += [Explore(i, q, white, (1.0, 0.0), 1) for i in sizes if i < 2**32 - 1]
    evaluated = [Evaluate(i, q, 1) for i in indices]
    assert mdp.spec.n_blocks == 12
    keys = {(address(request), index) for request in [*learned, *evaluated] for index in indices}
    mine = {state_of((address(request), index)) for request in evaluated for index in indices}
    theirs = {state_of((address(request), index)) for request in learned for index in indices}
    assert len(mine) == len(evaluated) * len(indices)
    assert not mine & theirs
    assert len(keys) == len(mine) + len(theirs)
    # A large id alone would not do: its words run on into those of a shard.
    assert state_of((2**61, 5)) == state_of((0, 5 * 2**32 + 2**29))


@pytest.mark.parametrize("share", [0.1, 0.29, 0.5, 0.9])
def test_the_schedule_never_exceeds_its_share_and_ends_with_all_of_it(share: float) -> None:
    percent = round(100 * share)
    for budget in (1, 2, 7, 100, 999, 10**17):
        schedule = Schedule(share, budget)
        total = percent * budget // 100
        assert schedule.total == total
        learned = budget - total
        for n in {0, 1, learned // 3, learned // 2, learned - 1, learned}:
            due = schedule.due(n)
            assert 100 * due <= percent * (n + due) or n == learned
            assert n == learned or due == total or 100 * (due + 1) > percent * (n + due + 1)
        assert schedule.due(learned) == total


class Spy:
    """A collector that notes what is played."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.mdp, self.seed, self.shards = inner, inner.mdp, inner.seed, inner.shards
        self.played: list[tuple[Any, Any]] = []

    def play(self, request: Any, shard: Any, start: Any = None) -> Any:
        answer = self.inner.play(request, shard, start)
        self.played.append((request, answer))
        return answer

    collect = play


@pytest.mark.parametrize("kind", [CountCollector, EpisodeCollector])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.75])
def test_every_episode_is_counted_and_charged(kind: Any, share: float) -> None:
    mdp = walk()
    for budget in (1, 2, 13, 2500):
        spy = Spy(kind(mdp, seed=2))
        run = s4q.run(s4q.S4Q(mdp, "realisable"), spy, budget, evaluation_share=share)
        assert run.episodes == budget
        assert run.evaluation_episodes == floor(round(share * 100) * budget / 100)
        assert run.main_episodes + run.replay_episodes + run.evaluation_episodes == budget
        assert run.certificate is not None
        regret, episodes, evaluated = 0.0, 0, 0
        for i, (request, answer) in enumerate(spy.played):
            episodes += answer.n_episodes
            policies = request.mixture.policies if isinstance(request, Regress) else [request.policy]
            counts = answer.episodes_per_policy if isinstance(request, Regress) else [answer.n_episodes]
            for policy, n in zip(policies, counts, strict=True):
                regret += float(n) * (mdp.v_star - moments_of_returns(mdp, mdp.policy_table(policy))[0])
            if isinstance(request, Evaluate):
                evaluated += answer.n_episodes
                around = [spy.played[:i][::-1], spy.played[i:]]
                loops = [next((one.policy for one, _ in way if isinstance(one, Explore)), None) for way in around]
                assert any(request.policy is one for one in loops)  # the last main loop's, or the next one's
                assert evaluated <= share * episodes + 1e-9 or episodes == budget
        assert episodes == budget
        assert run.regret == pytest.approx(regret, rel=1e-9)
        assert run.steps == sum(answer.n_steps for _, answer in spy.played)
        last = run.curve[-1]
        assert (last.episodes, last.evaluation_episodes) == (budget, run.evaluation_episodes)
        assert all(p.main_episodes + p.replay_episodes + p.evaluation_episodes == p.episodes for p in run.curve)
        stretch = [p.evaluation_episodes for p in run.curve]
        assert stretch == sorted(stretch)


@pytest.mark.parametrize("kind", [CountCollector, EpisodeCollector])
def test_the_learner_does_not_see_it(kind: Any) -> None:
    """The learner that learned 700 of 1000 episodes is the one that learned 700 of 700."""
    mdp = walk()
    with_it, without = s4q.S4Q(mdp, "realisable"), s4q.S4Q(mdp, "realisable")
    s4q.run(with_it, kind(mdp, seed=1), 1000, evaluation_share=0.3)
    s4q.run(without, kind(mdp, seed=1), 700)
    assert with_it.n_episodes == 700
    assert differences(with_it, without) == []


def test_two_runs_of_one_learner_evaluate_other_episodes() -> None:
    mdp = walk()
    learner, spy = s4q.S4Q(mdp, "realisable"), Spy(EpisodeCollector(mdp, seed=1))
    for _ in range(2):
        s4q.run(learner, spy, 200, evaluation_share=0.5)
    ids = [request.id for request, _ in spy.played if isinstance(request, Evaluate)]
    assert sorted(set(ids)) == [1, 101]


def test_a_record_knows_what_was_evaluated() -> None:
    mdp = walk()
    learner = s4q.S4Q(mdp, "realisable")
    run = s4q.run(learner, CountCollector(mdp, seed=4), 30_000, record=True, evaluation_share=0.4)
    assert run.record is not None
    assert run.certificate is not None
    assert sum(one.n_episodes for one in run.record.evaluations.values()) == run.evaluation_episodes == 12_000
    again = s4q.certify(run.record)
    assert (again.upper, again.lower, again.n_episodes) == (
        run.certificate.upper,
        run.certificate.lower,
        run.certificate.n_episodes,
    )
    bare = s4q.certify(replace(run.record, evaluations={}))
    assert bare.lower < again.lower
    certified = next(p for p in (*run.record.phases, run.record.unfinished) if p and p.phase == again.phase)
    assert again.n_episodes == certified.n_episodes + run.record.evaluations[again.phase].n_episodes


def test_no_record_keeps_only_the_newest_phase(tmp_path: Path) -> None:
    mdp = walk()
    path = tmp_path / "run.s4q"
    s4q.run(s4q.S4Q(mdp, "realisable"), CountCollector(mdp), 20_000, evaluation_share=0.2, checkpoint=path)
    assert len(s4q.load(path).progress.evaluations) == 1


@pytest.mark.parametrize("record", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_interrupted_at_every_shard_and_resumed_with_the_same_bits(tmp_path: Path, record: bool) -> None:
    mdp, budget = walk(), 4500

    def log(name: str) -> s4q.JsonLines:
        return s4q.JsonLines(tmp_path / f"{name}.jsonl")

    whole = s4q.run(
        s4q.S4Q(mdp, "realisable"), EpisodeCollector(mdp, seed=1), budget, record=record, evaluation_share=0.4,
        checkpoint=tmp_path / "whole.s4q", callback=log("whole"),
    )  # fmt: skip
    lines = list(log_lines(tmp_path / "whole.jsonl"))
    assert sum(line["n_episodes"] for line in lines if line.get("kind") == "evaluate") == 1800
    cut_in_evaluation, n = 0, 0
    for n_shards in (1, 9, 40, 41, 77, 10**9):
        path = tmp_path / f"{n_shards}.s4q"
        failing = FailsAfter(EpisodeCollector(mdp, seed=1), n_shards)
        told = log(str(n_shards))
        try:
            s4q.run(s4q.S4Q(mdp, "realisable"), failing, budget, record=record, evaluation_share=0.4, checkpoint=path,
                    callback=told)  # fmt: skip
            break
        except Interrupted:
            n += 1
        begun = s4q.load(path)
        learned = begun.progress.episodes - begun.progress.evaluation_episodes
        cut_in_evaluation += Schedule(0.4, budget).due(learned) > begun.progress.evaluation_episodes
        resumed = s4q.run(begun, EpisodeCollector(mdp, seed=1), budget, record=record, checkpoint=path, callback=told)
        assert run_bits(resumed) == run_bits(whole)
        assert bits(s4q.load(path)) == bits(s4q.load(tmp_path / "whole.s4q"))
        assert str(resumed.certificate) == str(whole.certificate)
        assert list(log_lines(tmp_path / f"{n_shards}.jsonl")) == lines
    assert n > 3
    assert cut_in_evaluation > 1


def test_a_run_goes_on_with_its_own_share(tmp_path: Path) -> None:
    mdp, path = walk(), tmp_path / "run.s4q"
    learner, collector = s4q.S4Q(mdp, "realisable"), EpisodeCollector(mdp)
    s4q.run(learner, collector, 100, evaluation_share=0.2, checkpoint=path)
    with pytest.raises(ValueError, match=r"evaluation_share 0.2; got 0.3"):
        s4q.run(s4q.load(path), collector, 200, evaluation_share=0.3)
    longer = s4q.run(s4q.load(path), collector, 200)
    assert (longer.episodes, longer.evaluation_episodes) == (200, 40)
    assert s4q.run(s4q.load(path), collector, 200, evaluation_share=0.2).evaluation_episodes == 40


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan"), "a tenth"])
def test_nonsense_is_refused(share: Any) -> None:
    with pytest.raises(ValueError, match="evaluation_share is a share of all episodes"):
        s4q.run(s4q.S4Q(walk(), "realisable"), CountCollector(walk()), 10, evaluation_share=share)


def test_refused_where_there_is_no_certificate() -> None:
    with pytest.raises(ValueError, match=r"no certificate.*proves nothing"):
        s4q.run(s4q.S4Q(walk()), CountCollector(walk()), 10, evaluation_share=0.1)
    with pytest.raises(ValueError, match="evaluation_share needs the certificates of an S4Q; S3Q has none"):
        s4q.run(s4q.S3Q(walk(), s4q.UniformPolicy(2)), CountCollector(walk()), 10, evaluation_share=0.1)
    with pytest.raises(ValueError, match="n_episodes"):
        Evaluate(0, s4q.UniformPolicy(2), 0)


def test_an_agent_evaluates_too() -> None:
    env = MDPEnv(walk())
    choices: dict[str, Any] = {"horizon": 4, "reward_range": (0.0, 0.25), "preset": "realisable"}
    agent = s4q.Agent(env, **choices)
    agent.learn(600, evaluation_share=0.25)
    assert agent.last_run is not None
    assert (agent.last_run.evaluation_episodes, agent.n_episodes) == (150, 450)
    assert agent.certify() is agent.last_run.certificate
    bare = s4q.Agent(env, **choices).learn(450)
    assert differences(bare.learner, agent.learner) == []
    assert bare.evaluate(40) == agent.evaluate(40)


def test_the_command_certifies() -> None:
    runner = CliRunner(env={"COLUMNS": "1000"})
    arguments = ["train", "low_rank", "--preset", "realisable", "--episodes", "1e6", "--evaluation-share", "0.1"]
    done = runner.invoke(app, [*arguments, "--stop-when-gap", "0.3"])
    assert done.exit_code == 0, done.output
    assert "with probability 0.95" in done.output
    assert "assumed: the features are exact" in done.output
    refused = runner.invoke(app, ["train", "chain", "--evaluation-share", "0.1", "--episodes", "10"])
    assert refused.exit_code == 2
    assert "no certificate" in refused.output


# Validity


def share_missed(n_phases: int = 8) -> float:
    """How often any phase misses the mean: main loop and evaluations interleaved, each cut at its worst moment."""
    settings, missed = one_step(value_bound=1.0), []
    for seed in range(100):
        rng, bad = np.random.default_rng(seed), False
        for phase in range(1, n_phases + 1):
            x, main = (rng.random(400) < 0.5).astype(float), rng.random(400) < 0.3
            main[:2] = True, False
            n = np.arange(1, len(x) + 1)
            worst = (np.cumsum(x) - n / 2) / np.sqrt(n)
            for i in (max(int(worst.argmax()), 1), max(int(worst.argmin()), 1)):
                played, mine = x[: i + 1], main[: i + 1]
                inside, more = float(played[mine].sum()), float(played[~mine].sum())
                evaluated = Returns(int((~mine).sum()), more, None, more, 1)
                found = bounds(settings, a_phase(phase, int(mine.sum()), inside, inside), evaluated)
                bad |= not found.lower <= 0.5 <= found.upper
        missed.append(bad)
    return float(np.mean(missed))


def test_one_sequence_for_main_loop_and_evaluations() -> None:
    assert share_missed() <= 0.05


def test_not_without_the_price_of_all_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confidence_sequences, "_level", lambda n, delta: log(1 / delta) / n)
    monkeypatch.setattr(certifier, "phase_delta", lambda delta, phase: delta / 4)
    assert share_missed() > 0.05


def holds_on(problem: int, kind: Any, episodes: int) -> bool:
    """Does the certificate hold after every shard of a run on a random problem?"""
    mdp = tabular(2, problem, noise="bernoulli", low=0.0, ends=problem % 2 == 0)
    truth: dict[int, float] = {}

    def look(run: s4q.Run) -> bool:
        found = run.certificate
        assert found is not None
        if found.policy is not None and id(found.policy) not in truth:
            truth[id(found.policy)] = moments_of_returns(mdp, mdp.policy_table(found.policy))[0]
        worth = float("inf") if found.policy is None else truth[id(found.policy)]
        bad = found.lower > worth + 1e-9 or found.upper < mdp.v_star - 1e-9
        seen.append(bad)
        return bad

    seen: list[bool] = []
    learner = s4q.S4Q(mdp, "realisable")
    s4q.run(learner, kind(mdp, seed=problem), episodes, evaluation_share=0.4, stop=look, record=True)
    return not any(seen)


@pytest.mark.parametrize(("kind", "episodes"), [(CountCollector, 30_000), (EpisodeCollector, 1500)])
def test_certificates_hold_on_a_few_problems(kind: Any, episodes: int) -> None:
    assert all(holds_on(problem, kind, episodes) for problem in range(3))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "episodes"), [(CountCollector, 10**5), (EpisodeCollector, 3000)])
def test_certificates_hold_on_many_problems(kind: Any, episodes: int) -> None:
    assert np.mean([holds_on(problem, kind, episodes) for problem in range(100)]) >= 0.95


def test_not_with_the_returns_of_another_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations play the best policy; the newest is credited with what they return."""
    ask = Evaluations.ask

    def best(self: Evaluations, learned: int) -> Evaluate | None:
        request = ask(self, learned)
        return None if request is None else replace(request, policy=BEST[0])

    BEST: list[Any] = []
    monkeypatch.setattr(Evaluations, "ask", best)
    held = []
    for problem in range(3):
        mdp = tabular(2, problem, noise="bernoulli", low=0.0, ends=problem % 2 == 0)
        BEST[:] = [TablePolicy(np.eye(3)[mdp.q_star.argmax(axis=2)])]
        held.append(holds_on(problem, CountCollector, 30_000))
    assert not any(held)


def test_a_certificate_names_what_it_assumes() -> None:
    found = s4q.certify(s4q.S4Q(walk(), "realisable"))
    claim, assumed = str(found).splitlines()
    assert claim.startswith("vacuous")
    assert assumed.startswith("assumed: ")
    for word in ("the features are exact (well_specified)", "radius", "value_bound", "follows from the reward range"):
        assert word in assumed
    tight = FiniteMDP(np.ones((1, 1, 1)), [[0.5]], [1.0], horizon=2, value_bound=1.5, reward_noise="none")
    unpooled = s4q.certify(s4q.S4Q(tight, "realisable", pool=False))
    assert "1.5 at the start (declared)" in str(unpooled)
    assert "pooled" not in str(unpooled)
    assert "pooled" in str(s4q.certify(s4q.S4Q(tight, "realisable", pool=True)))
    assert json.loads(json.dumps(found.assumptions)) == list(found.assumptions)
