"""Codec: objects as plain numbers and arrays, and back. Only checkpoints use it.

What is saved of an object is what its class annotates: `get_type_hints` names the fields and their types. Objects and
arrays that several others hold are stored once and are shared again after reading: identity is part of the state.
Arrays that were read are read only: objects that are saved replace their arrays and never write into them.
Reading trusts nothing. Every name, type, size and reference is checked, and nothing may be left over. It must never
run code that a file brings along. Beside the plain types, a field may be

    int                            a count: never negative, at most 4e18;  Positive: at least 1
    AnySize                        a whole number of at least 0 without a bound, such as a seed
    float                          finite;  MaybeInfinite: anything but NaN
    Annotated[Array, "n K"]        an array, finite (an IntArray: never negative), with the sizes n and K
    Annotated[Array, "..."]        an array that the class checks itself
    Annotated[int, "K"]            the size K itself
    Annotated[X, SavedAs(Y)]       an X, of which only a Y can be saved
    NotSaved[X]                    a field that has its default again after reading

A small letter means one size within an object. A capital letter is a size of the problem: one in the whole file.
An object is made without `__init__`. It then checks itself in `check_restored` or, if it has none, `__post_init__`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from functools import cache
from math import isfinite, isnan
from operator import index
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, final, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from s4q.core.validation import require_finite

T = TypeVar("T")
_NOT_SAVED = "not saved"
NotSaved = Annotated[T, _NOT_SAVED]
Positive = Annotated[int, 1]
AnySize = Annotated[int, "..."]
MaybeInfinite = Annotated[float, "..."]
_ANY = ("...",)
_MOST = 4 * 10**18  # counts are added as int64, which holds twice as many


@final
@dataclass(frozen=True, slots=True)
class SavedAs:
    """Says what a field that may hold anything must hold to be saved."""

    hint: Any


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


def pack(root: object) -> Packed:
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


def unpack(packed: Packed, kind: type[T]) -> T:
    """The root object, made again. ValueError when anything is not as it must be."""
    store = _Store(packed)
    root: T = store.build(0, (kind,), "the root")
    idle = [str(number) for number in range(len(packed.objects)) if number not in store.built]
    idle += sorted(set(packed.arrays) - store.used)
    if idle:
        raise ValueError(f"nothing refers to {', '.join(idle[:3])}")
    return root


class _Type(NamedTuple):
    """An annotation taken apart."""

    form: Any  # bool, int, float, str, np.ndarray, list, tuple, dict, Mapping, Literal or Union (one of some classes)
    parts: tuple[Any, ...] = ()  # what the form is made of: the types of items, the dtype, the classes, the words
    extra: Any = None  # the letters of sizes, the least count, or the length of a tuple
    optional: bool = False  # may it be None?


@cache
def _type(hint: Any) -> _Type:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        if isinstance(parts[1], SavedAs):
            return _type(parts[1].hint)
        return _type(parts[0])._replace(extra=tuple(parts[1].split()) if isinstance(parts[1], str) else parts[1])
    if origin in (Union, UnionType):
        rest = tuple(one for one in parts if one is not NoneType)
        some = _type(rest[0]) if len(rest) == 1 else _Type(Union, rest)
        return some._replace(optional=rest != parts)
    if origin is np.ndarray:
        return _Type(origin, (np.dtype(get_args(parts[1])[0]).str,))
    if hint in (bool, int, float, str) or origin is Literal:
        return _Type(origin or hint, parts)
    if origin in (list, tuple, Sequence):
        fixed = origin is tuple and parts[-1] is not ...
        return _Type(list if origin is list else tuple, (_type(parts[0]),), len(parts) if fixed else None)
    if origin is Mapping:
        return _Type(dict) if parts[0] is str else _Type(origin, (_type(parts[0]), _type(parts[1])))
    return _Type(Union, (hint,))


@cache
def _saved(kind: Any) -> dict[str, _Type]:
    """The fields of a class that are saved."""
    hints = get_type_hints(kind, include_extras=True)
    if not hints:
        raise TypeError(f"{kind.__name__} annotates no fields, so nothing of it can be saved")
    return {name: _type(hint) for name, hint in hints.items() if _NOT_SAVED not in getattr(hint, "__metadata__", ())}


@cache
def _defaults(kind: Any) -> dict[str, Any]:
    """The fields of a dataclass that are not saved; one without a default is made by the class itself."""
    rest = [one for one in getattr(kind, "__dataclass_fields__", {}).values() if one.name not in _saved(kind)]
    return {one.name: one.default for one in rest if one.default is not MISSING}


@final
class _Packer:
    def __init__(self) -> None:
        self.packed = Packed()
        self._known: dict[int, int | str] = {}
        self._alive: list[object] = []  # so that no id is given away meanwhile

    def number(self, thing: object) -> int:
        """The number of an object, which is stored when it is met for the first time."""
        if id(thing) not in self._known:
            number, values = len(self.packed.objects), dict[str, Any]()
            kind: Any = type(thing)
            self._remember(thing, number)
            self.packed.objects.append({"kind": kind.__name__, "fields": values})
            for name, one in _saved(kind).items():
                values[name] = self._leaf(one, getattr(thing, name), f"{kind.__name__}.{number}.{name}")
        return int(self._known[id(thing)])

    def _leaf(self, one: _Type, value: Any, where: str) -> Any:
        form, parts, extra, optional = one
        if optional and value is None:
            return None
        if form is float and not isfinite(value):  # JSON has no infinities
            legitimate = extra == _ANY and not isnan(value)
            return str(float(value)) if legitimate else _refuse(where, "finite to be saved", value)
        if form is int and extra != _ANY and value > _MOST:
            _refuse(where, f"at most {_MOST} to be saved", value)
        if form in (bool, int, float, str):
            return index(value) if form is int else form(value)
        if form is np.ndarray:
            return self._array(value, where, parts[0])
        if form in (list, tuple):
            return [self._leaf(parts[0], item, f"{where}.{i}") for i, item in enumerate(value)]
        if form is Mapping:
            return [[self._leaf(parts[0], key, where), self._leaf(parts[1], value[key], where)] for key in value]
        if form is Union and type(value) not in parts:
            raise cannot_be_saved(where, value, *parts)
        return {"object": self.number(value)} if form is Union else value

    def _array(self, array: NDArray[Any], name: str, dtype: str) -> dict[str, str]:
        if array.dtype.str != dtype:
            raise ValueError(f"{name} has dtype {array.dtype}; only {np.dtype(dtype)} can be saved there")
        if id(array) not in self._known:
            self._remember(array, name)
            self.packed.arrays[name] = array
        return {"array": str(self._known[id(array)])}

    def _remember(self, thing: object, address: int | str) -> None:
        self._known[id(thing)] = address
        self._alive.append(thing)


@final
class _Store:
    """What has been read, and what was made of it so far."""

    def __init__(self, packed: Packed) -> None:
        self._packed = packed
        self._open: set[int] = set()
        self._problem: dict[str, int] = {}  # sizes by capital letters
        self._object: dict[str, int] = {}  # sizes by small letters, of the object that is being made
        self.built: dict[int, Any] = {}
        self.used: set[str] = set()

    def build(self, number: Any, kinds: tuple[Any, ...], where: str) -> Any:
        """The object of this number, made when it is met for the first time."""
        objects = self._packed.objects
        if type(number) is not int or not 0 <= number < len(objects) or number in self._open:
            raise ValueError(f"{where} refers to object {number!r}, which does not exist or holds itself")
        entry = objects[number]
        if not isinstance(entry, dict) or set(entry) != {"kind", "fields"} or not isinstance(entry["fields"], dict):
            raise ValueError(f"object {number} must be a kind and its fields")
        kind = next((kind for kind in kinds if kind.__name__ == entry["kind"]), None)
        if kind is None:
            raise ValueError(f"{where} must be a {' or a '.join(k.__name__ for k in kinds)}; got {entry['kind']!r}")
        if number not in self.built:
            self._open.add(number)
            outer, self._object = self._object, {}
            self.built[number] = self._made(kind, entry["fields"], f"{kind.__name__}.{number}")
            self._object = outer
            self._open.remove(number)
        return self.built[number]

    def _made(self, kind: Any, values: Mapping[str, Any], where: str) -> Any:
        thing, saved = kind.__new__(kind), _saved(kind)
        for name, one in saved.items():
            if name not in values:
                raise ValueError(f"{where}.{name} is missing")
            object.__setattr__(thing, name, self._leaf(one, values[name], f"{where}.{name}"))
        if len(values) > len(saved):
            raise ValueError(f"{where} must not have a field {min(set(values) - set(saved))!r}")
        for name, default in _defaults(kind).items():
            object.__setattr__(thing, name, default)
        check = getattr(thing, "check_restored", None) or getattr(thing, "__post_init__", None)
        if check is not None:
            check()
        return thing

    def _leaf(self, one: _Type, value: Any, where: str) -> Any:
        form, parts, extra, optional = one
        if optional and value is None:
            return None
        if form is float and extra == _ANY and value in ("inf", "-inf"):
            return float(value)
        if form in (bool, float, str):
            fits = type(value) is form and (form is not float or isfinite(value))
            return value if fits else _refuse(where, _WORDS[form], value)
        if form is int:
            return self._integer(value, extra, where)
        if form is Literal:
            return value if value in parts else _refuse(where, f"one of {', '.join(parts)}", value)
        if form is np.ndarray:
            return self._array(value, parts[0], extra, where)
        if form is dict:
            return value if isinstance(value, dict) else _refuse(where, "an object", value)
        if form is Union:
            return self.build(_inside(value, "object", where), parts, where)
        if not isinstance(value, list):
            _refuse(where, "a list", value)
        if form is Mapping:
            return self._mapping(value, parts, where)
        if extra is not None and len(value) != extra:
            _refuse(where, f"a list of {extra}", value)
        return form(self._leaf(parts[0], item, f"{where}.{i}") for i, item in enumerate(value))

    def _integer(self, value: Any, extra: Any, where: str) -> int:
        least = extra if isinstance(extra, int) else 0
        if type(value) is not int or value < least:
            _refuse(where, f"a whole number of at least {least}", value)
        if extra == _ANY:
            return int(value)
        if value > _MOST:
            _refuse(where, f"a whole number of at most {_MOST}", value)
        if isinstance(extra, tuple):
            self._require_sizes((value,), extra, where)
        return int(value)

    def _mapping(self, value: list[Any], parts: tuple[Any, ...], where: str) -> dict[Any, Any]:
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
            _refuse(where, "a list of pairs", value)
        made = {self._leaf(parts[0], key, where): self._leaf(parts[1], item, where) for key, item in value}
        return made if len(made) == len(value) else _refuse(where, "a list of pairs, no key twice", value)

    def _array(self, value: Any, dtype: str, letters: tuple[str, ...], where: str) -> NDArray[Any]:
        name = _inside(value, "array", where)
        if not isinstance(name, str) or name not in self._packed.arrays:
            raise ValueError(f"{where} refers to the array {name!r}, which does not exist")
        self.used.add(name)
        array = self._packed.arrays[name]
        array.setflags(write=False)  # a file may name one array for two fields: a write to one would change the other
        if array.dtype.str != dtype:
            raise ValueError(f"{where} must have dtype {dtype}; got {array.dtype.str}")
        if letters != _ANY:
            self._require_sizes(array.shape, letters, where)
            require_finite(where, array)
        if dtype == "<i8" and array.min(initial=0) < 0:
            _refuse(where, "at least 0 everywhere", array.min())
        return array

    def _require_sizes(self, shape: tuple[int, ...], letters: tuple[str, ...], where: str) -> None:
        """The sizes that the letters stand for; a letter that is new gets the size that is found."""
        known = [self._problem if letter.isupper() else self._object for letter in letters]
        pairs = zip(known, letters, shape, strict=False)
        if len(shape) != len(letters) or not all(table.setdefault(letter, n) == n for table, letter, n in pairs):
            want = tuple(table.get(letter, "any") for table, letter in zip(known, letters, strict=True))
            raise ValueError(f"{where} must have shape ({', '.join(letters)}) = {want}; got {shape}")


_WORDS = {bool: "true or false", float: "a number", str: "text"}


def _inside(value: Any, tag: str, where: str) -> Any:
    return value[tag] if isinstance(value, dict) and set(value) == {tag} else _refuse(where, f"a {tag}", value)


def _refuse(where: str, wanted: str, value: Any) -> Any:
    raise ValueError(f"{where} must be {wanted}; got {str(value)[:60]!r}")
