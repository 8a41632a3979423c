"""Pictures of the documents: each is shown by a page, in words too, and is what its name says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tools.report_picture import PICTURE

PICTURES = sorted((ROOT / "docs" / "images").iterdir())
PAGES = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
_STARTS = {
    ".png": rb"\x89PNG\r\n\x1a\n",
    ".svg": rb"<svg",
    ".webp": rb"RIFF....WEBP",
}


def shown() -> dict[Path, list[str]]:
    """The texts that stand for each picture, by its file."""
    texts: dict[Path, list[str]] = {}
    for page in PAGES:
        for text, name in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text()):
            texts.setdefault((page.parent / name).resolve(), []).append(text)
    return texts


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)
def test_a_picture_is_shown_with_a_text(picture: Path) -> None:
    texts = shown().get(picture.resolve())
    assert texts, "no page shows it"
    assert all(texts)


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)
def test_a_picture_has_the_format_of_its_name(picture: Path) -> None:
    assert re.match(_STARTS[picture.suffix], picture.read_bytes(), re.DOTALL)


def test_the_report_of_a_held_version_is_shown_small_enough_for_a_page() -> None:
    """After a change of the report's page: python -m tools.report_picture."""
    data = PICTURE.read_bytes()
    assert len(data) <= 200 * 1024
    assert int.from_bytes(data[16:20], "big") == 1200, "the width in IHDR"
    texts = shown()[PICTURE]
    assert any("held" in text and "self-check" in text for text in texts)
