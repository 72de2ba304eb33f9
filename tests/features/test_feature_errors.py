"""Feature maps refuse what is wrong: errors that name value and cure, check_features, defaults, optional packages."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from sklearn.kernel_approximation import RBFSampler

from s4q import Phi, features
from s4q.features import Dense, Fourier, OneHot, PerAction, RandomFourier, Sklearn, TableFeatures, Tiles, check_features
from s4q.features import default_features as default

UNIT: dict[str, Any] = {"low": [0, 0], "high": [1, 1]}
ROW = np.array([[0.5, 0.5]])
CARTPOLE = spaces.Box(np.array([-4.8, -np.inf]), np.array([4.8, np.inf]), dtype=np.float64)


def fitted() -> RBFSampler:
    return RBFSampler(n_components=4, random_state=0).fit(np.zeros((1, 2)))


def user(made: Any, **changes: Any) -> Callable[[], object]:
    """Evaluate a Callable whose function returns `made`."""
    sizes = {"n_actions": 2, "block_dim": 1} | changes
    return lambda: features.FunctionFeatures(lambda h, states: made, **sizes)(0, np.zeros(1))


BAD: list[tuple[str, Callable[[], object], str]] = [
    (
        "infinite space",
        lambda: Fourier(CARTPOLE, order=2),
        r"dimension 1 .* got \(-inf, inf\); declare .* clip=True",
    ),
    ("infinite low", lambda: Fourier(low=[0, -np.inf], high=[1, 1], order=2), r"dimension 1 .*\(-inf, 1.0\)"),
    ("nan low", lambda: Fourier(low=[np.nan], high=[1], order=2), r"low\[0\] is nan"),
    ("float32 max", lambda: Fourier(low=[-3.4e38], high=[3.4e38], order=2), r"dimension 0 .*finite low < high"),
    ("turned range", lambda: Fourier(low=[1], high=[0], order=2), r"dimension 0 .* got \(1.0, 0.0\)"),
    ("no range", lambda: Fourier(order=2), r"low is needed: pass a Gymnasium Box, or low"),
    ("no high", lambda: Fourier(low=[0], order=2), r"high is needed"),
    ("both", lambda: Fourier(CARTPOLE, low=[0], high=[1], order=2), r"not both"),
    (
        "lengths",
        lambda: Fourier(low=[0], high=[1, 1], order=2),
        r"per dimension; got shapes \(1,\) and \(2,\)",
    ),
    ("clip", lambda: Fourier(**UNIT, order=2, clip="no"), r"clip must be True or False .*; got 'no'"),  # type: ignore[arg-type]
    ("not a box", lambda: Fourier(spaces.Discrete(3), order=2), r"space must be a Gymnasium Box; got Discrete\(3\)"),
    ("order", lambda: Fourier(**UNIT, order=-1), r"order is the highest frequency.*got -1"),
    ("too many terms", lambda: Fourier(low=[0] * 8, high=[1] * 8, order=5), r"1679616 features, .*RandomFourier"),
    ("outside", lambda: Fourier(**UNIT, order=1)(np.array([[0.5, 0.5], [0.5, 1.2]])), r"state 1 .* 1.2 in dimension 1"),
    ("below", lambda: Fourier(**UNIT, order=1)(np.array([[-3.0, 0.5]])), r"\[0, 1\]; declare a wider range, or .*clip"),
    ("nan", lambda: Fourier(**UNIT, order=1)(np.array([[0.5, np.nan]])), r"state 0 .* nan in dimension 1; .*finite"),
    (
        "infinite although clipped",
        lambda: Fourier(**UNIT, order=1, clip=True)(np.array([[np.inf, 0.0]])),
        r"inf in dimension 0; observations must be finite",
    ),
    (
        "nan although clipped",
        lambda: Fourier(**UNIT, order=1, clip=True)(np.array([[np.nan, 0.0]])),
        r"nan in dimension 0",
    ),
    ("no batch axis", lambda: Fourier(**UNIT, order=1)(np.array([0.5, 0.5])), r"\(n, 2\); got shape \(2,\); a single"),
    ("columns", lambda: Fourier(**UNIT, order=1)(np.zeros((4, 3))), r"\(n, 2\); got shape \(4, 3\)"),
    ("tilings", lambda: Tiles(**UNIT, n_tilings=0, tiles_per_dim=2), r"n_tilings is the number of grids.*got 0"),
    ("tiles", lambda: Tiles(**UNIT, n_tilings=2, tiles_per_dim=[2]), r"tiles_per_dim must be one number or .*\[2\]"),
    ("tiles zero", lambda: Tiles(**UNIT, n_tilings=2, tiles_per_dim=[2, 0]), r"tiles_per_dim is .* got 0"),
    ("many tiles", lambda: Tiles(**UNIT, n_tilings=8, tiles_per_dim=100), r"Tiles would have .*take fewer"),
    ("width", lambda: RandomFourier(**UNIT, dim=4, width=0.0), r"width is .* positive and finite; got 0.0"),
    ("widths", lambda: RandomFourier(**UNIT, dim=4, width=[1, 1, 1]), r"width must be one number or one per dimension"),
    ("dim", lambda: RandomFourier(**UNIT, dim=1, width=1), r"dim is .* at least 2; got 1"),
    ("seed", lambda: RandomFourier(**UNIT, dim=4, width=1, seed=-1), r"seed is the seed of the frequencies.*got -1"),
    ("centres", lambda: features.RBF(**UNIT, centres=[[0.0]], width=1), r"centres must have shape \(k, d\)"),
    ("no centres", lambda: features.RBF(**UNIT, centres=np.zeros((0, 2)), width=1), r"at least one point"),
    ("one centre", lambda: features.RBF(**UNIT, centres=1, width=1), r"centres is .* at least 2; got 1"),
    ("rbf width", lambda: features.RBF(**UNIT, centres=3, width=-1), r"width is .* got -1"),
    ("one-hot size", lambda: OneHot(0, 2), r"sizes is the number of values.*got 0"),
    ("one-hot actions", lambda: OneHot(3, 0), r"n_actions is the number of actions.*got 0"),
    ("one-hot start", lambda: OneHot([3, 3], 2, start=[1, 2, 3]), r"start must be one number, or one for each of 2"),
    ("one-hot start twice", lambda: OneHot(spaces.Discrete(3), 2, start=1), r"start is read from the space, Discrete"),
    ("one-hot box", lambda: OneHot(CARTPOLE, 2), r"space must be Discrete, MultiDiscrete or MultiBinary; got Box"),
    ("one-hot above", lambda: OneHot(3, 2)(0, np.array([0, 3])), r"state 1 .* 3 in entry 0, outside 0..2; give OneHot"),
    ("one-hot below", lambda: OneHot(3, 2, start=1)(0, np.array([0])), r"has 0 in entry 0, outside 1..3"),
    ("one-hot entry", lambda: OneHot([2, 3], 2)(0, np.array([[1, 3]])), r"has 3 in entry 1, outside 0..2"),
    ("one-hot floats", lambda: OneHot(3, 2)(0, np.array([1.0])), r"whole numbers, .* got dtype float64"),
    (
        "one-hot shape",
        lambda: OneHot([2, 3], 2)(0, np.array([1, 2])),
        r"of 2 whole numbers; got shape \(2,\)",
    ),
    ("one-hot huge", lambda: OneHot([1000] * 3, 2), r"2000000000 blocks, more than .*features.Dense"),
    ("dense sizes", lambda: Dense(lambda s: s), r"needs its sizes: Dense\(function, n_actions"),
    ("dense table norm", lambda: Dense(np.ones((2, 1, 4))), r"state 0 of the batch, action 0 the norm is 2; divide"),
    ("dense table shape", lambda: Dense(np.ones((2, 4))), r"source must have shape \(S, A, d\)"),
    ("dense table row", lambda: Dense(np.ones((2, 1, 1)))(0, np.array([0, 2])), r"state 1 of the batch is 2, outside"),
    ("dense negative row", lambda: Dense(np.ones((2, 1, 1)))(0, np.array([-1])), r"is -1, outside the rows 0..1"),
    (
        "dense function shape",
        lambda: Dense(lambda s: np.ones((1, 1, 1)), 2, 1)(0, np.zeros(1)),
        r"features must have shape \(n, A, d\) = \(1, 2, 1\)",
    ),
    (
        "dense function norm",
        lambda: Dense(lambda s: np.full((2, 1, 1), 1.01), 1, 1)(0, np.zeros(2)),
        r"norm is 1.01; divide all features",
    ),
    ("callable norm", user(np.array([[[0.5], [2.0]]])), r"state 0 of the batch, action 1 the norm is 2"),
    ("callable nan", user(np.array([[[0.5], [np.nan]]])), r"must be finite .* action 1 the norm is nan"),
    ("callable shape", user(np.ones((1, 3, 1))), r"vectors must have shape \(n, A, k\) = \(1, 2, 1\); got \(1, 3, 1\)"),
    ("callable blocks", user(np.ones((1, 2, 1)), n_blocks=2), r"must return \(vectors, blocks\) where there are 2"),
    ("block range", user((np.ones((1, 2, 1)), np.array([[0, 2]])), n_blocks=2), r"blocks must lie in 0..1; got 0..2"),
    ("block kind", user((np.ones((1, 2, 1)), np.zeros((1, 2)))), r"blocks must be whole numbers; got dtype float64"),
    ("not callable", lambda: features.FunctionFeatures(3, n_actions=1, block_dim=1), r"must be callable as"),  # type: ignore[arg-type]
    ("per action of function", lambda: PerAction(np.sin, 2), r"have a `dim`.*features.FunctionFeatures"),
    ("unfitted", lambda: Sklearn(RBFSampler(), 1.0), r"must be fitted: call RBFSampler.fit"),
    ("no transformer", lambda: Sklearn(np.sin, 1.0), r"must be a scikit-learn transformer; got ufunc"),
    ("low bound", lambda: Sklearn(fitted(), 0.1)(ROW), r"state 0 .* declare a larger norm_bound than 0.1"),
    ("bound", lambda: Sklearn(fitted(), 0.0), r"norm_bound is .* got 0.0"),
    ("fitted on", lambda: Sklearn(fitted(), 2.0, low=[0], high=[1]), r"fitted on 2 columns, but the range has 1"),
    ("clip alone", lambda: Sklearn(fitted(), 2.0, clip=True), r"clip needs a range"),
]


@pytest.mark.parametrize(("make", "match"), [(make, match) for _, make, match in BAD], ids=[name for name, _, _ in BAD])
def test_bad_input_is_refused_with_a_cure(make: Callable[[], object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


class TooLong:
    """State features of norm 2."""

    dim = 1

    def __call__(self, states: np.ndarray) -> np.ndarray:
        return np.full((len(states), 1), 2.0)


def test_own_state_features_are_checked() -> None:
    with pytest.raises(ValueError, match=r"state 0 of the batch the norm is 2; divide state_features"):
        PerAction(TooLong(), 2)(0, ROW)


def test_clip_moves_an_observation_to_the_end_of_its_range() -> None:
    psi = Fourier(**UNIT, order=2, clip=True)
    np.testing.assert_array_equal(psi(np.array([[-9.0, 7.0]])), psi(np.array([[0.0, 1.0]])))


def test_spaces_say_sizes_starts_and_bounds() -> None:
    assert OneHot(spaces.Discrete(3, start=5), 2)(0, np.array([7])).blocks.tolist() == [[4, 5]]
    assert OneHot(spaces.MultiDiscrete([2, 3], start=[1, 0]), 1)(0, np.array([[2, 2]])).blocks.tolist() == [[5]]
    assert OneHot(spaces.MultiBinary(3), 1)(0, np.array([[1, 0, 1]], dtype=np.int8)).blocks.tolist() == [[5]]
    box = spaces.Box(np.array([[0, 1], [2, 3]]), np.array([[1, 2], [3, 4]]), dtype=np.float64)
    assert Fourier(box, order=1).ranges.config() == {"low": [0, 1, 2, 3], "high": [1, 2, 3, 4], "clip": False}


# --- check_features -------------------------------------------------------------------------------------------------


class Sticky(gym.Env[Any, Any]):
    """A walk on [0, 2]; its space says [0, 1]."""

    observation_space = spaces.Box(0, 1, (1,), dtype=np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, top: float) -> None:
        self.top, self.t = top, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return np.full(1, self.top * self.t / 10), 0.0, self.t == 10, False, {}


def test_check_features_plays_and_sees_what_the_space_does_not_say() -> None:
    mapped = PerAction(Fourier(Sticky.observation_space, order=2), 2)
    assert check_features(mapped, Sticky(1.0), n=40).n_played == 40
    with pytest.raises(ValueError, match=r"has 1.2 in dimension 0, outside its range \[0, 1\]"):
        check_features(mapped, Sticky(2.0), n=40)


@pytest.mark.parametrize("name", ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v4", "MountainCar-v0"])
def test_check_features_passes_the_defaults(name: str) -> None:
    env = gym.make(name)
    mapped = default(env.observation_space, env.action_space)
    report = check_features(mapped, env, n=60, horizon=5)
    assert (report.n_sampled, report.n_played) == (60, 60)
    assert report.max_norm <= 1 + 1e-14
    assert report.batch_gap == 0.0
    assert 1 <= report.blocks_seen <= mapped.n_blocks


def test_check_features_of_cartpole_with_declared_ranges() -> None:
    env = gym.make("CartPole-v1")
    psi = Fourier(low=[-4.8, -3, -0.42, -3.5], high=[4.8, 3, 0.42, 3.5], order=2, clip=True)
    assert check_features(PerAction(psi, 2), env, n=100).block_dim == 81
    narrow = Fourier(low=[-4.8, -3, -0.42, -1], high=[4.8, 3, 0.42, 1], order=2)
    with pytest.raises(ValueError, match="in dimension 3, outside its range"):
        check_features(PerAction(narrow, 2), env, n=300)


def test_check_features_draws_nothing_of_anybody_elses() -> None:
    env = gym.make("MountainCar-v0")
    mapped = default(env.observation_space, env.action_space)
    env.observation_space.seed(7)
    env.action_space.seed(7)
    expected = [env.action_space.sample() for _ in range(20)], env.observation_space.sample()
    env.action_space.seed(7)
    env.observation_space.seed(7)
    before = np.random.get_state()[1].copy()  # type: ignore[index,union-attr] # noqa: NPY002
    first = check_features(mapped, env, n=30, seed=3)
    assert (np.random.get_state()[1] == before).all()  # type: ignore[index] # noqa: NPY002
    assert [env.action_space.sample() for _ in range(20)] == expected[0]
    np.testing.assert_array_equal(env.observation_space.sample(), expected[1])
    assert check_features(mapped, env, n=30, seed=3) == first
    assert check_features(mapped, env, n=30, seed=4) != first


BOXED = (spaces.Box(0, 1, (2,), dtype=np.float64), spaces.Discrete(2))


class Raw:
    """A feature map that checks nothing, as a user may write one."""

    n_actions, n_blocks, block_dim = 2, 1, 2

    def __init__(self, vectors: Callable[[int, np.ndarray], Any], stationary: bool = False) -> None:
        self.vectors, self.stationary = vectors, stationary

    def __call__(self, h: int, states: np.ndarray) -> Any:
        made = self.vectors(h, states)
        return made if isinstance(made, Phi) else Phi(made, np.zeros(made.shape[:2], dtype=np.int64))


def spread(states: np.ndarray) -> np.ndarray:
    return np.stack([states / 2, states[:, ::-1] / 2], axis=1)  # the second action sees them the other way round


def counting() -> Raw:
    calls = iter(range(10**6))
    return Raw(lambda h, s: spread(s) / (1 + next(calls)))


PLANTED: list[tuple[str, Callable[[], Any], str]] = [
    ("norm", lambda: Raw(lambda h, s: 3 * spread(s)), "norm at most 1, but at state .* divide all features"),
    ("nan", lambda: Raw(lambda h, s: spread(s) * np.nan), r"features\[0, 0, 0\] is nan"),
    ("not deterministic", counting, "must be deterministic"),
    ("over the batch", lambda: Raw(lambda h, s: spread(s) / len(s)), "by itself.*do not normalise over the batch"),
    ("level", lambda: Raw(lambda h, s: spread(s) / (h + 1), stationary=True), "stationary, but levels 0 and 2 differ"),
    ("block", lambda: Raw(lambda h, s: Phi(spread(s), np.full((len(s), 2), 1))), r"blocks must lie in 0..0; got 1..1"),
    ("shape", lambda: Raw(lambda h, s: spread(s)[:, :1]), r"vectors must have shape \(n, A, k\)"),
    ("no Phi", lambda: features_without_phi, "lacks n_actions, n_blocks, block_dim; see features.FunctionFeatures"),
    ("state features", lambda: Fourier(**UNIT, order=1), r"wrap it: features.PerAction\(Fourier\(...\), n_actions\)"),
    (
        "actions",
        lambda: PerAction(Fourier(**UNIT, order=1), 3),
        r"n_actions = 3, but the action space is Disc",
    ),
]


def features_without_phi(h: int, states: np.ndarray) -> np.ndarray:
    return spread(states)


@pytest.mark.parametrize(("make", "match"), [(m, t) for _, m, t in PLANTED], ids=[name for name, _, _ in PLANTED])
def test_check_features_finds_planted_faults(make: Callable[[], Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        check_features(make(), BOXED, n=20, horizon=4)


def test_check_features_without_faults_passes_the_raw_map() -> None:
    report = check_features(Raw(lambda h, s: spread(s), stationary=True), BOXED, n=20, horizon=4)
    assert report.max_norm < 1
    assert report.n_distinct == 20


def test_check_features_refuses_what_nothing_can_be_learned_from() -> None:
    with pytest.raises(ValueError, match="0 at every observation"):
        check_features(Raw(lambda h, s: 0 * spread(s)), BOXED, n=20)
    with pytest.raises(ValueError, match=r"the same for every action.*PerAction"):
        check_features(Raw(lambda h, s: np.repeat(s[:, None] / 2, 2, axis=1)), BOXED, n=20)
    constant = Raw(lambda h, s: np.broadcast_to(np.eye(2), (len(s), 2, 2)).copy())  # a bandit: no fault, but seen
    assert check_features(constant, BOXED, n=20).n_distinct == 1


def test_a_false_declaration_is_found_without_a_horizon() -> None:
    with pytest.raises(ValueError, match="declared stationary, but levels 0 and 1 differ"):
        check_features(Raw(lambda h, s: spread(s) / (1 + h), stationary=True), BOXED, n=20)
    lake = gym.make("FrozenLake-v1")
    for horizon in (1, 3):
        check_features(TableFeatures.one_hot(horizon, 16, 4), lake, n=20)


def test_check_features_refuses_vector_environments() -> None:
    envs = gym.make_vec("CartPole-v1", num_envs=2)
    with pytest.raises(ValueError, match="must be a single environment"):
        check_features(OneHot(3, 2), envs)
    envs.close()


# --- defaults -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dim", "order"), [(1, 5), (2, 3), (3, 3), (4, 1)])
def test_small_boxes_get_fourier_features_per_action(dim: int, order: int) -> None:
    mapped = default(spaces.Box(-1, 1, (dim,)), spaces.Discrete(3))
    assert isinstance(mapped, PerAction)
    assert isinstance(mapped.state_features, Fourier)
    assert mapped.state_features.order == order
    assert (mapped.n_blocks, mapped.block_dim) == (3, (order + 1) ** dim)


NO_DEFAULT: list[tuple[str, Any, Any, str]] = [
    ("many", spaces.Box(0, 1, (9,)), spaces.Discrete(2), r"up to 8 dimensions; .* 9 real .*RandomFourier.*, 2\)"),
    ("image", spaces.Box(0, 255, (8, 8, 3), dtype=np.uint8), spaces.Discrete(2), r"is an image; pass .*FunctionF"),
    ("huge", spaces.MultiDiscrete([100] * 12), spaces.Discrete(2), r"2e\+24 pairs .* features.Dense"),
    ("text", spaces.Dict({"a": spaces.Text(3)}), spaces.Discrete(2), r"part Text.* at \['a'\].*TransformObservation"),
    (
        "mixture",
        spaces.Tuple((spaces.Discrete(1000), spaces.Box(0, 1, (6,)))),
        spaces.Discrete(3),
        r"3000 combinations .* 22 features of its 6 real numbers: more than 20000; group",
    ),
    (
        "torque",
        spaces.Discrete(3),
        spaces.Box(-2, 2, (1,)),
        r"must be finite .*; got Box.*s4q.wrappers.DiscreteActions\(env, 5\)",
    ),
    ("tuple", spaces.Discrete(3), spaces.Tuple([spaces.Discrete(2)]), r"got Tuple.*ActionWrapper"),
]


@pytest.mark.parametrize(
    ("observations", "actions", "match"), [case[1:] for case in NO_DEFAULT], ids=[case[0] for case in NO_DEFAULT]
)
def test_where_there_is_no_default_the_cure_is_named(observations: Any, actions: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        default(observations, actions)


# --- optional packages ----------------------------------------------------------------------------------------------


def test_missing_packages_are_named_when_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    transformer = fitted()
    for name in ("gymnasium", "sklearn.exceptions", "sklearn.utils.validation"):
        monkeypatch.setitem(sys.modules, name, None)
    assert OneHot(3, 2).n_blocks == 6
    with pytest.raises(ImportError, match=r'pip install "s4q\[gym\]"'):
        OneHot(spaces.Discrete(3), 2)
    with pytest.raises(ImportError, match=r'pip install "s4q\[sklearn\]"'):
        Sklearn(transformer, 2.0)


def test_import_needs_neither_gymnasium_nor_sklearn() -> None:
    code = "import sys, s4q; assert not {'gymnasium', 'sklearn'} & set(sys.modules), 'imported too early'"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=900)
