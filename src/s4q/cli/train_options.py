"""TrainOptions: everything that `s4q train` can be told, from flags or from a `config.toml`, and written to one.

A run that is repeated with the options of its file has the same bits. Which files a run writes, and how much it says,
are no part of it.
"""

import json
import platform
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, final

from s4q.core.version import __version__
from s4q.learners.presets import PresetName

EPISODES = 10**6  # of a new run of a built-in problem, unless others are asked for
ENV_EPISODES = 1_000  # the same for an environment, whose episodes are stepped one by one
PRESET: PresetName = "practical"
_PACKAGES = ("numpy", "scipy", "gymnasium")  # that may change the bits of a run
_KINDS: dict[str, tuple[type, ...]] = {
    "problem": (str,), "env_kwargs": (str,), "features": (str,), "preset": (str,), "memory": (str,), "ray": (str,),
    "episodes": (int,), "seed": (int,), "memory_bytes": (int,), "episodes_per_phase": (int,), "horizon": (int,),
    "evaluate": (int,),
    "workers": (int,), "reward_range": (list,), "value_bound": (int, float), "stop_when_gap": (int, float),
    "evaluation_share": (int, float), "minutes": (int, float),
}  # fmt: skip
_SAID = {str: "a text", int: "a whole number", float: "a number", list: "a list of two numbers"}


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class TrainOptions:
    """What a run is. None stands for an option that was not given."""

    problem: str | None = None
    env_kwargs: str | None = None  # a JSON object
    features: str | None = None
    episodes: int | None = None
    seed: int | None = None
    preset: str | None = None
    memory: str | None = None
    memory_bytes: int | None = None
    episodes_per_phase: int | None = None
    horizon: int | None = None
    reward_range: list[float] | None = None
    value_bound: float | None = None
    evaluate: int | None = None
    stop_when_gap: float | None = None
    evaluation_share: float | None = None
    minutes: float | None = None
    workers: int | None = None
    ray: str | None = None

    def over(self, file: "TrainOptions") -> "TrainOptions":
        """These options, and those of a file where nothing was given.

        Args:
            file: The options of the file.
        """
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return TrainOptions(**{**asdict(file), **given})

    def of_run(self) -> dict[str, Any]:
        """The options that a checkpoint keeps and compares, because other ones are another run."""
        names = ["env_kwargs", "features", "preset", "evaluation_share", "memory", "memory_bytes", "episodes_per_phase"]
        return {name: getattr(self, name) for name in names}

    def of_env(self) -> dict[str, Any]:
        """The options that only environments have."""
        return {name: getattr(self, name) for name in ("horizon", "reward_range", "value_bound")}


@final
@dataclass(frozen=True, slots=True)
class Config:
    """What a `config.toml` says: options, the versions that wrote it, and the numbers of episodes asked for in turn."""

    options: TrainOptions = field(default_factory=TrainOptions)
    versions: Mapping[str, Any] = field(default_factory=dict)
    budgets: tuple[int, ...] = ()

    def notes(self) -> Iterator[str]:
        """Why a run with these options may have other bits than the one that wrote them."""
        here = versions()
        others = [f"{name} {was} (here {here.get(name, 'none')})" for name, was in self.versions.items()
                  if here.get(name) != was]  # fmt: skip
        if others:
            yield f"it was written with {', '.join(others)}, so the bits of the run may be others"
        if len(self.budgets) > 1:
            yield (
                f"that run was asked for {' and then '.join(f'{n:,}' for n in self.budgets)} episodes; played at once "
                "they have the same law, and other bits"
            )


def read_config(path: Path) -> Config:
    """Read a TOML file of options.

    Args:
        path: The file.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror or error}); pass a file of TOML") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no TOML file: {error}") from None
    written, history = (found.pop(name, {}) for name in ("versions", "history"))
    budgets = history.get("budgets", []) if isinstance(history, dict) else None
    if not isinstance(budgets, list) or not all(type(one) is int and one >= 1 for one in budgets):
        raise ValueError(
            f"{path}: budgets of [history] must be a list of whole numbers, at least 1; got {budgets!r}, correct it or "
            "leave [history] out"
        )
    for name, value in found.items():
        if name not in _KINDS:
            raise ValueError(f"{path} has an entry {name!r}; known are {', '.join(_KINDS)}")
        kinds = _KINDS[name]
        pair = [type(one) in (int, float) for one in value] == [True, True] if isinstance(value, list) else True
        if not isinstance(value, kinds) or isinstance(value, bool) or not pair:
            raise ValueError(f"{path}: {name} must be {_SAID[kinds[-1]]}; got {value!r}")
    return Config(TrainOptions(**found), written if isinstance(written, dict) else {}, tuple(budgets))


def config_text(options: TrainOptions, budgets: Sequence[int], note: str | None = None) -> str:
    """The options as a TOML file, with the versions that the bits of a run may depend on.

    Args:
        options: The options.
        budgets: The numbers of episodes that were asked for, in turn: more than one where a run went on.
        note: A comment for the first line. None (default): none.
    """
    lines = [] if note is None else [note]
    lines += ["# A run of s4q. The same run again:", "#   s4q train --config config.toml --out FOLDER"]
    for one in fields(options):
        value = getattr(options, one.name)
        lines.append(f"# {one.name}: not given" if value is None else f"{one.name} = {_toml(value)}")
    lines += ["", "[versions]", *(f"{name} = {_toml(number)}" for name, number in versions().items())]
    lines += ["", "[history]", f"budgets = {_toml(list(budgets))}"]
    return "\n".join(lines) + "\n"


def versions() -> dict[str, str]:
    """The versions of s4q, Python and the packages that the bits of a run may depend on."""
    found = {"s4q": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _toml(value: Any) -> str:
    """A value as TOML writes it.

    >>> _toml([-1.0, 0.0]), _toml("a \\"b\\"")
    ('[-1.0, 0.0]', '"a \\\\"b\\\\""')
    """
    if isinstance(value, str):
        if any("\ud800" <= one <= "\udfff" for one in value):
            raise ValueError(
                f"{value!r} holds bytes that are no UTF-8, which config.toml cannot hold; spell it in UTF-8"
            )
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"[{', '.join(map(_toml, value))}]" if isinstance(value, list) else repr(value)
