"""Plan: what is compared. Read from a TOML file, from flags, or from arguments of `compare`.

A problem or a learner is a name, with settings where they differ from the usual ones. It can be written as a string,
`"deep_sea:size=20"`, or as a table, `{name = "DeepSea 20", problem = "deep_sea", size = 20}`.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, final

from s4q.baselines.named_learners import named_learner
from s4q.core.validation import require_count

_KEYS = ("problems", "learners", "seeds", "episodes", "first_seed")


@final
@dataclass(frozen=True)
class Named:
    """A problem or a learner: the name shown in tables, what it is, and its settings."""

    name: str
    what: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What it is and its settings, the same however they were written. The name shown does not matter."""
        return json.dumps([self.what, _plain(self.settings)], sort_keys=True)


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
        for kind, ones in (("problems", self.problems), ("learners", self.learners)):
            if not ones:
                raise ValueError(f"{kind} must name at least one; got none")
            names = [one.name for one in ones]
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"{kind} must have different names, but {name!r} is there twice; add name = ...")
        for one in self.learners:
            named_learner(one.what)


def _plain(value: Any) -> Any:
    """A setting with 1.0 written as 1, in lists and tables too."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


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
        what, colon, text = one.partition(":")
        return Named(one, what, settings_of(one, text) if colon else {})
    if not isinstance(one, Mapping) or not isinstance(one.get(kind), str):
        raise ValueError(f'a {kind} is a name, or a table with {kind} = "..."; got {one!r}')
    settings = {key: value for key, value in one.items() if key not in (kind, "name")}
    shown = ", ".join(f"{key}={value}" for key, value in settings.items())
    return Named(str(one.get("name", f"{one[kind]}:{shown}" if shown else one[kind])), one[kind], settings)


def written(one: Named) -> str:
    """A problem or a learner as a command line takes it.

    Args:
        one: The problem or the learner.

    >>> written(Named("shown", "deep_sea", {"size": 20, "low": [0.5, 1]}))
    'deep_sea:size=20,low=[0.5, 1]'
    """
    settings = ",".join(f"{key}={json.dumps(value)}" for key, value in one.settings.items())
    return f"{one.what}:{settings}" if settings else one.what


def settings_of(whole: str, text: str) -> dict[str, Any]:
    """Values are written as in TOML; a comma inside brackets or braces separates nothing."""
    pieces: list[str] = []
    for piece in text.split(","):
        if pieces and any(pieces[-1].count(left) > pieces[-1].count(right) for left, right in ("[]", "{}")):
            pieces[-1] += f",{piece}"
        else:
            pieces.append(piece)
    found: dict[str, Any] = {}
    for piece in pieces:
        key, equals, value = piece.partition("=")
        try:
            found[key.strip()] = tomllib.loads(f"x = {value}")["x"]
        except tomllib.TOMLDecodeError:
            equals = ""
        if not equals or not key.strip():
            raise ValueError(
                f'settings are written name:key=value,key=value, with text in "..." and true or false; got {whole!r}'
            )
    return found
