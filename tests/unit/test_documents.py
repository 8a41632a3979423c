"""Files that the documents name exist, so that a move does not leave a dead end behind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*/README.md")]
STARTS = (ROOT, ROOT / "worker/embertide", ROOT / "operator/embertide_operator", ROOT / "tests")


def paths(document: Path) -> list[str]:
    """What stands between backticks, or in a link, and is a path of the source tree."""
    text = document.read_text()
    named = re.findall(r"`([\w./-]+/[\w.-]*\.(?:py|md|yaml|toml)|[\w-]+/(?:[\w-]+/)*)`", text)
    linked = re.findall(r"\]\((?!https?:)([\w./-]+\.\w+)\)", text)
    return [*named, *linked]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_files_exist(document: Path) -> None:
    known = (document.parent, *STARTS)
    missing = [name for name in paths(document) if not any((at / name).exists() for at in known)]
    assert missing == []


def test_paths_are_found_in_documents() -> None:
    assert "versions/publish.py" in paths(ROOT / "docs/architecture.md")
