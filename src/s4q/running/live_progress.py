"""What a run shows while it goes on: a few lines that change on a terminal, plain lines elsewhere.

The loop calls it after each shard, and the Accounting makes the numbers. It only shows: a run without it is the same.
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log, log1p
from typing import TYPE_CHECKING, Any, TextIO, final

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_REFRESH = 0.1  # seconds between two looks at the numbers, on a terminal
_PAUSE = 1.0  # seconds between two plain lines, at least
_PAUSE_SHARE = 0.1  # of the time so far, at least: a run of a day has about a hundred lines
_HEARTBEAT = 10  # pauses after which there is a line though no phase ended
_WINDOW = 5.0  # seconds that the speed is measured over
_FASTER = 1.5  # times: so much faster in the later half of the window is a run that speeds up
_BARS = "▁▂▃▄▅▆▇█"
_MOST_BARS = 40


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LiveNumbers:
    """How far a run has come, in the user's units.

    Attributes:
        phases: Finished phases.
        doing: What is being played now, in a word or two.
        stage: "exploring", "refining" or "settled"; empty for learners that cannot tell.
        episodes: Episodes so far.
        budget: Episodes of the whole run.
        steps: Steps so far.
        max_steps: Steps of the whole run. None: there is no such limit.
        promise: What the newest policies promise. None if not known.
        mean_return: What they get. None before the first episode.
        best_return: What the best policy so far gets. None if not known.
        share_seen: Share of the directions that were seen. None if not known.
        certified_gap: What a certificate proves of the gap. None where there is none, or where it says nothing.
        trigger: How much of the data that ends the phase each level has, 1 being all; one number with pooled steps.
        nbytes: Bytes held by the learner.
        by_counts: True if episodes are drawn as counts and not played one by one. Such a run goes faster and faster.
    """

    phases: int
    doing: str
    stage: str
    episodes: int
    budget: int
    steps: int
    max_steps: int | None
    promise: float | None
    mean_return: float | None
    best_return: float | None
    share_seen: float | None
    certified_gap: float | None
    trigger: tuple[float, ...]
    nbytes: int
    by_counts: bool = False

    @property
    def by_steps(self) -> bool:
        """True if the limit on steps ends the run, and not the number of episodes."""
        return self.max_steps is not None and self.steps * self.budget >= self.episodes * self.max_steps

    @property
    def share(self) -> float:
        """Share of the run that is done, 0 to 1."""
        done = self.steps / self.max_steps if self.by_steps and self.max_steps else self.episodes / self.budget
        return min(done, 1.0)

    def done_of_all(self) -> str:
        """How much is done, in episodes, and in steps where they end the run."""
        if self.by_steps:
            return f"{self.steps:,} of {self.max_steps:,} steps, {self.episodes:,} episodes"
        return f"{self.episodes:,} of {self.budget:,} episodes"

    def returns(self) -> str:
        """What the policies get, promise, and got at best; empty before the first episode."""
        named = (("gets", self.mean_return), ("promises", self.promise), ("best", self.best_return))
        return ", ".join(f"{name} {value:.4g}" for name, value in named if value is not None)


@final
class Speed:
    """Episodes a second and the time that is left, by what happened in the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, float]] = deque()
        self._by_counts = False

    def add(self, now: float, numbers: LiveNumbers) -> None:
        """Take the numbers of a moment.

        Args:
            now: The moment, in seconds.
            numbers: The run at that moment.
        """
        self._seen.append((now, numbers.episodes, numbers.share))
        self._by_counts = numbers.by_counts
        while len(self._seen) > 2 and now - self._seen[1][0] >= _WINDOW:
            self._seen.popleft()

    @property
    def episodes_a_second(self) -> float | None:
        """None before two moments are known."""
        if len(self._seen) < 2 or self._seen[-1][0] <= self._seen[0][0]:
            return None
        return (self._seen[-1][1] - self._seen[0][1]) / (self._seen[-1][0] - self._seen[0][0])

    @property
    def seconds_left(self) -> float | None:
        """None before three moments are known, and while nothing happens.

        What is left is divided by the speed. Runs by counts go faster and faster, since a phase takes about the same
        time whatever its length. Where the later half of the window of such a run was clearly faster than the earlier
        one, that growth is taken to go on. Episodes that are played one by one never become so fast.
        """
        if len(self._seen) < 3 or self._seen[-1][2] <= self._seen[0][2]:
            return None
        (start, _, before), (now, _, share) = self._seen[0], self._seen[-1]
        left, speed = 1.0 - share, (share - before) / (now - start)
        if not self._by_counts:
            return left / speed
        middle, _, there = min(self._seen, key=lambda one: abs(one[0] - (start + now) / 2))
        if start < middle < now and share - there > _FASTER * (there - before) * (now - middle) / (middle - start) > 0:
            early, late = (there - before) / (middle - start), (share - there) / (now - middle)
            growth = 2.0 * log(late / early) / (now - start)  # speed is exp(growth * time)
            newest = late * exp(0.5 * growth * (now - middle))
            return log1p(left * growth / newest) / growth
        return left / speed

    def __str__(self) -> str:
        rate, left = self.episodes_a_second, self.seconds_left
        parts = [] if rate is None else [f"{rate:,.0f} episodes/s" if rate >= 10 else f"{rate:.2g} episodes/s"]
        return ", ".join([*parts, *([] if left is None else [f"about {duration(left)} left"])])


def duration(seconds: float) -> str:
    """A time as people read it.

    >>> duration(7.2), duration(125), duration(7300)
    ('7 s', '2 min 5 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


def byte_count(n: float) -> str:
    """Bytes as people read them.

    >>> byte_count(512), byte_count(1_618_700)
    ('512 B', '1.6 MB')
    """
    size = float(n)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def bars(shares: tuple[float, ...]) -> str:
    """A bar a level, full where the level has all that it needs; of neighbours beyond 40 the fullest counts.

    >>> bars((0.0, 0.5, 1.0))
    '▁▅█'
    """
    n = min(len(shares), _MOST_BARS)
    edges = [round(i * len(shares) / n) for i in range(n + 1)] if n else []
    groups = [max(shares[low:high]) for low, high in pairwise(edges)]
    return "".join(_BARS[round(min(max(one, 0.0), 1.0) * (len(_BARS) - 1))] for one in groups)


def plain_line(numbers: LiveNumbers, speed: Speed) -> str:
    """A run so far, as one line.

    Args:
        numbers: The run so far.
        speed: How fast it goes.
    """
    seen = "" if numbers.share_seen is None else f"{numbers.share_seen:.0%} seen"
    gap = "" if numbers.certified_gap is None else f"gap at most {numbers.certified_gap:.4g}"
    trigger = f"next policy {max(numbers.trigger):.0%}" if numbers.trigger else ""
    parts = (numbers.done_of_all(), numbers.stage, seen, numbers.returns(), gap, trigger, byte_count(numbers.nbytes))
    return f"phase {numbers.phases:,}: {', '.join(filter(None, (*parts, str(speed))))}"


@final
class PlainLines:
    """Writes a line when a phase has ended, at most one a second, and fewer the longer the run lasts.

    Args:
        numbers: Makes the numbers of the run so far.
        file: Where lines go.
    """

    def __init__(self, numbers: Callable[[], LiveNumbers], file: TextIO) -> None:
        self._numbers, self._file, self._speed = numbers, file, Speed()
        self._begun = self._last = time.monotonic()
        first = numbers()
        self._speed.add(self._begun, first)
        self._phases = first.phases

    def advance(self) -> None:
        """Look at the run, and write a line if one is due."""
        now = time.monotonic()
        pause = max(_PAUSE, _PAUSE_SHARE * (now - self._begun))
        if now - self._last < pause:
            return
        numbers = self._numbers()
        if numbers.phases == self._phases and now - self._last < _HEARTBEAT * pause:
            return
        self._speed.add(now, numbers)
        self._last, self._phases = now, numbers.phases
        self._file.write(f"{plain_line(numbers, self._speed)}\n")
        self._file.flush()


@final
class LiveLines:
    """The lines on a terminal. rich asks for them from a thread of its own, which only reads.

    Args:
        numbers: Makes the numbers of the run so far.
    """

    def __init__(self, numbers: Callable[[], LiveNumbers]) -> None:
        self._numbers, self._speed = numbers, Speed()
        self._looked = time.monotonic()
        self._shown = (numbers(), "")
        self._speed.add(self._looked, self._shown[0])

    def advance(self) -> None:
        """Look at the run, ten times a second at most."""
        now = time.monotonic()
        if now - self._looked >= _REFRESH:
            self._looked = now
            numbers = self._numbers()
            self._speed.add(now, numbers)
            self._shown = (numbers, str(self._speed))

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """One line with a bar, then one a topic."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        numbers, speed = self._shown
        top = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=1.0, completed=numbers.share, width=max(min(options.max_width - 60, 30), 8))
        top.add_row(f"{numbers.share:4.0%}", bar, Text(numbers.done_of_all(), overflow="ellipsis", no_wrap=True))
        yield top
        for name, said in topics(numbers, speed, with_bars=not options.ascii_only):
            line = Text(f"  {name:<9}", style="dim", overflow="ellipsis", no_wrap=True)
            line.append(said, style="not dim")
            yield line


def topics(numbers: LiveNumbers, speed: str, *, with_bars: bool) -> Iterator[tuple[str, str]]:
    """What a terminal shows below the bar: names and what is said of them.

    Args:
        numbers: The run so far.
        speed: How fast it goes, in words.
        with_bars: True draws the trigger as bars, a level each.
    """
    yield "phase", ", ".join(filter(None, (f"{numbers.phases + 1:,}", numbers.stage, numbers.doing)))
    if numbers.returns():
        yield "return", numbers.returns()
    if numbers.certified_gap is not None:
        yield "gap", f"at most {numbers.certified_gap:.4g}, proved"
    if numbers.share_seen is not None:
        yield "seen", f"{numbers.share_seen:.0%} of the directions"
    if numbers.trigger:
        each = f" {bars(numbers.trigger)} by level" if with_bars and len(numbers.trigger) > 1 else ""
        yield "trigger", f"{max(numbers.trigger):.0%} of the way to the next policy{each}"
    yield "memory", byte_count(numbers.nbytes)
    if speed:
        yield "speed", speed


@contextmanager
def show_progress(numbers: Callable[[], LiveNumbers], wanted: bool) -> Iterator[Callable[[], None]]:
    """Show a run on standard error: live on a terminal, else a plain line a phase.

    Args:
        numbers: Makes the numbers of the run so far.
        wanted: False shows nothing.

    Yields:
        A function to call after each shard.
    """
    if not wanted:
        yield lambda: None
    elif not sys.stderr.isatty():
        yield PlainLines(numbers, sys.stderr).advance
    else:
        # Imported here, so that `import s4q` stays light.
        from rich.console import Console
        from rich.live import Live

        lines: Any = LiveLines(numbers)
        console = Console(file=sys.stderr)
        # rich prints what a callback prints above the lines, on their terminal. What goes to a file or a pipe stays so.
        redirect = sys.stdout is not None and sys.stdout.isatty()
        with Live(lines, console=console, transient=True, refresh_per_second=8, redirect_stdout=redirect):
            yield lines.advance
