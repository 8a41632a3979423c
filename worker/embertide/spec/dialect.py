"""``dialect`` of csv and tsv: how text is written, where it is not the usual way."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from embertide.spec.base import Problem, SpecModel, raise_problems
from embertide.spec.cel import Rule, or_default

Encoding = Literal[
    "utf-8",
    "utf-16",
    "utf-16-le",
    "utf-16-be",
    "latin-1",
    "iso-8859-2",
    "iso-8859-15",
    "windows-1250",
    "windows-1251",
    "windows-1252",
    "koi8-r",
    "shift_jis",
    "euc-jp",
    "euc-kr",
    "gb18030",
    "big5",
]

_MARK_MUST = "must be of ASCII characters that end no line, or empty for none"
_ENDS = r"['\n', '\r', '\u0000']"


def _is_mark(text: str) -> bool:
    return text.isascii() and not set(text) & {"\n", "\r", "\0"}


def _mark_rule(name: str) -> Rule:
    field = f"self.{name}"
    return Rule(
        f"!has({field}) || ({field} < '\\u0080' && !{_ENDS}.exists(c, {field}.contains(c)))",
        _MARK_MUST,
        f".{name}",
    )


_QUOTE, _ESCAPE = or_default("self.quote", "'\"'"), or_default("self.escape", "''")

_RULES = (
    *(_mark_rule(name) for name in ("quote", "escape", "comment")),
    Rule(
        f"{_ESCAPE} == '' || {_ESCAPE} != {_QUOTE}",
        "must be another character than quote; a quote within quotes is doubled without it",
        ".escape",
    ),
)


class TextDialect(SpecModel):
    """How csv or tsv is written, where it differs from the usual way."""

    rules: ClassVar[tuple[Rule, ...]] = _RULES

    quote: Annotated[str, Field(max_length=1)] = Field(
        default='"',
        description="The character around fields that hold the delimiter; doubled within them. "
        "'' for none.",
    )
    escape: Annotated[str, Field(max_length=1)] = Field(
        default="",
        description="The character before one that is meant as it is, such as a backslash. "
        "'' for none.",
    )
    comment: Annotated[str, Field(max_length=2)] = Field(
        default="",
        description="What a line begins with that holds no row, such as '#'. '' for none.",
    )
    encoding: Encoding = Field(
        default="utf-8",
        description="How characters are stored. An object in another encoding than utf-8 is read "
        "by one worker, as a compressed one is. utf-16 begins with a byte-order mark, which the "
        "others of its kind need not.",
    )
    decimal: Literal[".", ","] = Field(
        default=".", description="The character before the digits of a fraction."
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        problems: list[Problem] = []
        for name in ("quote", "escape", "comment"):
            text = getattr(self, name)
            if not _is_mark(text):
                problems.append(((name,), f"is {text!r}; {_MARK_MUST}"))
        if self.escape and self.escape == self.quote:
            message = f"is {self.escape!r}, the same as quote; a quote within quotes is doubled"
            problems.append((("escape",), f"{message} without it, omit it"))
        raise_problems(problems)
        return self

    def problems_beside(self, separator: str) -> list[Problem]:
        """What cannot be the same as the character between columns."""
        return [
            (("dialect", name), f"is {separator!r}, the same as the delimiter; must differ")
            for name in ("quote", "escape", "comment", "decimal")
            if getattr(self, name) == separator
        ]


_SEPARATOR = r"(self.format == 'tsv' ? '\t' : has(self.delimiter) ? self.delimiter : ',')"


def _beside(name: str, default: str) -> str:
    return or_default(f"self.dialect.{name}", default)


DIALECT_RULES = (
    Rule(
        "!has(self.dialect) || self.format in ['csv', 'tsv']",
        "only csv and tsv have a dialect; omit it",
        ".dialect",
        "FieldValueForbidden",
    ),
    Rule(
        f"!has(self.dialect) || !({_SEPARATOR} in ["
        + ", ".join(
            _beside(name, default)
            for name, default in {
                "quote": "'\"'",
                "escape": "''",
                "comment": "''",
                "decimal": "'.'",
            }.items()
        )
        + "])",
        "quote, escape, comment and decimal must differ from the delimiter",
        ".dialect",
    ),
)
"""Rules of an input that has a ``dialect``, for its model."""

DIALECT = (
    "csv and tsv: how the text is written, where it is not UTF-8 with '\"' around fields and a "
    "decimal point."
)
"""Description of the field of that name."""
