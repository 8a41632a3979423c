"""``format: delta`` and ``format: iceberg``: which version of a table is read (``asOf``).

A table's own metadata lists the parquet files of each version, so such an input has columns by name
as parquet has, and no rows in an order.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Protocol, Self

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from embertide.spec.base import VALIDATIONS, Problem, SpecModel, raise_problems
from embertide.spec.cel import Rule
from embertide.spec.places import Window, is_pattern
from embertide.spec.readiness import Ready

TABLE_FORMATS = ("delta", "iceberg")
COLUMN_FORMATS = ("parquet", *TABLE_FORMATS)
"""Formats whose objects are parquet."""

_TIMESTAMP = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})$"
)
_LONGEST_TIMESTAMP, _LONGEST_NAME = 32, 255
_TIMESTAMP_MUST = "must be a time with its zone in quotes, such as '2026-11-25T00:00:00Z'"
_ONE_OF = "must be one of version, timestamp, tag and branch; for the newest version omit asOf"
_NO_VERSIONS = "is for formats delta and iceberg, whose tables have versions; omit it"
_NO_REFS = "of a Delta table is a version or a timestamp; tags and branches are Iceberg's"
_LISTED = "is not for tables, whose metadata lists their files; omit it"
_ONE_TABLE = "of a table is the table alone: one uri, without a pattern or window"
_NO_NEWER = (
    "is for formats delta and iceberg without a fixed asOf, since a version of a table, its tag"
    " and its past do not become newer"
)
_FIXED = ("version", "timestamp", "tag")


def _check_timestamp(text: str) -> str:
    try:
        if not re.fullmatch(_TIMESTAMP, text):
            raise ValueError
        datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"is {text!r}; {_TIMESTAMP_MUST}") from None
    return text


Timestamp = Annotated[
    str,
    Field(max_length=_LONGEST_TIMESTAMP),
    AfterValidator(_check_timestamp),
    WithJsonSchema(
        {
            "type": "string",
            "maxLength": _LONGEST_TIMESTAMP,
            VALIDATIONS: [
                Rule(f"self.matches(r'{_TIMESTAMP}')", _TIMESTAMP_MUST).to_schema(),
            ],
        }
    ),
]
RefName = Annotated[str, Field(min_length=1, max_length=_LONGEST_NAME)]


class AsOf(SpecModel):
    """The version of a table that is read; exactly one field."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "[has(self.version), has(self.timestamp), has(self.tag), has(self.branch)]"
            ".filter(given, given).size() == 1",
            _ONE_OF,
        ),
    )

    version: int | None = Field(
        default=None,
        ge=0,
        le=2**63 - 1,
        description="Delta: number of a version. Iceberg: id of a snapshot.",
    )
    timestamp: Timestamp | None = Field(
        default=None,
        description="The version that was current at this time, such as '2026-11-25T00:00:00Z'. "
        "Delta's commits have the times of their files, or their own (in-commit timestamps).",
    )
    tag: RefName | None = Field(default=None, description="Iceberg: name of a tag.")
    branch: RefName | None = Field(
        default=None, description="Iceberg: name of a branch, whose newest snapshot is read."
    )

    @property
    def fixed(self) -> bool:
        """Whether it names the same version whenever it is read."""
        return self.branch is None

    @property
    def moment(self) -> datetime:
        """The time that ``timestamp`` stands for."""
        assert self.timestamp is not None
        return datetime.fromisoformat(self.timestamp).astimezone(UTC)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        given = (self.version, self.timestamp, self.tag, self.branch)
        if sum(value is not None for value in given) != 1:
            raise_problems([((), _ONE_OF)])
        return self


AS_OF = "delta and iceberg: the version of the table to read. If unset, the newest."
"""Description of the field of that name."""


class TableInput(Protocol):
    """What edges, features and node tables have in common."""

    @property
    def uri(self) -> str | None:
        """The location."""

    @property
    def window(self) -> Window | None:
        """The days that are read."""

    @property
    def format(self) -> Any:
        """The format of the files."""

    @property
    def recursive(self) -> bool:
        """Whether objects in subfolders are read."""

    @property
    def include(self) -> str | None:
        """A pattern of the names of objects that are read."""

    @property
    def as_of(self) -> AsOf | None:
        """The version of a table."""

    @property
    def ready(self) -> Ready | None:
        """What is waited for."""


def table_rules(form: str) -> tuple[Rule, ...]:
    """Rules of an input that may be a table.

    Args:
        form: its format, in CEL.
    """
    is_table = f"{form} in {list(TABLE_FORMATS)}"
    fixed = " && ".join(f"!has(self.asOf.{name})" for name in _FIXED)
    return (
        Rule(f"!has(self.asOf) || {is_table}", _NO_VERSIONS, ".asOf", "FieldValueForbidden"),
        Rule(
            f"!has(self.asOf) || {form} != 'delta' || "
            "(!has(self.asOf.tag) && !has(self.asOf.branch))",
            _NO_REFS,
            ".asOf",
        ),
        Rule(
            f"!has(self.recursive) || !self.recursive || !({is_table})",
            _LISTED,
            ".recursive",
            "FieldValueForbidden",
        ),
        Rule(f"!has(self.include) || !({is_table})", _LISTED, ".include", "FieldValueForbidden"),
        Rule(
            f"!({is_table}) || (has(self.uri) && !has(self.window) && "
            r"!self.uri.matches(r'[*?\[]'))",
            _ONE_TABLE,
            ".uri",
        ),
        Rule(
            "!has(self.ready) || !has(self.ready.newVersion) || !self.ready.newVersion || "
            f"({is_table} && (!has(self.asOf) || ({fixed})))",
            _NO_NEWER,
            ".ready.newVersion",
            "FieldValueForbidden",
        ),
    )


def table_problems(item: TableInput) -> list[Problem]:
    """What :func:`table_rules` refuses."""
    problems: list[Problem] = []
    is_table, as_of = item.format in TABLE_FORMATS, item.as_of
    if as_of is not None and not is_table:
        problems.append((("asOf",), _NO_VERSIONS))
    if as_of is not None and item.format == "delta" and (as_of.tag or as_of.branch):
        problems.append((("asOf",), _NO_REFS))
    if is_table and item.recursive:
        problems.append((("recursive",), _LISTED))
    if is_table and (item.uri is None or item.window is not None or is_pattern(item.uri)):
        problems.append((("uri",), _ONE_TABLE))
    if is_table and item.include is not None:
        problems.append((("include",), _LISTED))
    waits = item.ready is not None and item.ready.new_version
    if waits and not (is_table and (as_of is None or not as_of.fixed)):
        problems.append((("ready", "newVersion"), _NO_NEWER))
    return problems
