"""A cut before the horizon is data: the step keeps its next state, later levels get no sample, no return counts."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from small_envs import MDPEnv

import s4q
from s4q import Evaluate, Explore, Mixture, Regress, UniformPolicy
from s4q.collectors import GymCollector, VectorCollector
from s4q.core.optimism import QLevel

HORIZON = 6
MDP = s4q.problems.river_swim(4, horizon=HORIZON)
SPEC = MDP.spec
FEATURES = s4q.features.OneHot(MDP.n_states, MDP.n_actions)
CHANCE = 0.25  # of a cut after each step


class Cuts(gym.Wrapper):
    """Cuts episodes at random, for no reason that has to do with them, and writes down all that happens."""

    def __init__(self, env: gym.Env, chance: float = CHANCE, flag: str = "truncated") -> None:
        super().__init__(env)
        self.chance, self.flag = chance, flag
        self.diary: list[list[tuple[int, int, float, int, bool]]] = []

    def reset(self, **options: Any) -> Any:
        self.diary.append([])
        self.state, info = self.env.reset(**options)
        return self.state, info

    def step(self, action: Any) -> Any:
        after, reward, ended, _, info = self.env.step(action)
        last = len(self.diary[-1]) + 1 == HORIZON
        cut = bool(self.unwrapped.np_random.random() < self.chance) and not ended and not last
        self.diary[-1].append((self.state, int(action), reward, after, cut))
        self.state = after
        if self.flag == "terminated":
            return after, reward, ended or cut, False, info
        return after, reward, ended, cut, info


def cutting(**options: Any) -> Cuts:
    return Cuts(MDPEnv(MDP), **options)


def explore(n: int = 40) -> Explore:
    whitener = np.broadcast_to(np.eye(1), (HORIZON, FEATURES.n_blocks, 1, 1))
    q = s4q.S4Q(MDP, "practical", pool=False).q
    return Explore(3, q, whitener, (1e9, 0.0), n, keep=n)


def cut_at(episode: list[Any]) -> bool:
    return bool(episode[-1][-1])


def test_an_explore_keeps_the_steps_and_no_return_of_cut_episodes() -> None:
    env = cutting()
    answer = GymCollector(env, FEATURES, SPEC, seed=1).collect(explore())
    diary = env.diary
    cut = [episode for episode in diary if cut_at(episode)]
    assert 10 < len(cut) < 40
    assert (answer.n_episodes, answer.n_truncated) == (40, len(cut))
    assert answer.n_steps == sum(map(len, diary))
    whole = [sum(step[2] for step in episode) - HORIZON * SPEC.reward_min for episode in diary if not cut_at(episode)]
    assert answer.return_sum == pytest.approx(sum(whole), abs=1e-12)
    assert answer.return_sum_sq == pytest.approx(sum(one**2 for one in whole), abs=1e-12)
    promised = MDP.q_values(explore().policy)[0].max(axis=1)
    starts = [promised[episode[0][0]] for episode in diary if not cut_at(episode)]
    user_units = answer.start_value_sum + len(whole) * HORIZON * SPEC.reward_min
    assert user_units == pytest.approx(sum(starts), abs=1e-9)
    kept = answer.kept
    assert kept is not None
    steps = [step for episode in diary for step in episode]
    assert len(kept.levels) == len(steps)
    np.testing.assert_array_equal(kept.blocks, [state * MDP.n_actions + action for state, action, *_ in steps])
    np.testing.assert_array_equal(kept.next_blocks[:, 0], [after * MDP.n_actions for _, _, _, after, _ in steps])
    assert not kept.ended.any()  # a cut is no end
    for h in range(HORIZON):
        pairs = [episode[h][0] * MDP.n_actions + episode[h][1] for episode in diary if len(episode) > h]
        counts = np.bincount(pairs, minlength=FEATURES.n_blocks)
        np.testing.assert_allclose(answer.grams[h, :, 0, 0], counts)


@pytest.mark.parametrize("level", [0, 2, HORIZON - 1])
def test_a_regression_samples_the_level_where_it_was_reached(level: int) -> None:
    """Also where the episode was cut right after that level: its next state is known."""
    env = cutting()
    theta = np.random.default_rng(0).uniform(0, 1, (FEATURES.n_blocks, 1))
    target = QLevel(theta) if level + 1 < HORIZON else None
    request = Regress(5, level, Mixture([UniformPolicy(2)], [1.0]), target, 60)
    answer = GymCollector(env, FEATURES, SPEC, seed=2).collect(request)
    gram, moment, n_cut = np.zeros(FEATURES.n_blocks), np.zeros(FEATURES.n_blocks), 0
    for episode in env.diary:
        if len(episode) > level:
            state, action, reward, after, cut = episode[level]
            n_cut += cut
            value = theta[2 * after : 2 * after + 2, 0].max() if target is not None else 0.0
            gram[2 * state + action] += 1
            moment[2 * state + action] += reward - SPEC.reward_min + value
    assert n_cut > 0 or target is None
    np.testing.assert_allclose(answer.moments.gram[:, 0, 0], gram)
    np.testing.assert_allclose(answer.moments.moment[:, 0], moment, atol=1e-12)
    assert answer.n_episodes == 60


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vectors_give_the_same_bits(mode: AutoresetMode) -> None:
    one = GymCollector(cutting(), FEATURES, SPEC, seed=1).collect(explore(12))
    vector = SyncVectorEnv([cutting] * 3, autoreset_mode=mode)
    other = VectorCollector(vector, FEATURES, SPEC, seed=1).collect(explore(12))
    assert (one.n_truncated, one.return_sum, one.n_steps) == (other.n_truncated, other.return_sum, other.n_steps)
    np.testing.assert_array_equal(one.grams, other.grams)
    assert one.kept is not None
    assert other.kept is not None
    np.testing.assert_array_equal(one.kept.next_blocks, other.kept.next_blocks)


def promise(flag: str, memory: str) -> float:
    """What the learner says the start is worth after 300 episodes, over what it is worth."""
    env = Cuts(MDPEnv(MDP), flag=flag)
    learner = s4q.S4Q(MDP, "practical", memory=memory)
    run = s4q.run(learner, GymCollector(env, FEATURES, SPEC, seed=0), 300)
    assert run.truncated_episodes == (sum(map(cut_at, env.diary)) if flag == "truncated" else 0)
    value = MDP.spec.to_user_units(0, run.q.value(0, MDP.features.level(0)))
    return float(MDP.start @ value) / MDP.v_star


@pytest.mark.parametrize("memory", ["sketch", "all"])
def test_values_are_those_of_episodes_that_go_on(memory: str) -> None:
    assert 0.9 < promise("truncated", memory) < 1.6
    assert promise("terminated", memory) < 0.8  # planted: a cut taken for an end is worth less


def test_policies_are_judged_by_whole_episodes_only() -> None:
    env = Cuts(MDPEnv(MDP), chance=1.0)  # every episode is cut after its first step
    learner = s4q.S4Q(MDP, "practical", pool=True)
    run = s4q.run(learner, GymCollector(env, FEATURES, SPEC, seed=0), 50)
    assert (run.episodes, run.truncated_episodes, run.mean_return, run.mean_length) == (50, 50, None, 1.0)
    assert learner.best is learner.policy
    assert learner.diagnose() is not None
    env.chance = 0.0
    s4q.run(learner, GymCollector(env, FEATURES, SPEC, seed=1), 50)
    assert learner.best is not None
    evaluated = GymCollector(Cuts(MDPEnv(MDP)), FEATURES, SPEC, seed=0).collect(Evaluate(0, learner.best, 50))
    assert 0 < evaluated.n_truncated < 50
    assert evaluated.n_returns == 50 - evaluated.n_truncated


def test_certificates_leave_cut_episodes_out_and_say_what_that_assumes() -> None:
    learner = s4q.S4Q(MDP, "realisable")
    run = s4q.run(learner, GymCollector(cutting(), FEATURES, SPEC, seed=0), 300, record=True)
    found = run.certificate
    assert found is not None
    assert any("were cut for no reason that has to do with their return" in line for line in found.assumptions)
    whole = s4q.run(
        s4q.S4Q(MDP, "realisable"), GymCollector(cutting(chance=0.0), FEATURES, SPEC, seed=0), 300, record=True
    )
    assert whole.certificate is not None
    assert not any("cut" in line for line in whole.certificate.assumptions)
    record = run.record
    assert record is not None
    phase = (
        next(one for one in record.phases if one.phase == found.phase) if found.phase <= len(record.phases) else None
    )
    if phase is not None:
        assert found.n_episodes == phase.n_returns < phase.n_episodes


def test_an_interrupted_run_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    def agent(path: Path | None = None, **options: Any) -> s4q.Agent:
        made = s4q.Agent(cutting(), horizon=HORIZON, reward_range=(0, 1), seed=4)
        return made.learn(80, checkpoint=path, **options)

    whole = agent()
    agent(tmp_path / "half.s4q", stop=lambda run: run.episodes >= 30)
    resumed = s4q.Agent.load(tmp_path / "half.s4q", cutting()).resume()
    assert resumed.learner.q.theta.tobytes() == whole.learner.q.theta.tobytes()
    assert resumed.last_run is not None
    assert whole.last_run is not None
    assert resumed.last_run.truncated_episodes == whole.last_run.truncated_episodes > 10
    assert resumed.last_run.mean_return == whole.last_run.mean_return


# --- Stream -----------------------------------------------------------------------------------------------------------


def streamed(how: str, n: int = 30) -> tuple[s4q.S4Q, int]:
    """A learner that steered a live system whose episodes are cut; `how` says how the stream is told."""
    learner = s4q.S4Q(MDP, "practical")
    stream = s4q.Stream(learner, FEATURES, seed=0)
    env = MDPEnv(MDP)
    rng = np.random.default_rng(0)
    cuts = 0
    for episode in range(n):
        if how == "drop" and episode % 3 == 0:  # an episode that is forgotten
            stream.act(0)
            stream.observe(0.0, 3)
            stream.act(3)
            assert stream.drop()
        observation, _ = env.reset(seed=episode)
        length = int(rng.integers(1, HORIZON + 1))
        for step in range(HORIZON):
            observation, reward, _, _, _ = env.step(stream.act(observation))
            last = step + 1 == length < HORIZON
            over = stream.observe(reward, observation, truncated=last and how in ("truncated", "drop"))
            if last and how == "cut":
                assert stream.cut()
            if last and how == "cut while waiting":
                stream.act(observation)
                assert stream.cut()
            cuts += last
            if over or last:
                break
    assert stream.n_episodes == n
    return learner, cuts


def test_stream_cuts_and_drops() -> None:
    plain, cuts = streamed("truncated")
    assert cuts > 10
    for how in ("cut", "cut while waiting", "drop"):
        other, _ = streamed(how)
        assert other.q.theta.tobytes() == plain.q.theta.tobytes(), how
        assert other.n_episodes == plain.n_episodes
    open_phase = plain.open_phase
    assert open_phase is not None


def test_cut_and_drop_without_an_episode_do_nothing() -> None:
    stream = s4q.Stream(s4q.S4Q(MDP, "practical"), FEATURES)
    assert not stream.cut()
    assert not stream.drop()
    stream.act(0)
    assert not stream.cut()  # no step was finished: nothing to keep
    assert stream.n_episodes == 0
    stream.act(0)
    assert not stream.observe(0.0, 1)
    with pytest.raises(ValueError, match="observe was called without an action"):
        stream.observe(0.0, 1)
    assert stream.cut()
    assert stream.n_episodes == 1
