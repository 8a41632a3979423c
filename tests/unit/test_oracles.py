"""Programs, plans, costs and help are what was frozen (``python -m tools.oracles``)."""

from __future__ import annotations

import difflib

import pytest

from tools.oracles import FOLDER, ORACLES


@pytest.mark.parametrize("name", ORACLES)
def test_a_text_is_the_frozen_one(name: str) -> None:
    frozen = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    made = ORACLES[name]().splitlines()
    differing = list(difflib.unified_diff(frozen, made, "frozen", "made", lineterm="", n=1))
    assert differing == [], "\n".join(differing[:40])
