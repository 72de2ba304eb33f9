"""Logs: a run as JSON lines, and on TensorBoard.

Both are listeners: `run(..., callback=JsonLines("run.jsonl"))`. They only write; a log is never needed to go on.
"""

import json
import os
from dataclasses import asdict
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, final

from s4q.running.accounting import Answered, Run


@final
class JsonLines:
    """One line for each start, request, phase and end, appended to a file and flushed at once.

    A run that goes on from a checkpoint first drops the lines of what it plays again, so that no line is there twice.

    Args:
        path: The file to append to; it is made if it does not exist.

    >>> import s4q, tempfile
    >>> mdp = s4q.problems.low_rank()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = JsonLines(f"{folder}/run.jsonl")
    ...     learner = s4q.S3Q(mdp, s4q.UniformPolicy(mdp.n_actions))
    ...     _ = s4q.run(learner, s4q.collectors.CountCollector(mdp), 7, callback=log)
    ...     [line["event"] for line in log.lines()]
    ['start', 'request', 'request', 'request', 'phase', 'end']
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.exists() and not self.path.is_file():
            raise ValueError(f"{self.path} is no plain file; choose the name of a file")
        if not self.path.parent.is_dir():
            raise ValueError(f"{self.path} cannot be written: there is no folder {self.path.parent}; make it first")

    def lines(self) -> list[dict[str, Any]]:
        """The lines written so far, up to the first that is not whole."""
        return [line for line, _ in self._whole_lines()]

    def on_start(self, run: Run) -> None:
        """Append a new run to the file; go on with a resumed one where its checkpoint was written."""
        known = self._whole_lines()
        begins = max((i for i, (line, _) in enumerate(known) if line["event"] == "start"), default=None)
        mine = run.resumed and begins is not None and known[begins][0].get("run") == run.name
        keep = len(known)
        if mine and begins is not None:
            played_again = (
                i
                for i, (line, _) in enumerate(known)
                if i > begins and (line["episodes"] > run.episodes or line["event"] == "end")
            )
            keep = next(played_again, keep)
        if self.path.exists():
            os.truncate(self.path, known[keep - 1][1] if keep else 0)
        if not mine:
            self._write("start", {"episodes": run.episodes, "run": run.name})

    def on_request(self, answered: Answered) -> None:
        """Write the episodes and steps of a request."""
        self._write("request", asdict(answered))

    def on_phase(self, run: Run) -> None:
        """Write the point of the phase."""
        self._write("phase", asdict(run.curve[-2]))

    def on_end(self, run: Run) -> None:
        """Write the totals of the run: the last point of the curve, with mean return and length of all episodes."""
        whole = {"mean_return": run.mean_return, "mean_length": run.mean_length}
        self._write("end", asdict(run.curve[-1]) | whole)

    def _write(self, event: str, row: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, **row}) + "\n")

    def _whole_lines(self) -> list[tuple[dict[str, Any], int]]:
        """Each whole line and the position of its end; the rest of a line that a killed writer left is not one."""
        found: list[tuple[dict[str, Any], int]] = []
        end = 0
        for raw in self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []:
            try:
                line = json.loads(raw)
            except ValueError:
                line = None
            if not (isinstance(line, dict) and {"event", "episodes"} <= set(line) and raw.endswith(b"\n")):
                break
            end += len(raw)
            found.append((line, end))
        return found


@final
class TensorBoard:
    """Writes the curve for TensorBoard, by episodes; needs tensorboardX (`pip install "s4q[tensorboard]"`).

    Args:
        directory: Where the event files are written.
    """

    def __init__(self, directory: str | PathLike[str]) -> None:
        try:
            self._writer_class = import_module("tensorboardX").SummaryWriter
        except ImportError:
            raise ImportError(
                'TensorBoard needs tensorboardX; install it with: pip install "s4q[tensorboard]"'
            ) from None
        self._directory = str(directory)
        self._writer: Any = None

    def on_start(self, run: Run) -> None:
        """Open the files; a resumed run hides the points of what it plays again."""
        self._writer = self._writer_class(self._directory, purge_step=run.episodes + 1 if run.resumed else None)

    def on_request(self, answered: Answered) -> None:
        """Write the number of episodes of the request."""
        self._writer.add_scalar(f"request/{answered.kind}_episodes", answered.n_episodes, answered.episodes)

    def on_phase(self, run: Run) -> None:
        """Write the point of the phase."""
        for name, value in asdict(run.curve[-2]).items():
            if value is not None and name != "episodes":
                self._writer.add_scalar(f"phase/{name}", value, run.episodes)
        self._writer.flush()

    def on_end(self, run: Run) -> None:
        """Close the files."""
        del run
        self._writer.close()
