"""A Gymnasium environment by its id and its arguments, for the commands; every failure says what they must be.

An id such as "module:Name-v0" makes Gymnasium import a module. As with `python -m`, modules of the current directory
are found.
"""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from s4q.cli.arguments import BUILDERS
from s4q.problems.named_problems import meant

EnvArguments = Annotated[
    str | None,
    typer.Option(
        "--env-kwargs",
        metavar="JSON",
        help='Arguments that the environment is made with, as JSON: \'{"map_name": "8x8"}\'.',
        show_default=False,
    ),
]


def env_arguments(text: str | None) -> str | None:
    """The arguments of an environment in one spelling, so that texts can be compared. None: there are none.

    Args:
        text: A JSON object, by the names of the arguments.

    >>> env_arguments('{"size":8,  "map": "x"}')
    '{"map": "x", "size": 8}'
    """
    if text is None:
        return None
    try:
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError("that is no object, which begins with {")
        return json.dumps(found, sort_keys=True, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f'--env-kwargs must be a JSON object, such as {{"map_name": "8x8"}}; got {text!r} ({error})'
        ) from None


def made_env(env_id: str, arguments: str | None = None) -> Any:
    """Make an environment.

    Args:
        env_id: Its id, such as "CartPole-v1".
        arguments: A JSON object of what it is made with. None (default): its own defaults.
    """
    given = {} if arguments is None else json.loads(env_arguments(arguments) or "{}")
    known = f"problem must be one of {', '.join(BUILDERS)}, or the id of a Gymnasium environment"
    try:
        import gymnasium
    except ImportError:
        raise ValueError(f'{known}, which needs pip install "s4q[gym]"; got {env_id!r}{meant(env_id)}') from None
    if ":" in env_id:
        find_modules_here()
    try:
        return gymnasium.make(env_id, **given)
    except Exception as error:  # also those of its own code, such as a missing argument
        if given and _is_made(env_id):
            raise ValueError(f"--env-kwargs: {env_id} cannot be made with {arguments} ({error})") from None
        raise ValueError(f"{known}; got {env_id!r}{meant(env_id)} ({error})") from None


def _is_made(env_id: str) -> bool:
    """Is there an environment of this id?"""
    import gymnasium

    try:
        gymnasium.spec(env_id)
    except Exception:  # also those of a module that is imported
        return False
    return True


def find_modules_here() -> None:
    """Let modules of the current directory be imported, unless Python was told not to (-P)."""
    here = str(Path.cwd())
    if not sys.flags.safe_path and here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
