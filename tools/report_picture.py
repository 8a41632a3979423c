"""Writes docs/images/report.png: the report of a real run whose version its gate holds.

Run it after a change of the report's page: python -m tools.report_picture

The example's graph is published, and then the same without half of its edges. The picture shows the
second report from its head to the self-check, as Chromium draws it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image

from tests.support.browser import MISSING, Browser, browser, find_browser
from tests.support.nights import BROKEN, Night
from tests.support.paths import ROOT

PICTURE = ROOT / "docs" / "images" / "report.png"
_SHOWN_FOLDER = "/data/packages"
"""In the picture instead of the temporary folder that the runs used."""
_WIDTH = 1200
_COLORS = 256
_MARGIN = 24
_END_OF_SELF_CHECK = (
    "document.getElementById('self-check').parentElement.getBoundingClientRect().bottom"
)


def draw_picture(folder: Path) -> bytes:
    """The picture as a PNG; the runs and the browser write into ``folder``.

    Raises:
        RuntimeError: Chromium is not installed.
    """
    program = find_browser()
    if program is None:
        raise RuntimeError(MISSING)
    page = folder / "report.html"
    _write_report(folder, page)
    (folder / "browser").mkdir()
    with browser(program, folder / "browser") as opened:
        return _draw(opened, page)


def _write_report(folder: Path, page: Path) -> None:
    """Publish twice, and write the report of the second version as a user does."""
    good, output = Night.of_example(), folder / "embeddings"
    good.run(folder / "night", output)
    held = BROKEN["half the edges"](good).run(folder / "night", output)
    assert held.held
    words = ("report", "--output", output.as_uri(), "--version", held.version, "--out", str(page))
    subprocess.run([sys.executable, "-m", "embertide", *words], check=True, capture_output=True)
    page.write_text(page.read_text().replace(str(folder), _SHOWN_FOLDER))


def _draw(opened: Browser, page: Path) -> bytes:
    opened.open(page, width=_WIDTH)
    height = round(opened.evaluate(_END_OF_SELF_CHECK)) + _MARGIN
    opened.open(page, width=_WIDTH, height=height)
    return _with_palette(opened.screenshot(whole=False))


def _with_palette(png: bytes) -> bytes:
    """The same picture in a third of the bytes."""
    smaller = BytesIO()
    with Image.open(BytesIO(png)) as image:
        image.quantize(_COLORS, dither=Image.Dither.NONE).save(smaller, "PNG", optimize=True)
    return smaller.getvalue()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        PICTURE.write_bytes(draw_picture(Path(folder)))
