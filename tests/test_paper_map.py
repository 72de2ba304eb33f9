"""Every paper tag stands exactly once in the code and is listed in docs/paper_map.md, and the other way round."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
TAG = re.compile(r"\[((?:Alg\d|eqn|Lemma|Thm):[A-Za-z0-9]+)\]")


def tags_in_code() -> Counter[tuple[str, str]]:
    """(tag, file) pairs with the number of times they occur."""
    found: Counter[tuple[str, str]] = Counter()
    for path in (ROOT / "src" / "s4q").rglob("*.py"):
        for tag in TAG.findall(path.read_text()):
            found[tag, str(path.relative_to(ROOT / "src" / "s4q"))] += 1
    return found


def tags_in_map() -> list[tuple[str, str]]:
    """(tag, file) of each row of the table."""
    rows = re.findall(r"^\| `\[([^\]]+)\]` \|[^|]*\| `([^`]+)` \|", (ROOT / "docs" / "paper_map.md").read_text(), re.M)
    return [(tag, name) for tag, name in rows]


def test_every_tag_occurs_exactly_once_in_the_code() -> None:
    per_tag: Counter[str] = Counter()
    for (tag, _), n in tags_in_code().items():
        per_tag[tag] += n
    assert per_tag
    assert {tag: n for tag, n in per_tag.items() if n != 1} == {}


def test_code_and_map_list_the_same_tags_in_the_same_files() -> None:
    listed = tags_in_map()
    assert len(listed) == len(set(listed))
    assert set(listed) == set(tags_in_code())


def test_algorithms_1_and_3_are_covered() -> None:
    tags = {tag for tag, _ in tags_in_code()}
    for tag in ("Alg1:TDError", "Alg1:UpdateRule", "Alg1:Project", "Alg1:TargetUpdate", "Alg1:Qbest", "Alg3:x"):
        assert tag in tags
