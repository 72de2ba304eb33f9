"""Plan: what is compared. Read from a TOML file, from flags, or from arguments of `compare`.

A problem or a learner is a name, with settings where they differ from the usual ones. It can be written as a string,
`"deep_sea:size=20"`, or as a table, `{name = "DeepSea 20", problem = "deep_sea", size = 20}`. A setting `name` is the
name shown in tables.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, final

import numpy as np

from s4q.baselines.named_learners import named_learner
from s4q.core.validation import require_count
from s4q.problems.named_problems import BUILDERS

_KEYS = ("problems", "learners", "seeds", "episodes", "first_seed")
_MOST = 2**63 - 1  # numbers of the results file have 64 bits
_MOST_RUNS = 10**6


@final
@dataclass(frozen=True)
class Named:
    """A problem or a learner: the name shown in tables, what it is, and its settings."""

    name: str
    what: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What it is and its settings, the same however they were written. The name shown does not matter.

        To the code of an environment 1 and 1.0 may be different things.
        """
        settings = {name: one if name == "env_kwargs" else _plain(one) for name, one in self.settings.items()}
        return json.dumps([self.what, settings], sort_keys=True)


@final
@dataclass(frozen=True)
class Plan:
    """What is compared.

    Args:
        problems: Problems, by name.
        learners: Learners, by name.
        seeds: Number of seeds.
        episodes: Episodes of a run.
        first_seed: The first seed; the others follow it. 0 by default.
    """

    problems: tuple[Named, ...]
    learners: tuple[Named, ...]
    seeds: int
    episodes: int
    first_seed: int = 0

    def __post_init__(self) -> None:
        require_count("seeds", self.seeds, "the number of seeds")
        require_count("first_seed", self.first_seed, "the first seed", at_least=0)
        require_count("episodes", self.episodes, "the number of episodes of a run")
        for name, last in (
            ("seeds", self.seeds),
            ("first_seed", self.first_seed + self.seeds - 1),
            ("episodes", self.episodes),
        ):
            if last > _MOST:
                raise ValueError(f"{name} must leave all numbers below 2**63; got {getattr(self, name)}")
            object.__setattr__(self, name, int(getattr(self, name)))  # of NumPy too, which no file can hold
        for kind, ones in (("problems", self.problems), ("learners", self.learners)):
            if not ones:
                raise ValueError(f"{kind} must name at least one; got none")
            names = [one.name for one in ones]
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"{kind} must have different names, but {name!r} is there twice; add name = ...")
        for one in self.learners:
            named_learner(one.what)
        runs = len(self.problems) * len(self.learners) * self.seeds
        if runs > _MOST_RUNS:
            raise ValueError(f"seeds must leave at most {_MOST_RUNS:,} runs in all; got {self.seeds:,}: {runs:,} runs")


def _plain(value: Any) -> Any:
    """A setting with 1.0 written as 1, in lists and tables too."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _setting(name: str, value: Any) -> Any:
    """A setting as plain Python: what a file can hold. Numbers and arrays of NumPy become numbers and lists."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _setting(name, one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_setting(name, one) for one in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ValueError(f"{name} must be a number, text, True or False, a list or a table; got {value!r}")


def plan_of(
    problems: Iterable[str | Mapping[str, Any]],
    learners: Iterable[str | Mapping[str, Any]],
    seeds: int,
    episodes: int,
    first_seed: int = 0,
) -> Plan:
    """A Plan from names and tables."""
    return Plan(
        tuple(_named("problem", one) for one in _listed("problems", problems)),
        tuple(_named("learner", one) for one in _listed("learners", learners)),
        seeds,
        episodes,
        first_seed,
    )


def read_plan(path: str | PathLike[str], replaced: Mapping[str, Any] | None = None) -> Plan:
    """The Plan of a TOML file.

    Args:
        path: The file, with problems, learners, seeds, episodes and first_seed.
        replaced: Values that take the place of the file's.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        found = tomllib.loads(text)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror or error}); pass the name of a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no TOML file: {error}") from None
    for key in found:
        if key not in _KEYS:
            raise ValueError(f"{path} has an entry {key!r}; known are {', '.join(_KEYS)}")
    merged = {**found, **(replaced or {})}
    for key in ("problems", "learners"):
        if key not in merged:
            raise ValueError(f'{path} has no {key}; add a line such as {key} = ["..."]')
    try:
        numbers = {"seeds": 5, "episodes": 5000, "first_seed": 0}
        numbers |= {key: value for key, value in merged.items() if key in numbers}
        return plan_of(merged["problems"], merged["learners"], **numbers)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _listed(kind: str, ones: Any) -> list[Any]:
    if isinstance(ones, (str, Mapping)) or not isinstance(ones, Iterable):
        raise ValueError(f"{kind} must be a list of names; got {ones!r}")
    return list(ones)


def _named(kind: str, one: Any) -> Named:
    """A string such as "deep_sea:size=20,seed=1", or a table with an entry `problem` or `learner`."""
    if isinstance(one, str):
        what, text = _parted(kind, one)
        found = {} if text is None else settings_of(one, text)
        return Named(str(found.pop("name", one)), what, found)
    if not isinstance(one, Mapping) or not isinstance(one.get(kind), str):
        raise ValueError(f'a {kind} is a name, or a table with {kind} = "..."; got {one!r}')
    settings = {key: _setting(key, value) for key, value in one.items() if key not in (kind, "name")}
    return Named(str(one.get("name", _unnamed(one[kind], settings))), one[kind], settings)


def _parted(kind: str, whole: str) -> tuple[str, str | None]:
    """What is before the settings, and the settings. The id of an environment may have a colon: my_module:My-v0."""
    what, colon, text = whole.partition(":")
    if kind == "problem" and what not in BUILDERS and "=" not in text.split(":")[0]:
        rest, colon, text = text.partition(":")
        what = f"{what}:{rest}" if rest else what
    return what, text if colon and text else None


def written(one: Named) -> str:
    """A problem or a learner as a command line takes it.

    Args:
        one: The problem or the learner.

    >>> written(Named("far", "deep_sea", {"size": 20, "low": [0.5, 1], "like": {"a": "x, y"}}))
    'deep_sea:size=20,low=[0.5, 1],like={a = "x, y"},name="far"'
    """
    plain = _unnamed(one.what, one.settings)
    if one.name == plain:
        return plain
    return f"{plain}{':' if plain == one.what else ','}name={_toml(one.name)}"


def _unnamed(what: str, settings: Mapping[str, Any]) -> str:
    """What a command line takes, without a name. It is the name of what is given none."""
    parts = ",".join(f"{key}={_toml(value)}" for key, value in settings.items() if value is not None)
    return f"{what}:{parts}" if parts else what


def _toml(value: Any) -> str:
    """A setting as TOML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("_", "a").replace("-", "a").isalnum()
    return name if bare else _toml(name)


def settings_of(whole: str, text: str) -> dict[str, Any]:
    """The settings of a string. Values are written as in TOML; a comma inside one of them separates nothing.

    Args:
        whole: The whole string, for errors.
        text: Its settings: key=value,key=value.
    """
    found: dict[str, Any] = {}
    piece = None
    for part in text.split(","):
        piece = part if piece is None else f"{piece},{part}"
        key, _, value = piece.partition("=")
        try:
            read = tomllib.loads(f"x = {value}")["x"]
        except tomllib.TOMLDecodeError:
            continue  # the value goes on behind the comma
        key = key.strip()
        if not key:
            break
        if key in found:
            raise ValueError(f"{key} is there twice in {whole!r}; leave one of them out")
        found[key], piece = read, None
    if piece is not None:
        raise ValueError(
            'settings are written name:key=value,key=value, with text in "...", lists and ranges in [...] and true or '
            f"false; got {whole!r}"
        )
    return found
