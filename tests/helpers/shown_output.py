"""What a page shows below a block of code, compared with what the code prints.

A block of plain code may be followed by one empty line and an indented paragraph: its output. Words must agree to the
letter. Numbers may differ by a quarter, because a run of smooth features rounds differently on another CPU and then
takes another course.
"""

import re
from collections.abc import Iterator

BLOCK = re.compile(r"^```python\n(.*?)^```$\n?((?:\n(?:    [^\n]*\n)+)?)", re.S | re.M)
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
_COMMAND = re.compile(r"^    (?:s4q|make|pip|python) ", re.M)
_TOLERANCE = 0.25


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Each python block of a page, with the output that is shown below it, or ""."""
    for code, below in BLOCK.findall(text):
        shown = "" if _COMMAND.search(below) else below
        yield code, "\n".join(line[4:] for line in shown.strip("\n").split("\n"))


def differences(shown: str, printed: str) -> list[str]:
    """Where the two disagree: none if they agree.

    >>> differences("mean return -132.07, 100 episodes", "mean return -121.5, 100 episodes")
    []
    >>> differences("mean return -132.07", "mean return -200")
    ['shown -132.07, printed -200']
    """
    words = [[part.split() for part in _NUMBER.split(text)] for text in (shown, printed)]
    if words[0] != words[1]:
        return [f"other words: shown {shown!r}, printed {printed!r}"]
    pairs = zip(_NUMBER.findall(shown), _NUMBER.findall(printed), strict=True)
    return [f"shown {a}, printed {b}" for a, b in pairs if not _close(_value(a), _value(b))]


def _value(number: str) -> float:
    return float(number.replace(",", ""))


def _close(a: float, b: float) -> bool:
    return abs(a - b) <= _TOLERANCE * abs(a)
