"""Feature maps: one battery that every public class passes."""

import dataclasses
import inspect
import json
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from sklearn.kernel_approximation import RBFSampler

import s4q
from s4q import Phi, Spec, features
from s4q.core.blocks import dense
from s4q.features import OneHot, PerAction, TableFeatures, check_features
from s4q.features.registry import from_config, register, registered, to_config

LOW, HIGH = [-1.0, 0.0, 10.0], [1.0, 5.0, 10.5]
A = 3


def boxed(seed: int = 0, n: int = 200) -> np.ndarray:
    """Observations of the box LOW..HIGH: its corners, neighbours of them, and points inside."""
    corners = np.array(list(product(*zip(LOW, HIGH, strict=True))))
    middle = (np.array(LOW) + np.array(HIGH)) / 2
    inside = np.random.default_rng(seed).uniform(LOW, HIGH, (n, 3))
    return np.concatenate([corners, np.nextafter(corners, middle), middle[None], inside])


def circle(h: int, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    angles = states[:, :1] + h + np.arange(A)
    blocks = np.broadcast_to(np.arange(A) % 2, angles.shape)
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1), blocks


def directions(states: np.ndarray) -> np.ndarray:
    return np.stack([np.cos(states + a) / np.sqrt(3) for a in range(A)], axis=1)


class OwnStateFeatures:
    """What a user may write: dim and a call."""

    dim = 3

    def __call__(self, states: np.ndarray) -> np.ndarray:
        return np.sin(states) / np.sqrt(3)


def sampler() -> features.Sklearn:
    fitted = RBFSampler(n_components=12, random_state=0).fit(np.zeros((1, 3)))
    return features.Sklearn(fitted, norm_bound=np.sqrt(2), low=LOW, high=HIGH)


def table(seed: int = 0, horizon: int = 4) -> TableFeatures:
    rng = np.random.default_rng(seed)
    return TableFeatures(rng.uniform(-0.5, 0.5, (horizon, 7, A, 2)), rng.integers(0, 5, (horizon, 7, A)), 5)


BOX: dict[str, Any] = {"low": LOW, "high": HIGH}
LAMP_AND_PLACE = spaces.Dict({"lamp": spaces.Discrete(3, start=1), "place": spaces.Box(-np.inf, np.inf, (3,))})


def objects(rows: list[Any]) -> np.ndarray:
    batch = np.empty(len(rows), dtype=object)
    for i, row in enumerate(rows):
        batch[i] = row
    return batch


def lamps_and_places() -> np.ndarray:
    return objects([{"lamp": 1 + i % 3, "place": row} for i, row in enumerate(boxed())])


def hands() -> np.ndarray:
    return objects([(card, np.array(flags, dtype=np.int8)) for card in range(4) for flags in product((0, 1), repeat=2)])


CASES: dict[str, tuple[Callable[[], Any], np.ndarray]] = {
    "one-hot": (lambda: OneHot(7, A, start=-2), np.arange(-2, 5)),
    "one-hot of three": (lambda: OneHot([2, 4, 3], A), np.indices((2, 4, 3)).reshape(3, -1).T),
    "table": (table, np.arange(7)),
    "stationary table": (lambda: TableFeatures.one_hot(4, 7, A), np.arange(7)),
    "dense table": (lambda: features.Dense(table().vectors[0]), np.arange(7)),
    "dense function": (lambda: features.Dense(directions, n_actions=A, dim=3), boxed()),
    "callable": (lambda: features.FunctionFeatures(circle, n_actions=A, n_blocks=2, block_dim=2), boxed()),
    "own state features": (lambda: PerAction(OwnStateFeatures(), A), boxed()),
    "Fourier": (lambda: PerAction(features.Fourier(**BOX, order=3), A), boxed()),
    "Tiles": (lambda: PerAction(features.Tiles(**BOX, n_tilings=4, tiles_per_dim=[2, 3, 1]), A), boxed()),
    "RBF": (lambda: PerAction(features.RBF(**BOX, centres=3, width=0.3), A), boxed()),
    "random Fourier": (lambda: PerAction(features.RandomFourier(**BOX, dim=40, width=0.3, seed=5), A), boxed()),
    "random Fourier and 1": (lambda: PerAction(features.RandomFourier(**BOX, dim=17, width=[1, 2, 3]), A), boxed()),
    "scikit-learn": (lambda: PerAction(sampler(), A), boxed()),
    "pairs of dimensions": (lambda: PerAction(features.Fourier(**BOX, order=2, interactions=2), A), boxed()),
    "mixture": (lambda: features.Mixed(LAMP_AND_PLACE, A, features.Fourier(**BOX, order=1)), lamps_and_places()),
    "hands": (lambda: features.Mixed(spaces.Tuple((spaces.Discrete(4), spaces.MultiBinary(2))), A), hands()),
}
NO_CONSTANT = {"table", "dense table", "dense function", "callable", "own state features", "random Fourier"}
NO_CONSTANT |= {"scikit-learn"}
every = pytest.mark.parametrize("case", CASES)


def made(case: str) -> tuple[Any, np.ndarray]:
    make, states = CASES[case]
    return make(), states.copy()


def test_every_public_class_is_in_the_battery_and_in_the_registry() -> None:
    public = {name for name in features.__all__ if inspect.isclass(getattr(features, name))}
    maps = [make() for make, _ in CASES.values()]
    maps += [one.state_features for one in maps if isinstance(one, PerAction)]
    assert public <= {type(one).__name__ for one in maps}
    assert public <= set(registered())
    assert len(public) == 11
    for name in public:
        assert getattr(getattr(features, name), "__final__", False), f"{name} must be final"


@every
def test_sizes_fit_the_declared_ones_and_a_spec(case: str) -> None:
    mapped, states = made(case)
    phi = mapped(1, states)
    assert isinstance(phi, Phi)
    assert phi.vectors.shape == (len(states), mapped.n_actions, mapped.block_dim)
    assert phi.blocks.shape == (len(states), mapped.n_actions)
    assert phi.vectors.dtype == np.float64
    assert phi.blocks.dtype == np.int64
    assert 0 <= phi.blocks.min() <= phi.blocks.max() < mapped.n_blocks
    spec = Spec.of(mapped, horizon=3, reward_range=(0, 1))
    assert (spec.n_actions, spec.n_blocks, spec.block_dim) == (A, mapped.n_blocks, mapped.block_dim)
    none = mapped(0, states[:0])
    assert none.vectors.shape == (0, A, mapped.block_dim)
    assert none.blocks.shape == (0, A)


@every
def test_a_map_prints_in_one_short_line(case: str) -> None:
    mapped, _ = made(case)
    for one in (mapped, getattr(mapped, "state_features", mapped)):
        if type(one).__module__.startswith("s4q"):
            assert repr(one).startswith(f"{type(one).__name__}(")
            assert len(repr(one)) < 100
            assert "\n" not in repr(one)


@every
def test_norm_is_at_most_one(case: str) -> None:
    mapped, states = made(case)
    norms = np.linalg.norm(mapped(0, states).vectors, axis=-1)
    assert np.isfinite(norms).all()
    assert norms.max() <= 1 + 1e-14
    if case.split()[0] in {"one-hot", "Tiles", "random"}:
        np.testing.assert_allclose(norms, 1.0, rtol=1e-14)


@every
def test_a_row_of_a_batch_has_the_bits_of_the_row_alone(case: str) -> None:
    mapped, states = made(case)
    whole = mapped(0, states)
    for rows in ([0], [3], [len(states) - 1], [2, 1], list(range(1, 6)), list(range(len(states) - 1, -1, -2))):
        part = mapped(0, states[rows])
        np.testing.assert_array_equal(part.blocks, whole.blocks[rows])
        if case == "scikit-learn":  # its products are BLAS, which rounds by the size of the batch
            np.testing.assert_allclose(part.vectors, whole.vectors[rows], rtol=0, atol=1e-14)
        else:
            np.testing.assert_array_equal(part.vectors, whole.vectors[rows])


@every
def test_same_bits_twice_and_nothing_is_changed(case: str) -> None:
    mapped, states = made(case)
    before = states.copy()
    first = mapped(0, states)
    kept = first.vectors.copy(), first.blocks.copy()
    again, other = made(case)[0](0, states), mapped(0, states[::-1])
    np.testing.assert_array_equal(states, before)
    for phi in (first, again):
        np.testing.assert_array_equal(phi.vectors, kept[0])
        np.testing.assert_array_equal(phi.blocks, kept[1])
    np.testing.assert_array_equal(other.vectors[::-1], kept[0])


@every
def test_stationary_maps_ignore_the_level_and_others_do_not(case: str) -> None:
    mapped, states = made(case)
    first, later = mapped(0, states), mapped(2, states)
    same = np.array_equal(first.vectors, later.vectors) and np.array_equal(first.blocks, later.blocks)
    assert mapped.stationary == same
    assert mapped.stationary == (case not in {"table", "callable"})


@every
def test_maps_are_frozen(case: str) -> None:
    mapped, _ = made(case)
    for one in (mapped, getattr(mapped, "state_features", mapped)):
        if not isinstance(one, OwnStateFeatures):
            with pytest.raises(dataclasses.FrozenInstanceError):
                one.custom = True
            assert repr(one).startswith(type(one).__name__ + "(")


@every
def test_written_down_and_made_again_it_has_the_same_bits(case: str) -> None:
    mapped, states = made(case)
    config = json.loads(json.dumps(to_config(mapped), allow_nan=False))
    if case in {"dense function", "callable", "own state features", "scikit-learn"}:
        sizes = {"n_actions": A, "n_blocks": mapped.n_blocks, "block_dim": mapped.block_dim}
        assert config == {"name": type(mapped).__name__, "custom": True} | sizes
        with pytest.raises(ValueError, match=f"{type(mapped).__name__} holds code of your own.*pass the map again"):
            from_config(config)
        return
    again = from_config(config)
    assert type(again) is type(mapped)
    assert to_config(again) == config
    for h in range(3):
        one, two = mapped(h, states), again(h, states)
        np.testing.assert_array_equal(one.vectors, two.vectors)
        np.testing.assert_array_equal(one.blocks, two.blocks)


@pytest.mark.parametrize("case", sorted(set(CASES) - {"scikit-learn"}))
def test_state_features_are_written_down_too(case: str) -> None:
    mapped, states = made(case)
    psi = getattr(mapped, "state_features", None)
    if psi is not None and not mapped.custom:
        np.testing.assert_array_equal(from_config(to_config(psi))(states), psi(states))


@every
def test_constants_are_linear_within_the_default_radius(case: str) -> None:
    """phi.theta = 1 at every pair with |theta| <= sqrt(d): an offset of the targets costs no bias."""
    mapped, states = made(case)
    phi = mapped(0, states[:60])
    long = dense(phi.vectors.reshape(-1, mapped.block_dim), phi.blocks.ravel(), mapped.n_blocks)
    theta = np.linalg.lstsq(long, np.ones(len(long)), rcond=None)[0]
    exact = bool(np.abs(long @ theta - 1).max() < 1e-9)
    assert exact == (case not in NO_CONSTANT)
    if exact:
        assert np.linalg.norm(theta) <= np.sqrt(mapped.n_blocks * mapped.block_dim) + 1e-9


def test_per_action_features_are_products_with_unit_vectors() -> None:
    mapped, states = made("Fourier")
    phi, psi = mapped(0, states), mapped.state_features(states)
    long = dense(phi.vectors, phi.blocks, A)
    for i, a in product(range(0, len(states), 17), range(A)):
        np.testing.assert_array_equal(long[i, a], np.kron(np.eye(A)[a], psi[i]))


def test_one_hot_numbers_the_states_in_row_order() -> None:
    mapped, states = made("one-hot of three")
    flat = np.ravel_multi_index(tuple(states.T), (2, 4, 3))
    np.testing.assert_array_equal(mapped(0, states).blocks, flat[:, None] * A + np.arange(A))
    same = TableFeatures.one_hot(1, 24, A)(0, flat)
    np.testing.assert_array_equal(mapped(0, states).vectors, same.vectors)
    np.testing.assert_array_equal(mapped(0, states).blocks, same.blocks)


def test_views_cannot_be_written() -> None:
    """Every action shows the same memory: writing to one would change all."""
    for case in ("one-hot", "Fourier"):
        mapped, states = made(case)
        phi = mapped(0, states)
        with pytest.raises(ValueError, match="read-only"):
            phi.vectors[0, 0, 0] = 5.0


def test_a_function_that_uses_its_buffer_again_does_no_harm() -> None:
    buffer = np.zeros((2, 1, 1))

    def lazy(states: np.ndarray) -> np.ndarray:
        buffer[:, 0, 0] = states
        return buffer

    by_level = features.FunctionFeatures(lambda h, states: lazy(states), n_actions=1, block_dim=1)
    for mapped in (features.Dense(lazy, n_actions=1, dim=1), by_level):
        first = mapped(0, np.array([0.1, 0.2]))
        mapped(0, np.array([0.3, 0.4]))
        assert first.vectors.ravel().tolist() == [0.1, 0.2]


class Mine:
    """A user's own class that files can name."""

    custom = False
    dim = 1

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, states: np.ndarray) -> np.ndarray:
        return np.full((len(states), 1), self.scale)

    def config(self) -> dict[str, float]:
        return {"scale": self.scale}


def test_own_classes_can_be_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_CLASSES", "_BUILDERS"):
        monkeypatch.setattr(features.registry, name, dict(getattr(features.registry, name)))
    mapped = PerAction(Mine(0.1 + 0.2), 2)
    with pytest.raises(ValueError, match=r"Mine is not a class that files can name.*register"):
        to_config(mapped)
    register(Mine)
    again = from_config(json.loads(json.dumps(to_config(mapped))))
    assert again.state_features.scale == 0.1 + 0.2
    with pytest.raises(ValueError, match="the name Mine is taken"):
        register(type("Mine", (), {}))


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({"name": "Pickle", "parameters": {}}, "no feature map called 'Pickle'; known are"),
        ({"name": "OneHot", "parameters": {"space": [3], "actions": 2}}, "parameters of OneHot are not those it takes"),
        ({"name": "OneHot", "parameters": [3, 2]}, "parameters of OneHot must be a dict; got list"),
        ({"name": "OneHot", "parameters": {"space": [10**9, 10**9], "n_actions": 2}}, "would need .* blocks"),
        ({"name": "OneHot"}, "must be a dict; got NoneType"),
        ({"parameters": {}}, "its name and parameters"),
        ("OneHot", "its name and parameters"),
        (
            {"name": "FunctionFeatures", "parameters": {"function": "eval", "n_actions": 1, "block_dim": 1}},
            "must be callable",
        ),
        ({"name": "Sklearn", "parameters": {"transformer": {}, "norm_bound": 1.0}}, "scikit-learn transformer"),
        ({"name": "RandomFourier", "parameters": {"low": [0], "high": [1], "dim": 10**12, "width": 1}}, "more than"),
    ],
)
def test_bad_files_are_refused(config: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        from_config(config)


def test_a_learner_takes_every_kind_of_map_over_states() -> None:
    """One-hot features give the same policy as the table a FiniteMDP makes of itself."""
    mdp = s4q.problems.chain()
    mapped = OneHot(mdp.n_states, mdp.n_actions)
    spec = Spec.of(mapped, horizon=mdp.horizon, reward_range=(0, 1))
    assert (spec.n_blocks, spec.block_dim) == (mdp.spec.n_blocks, mdp.spec.block_dim)
    tabulated = TableFeatures.tabulated(mapped, mdp.horizon, mdp.n_states)
    np.testing.assert_array_equal(tabulated.blocks, TableFeatures.one_hot(mdp.horizon, mdp.n_states, 2).blocks)


@every
def test_check_features_passes_every_map(case: str) -> None:
    from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

    mapped, _ = made(case)
    spaces = {
        "one-hot": Discrete(7, start=-2),
        "one-hot of three": MultiDiscrete([2, 4, 3]),
        "table": Discrete(7),
        "stationary table": Discrete(7),
        "dense table": Discrete(7),
        "mixture": Dict({"lamp": Discrete(3, start=1), "place": Box(np.array(LOW), np.array(HIGH), dtype=np.float64)}),
        "hands": Tuple((Discrete(4), MultiBinary(2))),
    }
    space = spaces.get(case, Box(np.array(LOW), np.array(HIGH), dtype=np.float64))
    report = check_features(mapped, (space, Discrete(A)), n=150, horizon=4)
    assert (report.n_sampled, report.n_played) == (150, 0)
    assert (report.n_actions, report.n_blocks, report.block_dim) == (A, mapped.n_blocks, mapped.block_dim)
    assert 0 < report.max_norm <= 1 + 1e-14
    assert report.batch_gap <= 1e-14
