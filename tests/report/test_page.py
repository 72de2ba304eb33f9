"""The report: what it says is true of the run, hostile names stay names, and the same run gives the same bytes."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from saved_runs import counted_run, counted_source, lake_checkpoint, stepped_agent

import s4q
from s4q.report import RunSource, render, run_of, write_report
from s4q.report import page as pages
from s4q.report.value_plots import Ranges

HOSTILE = '<script>alert("x")</script><img src=x onerror=alert(1)>\'"&'


class Reader(HTMLParser):
    """Collects the text, the tags and the attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def source() -> RunSource:
    return counted_source(command="s4q train deep_sea", settings={"horizon": 4})


@pytest.fixture(scope="module")
def page(source: RunSource) -> str:
    return render(source)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is drawn, but not written as SVG, which takes most of the time."""
    monkeypatch.setattr(pages, "inline_svg", lambda ax, *_: f"<svg>{ax.get_legend_handles_labels()[1]}</svg>")


def plots(text: str) -> list[str]:
    return re.findall(r'id="plot-([^"]+)"', text)


def test_the_page_says_what_was_learned(page: str, source: RunSource) -> None:
    text, mdp = Reader(page).text, source.mdp
    assert mdp is not None
    value = f"is worth {mdp.value(source.run.best):.4g} an episode; the best possible is {mdp.v_star:.4g}"
    assert value in text
    assert "After 400 episodes S4Q (preset realisable) has a policy for deep_sea(4)" in text
    assert "What is proved: optimism, when the features are exact" in text
    assert "s4q train deep_sea" in text
    for finding in source.learner.diagnose():
        assert finding.says in text


def test_every_picture_that_the_run_allows_is_there(page: str) -> None:
    expected = ["promise", "regret", "gap", "phases", "policy", "memory-holds", "information", "bonus"]
    assert plots(page) == [*expected, "episodes", "memory", "cpu"]
    assert page.count("<svg") == len(expected) + 3
    assert page.count("</svg>") == len(expected) + 3


@pytest.mark.usefixtures("quick")
def test_an_environment_has_a_page_without_exact_values() -> None:
    agent = stepped_agent()
    assert agent.last_run is not None
    ranges = Ranges.of_space(agent.env.observation_space, agent.features)
    known: dict[str, Any] = {"problem": "MountainCar-v0", "run": agent.last_run, "learner": agent.learner}
    text = render(RunSource(**known, features=agent.features, ranges=ranges))
    assert plots(text) == ["promise", "phases", "value", "memory-holds", "information", "memory", "cpu"]
    assert "got -20 on average in its own 13 episodes" in Reader(text).text
    assert 'The preset "practical" proves nothing' in Reader(text).text
    assert "value" not in plots(render(RunSource(**known)))  # no features, no picture of the value


@pytest.mark.usefixtures("quick")
def test_an_audit_is_shown_where_the_run_was_recorded() -> None:
    mdp = s4q.problems.low_rank(dim=3, horizon=2)
    learner = s4q.S4Q(mdp, "tight")
    run = s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=0), 10**13, record=True)
    source = RunSource(problem="low_rank", run=run, learner=learner, mdp=mdp)
    text = render(source)
    audit = s4q.theory.audit(run, mdp)
    rows = re.search(r'<details id="audit">(.*?)</details>', text, re.S)
    assert rows is not None
    assert rows.group(1).count("<tr>") == len(audit.rows) + 1
    assert "all that is claimed holds" in rows.group(1)
    assert "the bound of Theorem 1" in text  # this preset has one
    assert "The preset proves no bound" not in text


def test_no_bound_is_drawn_where_none_is_proved(page: str) -> None:
    assert "the bound of Theorem 1" not in page
    assert "The preset proves no bound on it." in page


@pytest.mark.usefixtures("quick")
def test_hostile_names_stay_names(source: RunSource) -> None:
    changed = {"problem": HOSTILE, "command": HOSTILE, "settings": {HOSTILE: HOSTILE}}
    known = {name: getattr(source, name) for name in ("run", "learner", "mdp", "budget", "seed")}
    reader = Reader(render(RunSource(**known | changed)))
    assert [tag for tag, _ in reader.tags].count("script") == 1  # our own
    assert "img" not in [tag for tag, _ in reader.tags]
    assert not [name for _, attributes in reader.tags for name in attributes if name.startswith("on")]
    assert reader.text.count(HOSTILE) >= 3


def test_the_same_run_gives_the_same_bytes(page: str, source: RunSource) -> None:
    assert render(source) == page


def test_nothing_is_fetched_and_the_page_is_small(page: str) -> None:
    assert len(page.encode()) < 1_000_000
    outside = {"src", "href", "xlink:href", "action", "data", "srcset", "poster"}
    for tag, attributes in Reader(page).tags:
        for name, value in attributes.items():
            if name in outside:
                assert str(value).startswith(("#", "data:")), (tag, name, value)
    assert "@import" not in page
    assert not re.findall(r"url\((?!#)", page)
    assert "default-src 'none'" in page


def test_identifiers_are_there_once_and_all_links_lead_somewhere(page: str) -> None:
    """Two plots that share a clip path or a marker would spoil each other."""
    tags = Reader(page).tags
    names = [str(attributes["id"]) for _, attributes in tags if "id" in attributes]
    assert len(names) == len(set(names))
    links = [str(a.get("href") or a.get("xlink:href")) for _, a in tags if a.get("href") or a.get("xlink:href")]
    assert {one[1:] for one in links if one.startswith("#")} <= set(names)
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= set(names)


@pytest.mark.usefixtures("quick")
def test_a_run_in_progress_has_a_page(tmp_path: Path) -> None:
    """From the checkpoint of a run that was cut; its curve is that of the run, point by point."""
    path, mdp = tmp_path / "run.s4q", s4q.problems.deep_sea(4)
    learner, collector = s4q.S4Q(mdp, "realisable"), s4q.collectors.CountCollector(mdp, seed=0)
    run = s4q.run(learner, collector, 10_000, checkpoint=path, stop=lambda so_far: so_far.episodes >= 300)
    found = s4q.load(path)
    read = run_of(found, mdp)
    assert read.curve[:-1] == run.curve[:-1]
    ended, was = read.curve[-1], run.curve[-1]
    for name in ("episodes", "main_episodes", "replay_episodes", "steps", "phases", "regret", "gap", "nbytes"):
        assert getattr(ended, name) == getattr(was, name)
    assert read.cpu_seconds == found.progress.cpu_seconds
    source = RunSource(problem="sea", run=read, learner=found.learner, mdp=mdp, budget=found.progress.budget)
    text = Reader(render(source)).text
    assert "a run in progress" in text
    assert "so far S4Q (preset realisable)" in text
    assert f"of {10_000:,}" in text


def test_a_run_that_has_not_begun_has_a_page(tmp_path: Path) -> None:
    mdp = s4q.problems.chain()
    s4q.save(tmp_path / "new.s4q", s4q.S4Q(mdp), seed=1)
    found = s4q.load(tmp_path / "new.s4q")
    text = render(RunSource(problem="chain", run=run_of(found, mdp), learner=found.learner, mdp=mdp))
    assert "no episode has been played" in Reader(text).text
    assert plots(text) == []


@pytest.mark.usefixtures("quick")
def test_s3q_has_a_page() -> None:
    mdp = s4q.problems.low_rank()
    learner = s4q.S3Q(mdp, controller=s4q.UniformPolicy(mdp.n_actions))
    run = s4q.run(learner, s4q.collectors.CountCollector(mdp, seed=0), 200)
    text = render(RunSource(problem="low_rank", run=run, learner=learner, mdp=mdp))
    assert {"regret", "gap", "memory", "cpu"} <= set(plots(text))
    assert "Theorem 2, for its controller" in Reader(text).text


@pytest.mark.usefixtures("quick")
def test_the_table_behind_an_environment_gives_exact_values(tmp_path: Path) -> None:
    found = s4q.load(lake_checkpoint(tmp_path))
    mdp = s4q.problems.from_gymnasium("FrozenLake-v1", horizon=20)
    source = RunSource(problem="lake", run=run_of(found), learner=found.learner, mdp=mdp)
    text = render(source)
    assert "policy" in plots(text)
    assert "regret" not in plots(text)  # episodes were stepped, so nobody counted it
    assert f"the best possible is {mdp.v_star:.4g}" in Reader(text).text


def test_writing(tmp_path: Path, source: RunSource, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "render", lambda _: page)
    place = write_report(tmp_path / "report.html", source)
    assert place.read_text(encoding="utf-8") == page
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]
    for wrong in (tmp_path, tmp_path / "no" / "report.html"):
        with pytest.raises(ValueError, match="cannot be written"):
            write_report(wrong, source)


def test_a_run_of_another_size_has_no_exact_values() -> None:
    """A policy for another problem must not be valued on this one."""
    _, learner, run = counted_run(50)
    source = RunSource(problem="x", run=run, learner=learner, mdp=s4q.problems.deep_sea(5))
    assert not source.policy_fits
    assert "worth" not in pages.sentences.headline(source)
