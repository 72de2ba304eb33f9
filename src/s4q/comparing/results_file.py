"""ResultsFile: the finished cells of comparisons in a small SQLite file, so that a killed comparison can go on.

Only the process that compares writes to it, one transaction a cell. A cell is known by its problem, its learner, their
settings, its seed and its number of episodes; names that are only shown do not matter.
"""

import json
import sqlite3
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import final

from s4q.comparing.cells import Cell, Outcome

_SCHEMA = 1
_TABLE = (
    "CREATE TABLE IF NOT EXISTS cells (problem TEXT, learner TEXT, seed INTEGER, episodes INTEGER, outcome TEXT, "
    "PRIMARY KEY (problem, learner, seed, episodes))"
)


@final
class ResultsFileError(ValueError):
    """The results file cannot be read or written."""


@final
class ResultsFile:
    """Finished cells in a file, or in memory.

    Args:
        path: The file; it is made if it does not exist. None: nothing is written.
    """

    def __init__(self, path: str | PathLike[str] | None) -> None:
        self.path = None if path is None else Path(path)
        if self.path is not None and not self.path.parent.is_dir():
            raise ResultsFileError(f"{path} cannot be written: there is no folder {self.path.parent}; make it first")
        self.n_kept = 0
        try:
            self._database = sqlite3.connect(":memory:" if self.path is None else self.path)
            [version] = self._database.execute("PRAGMA user_version").fetchone()
            if version not in (0, _SCHEMA):
                raise ResultsFileError(
                    f"{path} has schema {version}, but this version of s4q writes {_SCHEMA}; choose another file"
                )
            with self._database:
                self._database.execute(_TABLE)
                self._database.execute(f"PRAGMA user_version = {_SCHEMA}")
            [self.n_kept] = self._database.execute("SELECT COUNT(*) FROM cells").fetchone()
        except sqlite3.DatabaseError as error:
            raise ResultsFileError(
                f"{path} is no results file, or cannot be written ({error}); choose another name"
            ) from None

    def find(self, cell: Cell) -> Outcome | None:
        """The outcome of a finished cell; None where it is not finished."""
        query = "SELECT outcome FROM cells WHERE problem = ? AND learner = ? AND seed = ? AND episodes = ?"
        try:
            found = self._database.execute(query, _key(cell)).fetchone()
            return None if found is None else Outcome(**json.loads(found[0]))
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            raise ResultsFileError(f"{self.path} is damaged ({error}); delete it, or choose another name") from None

    def keep(self, cell: Cell, outcome: Outcome) -> None:
        """Write a finished cell."""
        try:
            with self._database:
                row = (*_key(cell), json.dumps(asdict(outcome)))
                self._database.execute("INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?)", row)
        except sqlite3.Error as error:
            raise ResultsFileError(
                f"{self.path} could not be written ({error}); the {self.n_kept} finished cells in it are kept: make "
                "room and run the same line again"
            ) from None
        self.n_kept += 1

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def _key(cell: Cell) -> tuple[str, str, int, int]:
    return cell.problem.key, cell.learner.key, cell.seed, cell.episodes
