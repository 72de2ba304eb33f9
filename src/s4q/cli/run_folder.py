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
        """Make the folder for the block. Where a run is refused before its first checkpoint, nothing is left behind."""
        new = not self.path.exists()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"--out: the folder {self.path} cannot be made ({error.strerror or error})") from None
        try:
            yield
        except ValueError:
            if not self.checkpoint.exists():
                self.config.unlink(missing_ok=True)
                if new:
                    with suppress(OSError):
                        self.path.rmdir()
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
            raise ValueError(f"{self.config} cannot be written: {error}; choose another place or make room") from None

    def files(self) -> dict[str, str]:
        """The files that are there, by what they are."""
        names = ("config", "metrics", "checkpoint", "policy", "report")
        return {name: str(getattr(self, name)) for name in names if getattr(self, name).is_file()}

    def clear(self) -> None:
        """Remove the files of an earlier run. Other files stay."""
        for path in map(Path, self.files().values()):
            path.unlink()
            previous_of(path).unlink(missing_ok=True)
