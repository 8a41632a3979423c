"""Files that are made from code are what is made now (``python -m tools.pages``)."""

from __future__ import annotations

import pytest

from tests.support.paths import ROOT
from tools.pages import MADE, OF_DGL, make


def _marks(file: str) -> list[pytest.MarkDecorator]:
    if file in OF_DGL:
        return [pytest.mark.dgl]
    made_elsewhere = "dashboards" in file or "docs/model" in file  # by Grafana's package, by ruff
    return [pytest.mark.tier(2)] if made_elsewhere else []


FILES = [file for file in MADE if file != "docs/convolutions.md"]
"""But for the one that takes long, which test_convolution_page.py compares."""


@pytest.mark.parametrize("file", [pytest.param(file, marks=_marks(file)) for file in FILES])
def test_a_file_is_what_is_made_now(file: str) -> None:
    assert (ROOT / file).read_text(encoding="utf-8") == make(file), "run python -m tools.pages"
