"""Public pages use the words of everyday technical English, one word for one thing."""

from __future__ import annotations

import io
import re
import tokenize

import pytest

from tests.support.document_blocks import documents
from tests.support.paths import ROOT

UNUSUAL = {
    "afar": "remote",
    "all the same": "anyway",
    "anew": "again",
    "held to": "compared with",
    "mend": "correct, fix",
    "nobody": "no one, or the passive",
    "said": "stated, set, described",
    "says so": "reports it",
    "told": "reported, inferred, given",
    "whoever": "anyone who",
}
"""Word or words -> what a colleague would write."""
PLAIN_CODE = ("operator", "worker")
"""Names, comments and docstrings of these have none of these words."""
IN_CODE = frozenset({"afar", "anew", "nobody", "said", "told", "whoever"})
"""Words looked for in code; the others are of several words, which names break up."""


def unusual(text: str) -> list[str]:
    """What the text of a page has of these words outside of code."""
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL).lower()
    return [word for word in sorted(UNUSUAL) if re.search(_pattern(word), prose)]


def _pattern(words: str) -> str:
    return r"\b" + r"\s+".join(words.split()) + r"\b"


def unusual_in_code(source: str) -> list[str]:
    """Lines of a module with such a word in a name, a comment or a text."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [
        f"line {token.start[0]}: {token.line.strip()}"
        for token in tokens
        if IN_CODE & set(re.findall("[a-z]+", token.string.lower()))
    ]


def fragments(source: str) -> list[int]:
    """Lines where a docstring begins in the middle of a sentence: of what, as what."""
    return [
        number
        for number, line in enumerate(source.splitlines(), 1)
        if re.match(r'\s*"""(Of|That of|As :meth)\b', line)
    ]


@pytest.mark.parametrize("page", [*documents(), "CONTRIBUTING.md", "charts/embertide/README.md"])
def test_public_pages_have_plain_words(page: str) -> None:
    found = unusual((ROOT / page).read_text())
    assert found == [], {word: UNUSUAL[word] for word in found}


def test_words_are_seen_across_lines_and_not_in_code() -> None:
    assert unusual("It is held\nto a plan, and begins Anew.") == ["anew", "held to"]
    assert unusual("`loops: anew` and\n```\nsaid\n```\n") == []


@pytest.mark.parametrize("room", PLAIN_CODE)
def test_code_has_plain_words(room: str) -> None:
    path = ROOT / room
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    assert files
    sources = {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files}
    words = {file: unusual_in_code(source) for file, source in sources.items()}
    assert {file: lines for file, lines in words.items() if lines} == {}
    begins = {file: fragments(source) for file, source in sources.items()}
    assert {file: lines for file, lines in begins.items() if lines} == {}


def test_docstrings_that_begin_in_the_middle_are_seen() -> None:
    assert fragments('A = 1\n"""Of a row."""\n"""Offsets of rows."""\n') == [2]


def test_words_are_seen_in_names_comments_and_texts() -> None:
    source = 'sooner = 1\n_told = 2  # nobody\n"""Whoever reads."""\n'
    assert unusual_in_code(source) == [
        "line 2: _told = 2  # nobody",
        "line 2: _told = 2  # nobody",
        'line 3: """Whoever reads."""',
    ]
