"""ResultsFile: the finished cells of comparisons in a small SQLite file, so that a killed comparison can go on.

Only the process that compares writes to it, one transaction a cell. A cell is known by its problem, its learner, their
settings, its seed, its number of episodes and the code that played it; names that are only shown do not matter. So
numbers of two versions of a learner, or of NumPy, never stand in one table.
"""

import json
import platform
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import final

from s4q.comparing.cells import Cell, Outcome
from s4q.core.version import __version__

_SCHEMA = 2
_APPLICATION = 0x53345101  # marks a database as ours
_TABLE = (
    "CREATE TABLE IF NOT EXISTS cells (problem TEXT, learner TEXT, seed INTEGER, episodes INTEGER, code TEXT, "
    "outcome TEXT, PRIMARY KEY (problem, learner, seed, episodes, code))"
)
_PACKAGE = Path(__file__).parent.parent
# The code that decides what a run gives: folders and files of the package.
_PLAYING = (
    "baselines",
    "collectors",
    "core",
    "features",
    "learners",
    "problems",
    "running",
    "agent.py",
    "comparing/cells.py",
)
_LIBRARIES = ("numpy", "scipy", "gymnasium")  # whose versions decide it too


def digest_of_code() -> str:
    """The version of s4q, and a digest of all that decides what a run gives."""
    digest = sha256(" ".join(map(_version, ("python", *_LIBRARIES))).encode())
    for place in (_PACKAGE / name for name in _PLAYING):
        for path in sorted(place.rglob("*.py")) if place.is_dir() else (place,):
            digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return f"{__version__} {digest.hexdigest()[:16]}"


def _version(library: str) -> str:
    if library == "python":
        return platform.python_version()
    try:
        return version(library)
    except PackageNotFoundError:
        return ""


PLAYING_CODE = digest_of_code()  # read once, when this is imported: files may change while a process runs


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
            self._require_ours()
            with self._database:
                self._database.execute(_TABLE)
                self._database.execute(f"PRAGMA application_id = {_APPLICATION}")
                self._database.execute(f"PRAGMA user_version = {_SCHEMA}")
            [self.n_kept] = self._database.execute("SELECT COUNT(*) FROM cells").fetchone()
        except sqlite3.DatabaseError as error:
            raise ResultsFileError(
                f"{path} is no results file, or cannot be written ({error}); choose another name"
            ) from None

    def _require_ours(self) -> None:
        """Refuse a database that another program, or another version of s4q, has made."""
        application, version, n_tables = (
            self._database.execute(query).fetchone()[0]
            for query in ("PRAGMA application_id", "PRAGMA user_version", "SELECT COUNT(*) FROM sqlite_master")
        )
        if application != _APPLICATION and (n_tables or version):
            raise ResultsFileError(
                f"{self.path} is a database of another program, or of an earlier version of s4q; choose another name"
            )
        if application == _APPLICATION and version != _SCHEMA:
            raise ResultsFileError(
                f"{self.path} has schema {version}, but this version of s4q writes {_SCHEMA}; choose another file"
            )

    def find(self, cell: Cell) -> Outcome | None:
        """The outcome of a cell that this code has finished; None where it is not finished."""
        query = "SELECT outcome FROM cells WHERE problem = ? AND learner = ? AND seed = ? AND episodes = ? AND code = ?"
        with self._readable():
            found = self._database.execute(query, (*_key(cell), PLAYING_CODE)).fetchone()
            return None if found is None else Outcome(**json.loads(found[0]))

    def of_other_code(self, cell: Cell) -> str:
        """The code that finished the cell, if it was not this one; empty where there is none."""
        query = "SELECT code FROM cells WHERE problem = ? AND learner = ? AND seed = ? AND episodes = ? AND code != ?"
        with self._readable():
            found = self._database.execute(query, (*_key(cell), PLAYING_CODE)).fetchone()
            return "" if found is None else str(found[0])

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Refuse a damaged file."""
        try:
            yield
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            raise ResultsFileError(f"{self.path} is damaged ({error}); delete it, or choose another name") from None

    def keep(self, cell: Cell, outcome: Outcome) -> None:
        """Write a finished cell."""
        try:
            with self._database:
                row = (*_key(cell), PLAYING_CODE, json.dumps(asdict(outcome)))
                self._database.execute("INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?, ?)", row)
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
