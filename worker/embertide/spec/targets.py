"""``spec.inference.targets``: the nodes whose embeddings alone are computed and published."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import Discriminator, Field, Tag, WithJsonSchema, model_validator

from embertide.spec.affects import Affects
from embertide.spec.base import Problem, SpecModel, TypeName, derived_default, raise_problems
from embertide.spec.cel import Rule, or_default
from embertide.spec.dialect import DIALECT, DIALECT_RULES, TextDialect
from embertide.spec.edge_columns import Column
from embertide.spec.edge_rules import TEXT_RULES
from embertide.spec.edges import EdgeFormat
from embertide.spec.inputs import Input
from embertide.spec.output import Output
from embertide.spec.places import PLACE_RULES, ObjectInput
from embertide.spec.readiness import READY, Ready
from embertide.spec.tables import AS_OF, AsOf, table_problems, table_rules
from embertide.spec.text_input import named_columns, text_problems

MAX_IDS = 1000
"""The most ids in a manifest; more are a table."""
_MAX_ID = 1024
_TEXT = "self.format in ['csv', 'tsv']"
_NAMED = f"(self.format != 'npy' && (!({_TEXT}) || {or_default('self.header', 'true')}))"


def _id_tag(value: Any) -> str | None:
    if isinstance(value, str):
        return "<text>"
    return "<number>" if isinstance(value, int) and not isinstance(value, bool) else None


TargetId = Annotated[
    Annotated[str, Field(min_length=1, max_length=_MAX_ID), Tag("<text>")]
    | Annotated[int, Field(ge=-(2**63), le=2**63 - 1), Tag("<number>")],
    Discriminator(
        _id_tag,
        custom_error_type="target_id",
        custom_error_message="must be a node's id: a whole number, or text",
    ),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "minLength": 1, "maxLength": _MAX_ID}),
]


class TargetTable(ObjectInput):
    """A table of the ids of nodes."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *PLACE_RULES,
        Rule(
            f"!has(self.idColumn) || !{_NAMED} || type(self.idColumn) == string",
            "must be a column name, since parquet, and csv and tsv with a header, have them",
            ".idColumn",
        ),
        Rule(
            f"!has(self.idColumn) || {_NAMED} || type(self.idColumn) == int",
            "must be a 0-based index, since npy, and csv and tsv with header: false, have no names",
            ".idColumn",
        ),
        *TEXT_RULES,
        *DIALECT_RULES,
        Rule(
            f"!has(self.ready) || !has(self.ready.minRows) || !({_TEXT})",
            "is for parquet and npy, whose metadata has it; use minBytes",
            ".ready.minRows",
            "FieldValueForbidden",
        ),
        *table_rules("self.format"),
    )

    format: EdgeFormat = Field(
        description="Format of all objects under uri. csv and tsv may be compressed: .gz, .zst. "
        "delta and iceberg: uri is a table, whose metadata lists its files."
    )
    as_of: AsOf | None = Field(default=None, description=AS_OF)
    id_column: Column = Field(
        default="id",
        description="Column with the ids. A 0-based index for npy and for csv and tsv without a "
        "header. Default: id, or 0.",
        json_schema_extra=derived_default,
    )
    header: bool = Field(
        default=True,
        description="csv and tsv: whether the first line of every object names the columns.",
    )
    delimiter: str | None = Field(
        default=None,
        min_length=1,
        max_length=1,
        description="csv: the character between columns. Default: ','.",
    )
    dialect: TextDialect | None = Field(default=None, description=DIALECT)
    ready: Annotated[Ready | None, Affects.WORKERS] = Field(default=None, description=READY)

    @property
    def separator(self) -> str:
        """The character between columns of csv and tsv."""
        return "\t" if self.format == "tsv" else self.delimiter or ","

    @model_validator(mode="before")
    @classmethod
    def _default_column(cls, data: Any) -> Any:
        """Without column names, the first column has the ids."""
        if not isinstance(data, dict):
            return data
        header = data.get("header", True) is not False
        named = data.get("format") != "npy" and (data.get("format") not in ("csv", "tsv") or header)
        unset = "idColumn" not in data and "id_column" not in data
        return data | {"idColumn": 0} if unset and not named else data

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        problems = [*text_problems(self), *table_problems(self)]
        wanted, kind = (str, "a column name") if named_columns(self) else (int, "a 0-based index")
        if not isinstance(self.id_column, wanted):
            plain = named_columns(self) or self.format == "npy"
            about = str(self.format) if plain else f"{self.format} without header"
            message = f"is {self.id_column!r}; must be {kind} in {about}"
            problems.append((("idColumn",), message))
        if self.format in ("csv", "tsv") and self.ready is not None and self.ready.min_rows:
            message = f"is for parquet and npy, whose metadata has it, not {self.format}; use"
            problems.append((("ready", "minRows"), message + " minBytes"))
        raise_problems(problems)
        return self


_EITHER = "or table is required, and not both: the ids themselves, or where they are"


class Targets(SpecModel):
    """The nodes whose embeddings alone are computed and published."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.ids) != has(self.table)", _EITHER, ".ids", "FieldValueRequired"),
    )

    node_type: TypeName | None = Field(
        default=None,
        description="The node type of the targets, whose embeddings alone are published. May be "
        "left out where the job publishes those of one type.",
    )
    ids: list[TargetId] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_IDS,
        description="The ids, as they are in the input: integers, or strings where the node type "
        "has ids: string. An id that is given twice counts once. Exclusive with table.",
    )
    table: TargetTable | None = Field(
        default=None,
        description="A table with the ids, a row each; other columns are not read. An id that is "
        "there twice counts once. Exclusive with ids.",
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.ids is None and self.table is None:
            raise_problems([(("ids",), "is required; or give table, which has the ids")])
        if self.ids is not None and self.table is not None:
            raise_problems([(("table",), "cannot be combined with ids; give either")])
        return self

    @property
    def location(self) -> str:
        """Where the ids are, for messages."""
        return "spec.inference.targets.ids" if self.table is None else self.table.location


def target_problems(targets: Targets | None, given: Input, output: Output) -> list[Problem]:
    """Targets of unknown node types, or ids that are of another kind than the nodes'."""
    if targets is None:
        return []
    at = ("inference", "targets")
    names = [node.name for node in given.nodes]
    if targets.node_type is not None and targets.node_type not in names:
        message = f"is {targets.node_type!r}; must be the name of a node type: {', '.join(names)}"
        return [((*at, "nodeType"), message)]
    published = output.node_types or names
    if targets.node_type is not None and targets.node_type not in published:
        message = f"is {targets.node_type!r}, which output.nodeTypes does not have; add it there"
        return [((*at, "nodeType"), message)]
    wanted = targets.node_type or (published[0] if len(published) == 1 else None)
    return [] if wanted is None else _kind_problems(targets, given.node(wanted).ids, wanted)


def _kind_problems(targets: Targets, kind: str, name: str) -> list[Problem]:
    """Ids that no node of a type can have."""
    text, at = kind == "string", ("inference", "targets")
    if targets.table is not None and targets.table.format == "npy" and text:
        message = f"is 'npy', which holds numbers, but node type {name!r} has string ids; use"
        return [((*at, "table", "format"), message + " parquet, csv or tsv")]
    wanted = "text (ids: string)" if text else f"whole numbers (ids: {kind})"
    problems: list[Problem] = [
        ((*at, "ids", i), f"is {item!r}, but ids of {name!r} are {wanted}")
        for i, item in enumerate(targets.ids or [])
        if isinstance(item, str) != text
    ]
    return problems[:1]
