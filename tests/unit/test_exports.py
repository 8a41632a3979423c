"""What comes of modules that are exported: their programs, or the reasons why there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from embertide.models.dgl_interop import why_no_dgl
from tests.support.expected import Expected, inputs
from tests.support.export_texts import NEEDS_DGL, cases, export_text


@pytest.mark.parametrize(("file", "name"), cases(dgl=False))
def test_modules_and_their_exports(
    file: str, name: str, expected: Expected, tmp_path: Path
) -> None:
    expected.check(file, name, export_text(file, name, tmp_path), inputs(file))


@pytest.mark.tier(2)
@pytest.mark.skipif(why_no_dgl() != "", reason=NEEDS_DGL)
@pytest.mark.parametrize(("file", "name"), cases(dgl=True))
def test_modules_of_dgl_and_their_exports(
    file: str, name: str, expected: Expected, tmp_path: Path
) -> None:
    expected.check(file, name, export_text(file, name, tmp_path), inputs(file))
