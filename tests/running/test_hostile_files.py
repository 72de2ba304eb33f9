"""Damaged and doctored checkpoints: a typed error at once, nothing run, the previous good file offered."""

import errno
import hashlib
import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doctoring import Edit, Members, doctored, opened, refused, sealed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import s4q
from s4q.collectors import CountCollector
from s4q.core.codec import Packed, pack, unpack
from s4q.core.least_squares import Moments
from s4q.core.optimism import QLevel
from s4q.learners.step_memory import StepMemory
from s4q.running.checkpoint import SCHEMA
from s4q.running.progress import Progress

RIVER = s4q.problems.river_swim(4, 5)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in the middle of S3Q, with a record and a previous file."""
    path = tmp_path_factory.mktemp("good") / "run.s4q"
    learner = s4q.S4Q(RIVER, memory="policies")
    collector = CountCollector(RIVER, seed=1)

    def preparing(run: s4q.Run) -> bool:
        return run.phases > 3 and learner.open_phase is None

    s4q.run(learner, collector, 400, record=True, checkpoint=path, stop=preparing)
    assert s4q.load(path).learner.phases > 3
    return path


def npy(array: Any, allow_pickle: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array), allow_pickle=allow_pickle)
    return buffer.getvalue()


MEMBERS = {"<f8": "float64.npy", "<i8": "int64.npy", "|b1": "bool.npy"}


def with_arrays(change: Callable[[dict[str, Any]], None]) -> Edit:
    """An edit of the arrays by their names."""

    def edit(manifest: dict[str, Any], members: Members) -> None:
        numbers = {dtype: np.load(io.BytesIO(members[name])) for dtype, name in MEMBERS.items()}
        arrays = {}
        for name, entry in manifest["arrays"].items():
            part, numbers[entry["dtype"]] = np.split(numbers[entry["dtype"]], [int(np.prod(entry["shape"]))])
            arrays[name] = part.reshape(entry["shape"])
        change(arrays)
        manifest["arrays"] = {name: {"dtype": a.dtype.str, "shape": list(a.shape)} for name, a in arrays.items()}
        for dtype, name in MEMBERS.items():
            parts = [array.ravel() for array in arrays.values() if array.dtype.str == dtype]
            members[name] = npy(np.concatenate([np.zeros(0, dtype), *parts]))

    return edit


def replace_array(name: str, array: Any) -> Edit:
    def change(arrays: dict[str, Any]) -> None:
        arrays[next(key for key in arrays if key.endswith(f".{name}"))] = np.asarray(array)

    return with_arrays(change)


def first(manifest: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(one["fields"] for one in manifest["objects"] if one["kind"] == kind)


def set_field(kind: str, name: str, value: Any) -> Edit:
    return lambda manifest, members: first(manifest, kind).__setitem__(name, value)


def test_the_doctor_can_leave_a_file_whole(good: Path, tmp_path: Path) -> None:
    path = doctored(good, tmp_path, lambda manifest, members: None)
    assert s4q.load(path).learner.phases == s4q.load(good).learner.phases


def test_any_flipped_bit_is_noticed(good: Path, tmp_path: Path) -> None:
    data = good.read_bytes()
    rng = np.random.default_rng(0)
    path = tmp_path / "flipped.s4q"
    ends = [0, 1, 29, len(data) - 1, len(data) - 64, len(data) - 65, len(data) - 80]  # zip headers and the digest
    for at in [*ends, *rng.integers(len(data), size=80).tolist()]:
        flipped = bytearray(data)
        flipped[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        refused(path, "is not a checkpoint that can be read")


def test_any_truncation_is_noticed(good: Path, tmp_path: Path) -> None:
    data = good.read_bytes()
    path = tmp_path / "cut.s4q"
    for length in [0, 1, 22, len(data) - 1, len(data) - 64, *np.random.default_rng(1).integers(len(data), size=40)]:
        path.write_bytes(data[:length])
        refused(path, "is not a checkpoint that can be read")
    for extended in (data + b"\0", b"\0" + data, data + data):
        path.write_bytes(extended)
        refused(path, "is not a checkpoint that can be read")


def test_the_previous_good_file_is_offered(good: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.s4q"
    refused(path, "it does not exist; there is no previous file; start again")
    (tmp_path / "run.s4q.previous").write_bytes(good.read_bytes())
    refused(path, rf"it does not exist; the previous good file is {path}\.previous")
    path.write_bytes(good.read_bytes()[:-1])
    refused(path, rf"the previous good file is {path}\.previous")
    assert s4q.load(f"{path}.previous").learner.phases > 3


def test_not_a_zip_and_not_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run.s4q"
    path.write_bytes(b"not a zip at all" * 1000)
    refused(path, "not a zip file")
    refused(tmp_path, "it is a folder")
    np.savez(tmp_path / "plain.npz", theta=np.ones(3))
    refused(tmp_path / "plain.npz", "it has no manifest.json")


@pytest.mark.parametrize("schema", range(1, SCHEMA))
def test_an_older_schema_says_who_wrote_it(good: Path, tmp_path: Path, schema: int) -> None:
    older = doctored(good, tmp_path, lambda manifest, _: manifest.update(schema=schema, s4q="0.0.1"))
    refused(older, f"it has schema {schema}, written by s4q 0.0.1, and this one reads {SCHEMA}: begin anew")


def test_a_newer_schema_says_what_to_install(good: Path, tmp_path: Path) -> None:
    def newer(manifest: dict[str, Any], members: Members) -> None:
        manifest.update(schema=SCHEMA + 1, s4q="3.1.0", brand_new={})

    says = f"it has schema {SCHEMA + 1} and this s4q reads up to {SCHEMA}: install s4q 3.1.0 or newer"
    refused(doctored(good, tmp_path, newer), says)


class Bomb:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return open, (Bomb.path, "w")

    path = ""


def test_a_pickle_inside_is_never_opened(good: Path, tmp_path: Path) -> None:
    Bomb.path = str(tmp_path / "executed")
    array = np.array([Bomb()], dtype=object)

    def pickled(manifest: dict[str, Any], members: Members) -> None:
        members["float64.npy"] = npy(array, allow_pickle=True)

    refused(doctored(good, tmp_path, pickled), r"dtype \|O.*never Python objects")

    def described(manifest: dict[str, Any], members: Members) -> None:
        next(iter(manifest["arrays"].values()))["dtype"] = "|O"

    refused(doctored(good, tmp_path, described), "only float64, int64 and bool are read")

    def raw(manifest: dict[str, Any], members: Members) -> None:
        members["float64.npy"] = pickle.dumps(Bomb())

    refused(doctored(good, tmp_path, raw), "is not a checkpoint")
    assert not Path(Bomb.path).exists()
    pickle.loads(pickle.dumps(Bomb())).close()
    assert Path(Bomb.path).exists()  # it would have worked


def test_zip_bombs(good: Path, tmp_path: Path) -> None:
    manifest, members = opened(good)
    path = tmp_path / "bomb.s4q"
    name = next(iter(members))
    bomb = {"manifest.json": json.dumps(manifest).encode(), **members, name: b"\0" * 5 * 10**7}
    path.write_bytes(sealed(bomb, zipfile.ZIP_DEFLATED))
    assert path.stat().st_size < 10**6
    refused(path, "is compressed or encrypted, so its size cannot be trusted")
    path.write_bytes(sealed({**bomb, name: b"\0" * 10**6}, zipfile.ZIP_LZMA))
    refused(path, "is compressed or encrypted")

    def huge_shape(manifest: dict[str, Any], members: Members) -> None:
        header = {"descr": "<f8", "fortran_order": False, "shape": (2**40, 2**40)}
        buffer = io.BytesIO()
        np.lib.format.write_array_header_1_0(buffer, header)
        members[name] = buffer.getvalue()

    refused(doctored(good, tmp_path, huge_shape), r"claims shape \(1099511627776, 1099511627776\) but holds 0 bytes")

    def huge_array(manifest: dict[str, Any], members: Members) -> None:
        next(iter(manifest["arrays"].values()))["shape"] = [2**40, 2**40]

    refused(doctored(good, tmp_path, huge_array), r"claims shape \(1099511627776, 1099511627776\) but only \d+ numbers")


def test_members_that_overlap(good: Path, tmp_path: Path) -> None:
    """Many names for the same bytes: small on disk, endless in memory."""
    data = bytearray(sealed({f"a{i}.npy": b"\0" * 1000 for i in range(50)}))
    start = data.rindex(b"PK\x05\x06")
    at = int.from_bytes(data[start + 16 : start + 20], "little")
    total = 0
    while data[at : at + 4] == b"PK\x01\x02":
        claimed = start - 100  # each member is nearly the whole file
        data[at + 20 : at + 28] = claimed.to_bytes(4, "little") * 2
        total += claimed
        at += 46 + int.from_bytes(data[at + 28 : at + 30], "little")
    path = tmp_path / "overlap.s4q"
    path.write_bytes(data)
    assert total > 10 * len(data)
    refused(path, "its members claim to be larger than the file")


BAD_NAMES = ["../escape.npy", "/etc/passwd.npy", "a/../b.npy", "C:\\x.npy", "a\n.npy", "x.py", "é.npy"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_are_not_allowed(good: Path, tmp_path: Path, name: str) -> None:
    def edit(manifest: dict[str, Any], members: Members) -> None:
        members[name] = npy(np.zeros(1))

    refused(doctored(good, tmp_path, edit), "a name that is not allowed")
    assert not (tmp_path.parent / "escape.npy").exists()


def test_duplicate_members(good: Path, tmp_path: Path) -> None:
    manifest, members = opened(good)
    name = next(iter(members))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.comment = b"0" * 64
        archive.writestr("manifest.json", json.dumps(manifest))
        for key, data in members.items():
            archive.writestr(key, data)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr(name, members[name])
    body = buffer.getvalue()[:-64]
    path = tmp_path / "twice.s4q"
    path.write_bytes(body + hashlib.sha256(body).hexdigest().encode())
    refused(path, "two of its members have the same name")


def pop_member(manifest: dict[str, Any], members: Members) -> None:
    members.pop(next(iter(members)))


def pop_described(manifest: dict[str, Any], members: Members) -> None:
    manifest["arrays"].popitem()


def of_numbers(name: str, **entry: Any) -> Edit:
    return lambda manifest, members: manifest["arrays"].update({name: entry})


def itself(manifest: dict[str, Any], members: Members) -> None:
    first(manifest, "PhaseRecord")["q"] = {
        "object": next(i for i, one in enumerate(manifest["objects"]) if one["kind"] == "PhaseRecord")
    }


def loop_of_objects(manifest: dict[str, Any], members: Members) -> None:
    first(manifest, "S4Q")["_s3q"] = {"object": 0}


def deep(manifest: dict[str, Any], members: Members) -> None:
    nested: Any = 0
    for _ in range(400):
        nested = [nested]
    first(manifest, "Spec")["horizon"] = nested


EDITS: dict[str, tuple[Edit, str]] = {
    "member missing": (pop_member, r"it has no float64\.npy"),
    "array not described": (pop_described, r"holds \d+ numbers of no array"),
    "array that nothing uses": (with_arrays(lambda arrays: arrays.update(idle=np.zeros(1))), "nothing refers to idle"),
    "array without numbers": (of_numbers("more", dtype="<f8", shape=[1]), r"more claims shape \(1,\) but only 0 num"),
    "negative size": (of_numbers("more", dtype="<f8", shape=[0, -1]), "more must have a shape of whole numbers"),
    "no shape": (of_numbers("more", dtype="<f8"), "more must have a shape and a dtype"),
    "wrong shape": (replace_array("theta", np.zeros((9, 1))), r"must have shape"),
    "shape of another problem": (replace_array("gram", np.zeros((1, 8, 2, 2))), r"must have shape"),
    "too few numbers": (replace_array("residuals", np.zeros(4)), r"residuals must have shape .* = \(5,\); got \(4,\)"),
    "wrong dtype": (replace_array("theta", np.zeros((8, 1), dtype=np.float32)), "a dtype; only float64"),
    "another dtype": (replace_array("theta", np.zeros((8, 1), dtype=np.int64)), "must have dtype <f8; got <i8"),
    "Fortran order": (lambda _, m: m.update({"float64.npy": npy(np.ones((2, 8)).T)}), r"claims shape \(8, 2\) but"),
    "NaN": (replace_array("theta", np.full((8, 1), np.nan)), "theta must be finite"),
    "no such object": (set_field("S4Q", "memory", {"object": 10**6}), "refers to object 1000000, which does not exist"),
    "object of another kind": (set_field("S4Q", "memory", {"object": 0}), "does not exist or holds itself"),
    "a kind that is not there": (set_field("S4Q", "memory", {"object": True}), "refers to object True"),
    "cycle": (itself, "holds itself"),
    "longer cycle": (loop_of_objects, "holds itself"),
    "no such array": (set_field("S4Q", "_gram", {"array": "nowhere"}), "the array 'nowhere', which does not exist"),
    "field missing": (lambda m, _: first(m, "S4Q").pop("_phase"), r"S4Q\.\d+\._phase is missing"),
    "field too many": (set_field("S4Q", "code", "import os"), r"S4Q\.\d+ must not have a field 'code'"),
    "text for a number": (set_field("S4Q", "_phase", "three"), r"phase must be a whole number .*got 'three'"),
    "negative": (set_field("S4Q", "_n_main", -1), "n_main must be a whole number of at least 0; got '-1'"),
    "bool for a number": (set_field("S4Q", "_phase", True), "phase must be a whole number"),
    "huge horizon": (set_field("Spec", "horizon", 10**12), "value_bound needs one number per level"),
    "huge features": (set_field("Spec", "n_blocks", 10**12), "must have shape"),
    "unknown preset": (set_field("Constants", "preset", "evil"), "preset must be one of"),
    "delta": (set_field("Constants", "delta", 2.0), "delta is a failure probability"),
    "deep": (deep, "horizon must be a whole number"),
    "counts": (set_field("Entry", "n_episodes", 0), "n_episodes must be a whole number of at least 1; got '0'"),
    "no count": (lambda m, _: first(m, "Entry").pop("n_episodes"), r"Entry\.\d+\.n_episodes is missing"),
    "more main episodes": (set_field("Progress", "episodes", 0), "main loops cannot have"),
    "no schema": (lambda m, _: m.pop("schema"), "its schema is None"),
    "no arrays": (lambda m, _: m.update(arrays=[]), "names no arrays"),
    "no objects": (lambda m, _: m.update(objects={}), "does not describe a checkpoint"),
    "something else": (lambda m, _: m.update(code="x"), "does not describe a checkpoint"),
    "bare object": (lambda m, _: m["objects"].__setitem__(0, 3), "object 0 must be a kind and its fields"),
    "extra": (set_field("Checkpoint", "extra", 3), "extra must be an object"),
}


@pytest.mark.parametrize("name", EDITS)
def test_doctored_files(good: Path, tmp_path: Path, name: str) -> None:
    edit, says = EDITS[name]
    refused(doctored(good, tmp_path, edit), says)


def test_another_digest_at_the_end(good: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.s4q"
    path.write_bytes(good.read_bytes()[:-64] + b"0" * 64)
    refused(path, "its bytes do not match their SHA-256")


def test_a_manifest_that_is_not_an_object_or_not_json(tmp_path: Path) -> None:
    path = tmp_path / "run.s4q"
    for text in (b"[]", b"{", b"\xff\xfe", b"[" * 200_000, b"1" * 10_000):
        path.write_bytes(sealed({"manifest.json": text}))
        refused(path, "is not a checkpoint that can be read")


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the numbers, names and references of a manifest stand."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from leaves(one, (*path, key))
    elif isinstance(value, list):
        for i, one in enumerate(value):
            yield from leaves(one, (*path, i))
    else:
        yield path


ODD = st.none() | st.booleans() | st.integers(-3, 3) | st.just(2**70) | st.floats(allow_nan=False) | st.text(max_size=3)


@pytest.fixture(scope="module")
def packed(good: Path) -> Packed:
    """What is in the good file."""
    return pack(s4q.load(good))


@pytest.fixture(scope="module")
def places(packed: Packed) -> list[tuple[Any, ...]]:
    """Of all leaves in it."""
    return sorted(leaves(packed.objects), key=str)


@given(data=st.data(), odd=ODD | st.lists(ODD, max_size=2) | st.dictionaries(st.sampled_from(["object", "row"]), ODD))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_leaf_replaced_by_anything_is_read_or_refused(
    packed: Packed, places: list[tuple[Any, ...]], data: st.DataObject, odd: Any
) -> None:
    """A value that is possible gives another learner; any other a ValueError. Never anything else."""
    objects = json.loads(json.dumps(packed.objects))
    *way, last = data.draw(st.sampled_from(places))
    parent = objects
    for step in way:
        parent = parent[step]
    parent[last] = odd
    try:
        again = unpack(Packed(objects, packed.arrays), s4q.Checkpoint)
    except (ValueError, TypeError, ArithmeticError, RecursionError, MemoryError):
        return
    assert isinstance(again.learner, s4q.S4Q)


SMALL = s4q.problems.chain(3, 2)


def s4q_in_s3q() -> s4q.S4Q:
    """In the middle of a call of S3Q, with policies to replay."""
    learner = s4q.S4Q(SMALL, memory="policies", trigger=2.0, max_episodes=10**6)
    s4q.run(learner, CountCollector(SMALL), 300, stop=lambda run: run.phases > 1 and learner.open_phase is None)
    assert learner.memory.entries
    assert learner.open_phase is None
    return learner


def s3q_with_bonus() -> s4q.S3Q:
    """After its first epoch, with every part that it can have."""
    white = np.broadcast_to(np.eye(SMALL.spec.block_dim), (SMALL.horizon, *SMALL.spec.gram_shape))
    policies = s4q.Mixture([s4q.UniformPolicy(SMALL.n_actions)] * 2, [0.25, 0.75])
    bonus = s4q.FixedBonus(white, np.ones(SMALL.horizon))
    learner = s4q.S3Q(SMALL, policies, bonus=bonus, keep_grams=True)
    s4q.run(learner, CountCollector(SMALL), 5)
    assert learner.fitted
    return learner


def tree(packed: Packed, value: Any) -> Any:
    """What a value says, all that it refers to written out."""
    if isinstance(value, list):
        return [tree(packed, one) for one in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"object"}:
        return tree(packed, packed.objects[value["object"]])
    if set(value) == {"array"}:
        array = packed.arrays[value["array"]]
        return [array.dtype.str, array.shape, array.tobytes().hex()]
    return {key: tree(packed, one) for key, one in value.items()}


def read_as_it_is_or_refused(packed: Packed, kind: type[Any]) -> bool:
    """A ValueError, or an object that says what the file says: nothing is passed over or put right in silence."""
    try:
        again = pack(unpack(packed, kind))
    except ValueError:
        return False
    assert json.dumps(tree(again, {"object": 0})) == json.dumps(tree(packed, {"object": 0}))
    return True


ODD_VALUES: list[Any] = [None, False, True, -1, 0, 1, 2, 2**70, 0.5, -0.5, 1e300, float("inf"), "x", "own", [], [1]]
ODD_VALUES += [[[1, 1]], {}, {"object": 1}, {"object": -1}, {"object": 2**70}, {"array": "x"}, {"array": 0}, {"x": 0}]


@pytest.mark.parametrize("make", [pytest.param(s4q_in_s3q, marks=pytest.mark.slow), s3q_with_bonus])
def test_every_field_of_a_learner_replaced_is_read_as_it_is_or_refused(make: Callable[[], Any]) -> None:
    learner = make()
    packed = pack(learner)
    assert read_as_it_is_or_refused(packed, type(learner))
    of_kind = {one["kind"]: one["fields"] for one in reversed(packed.objects)}  # the first of each
    for fields in of_kind.values():
        for name, good in list(fields.items()):
            others = [{"object": n} for n in range(2, len(packed.objects))] if isinstance(good, dict) else []
            for odd in (*ODD_VALUES, *others):
                fields[name] = odd
                read = read_as_it_is_or_refused(packed, type(learner))
                assert not read or None in (odd, good) or type(odd) is type(good)
            fields[name] = good
    assert read_as_it_is_or_refused(packed, type(learner))


@pytest.mark.parametrize("make", [s4q_in_s3q, s3q_with_bonus])
def test_every_array_of_a_learner_replaced_is_read_as_it_is_or_refused(make: Callable[[], Any]) -> None:
    learner = make()
    packed = pack(learner)
    for name, good in list(packed.arrays.items()):
        packed.arrays[name] = good.copy()
        assert read_as_it_is_or_refused(packed, type(learner))
        other = np.zeros(good.shape, np.int64 if good.dtype == np.float64 else np.float64)
        for odd in (other, good[None], good[1:], good[..., :-1], good.ravel()[:0]):
            packed.arrays[name] = np.array(odd)
            assert not read_as_it_is_or_refused(packed, type(learner)) or not odd.size, name
        packed.arrays[name] = np.full_like(good, np.nan if good.dtype == np.float64 else -1)
        assert not read_as_it_is_or_refused(packed, type(learner)) or good.dtype == np.bool_, name
        packed.arrays[name] = good


@pytest.mark.parametrize("make", [s4q_in_s3q, s3q_with_bonus])
def test_arrays_that_were_read_are_never_written(make: Callable[[], Any]) -> None:
    """One array may stand for two fields. It does so from the beginning here: writing one would change the other."""
    packed = pack(make())
    packed.arrays.update({name: array.copy() for name, array in packed.arrays.items()})
    s3q = next(one["fields"] for one in packed.objects if one["kind"] == "S3Q")
    ridge = packed.arrays[s3q["ridge"]["array"]].copy()
    for name in ("_residuals", "residuals"):
        packed.arrays.pop(s3q[name]["array"], None)
        s3q[name] = s3q["ridge"]
    learner = unpack(packed, type(make()))
    before = {name: array.copy() for name, array in packed.arrays.items()}
    assert not any(array.flags.writeable for array in packed.arrays.values())
    s4q.run(learner, CountCollector(SMALL), 200)
    for name, array in packed.arrays.items():
        assert array.tobytes() == before[name].tobytes(), name
    inner = learner._s3q if isinstance(learner, s4q.S4Q) else learner
    assert inner is None or inner.ridge.tobytes() == ridge.tobytes()


def thinned() -> s4q.S4Q:
    """With a sketch from which steps were dropped."""
    learner = s4q.S4Q(SMALL, pool=False, memory_bytes=400)
    s4q.run(learner, CountCollector(SMALL), 30)
    assert learner.memory.n_thinnings > 0
    assert all(len(shelf) > 1 for shelf in learner.memory.shelves)
    return learner


def changed(kind: str, name: str, change: Callable[[Any], Any]) -> Callable[[Packed], None]:
    """Another value of a field of the first object of a kind, or of the array it names."""

    def edit(packed: Packed) -> None:
        fields = fields_of(packed, kind)
        if isinstance(fields[name], dict) and "array" in fields[name]:
            packed.arrays[fields[name]["array"]] = change(packed.arrays[fields[name]["array"]].copy())
        else:
            fields[name] = change(fields[name])

    return edit


def no_sums(packed: Packed) -> None:
    for one in packed.objects:
        if one["kind"] == "SettledSums" and one["fields"]["sums"] is not None:
            del packed.arrays[one["fields"]["sums"]["array"]]
            one["fields"]["sums"] = None


def one_sum(packed: Packed) -> None:
    for name, array in packed.arrays.items():
        if name.startswith("SettledSums"):
            packed.arrays[name] = array[:1]


def wide_target(packed: Packed) -> None:
    number = next(one["fields"]["target"] for one in packed.objects if one["kind"] == "SettledSums")["object"]
    fields = dict(packed.objects[number]["fields"], theta={"array": "other"}, whitener=None, width=None, second=None)
    packed.objects.append({"kind": "QLevel", "fields": fields})
    packed.arrays["other"] = np.zeros((1, 1))
    fields_of(packed, "SettledSums")["target"] = {"object": len(packed.objects) - 1}


HELD: dict[str, tuple[Callable[[Packed], None], str]] = {
    "one shelf for two levels": (
        changed("StepMemory", "shelves", lambda shelves: [shelves[0]] * 2),
        "each level of a memory must have its own steps",
    ),
    "a shelf too few": (changed("StepMemory", "shelves", lambda s: s[:1]), "has 2 shelves and 2 levels"),
    "a level too many": (changed("StepMemory", "levels", lambda s: [*s, s[0]]), "has 2 shelves and 2 levels"),
    "a smaller budget": (changed("StepMemory", "max_bytes", lambda _: 300), "a memory of 300 bytes cannot hold"),
    "another budget": (changed("StepMemory", "max_bytes", lambda _: 10**6), "the memory of this S4Q must be"),
    "no budget": (changed("StepMemory", "max_bytes", lambda _: None), "the memory of this S4Q must be"),
    "another pooling": (changed("StepMemory", "pool", lambda _: True), "has 1 shelves"),
    "no sums": (no_sums, "needs sums if its steps were thinned"),
    "a sum too few": (one_sum, r"sums must have shape \(2, n_blocks, k\)"),
    "a target of another problem": (wide_target, r"theta must have shape \(n_blocks, k\)"),
    "blocks": (changed("StateTable", "blocks", lambda b: b + 100), "blocks of held states must lie in 0..5"),
    "states": (changed("Shelf", "states", lambda s: s + 100), "states of held steps must lie in 0.."),
    "next states": (changed("Shelf", "next_states", lambda s: s + 100), "next_states of held steps must lie in"),
    "actions": (changed("Shelf", "actions", lambda a: a + 100), "actions of held steps must lie in 0..1"),
    "weights": (changed("Shelf", "weights", lambda w: 0 * w), "weights of held steps must be positive"),
    "equal states": (changed("StateTable", "blocks", lambda b: 0 * b), "rows that are held must not repeat"),
    "few blocks": (changed("StateTable", "blocks", lambda b: np.concatenate([b, b])), "cannot have vectors and blocks"),
}


@pytest.mark.parametrize("name", HELD)
def test_a_memory_of_steps_that_contradicts_itself_is_refused(name: str) -> None:
    edit, says = HELD[name]
    packed = pack(thinned())
    assert isinstance(unpack(pack(thinned()), s4q.S4Q), s4q.S4Q)
    edit(packed)
    with pytest.raises(ValueError, match=says) as caught:
        unpack(packed, s4q.S4Q)
    assert "\n" not in str(caught.value)


def test_equal_steps_are_refused() -> None:
    packed = pack(thinned())
    shelf = fields_of(packed, "Shelf")
    for name in ("states", "actions", "next_states", "rewards", "ended"):
        array = packed.arrays[shelf[name]["array"]]
        packed.arrays[shelf[name]["array"]] = np.full(len(array), array[0])
    assert len(array) > 1
    with pytest.raises(ValueError, match="rows that are held must not repeat"):
        unpack(packed, s4q.S4Q)


def fields_of(packed: Packed, kind: str) -> dict[str, Any]:
    """Of the first object of this kind."""
    fields: dict[str, Any] = next(one["fields"] for one in packed.objects if one["kind"] == kind)
    return fields


def test_a_radius_without_levels_is_refused() -> None:
    packed = pack(s3q_with_bonus())
    packed.arrays[fields_of(packed, "S3Q")["radius"]["array"]] = np.array(1.0)
    with pytest.raises(ValueError, match=r"radius must have shape \(H,\) or \(H, n_blocks\) = \(2,\); got \(\)"):
        unpack(packed, s4q.S3Q)


def test_a_controller_of_another_problem_is_refused() -> None:
    says = r"controller holds a LinearQ whose theta has shape \(3, .* needs \(H, n_blocks, k\) = \(2, .*; use a LinearQ"
    wrong = s4q.LinearQ.from_arrays(np.zeros((3, *SMALL.spec.theta_shape[1:])))
    with pytest.raises(ValueError, match=says):
        s4q.S3Q(SMALL, wrong)
    learner = s4q.S3Q(SMALL, s4q.Mixture([s4q.UniformPolicy(SMALL.n_actions)], [1.0]))
    learner.controller = s4q.Mixture([wrong], [1.0])
    with pytest.raises(ValueError, match=says):
        unpack(pack(learner), s4q.S3Q)


NUMBERS: list[tuple[str, str, Any, str]] = [
    ("S4Q", "_n_main", 5 * 10**18, "n_main must be a whole number of at most 4"),
    ("MainLoop", "n_episodes", 10**400, "n_episodes must be a whole number of at most 4"),
    ("MainLoop", "return_sum", "nan", "return_sum must be a number; got 'nan'"),
    ("MainLoop", "return_sum", "inf", "return_sum must be a number; got 'inf'"),
    ("QLevel", "clip", ["nan", 1.0], "must be a number; got 'nan'"),
    ("QLevel", "noise", -1.0, "noise must be finite and not negative; got -1.0"),
    ("QLevel", "kappa", "inf", "kappa must be a number; got 'inf'"),
]


@pytest.mark.parametrize(("kind", "name", "value", "says"), NUMBERS)
def test_numbers_that_no_run_could_have_are_refused(kind: str, name: str, value: Any, says: str) -> None:
    packed = pack(s4q_in_s3q())
    fields_of(packed, kind)[name] = value
    with pytest.raises(ValueError, match=says):
        unpack(packed, s4q.S4Q)


def test_what_could_not_be_read_is_not_saved() -> None:
    learner = s4q_in_s3q()
    for name, value, says in (("n_episodes", 5 * 10**18, "at most 4"), ("return_sum", np.nan, "finite to be saved")):
        good = getattr(learner._loop, name)
        setattr(learner._loop, name, value)
        with pytest.raises(ValueError, match=f"{name} must be {says}"):
            pack(learner)
        setattr(learner._loop, name, good)
    big = s4q.Checkpoint(learner=learner, seed=2**128 - 1, progress=Progress(budget=0))
    assert unpack(pack(big), s4q.Checkpoint).seed == 2**128 - 1


@pytest.mark.parametrize("name", ["noise", "ceiling", "ridge", "kappa", "lower_order"])
@pytest.mark.parametrize("value", [-1.0, np.inf, np.nan])
def test_a_q_level_refuses_numbers_that_make_no_bonus(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be finite and not negative; got {value}"):
        s4q.LinearQ([QLevel(np.zeros((1, 1)), **{name: value})])


def broken(part: str, name: str, value: Any) -> Callable[[s4q.S4Q], None]:
    """Another value in a part of a learner."""

    def change(learner: Any) -> None:
        thing = learner
        for step in filter(None, part.split(".")):
            thing = getattr(thing, step)
        object.__setattr__(thing, name, value)

    return change


def no_grams(learner: s4q.S4Q) -> None:
    broken("_s3q", "_grams", None)(learner)
    broken("_s3q", "_best_grams", None)(learner)


def finished(learner: s4q.S4Q) -> None:
    broken("_s3q", "fitted", True)(learner)
    assert learner._s3q is not None
    assert learner._s3q.finished


def spent(learner: s4q.S4Q) -> None:
    assert learner._s3q is not None
    learner._replay_budget = learner._s3q.n_episodes


def another_memory(learner: s4q.S4Q) -> None:
    learner.memory = StepMemory(SMALL.spec, learner.constants.pool, None)


ZEROS = np.zeros(SMALL.horizon)
CONTRADICTIONS: dict[str, tuple[Callable[[s4q.S4Q], None], str]] = {
    "no grams": (no_grams, "Gram matrices were not kept"),
    "some grams": (broken("_s3q", "_grams", None), "the Gram matrices of all epochs, or of none"),
    "finished": (finished, "S3Q must have something left to do"),
    "spent": (spent, "S3Q must have something left to do"),
    "ridge": (broken("", "_ridge", ZEROS), "ridge is added to the Gram matrix, so it must be positive"),
    "ridge of the bonus": (broken("_s3q.bonus", "ridge", ZEROS), "ridge is added to the Gram matrix"),
    "phase": (broken("", "_phase", 9), "cannot be in S3Q of phase 9 with the loop of"),
    "another memory": (another_memory, "the memory of this S4Q must"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_an_s4q_whose_parts_contradict_each_other_is_refused(name: str) -> None:
    change, says = CONTRADICTIONS[name]
    learner = s4q_in_s3q()
    assert isinstance(unpack(pack(learner), s4q.S4Q), s4q.S4Q)
    change(learner)
    with pytest.raises(ValueError, match=says) as caught:
        unpack(pack(learner), s4q.S4Q)
    assert "\n" not in str(caught.value)


def test_an_s3q_that_pools_within_an_s4q_that_does_not_is_refused() -> None:
    mdp = s4q.problems.chain(3, 1)  # with one level the shapes are the same
    learner = s4q.S4Q(mdp, memory="policies", trigger=2.0, pool=False)
    s4q.run(learner, CountCollector(mdp), 300, stop=lambda run: learner.open_phase is None)
    broken("_s3q", "pool", True)(learner)
    with pytest.raises(ValueError, match="agree whether steps are pooled"):
        unpack(pack(learner), s4q.S4Q)


def test_fits_must_count_the_policies_of_their_record(tmp_path: Path) -> None:
    begun = s4q.S4Q(RIVER, memory="policies")
    s4q.run(begun, CountCollector(RIVER), 20, checkpoint=tmp_path / "run.s4q")  # the record begins later
    learner = s4q.load(tmp_path / "run.s4q").learner
    s4q.run(learner, CountCollector(RIVER), 10**5, record=True, checkpoint=tmp_path / "run.s4q")
    progress = s4q.load(tmp_path / "run.s4q").progress
    assert len(progress.fits[-1].per_policy) > 1
    assert isinstance(unpack(pack(progress), Progress), Progress)
    for other in (
        replace(progress, record=()),
        replace(progress, record=None),
        replace(progress, record=progress.record and progress.record[1:]),
        replace(progress, fits=(replace(progress.fits[-1], per_policy=np.zeros(1, np.int64)),)),
    ):
        with pytest.raises(ValueError, match=r"a fit of phase \d+ needs \d+ counts? in a record"):
            unpack(pack(other), Progress)


def test_a_fixed_bonus_is_stored_once_and_shared_again() -> None:
    learner = s3q_with_bonus()
    packed = pack(learner)
    for again in (learner, unpack(packed, s4q.S3Q)):
        assert isinstance(again.bonus, s4q.FixedBonus)
        for h, level in enumerate(again.q.levels):
            fit = again.bonus(h, QLevel(level.theta), Moments.zeros(*SMALL.spec.theta_shape[1:]))
            assert fit.whitener is level.whitener
            assert fit.width is level.width
    whiteners = [array for array in packed.arrays.values() if array.shape[-3:] == SMALL.spec.gram_shape]
    grams = 2 + 1  # of S3Q, and of its sums
    assert len(whiteners) <= SMALL.horizon + grams
    assert learner.bonus.whitener.shape == (SMALL.horizon, *SMALL.spec.gram_shape)
    assert learner.bonus.width.tolist() == np.ones((SMALL.horizon, SMALL.spec.n_blocks)).tolist()


def test_a_fixed_bonus_without_a_whitener_or_of_another_problem_is_refused() -> None:
    learner: Any = s3q_with_bonus()
    for shape, says in (((2, 1, 1), "a FixedBonus needs a whitener"), ((2, 9, 1), "bonus.whitener must have shape")):
        white = np.ones((*shape, 1)) if shape[1] == 9 else None
        width = None if white is None else np.ones(2)
        learner.bonus._bonus = s4q.LinearQ.from_arrays(np.zeros(shape), white, width)
        with pytest.raises(ValueError, match=says):
            unpack(pack(learner), s4q.S3Q)


def test_what_is_no_plain_file_is_neither_read_nor_replaced(tmp_path: Path) -> None:
    """A pipe would be waited for, and a device has no end."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place in (pipe, tmp_path, Path(), Path("/dev/zero")):
        refused(place, "it is a folder, a device or a pipe")
        with pytest.raises(s4q.CheckpointError, match="is no plain file; choose the name of a file"):
            s4q.save(place, s4q.S4Q(RIVER), seed=0)
    assert pipe.is_fifo()
    assert sorted(tmp_path.iterdir()) == [pipe]


def test_a_full_disk_loses_neither_the_file_nor_the_learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, collector = tmp_path / "run.s4q", CountCollector(RIVER, seed=1)
    whole = s4q.S4Q(RIVER)
    s4q.run(whole, collector, 300)
    learner = s4q.S4Q(RIVER)
    s4q.run(learner, collector, 300, checkpoint=path, stop=lambda run: run.phases >= 3)
    before = path.read_bytes()
    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(s4q.CheckpointError, match=r"run.s4q cannot be written: .*No space left.*make room"):
            s4q.run(s4q.load(path), collector, 300, checkpoint=path)
    assert path.read_bytes() == before
    assert [file for file in tmp_path.iterdir() if file.suffix == ".partial"] == []
    resumed = s4q.run(s4q.load(path), collector, 300, checkpoint=path)
    assert resumed.q.same_as(whole.q)
