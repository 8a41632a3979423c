"""Public pages use the words of everyday technical English, one word for one thing."""

from __future__ import annotations

import re

import pytest

from tests.support.document_blocks import documents
from tests.support.paths import ROOT

UNUSUAL = {
    "afar": "remote",
    "anew": "again",
    "held to": "compared with",
    "nobody": "no one, or the passive",
    "said": "stated, set, described",
    "says so": "reports it",
    "told": "reported, inferred, given",
    "whoever": "anyone who",
}
"""Word or words -> what a colleague would write."""
QUOTES = {"docs/model.md": {"said", "told"}}
"""Page -> words in messages of the code that it quotes."""


def unusual(page: str, text: str) -> list[str]:
    """What a text of a page has of these words outside of code."""
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL).lower()
    words = UNUSUAL.keys() - QUOTES.get(page, set())
    return [word for word in sorted(words) if re.search(_pattern(word), prose)]


def _pattern(words: str) -> str:
    return r"\b" + r"\s+".join(words.split()) + r"\b"


@pytest.mark.parametrize("page", [*documents(), "CONTRIBUTING.md", "charts/embertide/README.md"])
def test_public_pages_have_plain_words(page: str) -> None:
    found = unusual(page, (ROOT / page).read_text())
    assert found == [], {word: UNUSUAL[word] for word in found}


def test_words_are_seen_across_lines_and_not_in_code() -> None:
    assert unusual("page", "It is held\nto a plan, and begins Anew.") == ["anew", "held to"]
    assert unusual("page", "`loops: anew` and\n```\nsaid\n```\n") == []
