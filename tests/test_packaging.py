"""What the package says of itself agrees, and no address is named that does not exist. `make dist` tries the wheel."""

import re
import tomllib
from pathlib import Path

import s4q

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = (ROOT / "CITATION.cff").read_text()


def test_versions_agree() -> None:
    cited = re.search(r"^version: (.*)$", CITATION, re.M)
    assert cited is not None
    assert PROJECT["version"] == s4q.__version__ == cited[1]


def test_the_paper_and_the_software_can_be_cited() -> None:
    assert re.search(r"^title: s4q$", CITATION, re.M)
    assert re.search(r"^license: MIT$", CITATION, re.M)
    assert '"Stabilizing Q-learning with Linear Architectures for Provably Efficient Learning"' in CITATION
    assert CITATION.count("family-names: ") == 2


def test_metadata_is_complete() -> None:
    for name in ("description", "readme", "requires-python", "license", "authors", "keywords", "classifiers"):
        assert PROJECT[name], name
    assert "urls" not in PROJECT  # until there are some
    assert "Typing :: Typed" in PROJECT["classifiers"]
    assert (ROOT / "src" / "s4q" / "py.typed").exists()
