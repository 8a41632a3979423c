"""The page of a run's report in a real browser: every chart has drawn, nothing was loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from embertide.facts.report import draw_page
from tests.support.browser import MISSING, Browser, Scheme, browser, find_browser
from tests.support.run_reports import make_manifest, make_report

PROGRAM = find_browser()
pytestmark = [pytest.mark.skipif(PROGRAM is None, reason=MISSING), pytest.mark.tier(2)]

WIDE, NARROW = 1280, 420
GRIDS = [(1, 1), (2, 2), (4, 2), (16, 8)]

CHARTS = """
[...document.querySelectorAll("svg[role=img]")].map(svg => {
  const box = svg.getBoundingClientRect();
  const marks = [...svg.querySelectorAll("rect")].filter(mark => {
    const own = mark.getBoundingClientRect();
    return own.width > 0 && own.height > 0
      && own.left >= box.left - 1 && own.right <= box.right + 2
      && getComputedStyle(mark).fill !== "none";
  });
  return {says: svg.getAttribute("aria-label"), width: box.width, height: box.height,
          marks: marks.length};
})
"""
"""What each chart shows: its own box, and the marks within it that are to be seen."""

OVERLAPS = """
[...document.querySelectorAll(".row, .axis, .map")].flatMap(plot => {
  const shown = [...plot.querySelectorAll("text, .label, .value")]
    .filter(text => text.textContent && text.getBoundingClientRect().width)
    .map(text => [text.textContent, text.getBoundingClientRect()]);
  return shown.flatMap(([one, a], at) => shown.slice(at + 1)
    .filter(([_, b]) => a.left < b.right - 1 && b.left < a.right - 1
                     && a.top < b.bottom - 2 && b.top < a.bottom - 2)
    .map(([other]) => one + " / " + other));
})
"""
"""Texts of one chart that lie on each other."""

CONTRAST = """
(() => {
  const channel = part => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const light = color => {
    const [r, g, b] = color.match(/[0-9.]+/g).slice(0, 3).map(part => channel(part / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const page = getComputedStyle(document.body).backgroundColor;
  const ground = element => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if (!/, 0\\)$|transparent/.test(color)) return color;
    }
    return page;
  };
  return [...document.querySelectorAll("p, dt, dd, th, td, h1, h2, h3, a, li, .label, .value, "
                                       + ".name, .figure, .below, summary, small")]
    .filter(element => element.getBoundingClientRect().height)
    .map(element => {
      const [a, b] = [light(getComputedStyle(element).color), light(ground(element))];
      return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), element.textContent];
    })
    .filter(([ratio]) => ratio < 4.5);
})()
"""
"""Texts whose contrast with their ground is less than WCAG's AA asks for."""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert PROGRAM is not None
    with browser(PROGRAM, tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def page_of(folder: Path, grid: tuple[int, int], **manifest: Any) -> Path:
    path = folder / "report.html"
    path.write_text(draw_page(make_report(*grid), make_manifest(**manifest)))
    return path


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("grid", GRIDS)
def test_every_chart_has_drawn(
    chromium: Browser, tmp_path: Path, grid: tuple[int, int], width: int
) -> None:
    page = page_of(tmp_path, grid)
    chromium.open(page, width=width)
    # What is shown when asked for has charts, too.
    chromium.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    charts = chromium.evaluate(CHARTS)
    assert len(charts) > (14 if grid == (1, 1) else 40)
    # Some wait lengths never occurred: their rows say 0 and have no bar.
    empty = [
        chart for chart in charts if not chart["marks"] and " 0 waits" not in f" {chart['says']}"
    ]
    assert empty == []
    assert [c for c in charts if c["width"] < 100 or c["height"] < 10] == []
    assert chromium.evaluate("document.documentElement.scrollWidth") == width
    assert chromium.evaluate(OVERLAPS) == []


@pytest.mark.parametrize("grid", GRIDS)
def test_nothing_is_loaded(chromium: Browser, tmp_path: Path, grid: tuple[int, int]) -> None:
    page = page_of(tmp_path, grid)
    chromium.open(page, width=WIDE)
    assert [url for url in chromium.requests if url != "data:,"] == [page.as_uri()]
    assert chromium.problems == []


def test_the_page_may_load_and_run_nothing(chromium: Browser, tmp_path: Path) -> None:
    """Even markup that got into it, against all escaping, would do nothing."""
    page = page_of(tmp_path, (2, 2))
    evil = "<script>document.title = 'ran'</script><img src='http://127.0.0.1:9/x'></body>"
    page.write_text(page.read_text().replace("</body>", evil))
    chromium.open(page, width=WIDE)
    assert chromium.evaluate("document.title") != "ran"
    assert len(chromium.problems) >= 2
    assert all("Content Security Policy" in problem for problem in chromium.problems)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_people_can_read_it_in_light_and_in_dark(
    chromium: Browser, tmp_path: Path, scheme: Scheme
) -> None:
    chromium.open(page_of(tmp_path, (2, 2)), width=WIDE, scheme=scheme)
    ground = chromium.evaluate("getComputedStyle(document.body).backgroundColor")
    first = int(ground.removeprefix("rgb(").split(",")[0])
    assert first > 200 if scheme == "light" else first < 50
    assert chromium.evaluate(CONTRAST) == []


def test_what_is_hatched_is_drawn_with_its_pattern(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(page_of(tmp_path, (2, 2)), width=WIDE)
    assert chromium.evaluate("document.getElementById('hatch').tagName") == "pattern"
    fills = "[...document.querySelectorAll('rect.wait')].map(bar => getComputedStyle(bar).fill)"
    assert set(chromium.evaluate(fills)) == {'url("#hatch")'}
    assert len(chromium.screenshot(whole=False)) > 10_000
