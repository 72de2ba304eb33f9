"""A Gymnasium environment by its id, for the commands; every failure says what the id must be."""

from typing import Any

from s4q.cli.arguments import BUILDERS
from s4q.problems.named_problems import meant


def made_env(env_id: str) -> Any:
    """Make an environment.

    Args:
        env_id: Its id, such as "CartPole-v1".
    """
    known = f"problem must be one of {', '.join(BUILDERS)}, or the id of a Gymnasium environment"
    try:
        import gymnasium
    except ImportError:
        raise ValueError(f'{known}, which needs pip install "s4q[gym]"; got {env_id!r}{meant(env_id)}') from None
    try:
        return gymnasium.make(env_id)
    except Exception as error:  # also those of its own code, such as a missing argument
        raise ValueError(f"{known}; got {env_id!r}{meant(env_id)} ({error})") from None
