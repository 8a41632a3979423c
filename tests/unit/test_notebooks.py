"""Notebooks of examples/ have the text of their pages, and are small."""

from __future__ import annotations

import json

import pytest

from tests.support.paths import ROOT
from tools.notebooks import PAGES, PICTURES, cells, path_of

MOST_BYTES = 300_000


@pytest.mark.parametrize("name", PAGES)
def test_a_notebook_has_the_text_of_its_page(name: str) -> None:
    kept = json.loads(path_of(name).read_text(encoding="utf-8"))
    found = [(cell["cell_type"], "".join(cell["source"])) for cell in kept["cells"]]
    assert found == cells(name), f"run python -m tools.notebooks {name}"


@pytest.mark.parametrize("name", PAGES)
def test_a_notebook_is_small_and_shows_pictures_but_no_errors_or_places(name: str) -> None:
    text = path_of(name).read_text(encoding="utf-8")
    assert len(text) < MOST_BYTES
    assert '"image/png"' in text
    assert '"output_type": "error"' not in text
    assert "/tmp/" not in text


def test_pages_show_pictures_that_their_notebooks_make() -> None:
    for name, files in PICTURES.items():
        page = (ROOT / PAGES[name]).read_text(encoding="utf-8")
        for file in files:
            assert f"images/{name}-{file}" in page
            assert (ROOT / f"docs/images/{name}-{file}").is_file()
