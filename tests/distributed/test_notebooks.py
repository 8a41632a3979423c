"""Notebooks of examples/ run in a kernel, and show what they are kept with."""

from __future__ import annotations

import json
import tempfile
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.test_newcomer import masked
from tools.notebooks import PAGES, path_of, run

pytestmark = [pytest.mark.distributed, pytest.mark.tier(2)]


def shown(cell: dict[str, Any]) -> tuple[list[str], list[str]]:
    """What a cell shows: the words of its text without numbers, and the kinds of all else."""
    outputs = cell.get("outputs", [])
    text = "".join("".join(one["text"]) for one in outputs if "text" in one)
    return masked(text).split(), [kind for one in outputs for kind in sorted(one.get("data", {}))]


@pytest.mark.parametrize("name", PAGES)
def test_a_notebook_shows_what_it_is_kept_with(name: str) -> None:
    """But for one word of ten, since kernels, times and digests differ between machines."""
    kept = json.loads(path_of(name).read_text(encoding="utf-8"))["cells"]
    # Lines are broken by the length of paths.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        now = run(name, Path(folder)).cells
    for old, new in zip(kept, now, strict=True):
        (words, kinds), (words_now, kinds_now) = shown(old), shown(new)
        assert kinds_now == kinds, "".join(old["source"])
        same = SequenceMatcher(None, words, words_now, autojunk=False).ratio()
        assert same > 0.9, f"{''.join(old['source'])}\n{' '.join(words_now)}"
