"""CPU time of a piece of work: the least of a few repetitions."""

import time
from collections.abc import Callable


def cpu_seconds(work: Callable[[], object], repeat: int = 3) -> float:
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best
