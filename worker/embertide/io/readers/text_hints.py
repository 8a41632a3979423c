"""What in a manifest would make sense of text that is written in another dialect: for errors."""

from __future__ import annotations

import re
from dataclasses import dataclass

from embertide.io.readers.dialect import Dialect

_SEPARATORS = {
    ";": "semicolons",
    "\t": "tabs",
    "|": "bars",
    ",": "commas",
    ":": "colons",
    " ": "spaces",
}
_COMMENTS = ("#", "%", "//", "--", ";", "!")
HEADER_REPEATED = (
    "the name of the column: a header within the file, as where files were joined; remove that line"
)


@dataclass(frozen=True)
class _Hint:
    """``pattern`` of a whole text, and what it looks like.

    Attributes:
        kinds: of the columns that it is for.
        decimals: those of the dialect that it is for.
    """

    pattern: str
    sentence: str
    kinds: tuple[str, ...] = ("integer", "number")
    decimals: str = ".,"

    def fits(self, text: str) -> bool:
        """Whether a text looks so."""
        return re.fullmatch(self.pattern, text, re.IGNORECASE) is not None


_THOUSANDS = "it has thousands separators: write numbers without them"
_DECIMAL_COMMA = "it looks like a decimal comma: write dialect: {{decimal: ','}}"
_ROUNDED = _Hint(
    r"[+-]?\d+([.,]\d+)?e\+?\d{2,}",
    "it was rounded before it was written, as spreadsheets do; its other digits are lost: write ids"
    " as whole numbers, or as text with ids: string",
    ("integer",),
)
_FIELD_HINTS = (
    _Hint(r"[+-]?\d{1,3}([,.'\u2019 _\u00a0\u202f]\d{3})+", _THOUSANDS, ("integer",)),
    _Hint(r"[+-]?\d{1,3}(['\u2019 _\u00a0\u202f]\d{3})+([.,]\d+)?", _THOUSANDS, ("number",)),
    _Hint(
        r"[+-]?[1-9]\d{0,2},\d{3}",
        "it has a thousands separator (write numbers without it) or a decimal comma (write dialect:"
        " {{decimal: ','}})",
        ("number",),
        ".",
    ),
    _Hint(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?", _THOUSANDS, ("number",), "."),
    _Hint(r"[+-]?\d{1,3}(\.\d{3})+(,\d+)?", _THOUSANDS, ("number",), ","),
    _Hint(r"[+-]?\d+,\d+(e[+-]?\d+)?", _DECIMAL_COMMA, ("number",), "."),
    _Hint(r"[+-]?\d+,0+", _DECIMAL_COMMA, ("integer",), "."),
    _ROUNDED,
    _Hint(
        r"n/?an?|<na>|null|none|nil|\\n|-+|\?",
        "it looks like a missing value: fill it in, or drop the line",
    ),
    _Hint(
        r"""(["']).*\1""",
        "it looks like a quote: write dialect: {{quote: {quote}}}",
    ),
)
"""The first that fits counts."""
_ID_HINTS = (
    _Hint(r"\s.*|.*\s", "with blanks around it, which count: remove them"),
    _ROUNDED,
    _Hint(r'.*\\".*|.*\\', "backslashes before quotes? Then write dialect: {escape: '\\\\'}"),
)


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


def field_hint(text: str, kind: str, dialect: Dialect) -> str:
    """Why a field may not be the number, or the integer, that it should be."""
    text = text.strip()
    for hint in _FIELD_HINTS:
        if kind in hint.kinds and dialect.decimal in hint.decimals and hint.fits(text):
            return f"; {hint.sentence.format(quote=repr(text[0]))}"
    return ""


def id_hint(text: str, name: str | int) -> str:
    """Why a text may be no node's id.

    Args:
        name: of its column.
    """
    if text == name:
        return f" ({HEADER_REPEATED})"
    return next((f" ({hint.sentence})" for hint in _ID_HINTS if hint.fits(text)), "")


def escape_hint(line: str, dialect: Dialect) -> str:
    """How to read a line in which quotes stand behind backslashes, as Spark writes them."""
    if dialect.escape or '\\"' not in line:
        return ""
    return "; it looks like backslashes before quotes: write dialect: {escape: '\\\\'}"
