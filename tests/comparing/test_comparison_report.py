"""The report of a comparison: it says what the rows say, needs no network, and escapes every name."""

import os
import re
import shutil
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from s4q.cli import app
from s4q.comparing import Comparison
from s4q.comparing.plan import plan_of
from s4q.comparing.report_page import headline, render
from s4q.report.html_files import write_page

HOSTILE = '<script>document.title = "taken"</script> $\\frac{ & "x"'
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def row(problem: str, learner: str, seed: int, regret: float | None, mean_return: float = 0.5, **more: Any) -> Any:
    curve = [[k, None if regret is None else regret * (k / 100) ** 0.5, mean_return, 0.1, 50 * k] for k in (1, 10, 100)]
    made = {
        "problem": problem, "learner": learner, "seed": seed, "episodes": 100, "regret": regret,
        "mean_return": mean_return, "gap": 0.25, "phases": 3, "steps": 500, "nbytes": 5_000, "cpu_seconds": 0.5,
        "learner_seconds": 0.125, "curve": curve, "error": "", "scored_episodes": 100,
    }  # fmt: skip
    return made | more


def comparison(name: str = "walk") -> Comparison:
    """Two learners on a problem with regret, one of them on a problem without it."""
    rows = [row(name, "quick", seed, 10.0 + seed) for seed in range(4)]
    rows += [row(name, "slow", seed, 30.0 + seed) for seed in range(4)]
    rows += [row("cart", "slow", seed, None, 7.0) for seed in range(4)]
    return Comparison(rows, {("cart", "quick"): "problem must have one-hot features"})


def cells(text: str) -> list[list[str]]:
    """All rows of all tables."""
    return [re.findall(r"<t[dh][^>]*>([^<]*)</t[dh]>", line) for line in re.findall(r"<tr>(.*?)</tr>", text, re.S)]


def test_it_says_what_the_rows_say() -> None:
    text = render(comparison(), "s4q compare --problem walk")
    assert "<h1>quick and slow are best, or not to be told from the best, on 1 of 2 problems each.</h1>" in text
    summary = {(one["problem"], one["learner"]): one for one in comparison().summary()}
    found = summary["walk", "quick"]
    shown = f"{found['iqm']:.4g} [{found['low']:.4g}, {found['high']:.4g}]"
    table = cells(text)
    assert table[0] == ["learner", "walk", "cart", "best on"]
    assert ["quick", shown, "not played", "1 of 2"] in table
    assert f'<td class="number best">{shown}</td>' in text
    assert ["quick", shown, "11.5", "0.5", "0.25", "3", "5,000", "0.125", "0.5", "4", "yes"] in table
    assert "quick: not played, problem must have one-hot features." in text
    assert "s4q compare --problem walk" in text
    assert text.count("<figure") == 8
    assert "http" not in re.sub(r'xmlns:xlink="[^"]*"|http-equiv', "", text)
    assert len(text.encode()) < 1_000_000


def test_the_same_comparison_gives_the_same_bytes() -> None:
    rows = [row("cart", "slow", seed, None, 7.0) for seed in range(2)]
    assert render(Comparison(rows, {})) == render(Comparison(rows, {}))


@pytest.mark.parametrize(
    ("best", "said"),
    [
        ({("a", "x"): True, ("b", "x"): True, ("b", "y"): True}, "x is best, or not to be told from the best, on 2"),
        ({("a", "x"): True, ("b", "y"): True}, "x and y are best, or not to be told from the best, on 1 of 2 problems"),
        ({}, "No run was finished, so nothing can be compared."),
    ],
)  # fmt: skip
def test_who_was_best_is_counted(best: dict[tuple[str, str], bool], said: str) -> None:
    pairs = [(problem, learner) for problem in "ab" for learner in "xyz"]
    lines = [{"problem": p, "learner": one, "best": best.get((p, one), False), "runs": len(best)} for p, one in pairs]
    assert headline(lines).startswith(said)
    if not best:
        assert headline([{**line, "runs": 1} for line in lines]) == "No learner can be ranked."


def test_runs_that_failed_are_named() -> None:
    rows = [row("walk", "quick", 0, 10.0), row("walk", "broken", 0, None, error="it <fell> over", curve=[])]
    text = render(Comparison(rows, {}))
    assert "broken: 1 of 1 runs failed; seed 0: it &lt;fell&gt; over." in text
    assert "1 failed" in text
    alone = render(Comparison(rows[1:], {}))
    assert "No run was finished" in alone
    assert "<figure" not in alone
    with pytest.raises(ValueError, match="nothing to report"):
        render(Comparison([], {}))


def test_names_are_escaped() -> None:
    rows = [row(HOSTILE, HOSTILE, seed, 10.0 + seed) for seed in range(2)]
    text = render(Comparison(rows, {(HOSTILE, "psrl"): HOSTILE}), f"s4q compare -p {HOSTILE}")
    assert "<script>document" not in text
    assert text.count("<script>") == 1


def test_the_command_writes_it_beside_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("s4q.comparing.report_page.inline_svg", lambda *_: "<svg></svg>")  # it takes most of the time
    runner, words = CliRunner(env={"COLUMNS": "200"}), ["compare", "-p", "chain:n_states=3", "-l", "s4q", "--quiet"]
    words += ["--seeds", "1", "--episodes", "20", "--processes", "1"]
    done = runner.invoke(app, [*words, "--results", "some.sqlite"])
    assert done.exit_code == 0, done.output
    assert "report: some.html" in done.stdout
    page = (tmp_path / "some.html").read_text(encoding="utf-8")
    command = "s4q compare --problem chain:n_states=3 --learner s4q --seeds 1 --episodes 20"
    assert command in page
    plan = plan_of(["chain:n_states=3"], ["s4q"], 1, 20)
    assert [plan.problems[0].settings, plan.seeds] == [{"n_states": 3}, 1]
    assert runner.invoke(app, words).exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"some.sqlite", "some.html"}  # nothing unless it is asked for
    named = runner.invoke(app, [*words, "--report", "other.html", "--json"])
    assert named.exit_code == 0
    assert "report: other.html" in named.stderr
    (tmp_path / "a_file").touch()
    for wrong, told in (
        (["--report", "no/other.html"], "the folder no does not exist; make it first"),
        (["--report", str(tmp_path)], "which is a folder; name a file with --report"),
        (["--results", str(tmp_path)], f"--results {tmp_path} is a folder; name a file in it"),
        (["--results", "."], "--results . is a folder; name a file in it"),
        (["--plots", "a_file"], "--plots a_file is a file; name a folder"),
    ):
        with monkeypatch.context() as patch:  # refused before anything is played
            patch.setattr("s4q.cli.compare_command.compare_plan", None)
            lost = runner.invoke(app, [*words, *wrong])
        assert (lost.exit_code, told in lost.stderr) == (2, True)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    refused = runner.invoke(app, [*words, "--report", "third.html"])
    assert (refused.exit_code, 'pip install "s4q[report]"' in refused.stderr) == (2, True)


def test_a_page_replaces_no_other_file_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of s4q beside the results is made anew; somebody's own file there is not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("s4q.comparing.report_page.inline_svg", lambda *_: "<svg></svg>")
    words = ["compare", "-p", "chain:n_states=3", "-l", "s4q", "--quiet", "--seeds", "1", "--episodes", "5"]
    words += ["--processes", "1", "--results", "r.sqlite"]
    Path("r.html").write_text("my thesis")
    refused = CliRunner(env={"COLUMNS": "300"}).invoke(app, words)
    assert refused.exit_code == 2
    assert "would replace r.html, which s4q did not write; name another file with --report" in refused.output
    assert Path("r.html").read_text() == "my thesis"
    assert not Path("r.sqlite").exists()
    Path("r.html").unlink()
    for _ in range(2):
        assert CliRunner().invoke(app, words).exit_code == 0
    lost = CliRunner().invoke(app, [*words[:-1], "no/r.sqlite"])
    assert "--results: the folder no does not exist" in " ".join(lost.output.split())


def test_links_and_pipes_stay_what_they_are(tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target.html", tmp_path / "link.html", tmp_path / "pipe"
    target.write_text("old")
    link.symlink_to(target)
    assert write_page(link, "<p>new</p>") == link
    assert link.is_symlink()
    assert target.read_text() == "<p>new</p>"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_page(pipe, "<p>piped</p>")
    reader.join()
    assert read == ["<p>piped</p>"]
    end, start = os.pipe()
    write_page(f"/dev/fd/{start}", "<p>inherited</p>")
    os.close(start)
    with open(end, encoding="utf-8") as file:
        assert file.read() == "<p>inherited</p>"
    assert pipe.is_fifo()
    assert {path.name for path in tmp_path.iterdir()} == {"target.html", "link.html", "pipe"}


def test_without_the_extra_there_is_no_page_beside_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("s4q.cli.compare_command.find_spec", lambda name: None)
    words = ["compare", "-p", "chain", "-l", "s4q", "--seeds", "1", "--episodes", "5", "--processes", "1", "--quiet"]
    done = CliRunner().invoke(app, [*words, "--results", "some.sqlite"])
    assert done.exit_code == 0, done.output
    assert done.stderr == 'no report: it needs pip install "s4q[report]"\n'
    for asked, extra in (("--report", "report"), ("--plots", "plot")):
        refused = CliRunner().invoke(app, [*words, "--results", "other.sqlite", asked, "there"])
        assert refused.exit_code == 2
        assert f'{asked} there needs pip install "s4q[{extra}]"' in refused.output
    assert not Path("other.sqlite").exists()  # refused before a run was played


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium to test the page in it")
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    """It renders in both schemes and on a phone, asks nobody, logs nothing, and its toggles work."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    place = comparison(HOSTILE).report(tmp_path / "page.html")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=0)
        for scheme, width in (("light", 1200), ("dark", 390)):
            context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
            context.set_default_timeout(0)  # a machine may be slow
            page, said, asked = context.new_page(), [], []
            page.on("console", lambda message, said=said: said.append(message.text))
            page.on("pageerror", lambda error, said=said: said.append(str(error)))
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.goto(place.as_uri())
            assert (said, [url for url in asked if not url.startswith("data:")]) == ([], [place.as_uri()])
            assert page.title() == "A comparison by s4q"
            page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.locator("figure svg").count() == 8
            before = page.evaluate("getComputedStyle(document.body).backgroundColor")
            page.click("#scheme")
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
            legend = page.locator("#plot-curve-0 svg text").first
            assert legend.evaluate("one => getComputedStyle(one).fill") == page.evaluate(
                "getComputedStyle(document.body).color"
            )
        browser.close()
