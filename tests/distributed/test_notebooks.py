"""Notebooks of examples/ run in a kernel, and show what they are kept with."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.test_newcomer import masked
from tools.notebooks import PAGES, path_of, run

pytestmark = [pytest.mark.distributed, pytest.mark.tier(2)]


def shown(cell: dict[str, Any]) -> list[str]:
    """What a cell shows: its text without numbers, and the kinds of all else."""
    outputs = cell.get("outputs", [])
    text = "".join("".join(one["text"]) for one in outputs if "text" in one)
    text = re.sub(r"(\[[#-]*\] *\d+%.*\n)+", "PROGRESS ", text)
    return [masked(text), *(kind for one in outputs for kind in sorted(one.get("data", {})))]


@pytest.mark.parametrize("name", PAGES)
def test_a_notebook_shows_what_it_is_kept_with(name: str, tmp_path: Path) -> None:
    kept = json.loads(path_of(name).read_text(encoding="utf-8"))["cells"]
    for old, new in zip(kept, run(name, tmp_path).cells, strict=True):
        assert shown(new) == shown(old), "".join(old["source"])
