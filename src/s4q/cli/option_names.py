"""Messages of the library, with the names of options in place of the names of arguments."""

import re
from collections.abc import Sequence

# Arguments of the library that are options of a command under the same name.
OPTIONS = (
    "checkpoint",
    "delta",
    "env_kwargs",
    "episodes",
    "episodes_per_phase",
    "evaluation_share",
    "horizon",
    "memory",
    "memory_bytes",
    "minutes",
    "preset",
    "reward_range",
    "seed",
    "stop_when_gap",
    "value_bound",
)

_QUOTED = re.compile(r"""(?<!\w)('[^']*'|"[^"]*")(?!\w)""")
_FREE = r"(?<![-\w.:,/\\])"  # not a part of a longer name, of settings or of a path


def with_option_names(message: str, options: Sequence[str] = OPTIONS) -> str:
    """A message of the library with the names of options in place of the names of arguments.

    Plain words such as "horizon" stay where they are words: they are replaced at the beginning, and before a `=`. What
    the user wrote stays as it was: what stands in quotes, settings such as name:horizon=5, and the names of files.

    Args:
        message: The message.
        options: Arguments that are options of the command under the same name.

    >>> with_option_names("memory_bytes must be given: pass memory_bytes=5 or reward_range=(lowest, highest)")
    '--memory-bytes must be given: pass --memory-bytes 5 or --reward-range lowest highest'
    >>> with_option_names("horizon must be given, since the horizon is not known")
    '--horizon must be given, since the horizon is not known'
    >>> with_option_names("problem must be known; got 'chain:horizon=5' in runs/memory_bytes/a.toml")
    "problem must be known; got 'chain:horizon=5' in runs/memory_bytes/a.toml"
    """
    pieces = _QUOTED.split(message)  # what is quoted has the odd places
    pieces[0] = _spelled(pieces[0], options, begins=True)
    pieces[2::2] = [_spelled(piece, options, begins=False) for piece in pieces[2::2]]
    return "".join(pieces)


def _spelled(message: str, options: Sequence[str], *, begins: bool) -> str:
    """A piece without quotes, with the names of options."""
    names = "|".join(sorted(options, key=len, reverse=True))
    message = re.sub(rf"{_FREE}({names})=\(([^()]*)\)", lambda m: f"{m[1]}={m[2].replace(',', '')}", message)
    message = re.sub(rf"{_FREE}({names})=", lambda m: f"{_option(m[1])} ", message)
    if begins:
        message = re.sub(rf"^({names})(?= (?:must|is|needs|has)\b)", lambda m: _option(m[1]), message)
    spelled = "|".join(name for name in options if "_" in name)
    if not spelled:
        return message
    return re.sub(rf"{_FREE}({spelled})\b(?!/|\.\w)", lambda m: _option(m[1]), message)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
