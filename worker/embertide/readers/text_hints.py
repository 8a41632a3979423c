"""What in a manifest would make sense of text that is written in another dialect: for errors."""

from __future__ import annotations

import re

from embertide.readers.dialect import Dialect

_SEPARATORS = {
    ";": "semicolons",
    "\t": "tabs",
    "|": "bars",
    ",": "commas",
    ":": "colons",
    " ": "spaces",
}
_COMMENTS = ("#", "%", "//", "--", ";", "!")
_COMMA = re.compile(r"[+-]?\d+,\d+(e[+-]?\d+)?", re.IGNORECASE)


def separator_hint(line: str, dialect: Dialect) -> str:
    """What else may stand between the columns of a line; empty where nothing does."""
    counts = {mark: line.count(mark) for mark in _SEPARATORS if mark != dialect.separator}
    mark = max(counts, key=lambda mark: counts[mark])
    if not counts[mark] or dialect.separator in line:
        return ""
    how = "format: tsv" if mark == "\t" else f"delimiter: {mark!r}"
    return f"; it looks like {_SEPARATORS[mark]}: write {how}"


def comment_hint(line: str, dialect: Dialect) -> str:
    """How to pass over a line that looks like a comment."""
    mark = next((mark for mark in _COMMENTS if line.lstrip("\ufeff").startswith(mark)), None)
    if mark is None or dialect.comment:
        return ""
    return f"; it looks like a comment: write dialect: {{comment: {mark!r}}}"


def field_hint(text: str, dialect: Dialect) -> str:
    """Why a field may not be the number that it should be."""
    if dialect.decimal == "." and _COMMA.fullmatch(text.strip()):
        return "; it looks like a decimal comma: write dialect: {decimal: ','}"
    stripped = text.strip()
    if len(stripped) > 1 and stripped[0] == stripped[-1] and stripped[0] in "\"'":
        return f"; it looks like a quote: write dialect: {{quote: {stripped[0]!r}}}"
    return ""
