"""The command `s4q`: one file per subcommand."""

from s4q.cli.app import app

__all__ = ["app"]
