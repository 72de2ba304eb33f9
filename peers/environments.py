"""Throw-away virtual environments: other libraries are large, and what one pins another forbids."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


class NotInstallable(Exception):
    """pip could not install a package here. The message is pip's own."""


def python_with(folder: Path, requirements: Sequence[Sequence[str]]) -> Path:
    """The interpreter of a new virtual environment with some packages; an environment that is there already is taken.

    Args:
        folder: Where the environment is made.
        requirements: What pip installs, one call for each list, in order.
    """
    python, done = folder / "bin" / "python", folder / ".installed"
    if done.exists():
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    for ones in requirements:
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *ones]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        if found.returncode:
            errors = [line for line in found.stderr.splitlines() if line.startswith("ERROR")]
            raise NotInstallable(" ".join(errors) or found.stderr[-500:])
    done.touch()
    return python


def one_thread() -> dict[str, str]:
    """The variables of this process, with one thread for every linear-algebra library."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(names, "1")}
