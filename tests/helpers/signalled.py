"""Child processes that get a signal in the middle of their work."""

import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

# A child may end before its signal comes, on any machine. Then another one gets so many times the work.
TIMES = (1, 10, 100)


def signalled(
    line: Sequence[str], ready: Callable[[], bool], kill: signal.Signals, env: Mapping[str, str]
) -> tuple[int, str]:
    """The exit code of a child that got the signal once it was ready, or that ended before, and what it said."""
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env) as process:
        while process.poll() is None and not ready():
            time.sleep(0.001)
        process.send_signal(kill)  # nothing happens if it is over
        said = process.communicate()[1]
    return process.returncode, said
