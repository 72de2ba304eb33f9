"""The page in a real browser: it renders, asks nobody for anything, logs no error, and its toggles work.

Debian's chromium is used where it is installed; `.ci/run` installs it. Without it these tests are skipped.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from saved_runs import counted_source

from s4q.report import write_report

HOSTILE = '<script>document.title = "taken"</script><img src=x onerror="document.title=\'taken\'">'
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium to test the page in it")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=0)
        yield found
        found.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    return write_report(folder / "report.html", counted_source(problem=HOSTILE, command=f"s4q train {HOSTILE}"))


class Opened:
    """The page in a window of its own, and all that the browser said and asked for meanwhile."""

    def __init__(self, browser: Any, place: Path, scheme: str = "light", width: int = 1200) -> None:
        self.context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
        self.context.set_default_timeout(0)  # a machine may be slow
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(place.as_uri())

    def background(self) -> str:
        return str(self.page.evaluate("getComputedStyle(document.body).backgroundColor"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_it_renders_without_errors_and_without_requests(browser: Any, place: Path, scheme: str, width: int) -> None:
    opened = Opened(browser, place, scheme, width)
    page = opened.page
    assert opened.said == []
    assert [url for url in opened.asked if not url.startswith("data:")] == [place.as_uri()]
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width  # nothing to scroll sideways
    boxes = page.evaluate("[...document.querySelectorAll('svg')].map(one => one.getBoundingClientRect().toJSON())")
    assert len(boxes) == 11
    assert all(250 < box["width"] <= width and box["height"] > 100 for box in boxes)
    letters = page.evaluate("[...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect().height)")
    assert len(letters) > 50
    assert min(letters) >= 8.0  # pixels: readable on a phone
    opened.context.close()


def test_colours_follow_the_scheme_and_the_button(browser: Any, place: Path) -> None:
    light, dark = Opened(browser, place, "light"), Opened(browser, place, "dark")
    ink = "getComputedStyle(document.querySelector('svg text')).fill"
    assert light.background() != dark.background()
    assert light.page.evaluate(ink) != dark.page.evaluate(ink)
    shown = light.background()
    light.page.click("#scheme")
    assert light.background() == dark.background()
    light.page.click("#scheme")
    assert light.background() == shown
    assert light.said == []
    light.context.close()
    dark.context.close()


def test_details_open_and_close(browser: Any, place: Path) -> None:
    opened = Opened(browser, place)
    table = opened.page.locator("#numbers table")
    assert not table.is_visible()
    opened.page.click("#numbers summary")
    assert table.is_visible()
    opened.page.click("#numbers summary")
    assert not table.is_visible()
    assert opened.page.locator("details").count() >= 4
    opened.context.close()


def test_hostile_names_do_nothing(browser: Any, place: Path) -> None:
    opened = Opened(browser, place)
    opened.page.wait_for_timeout(100)
    assert opened.page.title() != "taken"
    assert opened.page.title() == f"{HOSTILE}: a run of s4q"
    assert opened.page.locator("img").count() == 0
    assert HOSTILE in opened.page.locator("h1").inner_text()
    opened.context.close()


def test_an_injected_script_would_not_run(browser: Any, place: Path, tmp_path: Path) -> None:
    """Even if escaping failed: the page allows one script, by its digest, and no network."""
    spoiled = tmp_path / "spoiled.html"
    inside = '<script>document.title = "taken"</script><iframe src="https://example.invalid/"></iframe></body>'
    spoiled.write_text(place.read_text(encoding="utf-8").replace("</body>", inside), encoding="utf-8")
    opened = Opened(browser, spoiled)
    assert opened.page.title() != "taken"
    refused = " ".join(opened.said)
    assert "script-src" in refused
    assert "default-src 'none'" in refused  # of the frame
    opened.context.close()
