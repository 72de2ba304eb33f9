"""The folder of a run: all that it takes to look at it, to go on with it, and to repeat it.

`s4q train --out FOLDER` makes it; `report`, `explain` and `evaluate` read it.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

from s4q.running.archive import previous_of


@final
@dataclass(frozen=True, slots=True)
class RunFolder:
    """A folder and the files in it."""

    path: Path

    @property
    def config(self) -> Path:
        """The options of the run."""
        return self.path / "config.toml"

    @property
    def checkpoint(self) -> Path:
        """Learner, curve and progress."""
        return self.path / "checkpoint.s4q"

    @property
    def metrics(self) -> Path:
        """The log, a line for each request and phase."""
        return self.path / "metrics.jsonl"

    @property
    def policy(self) -> Path:
        """The policy to deploy."""
        return self.path / "best.policy"

    @property
    def report(self) -> Path:
        """The page."""
        return self.path / "report.html"

    @contextmanager
    def made(self) -> Iterator[None]:
        """Make the folder for the block. Where the block fails before it wrote a file, the folder goes away again.

        Files are never removed: what is there was there before, or is of a run that has begun.
        """
        new = [one for one in (self.path, *self.path.parents) if not one.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"--out: the folder {self.path} cannot be made ({error.strerror or error})") from None
        try:
            yield
        except BaseException:  # Ctrl-C and an extra that is not installed too
            with suppress(OSError):  # a folder that is not empty stays
                for one in new:
                    one.rmdir()
            raise

    def write_config(self, text: str) -> None:
        """Write the options, whole or not at all.

        Args:
            text: The file.
        """
        draft = self.path / ".config.toml.draft"
        try:
            draft.write_text(text, encoding="utf-8")
            draft.replace(self.config)
        except OSError as error:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            raise ValueError(f"{self.config} cannot be written: {error}; choose another place or make room") from None

    def files(self) -> dict[str, str]:
        """The files that are there, by what they are."""
        return {name: str(getattr(self, name)) for name in _NAMES if getattr(self, name).is_file()}

    def require_free(self, config: Path | None) -> None:
        """Refuse a folder that holds a file which a new run would write over.

        Args:
            config: The file that --config names. It may be the config.toml of this folder. None: there is none.
        """
        for name in _NAMES:
            path: Path = getattr(self, name)
            own = name == "config" and config is not None and _same_file(path, config)
            if path.is_file() and not own:
                run = self.checkpoint.is_file()
                cure = "pass --resume to go on from it" if run else "it is of no run that can go on; move it away"
                raise ValueError(f"{path} is there already: {cure}, or choose another place")
        if previous_of(self.checkpoint).is_file():
            raise ValueError(
                f"{previous_of(self.checkpoint)} is there already, of an earlier run: move it away, or choose another "
                "place"
            )

    def clear(self) -> None:
        """Remove the files of an earlier run. Other files stay."""
        for name in _NAMES:
            path: Path = getattr(self, name)
            path.unlink(missing_ok=True)
            previous_of(path).unlink(missing_ok=True)


_NAMES = ("config", "metrics", "checkpoint", "policy", "report")


def _same_file(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)
