"""Doctored files of an Agent: whatever its description is replaced by, it is read, or refused by a typed error."""

import io
import json
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from doctoring import doctored, refused, sealed

import s4q
from s4q.features import RBF, Fourier, PerAction, Tiles

NASTY: list[Any] = [
    None, True, -1, 0, 2**31, 2**63, 10**30, 10**300, -(10**30), 0.5, 1e308, -1e308, "", "x" * 50, [], [10**30], {},
    {"name": "OneHot"}, [[]], [None], [1e308, -1e308],
]  # fmt: skip
CAR = gym.make("MountainCar-v0")


def maps() -> Iterator[tuple[str, gym.Env, Any]]:
    space = CAR.observation_space
    yield "one-hot", gym.make("FrozenLake-v1"), None
    yield "fourier", CAR, PerAction(Fourier(space, order=2), 3)
    yield "tiles", CAR, PerAction(Tiles(space, n_tilings=2, tiles_per_dim=3), 3)
    yield "rbf", CAR, PerAction(RBF(space, centres=3, width=0.5), 3)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, gym.Env]]:
    folder, made = tmp_path_factory.mktemp("agents"), {}
    for name, env, features in maps():
        path = folder / f"{name}.s4q"
        s4q.Agent(env, features, horizon=4, reward_range=(-1, 1)).save(path)
        made[name] = path, env
    return made


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every part of a JSON value."""
    yield way
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inside:
        yield from places(part, (*way, key))


@pytest.mark.parametrize(
    "name", ["fourier", *(pytest.param(one, marks=pytest.mark.slow) for one in ("one-hot", "tiles", "rbf"))]
)
def test_any_part_of_the_description_replaced_is_read_or_refused(
    name: str, files: dict[str, tuple[Path, gym.Env]], tmp_path: Path
) -> None:
    path, env = files[name]
    problem = s4q.load(path).extra["problem"]
    refusals = 0
    rng = np.random.default_rng(0)
    ways = [way for way in places(problem) if len(way) < 5 or rng.random() < 0.1]  # not every number of a long list
    for way in ways:
        for nasty in [NASTY[i] for i in rng.permutation(len(NASTY))[:4]]:

            def edit(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
                place = next(one["fields"] for one in manifest["objects"] if one["kind"] == "Checkpoint")["extra"]
                for key in ("problem", *way)[:-1]:
                    place = place[key]
                place[("problem", *way)[-1]] = nasty

            bad = doctored(path, tmp_path, edit)
            before = time.process_time()
            try:
                s4q.Agent.load(bad, env)
            except ValueError:  # a CheckpointError is one
                refusals += 1
            assert time.process_time() - before < 5.0
    assert refusals > 20


@pytest.mark.parametrize(
    ("way", "value"),
    [
        (("start",), 2**63),
        (("start",), [10**30]),
        (("space",), 10**300),
        (("n_actions",), 2**31),
        (("n_actions",), "4"),
    ],
)
def test_numbers_that_are_too_large_for_a_map(
    way: tuple[str], value: Any, files: dict[str, tuple[Path, gym.Env]], tmp_path: Path
) -> None:
    """No bare OverflowError, and no array of that size."""
    path, env = files["one-hot"]

    def edit(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
        fields = next(one["fields"] for one in manifest["objects"] if one["kind"] == "Checkpoint")
        fields["extra"]["problem"]["features"]["parameters"][way[0]] = value

    with pytest.raises(s4q.CheckpointError, match=r"its features cannot be made again: .*previous good file"):
        s4q.Agent.load(doctored(path, tmp_path, edit), env)


@pytest.mark.parametrize("shape", [[0, 2**70], [0, 2**63], [2**70, 0], [0, 10**300], [1] * 70])
def test_sizes_that_no_array_can_have(shape: list[int], files: dict[str, tuple[Path, gym.Env]], tmp_path: Path) -> None:
    """An array without numbers may claim any other size, and that is no reason for an OverflowError."""

    def edit(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
        empty = next((entry for entry in manifest["arrays"].values() if 0 in entry["shape"]), None)
        if empty is None:
            manifest["arrays"]["extra"] = empty = {"dtype": "<f8", "shape": []}
        empty["shape"] = shape
        if len(shape) > 60:  # one number in seventy dimensions
            numbers = np.load(io.BytesIO(members["float64.npy"]))
            buffer = io.BytesIO()
            np.save(buffer, np.append(numbers, 0.0))
            members["float64.npy"] = buffer.getvalue()

    refused(doctored(files["one-hot"][0], tmp_path, edit), "is not a checkpoint that can be read")


@pytest.mark.parametrize("number", ["1e400", "-1e999", "1" * 5000, "NaN", "Infinity"])
def test_numbers_that_no_float_can_hold(number: str, files: dict[str, tuple[Path, gym.Env]], tmp_path: Path) -> None:
    """Every number of the manifest, one after the other."""
    path, _ = files["one-hot"]
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    numbers = [way for way in places(manifest["objects"]) if isinstance(at(manifest["objects"], way), (int, float))]
    chosen = np.random.default_rng(0).permutation(len(numbers))[:40]
    for index in chosen.tolist():
        way = numbers[index]

        def edit(manifest: dict[str, Any], members: dict[str, bytes]) -> None:
            at(manifest["objects"], way[:-1])[way[-1]] = "THE NUMBER"

        bad = doctored(path, tmp_path, edit)
        raw(bad, lambda text: text.replace('"THE NUMBER"', number))
        try:
            s4q.load(bad)
        except s4q.CheckpointError:
            continue


def at(value: Any, way: tuple[Any, ...]) -> Any:
    for key in way:
        value = value[key]
    return value


def raw(path: Path, change: Any) -> None:
    """Change the text of the manifest, which need not be JSON afterwards."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["manifest.json"] = change(members["manifest.json"].decode()).encode()
    path.write_bytes(sealed(members))
