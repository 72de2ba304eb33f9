"""learn_from: logged steps are samples like any others."""

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from small_envs import Drift, MDPEnv
from small_problems import random_mdp

import s4q
from s4q.features import Fourier, OneHot, PerAction
from s4q.running import checkpoint

H = 5
RIDGE, UNSEEN = 1e-3, 0.3  # of the practical preset for smooth features that are not exact


class Logger(gym.Wrapper):
    """Writes down every step."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.steps: list[tuple[Any, ...]] = []

    def reset(self, **options: Any) -> Any:
        self.level, (self.now, info) = 0, self.env.reset(**options)
        return self.now, info

    def step(self, action: Any) -> Any:
        following, reward, terminated, truncated, info = self.env.step(action)
        self.steps.append((self.now, int(action), float(reward), following, terminated, self.level))
        self.now, self.level = following, self.level + 1
        return following, reward, terminated, truncated, info


def drift_features() -> PerAction:
    return PerAction(Fourier(low=[-2.0, -2.0], high=[2.0, 2.0], order=1), n_actions=3)


def drift(env: gym.Env | None = None, **options: Any) -> s4q.Agent:
    return s4q.Agent(env or Drift(), drift_features(), horizon=H, reward_range=(-1.2, 0.5), seed=2, **options)


def lake(env: gym.Env | None = None, **options: Any) -> s4q.Agent:
    return s4q.Agent(env or gym.make("FrozenLake-v1"), horizon=8, reward_range=(0, 1), seed=2, **options)


def played_at_random(env: gym.Env, n_episodes: int, horizon: int, seed: int = 0) -> list[tuple[Any, ...]]:
    """Steps of a random policy, each with its level."""
    logger, rng = Logger(env), np.random.default_rng(seed)
    first, n_actions = int(env.action_space.start), int(env.action_space.n)
    for episode in range(n_episodes):
        logger.reset(seed=seed + episode)
        for _ in range(horizon):
            if logger.step(first + int(rng.integers(n_actions)))[2]:
                break
    return logger.steps


def as_columns(steps: list[tuple[Any, ...]]) -> dict[str, Any]:
    names = ("observations", "actions", "rewards", "next_observations", "terminated", "levels")
    return {name: np.array([step[i] for step in steps]) for i, name in enumerate(names)}


def literal_fit(steps: list[tuple[Any, ...]], features: Any, bounds: list[float], low: float, pool: bool) -> np.ndarray:
    """Ridge regression level by level, from the last to the first, written out; (H, actions, k).

    The target of a step is its reward, plus the best optimistic value after it, clipped at the bound. The bonus is a
    share of the bound times the norm in the metric of the ridge: what the practical bonus is with bonus_width near 0.
    """

    def vector(observation: Any, h: int) -> list[float]:
        return [float(x) for x in features(h, np.asarray(observation)[None]).vectors[0][0]]

    horizon, n_actions, k = len(bounds), features.n_actions, features.block_dim
    thetas = np.zeros((horizon, n_actions, k))
    inverse: Any = None
    for h in reversed(range(horizon)):
        grams, moments = [np.zeros((k, k)) for _ in range(n_actions)], [np.zeros(k) for _ in range(n_actions)]
        for observation, action, reward, following, ended, level in steps:
            if level != h and not pool:
                continue
            y = reward - low
            if ended:
                y += (horizon - 1 - h) * -low  # 0 a step in the user's units
            elif h + 1 < horizon:
                after = vector(following, h + 1)
                best = max(
                    np.dot(after, thetas[h + 1, a])
                    + UNSEEN * bounds[h + 1] * RIDGE**0.5 * np.sqrt(np.dot(after, inverse[a] @ np.array(after)))
                    for a in range(n_actions)
                )
                y += min(best, bounds[h + 1])
            phi = np.array(vector(observation, h))
            grams[action] += np.outer(phi, phi)
            moments[action] += phi * y
        inverse = [np.linalg.inv(gram + RIDGE * np.eye(k)) for gram in grams]
        thetas[h] = [np.linalg.solve(g + RIDGE * np.eye(k), m) for g, m in zip(grams, moments, strict=True)]
    return thetas


@pytest.mark.parametrize("pool", [False, True])
def test_the_fit_is_a_literal_ridge_regression(pool: bool) -> None:
    steps = played_at_random(Drift(), 60, H)
    agent = drift(stationary=pool, bonus_width=1e-300)
    assert agent.learner.constants.pool is pool
    agent.learn_from(steps)
    want = literal_fit(steps, agent.features, list(agent.learner.spec.value_bound), -1.2, pool)
    seen = agent.features(0, np.array([step[0] for step in steps])).vectors[:, 0]  # (n, k)
    got, wanted = seen @ agent.learner.q.theta.transpose(0, 2, 1), seen @ want.transpose(0, 2, 1)
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)
    less = literal_fit(steps[:-1], agent.features, list(agent.learner.spec.value_bound), -1.2, pool)
    assert abs(got - seen @ less.transpose(0, 2, 1)).max() > 1e-4  # one step less would be noticed


CASES: dict[str, Callable[..., s4q.Agent]] = {
    "table, pooled": lambda env: lake(env),
    "table, by level": lambda env: lake(env, stationary=False),
    "table, all steps": lambda env: lake(env, memory="all"),
    "continuous, pooled": lambda env: drift(env),
    "continuous, by level": lambda env: drift(env, stationary=False),
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_steps_give_the_same_fit_as_having_been_played(name: str) -> None:
    make = CASES[name]
    logger = Logger(gym.make("FrozenLake-v1") if "table" in name else Drift())
    played = make(logger).learn(400, stop=lambda run: run.phases >= 12)
    learner = played.learner
    assert learner.open_phase is not None
    assert learner.open_phase.n_episodes == 0  # the newest policy is fitted to all steps so far
    logged = make(None).learn_from(logger.steps).learner
    assert logged.n_logged == len(logger.steps) == sum(shelf.n_samples for shelf in learner.memory.shelves)
    assert logged.n_episodes == logged.phases == 0
    assert logged.memory.n_episodes == played.n_episodes
    np.testing.assert_allclose(logged.memory.grams, learner.memory.grams, rtol=0, atol=1e-12)
    seen = np.array([step[0] for step in logger.steps])
    for h in range(played.horizon):  # values where there is data, bonus included
        phi = played.features(h, seen)
        np.testing.assert_allclose(logged.q.optimistic(h, phi), learner.q.optimistic(h, phi), rtol=1e-12, atol=1e-12)
    if "table" in name:
        assert logged.q.same_as(learner.q)  # sums of whole numbers: the very same bits
    less = make(None).learn_from(logger.steps[:-1]).learner
    assert not less.q.same_as(learner.q)


Step = namedtuple("Step", "observation level action terminated reward next_observation")  # in another order


@dataclass
class EpisodeOfMinari:
    id: int
    observations: Any
    actions: Any
    rewards: Any
    terminations: Any
    truncations: Any
    infos: Any


class DatasetOfMinari:
    def __init__(self, episodes: list[EpisodeOfMinari]) -> None:
        self.episodes = episodes

    def iterate_episodes(self) -> Any:
        return iter(self.episodes)


def as_minari(steps: list[tuple[Any, ...]]) -> list[EpisodeOfMinari]:
    starts = [i for i, step in enumerate(steps) if step[5] == 0]
    episodes = []
    for i, (begin, end) in enumerate(zip(starts, [*starts[1:], len(steps)], strict=True)):
        part = steps[begin:end]
        seen = np.array([step[0] for step in part] + [part[-1][3]])
        ended = np.array([step[4] for step in part])
        over = np.zeros(len(part), dtype=bool)
        over[-1] = not ended[-1]
        numbers = (np.array([step[1] for step in part]), np.array([step[2] for step in part]))
        episodes.append(EpisodeOfMinari(i, seen, *numbers, ended, over, {}))
    return episodes


def test_all_forms_of_a_log_are_the_same() -> None:
    steps = played_at_random(Drift(), 12, H)
    columns = as_columns(steps)
    over = np.array([not (i + 1 < len(steps) and steps[i + 1][5]) for i in range(len(steps))])
    in_order = {name: column for name, column in columns.items() if name != "levels"} | {"truncated": over}
    named = ("observation", "action", "reward", "next_observation", "terminated", "level")
    forms = {
        "list": [list(step) for step in steps],
        "generator": (step for step in steps),
        "arrays": columns,
        "in order": in_order,
        "dicts": [dict(zip(named, step, strict=True)) for step in steps],
        "named": [Step(**dict(zip(named, step, strict=True))) for step in steps],
        "episodes": as_minari(steps),
        "dataset": DatasetOfMinari(as_minari(steps)),
    }
    want = drift(stationary=False).learn_from(steps).learner
    for name, form in forms.items():
        got = drift(stationary=False).learn_from(form).learner
        assert got.q.same_as(want.q), name
        assert got.memory.n_episodes == want.memory.n_episodes == 12, name


def test_several_logs_are_one() -> None:
    steps = played_at_random(gym.make("FrozenLake-v1").unwrapped, 40, 8)
    cut = next(i for i in range(100, len(steps)) if steps[i][5] == 0)
    once, twice = lake().learn_from(steps), lake().learn_from(steps[:cut]).learn_from(steps[cut:])
    assert once.learner.q.same_as(twice.learner.q)
    assert once.learner.n_logged == twice.learner.n_logged == len(steps)
    assert once.learner.memory.n_episodes == twice.learner.memory.n_episodes


def test_steps_without_levels_need_a_stationary_problem() -> None:
    steps = [step[:5] for step in played_at_random(Drift(), 30, H)]
    shuffled = [steps[i] for i in np.random.default_rng(0).permutation(len(steps))]
    agent = drift().learn_from(shuffled)
    np.testing.assert_allclose(agent.learner.q.theta, drift().learn_from(steps).learner.q.theta, rtol=1e-6, atol=1e-9)
    assert f"{len(steps)} of them without a level" in agent.explain()
    assert not [found for found in agent.learn(30).diagnose() if found.name == "levels are not alike"]
    with pytest.raises(ValueError, match="each logged step must carry its level"):
        drift(stationary=False).learn_from(steps)
    long = played_at_random(Drift(), 10, 3 * H)  # longer than the horizon: still samples of a stationary problem
    assert max(step[5] for step in long) >= H
    assert drift().learn_from(long).learner.n_logged == len(long)
    with pytest.raises(ValueError, match=r"step \d+ of the log has level 5, but the horizon is 5"):
        drift(stationary=False).learn_from(long)


def test_a_log_of_everything_makes_the_first_policy_optimal() -> None:
    """A deterministic problem of which every step was logged: no episode is needed."""
    mdp = s4q.problems.deep_sea(6)
    env, range_ = MDPEnv(mdp, first_action=2), (mdp.spec.reward_min, mdp.spec.reward_max)
    steps = []
    for h in range(mdp.horizon):
        for s in range(mdp.n_states):
            for a in range(2):
                env.h, env.state = h, s
                env.np_random  # noqa: B018 - made on first use
                following, reward, ended, _, _ = env.step(a + 2)
                steps += [(s, a + 2, reward, following, ended, h)] * 3
    features = OneHot(mdp.n_states, n_actions=2)
    agent = s4q.Agent(env, features, horizon=mdp.horizon, reward_range=range_, stationary=False)
    assert mdp.value(agent.newest.q) < 0.9 * mdp.v_star
    agent.learn_from(steps)
    assert mdp.value(agent.newest.q) == pytest.approx(mdp.v_star)
    assert agent.best.q is agent.newest.q  # no episode has chosen yet


def test_run_explain_and_progress_say_so(tmp_path: Path) -> None:
    steps = played_at_random(gym.make("FrozenLake-v1").unwrapped, 30, 8)
    agent = lake().learn_from(as_columns(steps))
    pairs = {(step[0], step[1]) for step in steps}
    assert agent.n_episodes == 0
    assert agent.progress.directions_seen == len(pairs)
    assert str(agent.progress).startswith("not begun: 0 episodes")
    run = agent.learn(50, callback=s4q.JsonLines(tmp_path / "log.jsonl")).last_run
    assert run is not None
    assert (run.episodes, run.logged_steps) == (50, len(steps))
    assert f"logged_steps={len(steps)}" in repr(run)
    assert f"logged steps {len(steps)}" in " ".join(agent.explain().split())
    assert "no episodes of the run" in agent.explain()
    assert f"{len(steps)} logged steps before them" in str(agent.progress)
    cold = lake().learn(50)
    assert cold.last_run is not None
    assert cold.last_run.logged_steps == 0
    assert cold.last_run.name != run.name  # two runs that a log must not take for one
    assert "logged" not in cold.explain() + str(cold.progress) + repr(cold.last_run)


def test_an_interrupted_run_resumes_with_the_same_bits(tmp_path: Path) -> None:
    steps = played_at_random(Drift(), 30, H)
    path = tmp_path / "run.s4q"
    whole = drift().learn_from(steps).learn(60)

    class Stop(Exception):
        pass

    def interrupt(run: s4q.Run) -> None:
        if run.phases == 4:
            raise Stop

    broken = drift().learn_from(steps)
    with pytest.raises(Stop):
        broken.learn(60, callback=interrupt, checkpoint=path)
    again = s4q.Agent.load(path, Drift())
    assert again.learner.n_logged == len(steps)
    with pytest.raises(ValueError, match="in the middle of one; call resume"):
        again.learn_from(steps)
    again.resume(checkpoint=path)
    assert again.learner.q.same_as(whole.learner.q)
    assert again.progress == whole.progress
    assert again.last_run is not None
    assert again.last_run.logged_steps == len(steps)


def test_a_saved_warm_agent_goes_on_as_if_it_had_not_been_saved(tmp_path: Path) -> None:
    steps = played_at_random(Drift(), 30, H)
    agent = drift().learn_from(steps)
    agent.save(tmp_path / "warm.s4q")
    again = s4q.Agent.load(tmp_path / "warm.s4q", Drift())
    again.learn_from(steps[:7])  # still before the first episode
    agent.learn_from(steps[:7])
    assert again.learn(40).learner.q.same_as(agent.learn(40).learner.q)


def test_a_small_budget_is_kept() -> None:
    steps = played_at_random(Drift(), 400, H)
    agent = drift(memory_bytes=60_000).learn_from(steps)
    memory = agent.learner.memory
    assert memory.held_bytes <= 60_000
    assert memory.n_thinnings > 0
    exact = drift().learn_from(steps).learner
    np.testing.assert_allclose(memory.grams, exact.memory.grams, rtol=1e-12)  # sums of features stay exact
    assert sum(shelf.n_samples for shelf in memory.shelves) == len(steps)


def bits(agent: s4q.Agent) -> bytes:
    packed = checkpoint._packed(agent.learner, 0, checkpoint.Progress(budget=0), {})
    return repr(packed.objects).encode() + b"".join(array.tobytes() for array in packed.arrays.values())


def test_it_is_refused_where_it_cannot_be_used() -> None:
    steps = played_at_random(gym.make("FrozenLake-v1").unwrapped, 5, 8)
    with pytest.raises(ValueError, match=r'memory="policies" holds policies.*pass memory="all"'):
        lake(memory="policies").learn_from(steps)
    with pytest.raises(ValueError, match='memory="policies" holds policies'):
        lake(preset="realisable").learn_from(steps)
    with pytest.raises(ValueError, match="before the first episode, and 3 episodes were played"):
        lake().learn(3).learn_from(steps)


def changed(**columns: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda good: good | columns


def at(name: str, i: int, value: Any) -> Callable[[dict[str, Any]], Any]:
    def change(good: dict[str, Any]) -> Any:
        column = np.array(good[name])
        column[i] = value
        return good | {name: column}

    return change


BAD: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no steps": (lambda good: {name: column[:0] for name, column in good.items()}, "holds no step"),
    "an empty list": (lambda good: [], "holds no step"),
    "too few rewards": (lambda good: good | {"rewards": good["rewards"][1:]}, "one entry a step in each column"),
    "a column less": (lambda good: {n: c for n, c in good.items() if n != "terminated"}, "missing: .'terminated'"),
    "dones": (lambda good: good | {"dones": good["terminated"]}, "`dones` mixes ends with time limits"),
    "an action too large": (at("actions", 3, 3), r"actions of the log must lie in 0\.\.2; step 3 has 3"),
    "a negative action": (at("actions", 2, -1), r"step 2 has -1"),
    "actions that are floats": (lambda good: good | {"actions": good["actions"] * 1.0}, "must be whole numbers"),
    "a reward too large": (at("rewards", 5, 0.6), r"reward_range \[-1.2, 0.5\]; step 5 has 0.6"),
    "a reward of NaN": (at("rewards", 5, np.nan), "step 5 has nan"),
    "an observation of NaN": (at("observations", 1, np.nan), r"step 1 has \[nan, nan\], outside of the env's Box"),
    "an observation outside": (at("observations", 1, 2.1), "step 1 has .*outside"),
    "a next observation outside": (at("next_observations", 0, -3.0), "next_observations of the log: step 0"),
    "observations of another shape": (lambda g: g | {"observations": g["observations"][:, :1]}, r"must have shape"),
    "ends that are words": (lambda good: good | {"terminated": ["no"] * len(good["actions"])}, "must be numbers"),
    "ends that are numbers": (lambda good: good | {"terminated": good["rewards"]}, "must be True or False"),
    "levels that are floats": (lambda good: good | {"levels": good["levels"] * 1.0}, "levels of the log must be whole"),
    "a negative level": (at("levels", 0, -1), "levels of the log must be whole numbers of at least 0"),
    "a word": (lambda good: "steps.npz", "transitions must be a dict of arrays"),
    "a number": (lambda good: 3, "transitions must be a dict of arrays"),
    "rows of four": (lambda good: [(good["observations"][0], 0, 0.0, good["observations"][0])], "step 0 has 4 entries"),
    "rows of other names": (lambda good: [{"state": 1}], "step 0 must have the fields observation, action"),
    "levels for some": (
        lambda good: [
            (good["observations"][0], 0, 0.0, good["observations"][0], False, *extra) for extra in ((), (0,))
        ],
        "some steps have a level",
    ),
    "steps out of order": (
        lambda good: (
            {n: c[::-1] for n, c in good.items() if n != "levels"} | {"truncated": np.zeros(len(good["levels"]))}
        ),
        "does not begin where step 0 ended",
    ),
    "an episode without its last observation": (
        lambda good: [
            EpisodeOfMinari(0, np.zeros((2, 2)), np.zeros(2, int), np.zeros(2), np.zeros(2), np.zeros(2), {})
        ],
        "episode 0 has 2 actions, so it needs 3 observations; got 2",
    ),
    "observations of several parts": (
        lambda good: [EpisodeOfMinari(0, {"a": 1}, np.zeros(2, int), np.zeros(2), np.zeros(2), np.zeros(2), {})],
        "observations of several parts",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_log_changes_nothing(name: str) -> None:
    make, says = BAD[name]
    agent = drift(stationary=False)
    before = bits(agent)
    with pytest.raises(ValueError, match=says):
        agent.learn_from(make(as_columns(played_at_random(Drift(), 4, H))))
    assert bits(agent) == before
    assert agent.n_episodes == agent.learner.n_logged == 0


def test_features_that_fail_late_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is taken in pieces, and the last piece is refused."""
    from s4q.collectors.stepping import logged_steps

    monkeypatch.setattr(logged_steps, "_CHUNK", 16)
    steps = played_at_random(Drift(), 30, H)
    agent = drift()
    before = bits(agent)
    original = agent.features
    calls = []

    class Fails:
        n_actions, n_blocks, block_dim, stationary = 3, 3, original.block_dim, True

        def __call__(self, h: int, states: Any) -> Any:
            calls.append(len(states))
            if len(calls) == 4:
                raise RuntimeError("out of order")
            return original(h, states)

    agent.features = Fails()
    with pytest.raises(ValueError, match="refused an observation of the logged steps 48 to 63: out of order"):
        agent.learn_from(steps)
    assert bits(agent) == before
    agent.features = original
    in_pieces = agent.learn_from(steps).learner
    monkeypatch.undo()
    np.testing.assert_allclose(in_pieces.q.theta, drift().learn_from(steps).learner.q.theta, rtol=1e-9, atol=1e-9)


def test_an_end_needs_no_observation_after_it() -> None:
    """Where an episode ended, the next observation is never looked at."""
    columns = as_columns(played_at_random(Drift(), 60, H))
    assert columns["terminated"].any()
    spoiled = np.array(columns["next_observations"])
    spoiled[columns["terminated"]] = np.nan
    want = drift().learn_from(columns).learner
    assert drift().learn_from(columns | {"next_observations": spoiled}).learner.q.same_as(want.q)
    as_limits = columns | {"terminated": np.zeros(len(spoiled), dtype=bool)}
    assert not drift().learn_from(as_limits).learner.q.same_as(want.q)  # a time limit is no end


def test_rewards_that_rounding_put_outside_are_clipped_as_when_played() -> None:
    steps = played_at_random(Drift(), 10, H)
    steps[3] = (*steps[3][:2], 0.5 + 1e-9, *steps[3][3:])
    clipped = [(*step[:2], min(step[2], 0.5), *step[3:]) for step in steps]
    assert drift().learn_from(steps).learner.q.same_as(drift().learn_from(clipped).learner.q)


def test_a_random_mdp_with_dense_features_by_level() -> None:
    """Features that change with the level: each step is seen with the features of its own level."""
    mdp = random_mdp(6, 2, 4, horizon=H, seed=3)
    logger = Logger(MDPEnv(mdp))
    options: dict[str, Any] = {"horizon": H, "reward_range": (0, 1), "stationary": False, "seed": 5}
    played = s4q.Agent(logger, mdp.features, **options).learn(300, stop=lambda run: run.phases >= 8)
    logged = s4q.Agent(MDPEnv(mdp), mdp.features, **options).learn_from(logger.steps)
    assert played.learner.open_phase is not None
    assert played.learner.open_phase.n_episodes == 0
    np.testing.assert_allclose(logged.learner.q.theta, played.learner.q.theta, rtol=0, atol=1e-10)


def test_open_ranges_are_measured_on_the_log(tmp_path: Path) -> None:
    """CartPole leaves two ranges open. No episode is spent on them, and a refused log leaves them open."""
    env = gym.make("CartPole-v1")
    steps = played_at_random(env, 12, 30)
    agent = s4q.Agent("CartPole-v1", horizon=30, seed=1)
    waiting = agent.features
    spoiled = [*steps[:-1], (*steps[-1][:2], 7.0, *steps[-1][3:])]
    with pytest.raises(ValueError, match="rewards of the log must lie in the declared reward_range"):
        agent.learn_from(spoiled)
    assert agent.features is waiting
    agent.learn_from(steps)
    ranges = agent.features.state_features.ranges  # type: ignore[attr-defined]
    seen = np.array([*[step[0] for step in steps], *[step[3] for step in steps if not step[4]]])
    assert (np.abs(seen[:, [1, 3]]).max(axis=0) < ranges.high[[1, 3]]).all()
    # As wide as what was seen, around 0, and a quarter of that width more on each side.
    np.testing.assert_allclose(ranges.high[[1, 3]], 1.5 * np.abs(seen[:, [1, 3]]).max(axis=0), rtol=1e-6)
    assert f"measured on {len(steps)} logged steps" in agent.explain()
    run = agent.learn(5).last_run
    assert run is not None
    assert (run.warm_up_episodes, run.main_episodes, run.logged_steps) == (0, 5, len(steps))
    agent.save(tmp_path / "pole.s4q")
    assert f"measured on {len(steps)} logged steps" in s4q.Agent.load(tmp_path / "pole.s4q", "CartPole-v1").explain()


class InParts(gym.ObservationWrapper):
    """FrozenLake whose observation says row and column in two parts: a dictionary, or a tuple."""

    def __init__(self, as_tuple: bool = False) -> None:
        super().__init__(gym.make("FrozenLake-v1"))
        spaces = {"row": gym.spaces.Discrete(4), "column": gym.spaces.MultiDiscrete([4])}
        self.as_tuple = as_tuple
        self.observation_space = gym.spaces.Tuple(spaces.values()) if as_tuple else gym.spaces.Dict(spaces)

    def observation(self, observation: Any) -> Any:
        parts = {"row": np.int64(observation // 4), "column": np.array([observation % 4])}
        return tuple(parts.values()) if self.as_tuple else parts


def in_parts(as_tuple: bool, env: gym.Env | None = None) -> s4q.Agent:
    return s4q.Agent(env or InParts(as_tuple), horizon=8, reward_range=(0, 1), seed=2)


@pytest.mark.parametrize("as_tuple", [False, True])
def test_observations_with_parts(as_tuple: bool) -> None:
    """Steps that were played, in every form of a log: the very same fit."""
    logger = Logger(InParts(as_tuple))
    played = in_parts(as_tuple, logger).learn(400, stop=lambda run: run.phases >= 12)
    steps = logger.steps
    keys = (0, 1) if as_tuple else ("row", "column")

    def whole(i: int) -> Any:
        parts = {key: np.array([step[i][key] for step in steps]) for key in keys}
        return tuple(parts.values()) if as_tuple else parts

    names = ("actions", "rewards", "terminated", "levels")
    numbers = {name: np.array([step[i] for step in steps]) for name, i in zip(names, (1, 2, 4, 5), strict=True)}
    over = np.array([not (i + 1 < len(steps) and steps[i + 1][5]) for i in range(len(steps))])
    columns = numbers | {"observations": whole(0), "next_observations": whole(3)}
    forms: dict[str, Any] = {
        "steps": steps,
        "an array a part": columns,
        "in order": {name: column for name, column in columns.items() if name != "levels"} | {"truncated": over},
    }
    for name, log in forms.items():
        logged = in_parts(as_tuple).learn_from(log).learner
        assert logged.q.same_as(played.learner.q), name
        assert logged.n_logged == len(steps)


def test_bad_observations_with_parts_change_nothing() -> None:
    steps = played_at_random(InParts(), 3, 8)
    bad = {
        "step 2 has .*not in the env's": [*steps[:2], ({"row": 4, "column": np.array([0])}, *steps[2][1:]), *steps[3:]],
        "one entry a step in each part": {
            "observations": {"row": np.zeros(3, int), "column": np.zeros((2, 1), int)},
            **{name: np.zeros(3, int) for name in ("actions", "rewards", "terminated", "levels", "next_observations")},
        },
    }
    for says, log in bad.items():
        agent = in_parts(as_tuple=False)
        before = bits(agent)
        with pytest.raises(ValueError, match=says):
            agent.learn_from(log)
        assert bits(agent) == before


def test_what_kind_of_numbers_a_log_holds_does_not_matter() -> None:
    """A Box of float32 and a Discrete, logged as float64 and as lists: taken by their values."""
    space = gym.spaces.Dict({"where": gym.spaces.Box(0.0, 1.0, (2,)), "lamp": gym.spaces.Discrete(3)})
    agents, rng = [], np.random.default_rng(0)
    where, lamp = rng.random((6, 2)).astype(np.float32), rng.integers(3, size=6)
    for kind in (np.float32, np.float64):
        env = gym.make("FrozenLake-v1")
        env.observation_space = space  # type: ignore[assignment]
        agent = s4q.Agent(env, horizon=4, reward_range=(0, 1), seed=0)
        seen = {"where": where.astype(kind), "lamp": lamp.tolist() if kind is np.float64 else lamp}
        numbers = {name: np.zeros(6, int) for name in ("actions", "rewards", "terminated")}
        agent.learn_from({"observations": seen, "next_observations": seen, "levels": np.arange(6) % 4, **numbers})
        agents.append(agent)
    assert agents[0].learner.q.same_as(agents[1].learner.q)
    assert agents[0].learner.n_logged == 6
    for wrong in (3, {"where": 3, "lamp": 4}, {"where": where + 2, "lamp": lamp}, {"where": where}):
        log = {"observations": wrong, "next_observations": wrong, "levels": np.arange(6) % 4, **numbers}
        with pytest.raises(ValueError, match=r"transitions must be|not in the env's"):
            s4q.Agent(env, horizon=4, reward_range=(0, 1), seed=0).learn_from(log)
