"""State: objects as plain numbers and arrays, and back.

An object that can be saved says what it is made of (`state`) and how it is made of that again (`from_state`). Objects
and arrays that several others hold are stored once and are shared again after reading: identity is part of the state.
Reading trusts nothing: every name, type, shape and reference is checked, and nothing may be left over.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Protocol, Self, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from s4q.core.blocks import Array, BoolArray, IntArray
from s4q.core.validation import require_finite, require_shape

State = dict[str, Any]  # leaves: None, bool, int, float, str, arrays, Json, Stateful objects; lists and dicts of them
DTYPES = ("<f8", "<i8", "|b1")


class Stateful(Protocol):
    """An object that can be saved."""

    def state(self) -> State:
        """What it is made of; other objects stand for themselves."""
        ...

    @classmethod
    def from_state(cls, reader: "Reader") -> Self:
        """The object made of it."""
        ...


T = TypeVar("T", bound=Stateful)
U = TypeVar("U", bound=Stateful)


@final
@dataclass(frozen=True, slots=True)
class Json:
    """A leaf that is stored as it stands: any value that JSON can hold."""

    value: Any


def cannot_be_saved(name: str, thing: object, *kinds: type) -> ValueError:
    """A checkpoint holds numbers, no code: an object of the user's own cannot be saved."""
    allowed = " or ".join(kind.__name__ for kind in kinds)
    return ValueError(
        f"{name} of type {type(thing).__name__} cannot be saved, since a checkpoint holds numbers and no code; "
        f"use {allowed}, or run without a checkpoint"
    )


@final
@dataclass(frozen=True, slots=True)
class Packed:
    """A graph of objects: their fields, which JSON can hold, and their arrays by name."""

    objects: list[Any] = field(default_factory=list)  # the first is the root
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)


def pack(root: Stateful) -> Packed:
    """The state of an object and of everything it holds.

    >>> from s4q import LinearQ, Mixture
    >>> q = LinearQ.from_arrays(np.zeros((1, 1, 1)))
    >>> packed = pack(Mixture([q, q], [0.5, 0.5]))
    >>> [one["kind"] for one in packed.objects], sorted(packed.arrays)
    (['Mixture', 'LinearQ', 'QLevel'], ['Mixture.0.weights', 'QLevel.2.theta'])
    >>> again = unpack(packed, Mixture)
    >>> again.policies[0] is again.policies[1]
    True
    """
    packer = _Packer()
    packer.number(root)
    return packer.packed


@final
class _Packer:
    def __init__(self) -> None:
        self.packed = Packed()
        self._known: dict[int, int | str] = {}
        self._alive: list[object] = []  # so that no id is given away meanwhile

    def number(self, thing: Stateful) -> int:
        """The number of an object, stored on first sight."""
        if id(thing) not in self._known:
            number, kind = len(self.packed.objects), type(thing).__name__
            self._remember(thing, number)
            self.packed.objects.append(None)
            fields = {name: self._leaf(value, f"{kind}.{number}.{name}") for name, value in thing.state().items()}
            self.packed.objects[number] = {"kind": kind, "fields": fields}
        return int(self._known[id(thing)])

    def _remember(self, thing: object, address: int | str) -> None:
        self._known[id(thing)] = address
        self._alive.append(thing)

    def _leaf(self, value: Any, name: str) -> Any:
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (int, np.integer)):
            return int(value)
        if isinstance(value, (float, np.floating)):
            # JSON has no infinities
            return float(value) if isfinite(value) else {"array": self._array(np.array(value, dtype=np.float64), name)}
        if isinstance(value, np.ndarray):
            return {"array": self._array(value, name)}
        if isinstance(value, (list, tuple)):
            return [self._leaf(one, f"{name}.{i}") for i, one in enumerate(value)]
        if isinstance(value, dict):
            return {"row": {key: self._leaf(one, f"{name}.{key}") for key, one in value.items()}}
        if isinstance(value, Json):
            return {"json": value.value}
        return {"object": self.number(value)}

    def _array(self, array: NDArray[Any], name: str) -> str:
        if array.dtype.str not in DTYPES:
            raise ValueError(f"{name} has dtype {array.dtype}; only float64, int64 and bool arrays can be saved")
        if id(array) not in self._known:
            self._remember(array, name)
            self.packed.arrays[name] = array
        return str(self._known[id(array)])


def unpack(packed: Packed, kind: type[T]) -> T:
    """The root object, made again. ValueError when anything is not as it must be."""
    store = _Store(packed)
    root: T = store.build(0, (kind,), "the root")
    idle = [str(number) for number in range(len(packed.objects)) if number not in store.built]
    idle += sorted(set(packed.arrays) - store.used)
    if idle:
        raise ValueError(f"nothing refers to {', '.join(idle[:3])}")
    return root


@final
class _Store:
    """What has been read, and what was made of it so far."""

    def __init__(self, packed: Packed) -> None:
        self._packed = packed
        self._open: set[int] = set()
        self.built: dict[int, Any] = {}
        self.used: set[str] = set()

    def build(self, number: Any, kinds: tuple[type[Any], ...], where: str) -> Any:
        objects = self._packed.objects
        if type(number) is not int or not 0 <= number < len(objects) or number in self._open:
            raise ValueError(f"{where} refers to object {number!r}, which does not exist or holds itself")
        entry = objects[number]
        if not isinstance(entry, dict) or set(entry) != {"kind", "fields"} or not isinstance(entry["fields"], dict):
            raise ValueError(f"object {number} must be a kind and its fields")
        by_name = {kind.__name__: kind for kind in kinds}
        kind = by_name.get(entry["kind"]) if isinstance(entry["kind"], str) else None
        if kind is None:
            raise ValueError(f"{where} must be a {' or a '.join(by_name)}; got {entry['kind']!r}")
        if number not in self.built:
            self._open.add(number)
            reader = Reader(self, f"{kind.__name__}.{number}", entry["fields"])
            self.built[number] = kind.from_state(reader)
            reader.close()
            self._open.remove(number)
        return self.built[number]

    def array(self, name: Any, where: str) -> NDArray[Any]:
        if not isinstance(name, str) or name not in self._packed.arrays:
            raise ValueError(f"{where} refers to the array {name!r}, which does not exist")
        self.used.add(name)
        return self._packed.arrays[name]


@final
class Reader:
    """The fields of one object, each of which must be taken, as what it is."""

    def __init__(self, store: _Store, where: str, fields: Mapping[str, Any]) -> None:
        self._store, self._where, self._fields = store, where, fields
        self._taken: set[str] = set()
        self._rows: list[Reader] = []

    def close(self) -> None:
        """Nothing may be left over."""
        for row in self._rows:
            row.close()
        rest = sorted(set(self._fields) - self._taken)
        if rest:
            raise ValueError(f"{self._where} must not have a field {rest[0]!r}")

    def has(self, name: str) -> bool:
        """Is there a value, not None?"""
        return self._take(name) is not None

    def flag(self, name: str) -> bool:
        value = self._take(name)
        return bool(value) if isinstance(value, bool) else self._refuse(name, "true or false", value)

    def text(self, name: str) -> str:
        value = self._take(name)
        return value if isinstance(value, str) else self._refuse(name, "text", value)

    def integer(self, name: str, at_least: int = 0) -> int:
        return self._integer(name, self._take(name), at_least)

    def integers(self, name: str, at_least: int = 0) -> list[int]:
        return [self._integer(name, value, at_least) for value in self._list(name)]

    def number(self, name: str) -> float:
        return self._number(name, self._take(name))

    def numbers(self, name: str) -> tuple[float, ...]:
        return tuple(self._number(name, value) for value in self._list(name))

    def json(self, name: str) -> Any:
        return self._inside(name, self._take(name), "json")

    def floats(self, name: str, shape: tuple[int | None, ...], finite: bool = True) -> Array:
        """A float64 array; None in `shape` accepts any length."""
        array = self._array(name, "<f8", shape)
        if finite:
            require_finite(f"{self._where}.{name}", array)
        return array

    def counts(self, name: str, shape: tuple[int | None, ...]) -> IntArray:
        """An int64 array without negative entries."""
        array = self._array(name, "<i8", shape)
        return array if array.min(initial=0) >= 0 else self._refuse(name, "at least 0 everywhere", array.min())

    def flags(self, name: str, shape: tuple[int | None, ...]) -> BoolArray:
        return self._array(name, "|b1", shape)

    def one(self, name: str, kind: type[T]) -> T:
        """Another object, of this kind; the same one wherever it is referred to."""
        number = self._inside(name, self._take(name), "object")
        thing: T = self._store.build(number, (kind,), f"{self._where}.{name}")
        return thing

    def either(self, name: str, first: type[T], second: type[U]) -> T | U:
        """Another object, of one of two kinds."""
        number = self._inside(name, self._take(name), "object")
        thing: T | U = self._store.build(number, (first, second), f"{self._where}.{name}")
        return thing

    def each(self, name: str, *kinds: type[T]) -> list[T]:
        """A list of other objects."""
        numbers = [self._inside(name, value, "object") for value in self._list(name)]
        return [self._store.build(number, kinds, f"{self._where}.{name}") for number in numbers]

    def rows(self, name: str) -> list["Reader"]:
        """A list of rows, each with fields of its own."""
        return [self._row(f"{name}.{i}", value) for i, value in enumerate(self._list(name))]

    def row(self, name: str) -> "Reader":
        """Fields within a field."""
        return self._row(name, self._take(name))

    def _row(self, name: str, value: Any) -> "Reader":
        fields = self._inside(name, value, "row")
        self._rows.append(Reader(self._store, f"{self._where}.{name}", fields if isinstance(fields, dict) else {}))
        return self._rows[-1]

    def _take(self, name: str) -> Any:
        if name not in self._fields:
            raise ValueError(f"{self._where}.{name} is missing")
        self._taken.add(name)
        return self._fields[name]

    def _list(self, name: str) -> list[Any]:
        value = self._take(name)
        return value if isinstance(value, list) else self._refuse(name, "a list", value)

    def _inside(self, name: str, value: Any, tag: str) -> Any:
        return value[tag] if isinstance(value, dict) and set(value) == {tag} else self._refuse(name, f"a {tag}", value)

    def _integer(self, name: str, value: Any, at_least: int) -> int:
        fits = type(value) is int and value >= at_least
        return int(value) if fits else self._refuse(name, f"a whole number of at least {at_least}", value)

    def _number(self, name: str, value: Any) -> float:
        if isinstance(value, dict):
            return float(self._array(name, "<f8", (), value))
        return value if isinstance(value, float) else self._refuse(name, "a number", value)

    def _array(self, name: str, dtype: str, shape: tuple[int | None, ...], value: Any = None) -> NDArray[Any]:
        where = f"{self._where}.{name}"
        array = self._store.array(self._inside(name, value or self._take(name), "array"), where)
        if array.dtype.str != dtype:
            raise ValueError(f"{where} must have dtype {dtype}; got {array.dtype.str}")
        require_shape(where, array, shape, "given by the configuration")
        return array

    def _refuse(self, name: str, wanted: str, value: Any) -> Any:
        raise ValueError(f"{self._where}.{name} must be {wanted}; got {str(value)[:60]!r}")
