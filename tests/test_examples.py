"""The examples run as they stand, on their own, and say what their readers are told they say."""

import ast
import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# A size small enough for seconds, and what the output must show.
SMALL: dict[str, tuple[list[str], str]] = {
    "quickstart": (["150"], r"(?s)one episode in 1,048,576 .*value of the policy (?P<value>0\.\d+), best possible"),
    "frozen_lake": (["60"], r"(?s)^mean return .*after 120 episodes: mean return.*one episode of \d+ steps paid"),
    "own_environment": (["40"], r"(?s)FeatureReport\(.*max_norm=1\.0.*mean return -?\d+.*500 episodes"),
    "own_loop": (["300"], r"first 30 episodes (?P<first>\d+\.\d+), of the last (?P<last>\d+\.\d+)"),
    "fixed_controller": (["100000"], r"slope of log error on log episodes: (?P<slope>-\d+\.\d+)"),
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.slow
def test_the_example_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes, shows = SMALL[path.stem]
    monkeypatch.setattr(sys, "argv", [str(path), *sizes])
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    match = re.search(shows, printed)
    assert match is not None, printed
    found = match.groupdict()
    assert list(tmp_path.iterdir()) == []  # it cleans up after itself
    if path.stem == "own_loop":  # it learned something
        assert float(found["last"]) > float(found["first"]) + 2
    if path.stem == "fixed_controller":
        assert -0.8 < float(found["slope"]) < -0.2
    if path.stem == "quickstart":
        assert float(found["value"]) > 0.5


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_is_short_and_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) < 80
    assert ast.get_docstring(ast.parse(text))


def test_every_example_is_known_here() -> None:
    assert {path.stem for path in EXAMPLES} == set(SMALL)
    assert len(EXAMPLES) >= 5
