"""CPU time: of a piece of work (the least of a few repetitions), and of the processes that this one has started."""

import os
import time
from collections.abc import Callable


def cpu_seconds(work: Callable[[], object], repeat: int = 3) -> float:
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def cpu_of_descendants() -> float:
    """CPU seconds so far of all processes that this one and its children have started and that still run (Linux)."""
    total = 0.0
    for pid in _descendants(os.getpid()):
        try:
            total += time.clock_gettime((~pid << 3) | 2)  # the kernel's number of the CPU clock of a process
        except OSError:  # it has ended
            continue
    return total


def _descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except OSError:  # it has ended
                continue
            children.setdefault(parent, []).append(int(name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found[1:]
