"""``spec.input.edges``: the location, format and meaning of edges."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag, WithJsonSchema, model_validator

from embertide.spec.base import (
    MAX_COLUMN_NAME,
    RECURSIVE,
    ColumnName,
    Problem,
    SpecModel,
    TypeName,
    Uri,
    derived_default,
    raise_problems,
)
from embertide.spec.cel import Rule, or_default
from embertide.spec.relations import Relation

EdgeFormat = Literal["parquet", "csv", "tsv", "npy"]


def _column_tag(value: Any) -> str | None:
    if isinstance(value, str):
        return "<name>"
    if isinstance(value, int) and not isinstance(value, bool):
        return "<index>"
    return None


ColumnIndex = Annotated[int, Field(ge=0)]
Column = Annotated[
    Annotated[ColumnName, Tag("<name>")] | Annotated[ColumnIndex, Tag("<index>")],
    Discriminator(
        _column_tag,
        custom_error_type="column",
        custom_error_message="must be a column name, or a 0-based index where there are no names",
    ),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "minLength": 1,
            "maxLength": MAX_COLUMN_NAME,
            "minimum": 0,
        }
    ),
]

_COLUMNS = ("source", "destination", "weight")
_HEADER = or_default("self.header", "true")
_NAMED = f"(self.format == 'parquet' || (self.format != 'npy' && {_HEADER}))"


def _columns_are(kind: str) -> str:
    given = (f"(!has(self.columns.{c}) || type(self.columns.{c}) == {kind})" for c in _COLUMNS)
    return f"!has(self.columns) || ({' && '.join(given)})"


def _column(name: str, default: str, index: int) -> str:
    column = f"self.columns.{name}"
    given = f"has(self.columns) && has({column})"
    return f"({given} ? {column} : {_NAMED} ? dyn('{default}') : dyn({index}))"


def _columns_differ() -> str:
    source, destination = _column("source", "src", 0), _column("destination", "dst", 1)
    weight = "self.columns.weight"
    differs = f"{weight} != {source} && {weight} != {destination}"
    return f"{source} != {destination} && (!has(self.columns) || !has({weight}) || ({differs}))"


_SOURCE, _DESTINATION = (
    or_default(f"self.{end}", "'node'") for end in ("sourceType", "destinationType")
)

_LOOPS = or_default("self.selfLoops", "'keep'")

_EDGE_RULES = (
    Rule(
        f"!{_NAMED} || ({_columns_are('string')})",
        "must be column names, since parquet, and csv and tsv with a header, have them",
        ".columns",
    ),
    Rule(
        f"{_NAMED} || ({_columns_are('int')})",
        "must be 0-based indexes, since npy, and csv and tsv with header: false, have no names",
        ".columns",
    ),
    Rule(_columns_differ(), "source, destination and weight must be different columns", ".columns"),
    Rule(
        f"{_HEADER} || self.format in ['csv', 'tsv']",
        "only csv and tsv can lack a header; omit it",
        ".header",
    ),
    Rule(
        "!has(self.delimiter) || self.format == 'csv'",
        "only format csv has a delimiter; omit it",
        ".delimiter",
    ),
    Rule(
        "!has(self.delimiter) || "
        r"(self.delimiter < '\u0080' && !(self.delimiter in ['\n', '\r', '\"', '\u0000']))",
        "must be one ASCII character that does not end a line or quote",
        ".delimiter",
    ),
    Rule(
        f"{or_default('self.directed', 'true')} || {_SOURCE} == {_DESTINATION}",
        "edges between two node types have a direction; omit it or set true",
        ".directed",
    ),
    Rule(
        f"{_LOOPS} == 'keep' || {_SOURCE} == {_DESTINATION}",
        "edges between two node types have no self-loops; omit it or set keep",
        ".selfLoops",
    ),
    Rule(
        f"!has(self.reverse) || {or_default('self.directed', 'true')}",
        "is for directed edges: with directed: false every edge goes both ways already",
        ".reverse",
        "FieldValueForbidden",
    ),
)


class EdgeColumns(SpecModel):
    """The columns of an edge list."""

    source: Column = Field(
        default="src",
        description="Column with the source node's id. "
        "A 0-based index for npy and for csv and tsv without a header. Default: src, or 0.",
        json_schema_extra=derived_default,
    )
    destination: Column = Field(
        default="dst",
        description="Column with the id of the destination node, which aggregates its sources. "
        "A 0-based index for npy and for csv and tsv without a header. Default: dst, or 1.",
        json_schema_extra=derived_default,
    )
    weight: Column | None = Field(
        default=None,
        description="Column with the edge weights. If unset, every edge has weight 1.",
    )


class EdgeInput(SpecModel):
    """One edge type and the location of its edges."""

    rules: ClassVar[tuple[Rule, ...]] = _EDGE_RULES

    name: TypeName = Field(default="edge", description="Name of this edge type; unique.")
    source_type: TypeName = Field(default="node", description="Node type of the edges' sources.")
    destination_type: TypeName = Field(
        default="node", description="Node type of the edges' destinations."
    )
    uri: Uri = Field(description="URI of one object, or of a prefix (directory) of objects.")
    format: EdgeFormat = Field(
        description="Format of all objects under uri. csv and tsv may be compressed: .gz, .zst."
    )
    recursive: bool = Field(default=False, description=RECURSIVE)
    columns: EdgeColumns = Field(default_factory=EdgeColumns, description="The columns to read.")
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
    directed: bool = Field(
        default=True, description="false adds the reverse of every edge, with the same weight."
    )
    reverse: TypeName | None = Field(
        default=None,
        description="Name of a second edge type, which has every edge the other way round, with "
        "the same weight: from destinationType to sourceType. If unset, there is none.",
    )
    duplicates: Literal["keep", "remove"] = Field(
        default="keep",
        description="Parallel edges (same source and destination): keep all, or remove all but "
        "the first.",
    )
    self_loops: Literal["keep", "add", "remove"] = Field(
        default="keep",
        description="Self-loops: keep those of the input, add one to every node that has none, or "
        "remove all. Edges between two node types have none.",
    )

    @property
    def relation(self) -> Relation:
        """The relation of the edges as they are in the files."""
        return Relation(self.source_type, self.name, self.destination_type)

    @property
    def relations(self) -> list[Relation]:
        """The relation, and where there is one its reverse."""
        own = self.relation
        return [own] if self.reverse is None else [own, own.reversed(self.reverse)]

    @property
    def named_columns(self) -> bool:
        """Whether columns are selected by name; otherwise by 0-based index."""
        return self.format == "parquet" or (self.format in ("csv", "tsv") and self.header)

    @property
    def separator(self) -> str:
        """The character between columns of csv and tsv."""
        return "\t" if self.format == "tsv" else self.delimiter or ","

    @model_validator(mode="before")
    @classmethod
    def _default_columns(cls, data: Any) -> Any:
        """Without column names, the first two columns are source and destination."""
        if not isinstance(data, dict):
            return data
        headerless = data.get("format") in ("csv", "tsv") and data.get("header") is False
        columns = data.get("columns", {})
        if isinstance(columns, dict) and (headerless or data.get("format") == "npy"):
            return data | {"columns": {"source": 0, "destination": 1} | columns}
        return data

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        problems = [*self._column_problems(), *self._text_problems()]
        if self.reverse is not None and not self.directed:
            message = f"is {self.reverse!r}; with directed: false every edge goes both ways already"
            problems.append((("reverse",), message))
        raise_problems(problems)
        return self

    def _column_problems(self) -> list[Problem]:
        columns = {
            name: value
            for name in ("source", "destination", "weight")
            if (value := getattr(self.columns, name)) is not None
        }
        wanted, kind = (str, "a column name") if self.named_columns else (int, "a 0-based index")
        about = self.format if self.named_columns or self.format == "npy" else "csv without header"
        problems: list[Problem] = [
            (("columns", name), f"is {value!r}; must be {kind} in {about}")
            for name, value in columns.items()
            if not isinstance(value, wanted)
        ]
        names = list(columns)
        for i, name in enumerate(names):
            for other in names[:i]:
                if columns[name] == columns[other]:
                    message = f"is {columns[name]!r}, the same as columns.{other}; must differ"
                    problems.append((("columns", name), message))
        return problems

    def _text_problems(self) -> list[Problem]:
        problems: list[Problem] = []
        if self.format not in ("csv", "tsv") and not self.header:
            problems.append(
                (("header",), f"is false; only csv and tsv lack one, not {self.format}")
            )
        if self.delimiter is not None and self.format != "csv":
            message = f"is {self.delimiter!r}; only format csv has a delimiter, not {self.format}"
            problems.append((("delimiter",), message))
        if self.delimiter is not None and not self.delimiter.isascii():
            problems.append((("delimiter",), f"is {self.delimiter!r}; must be one ASCII character"))
        if self.delimiter in ("\n", "\r", '"', "\0"):
            problems.append(
                (("delimiter",), f"is {self.delimiter!r}; must not end a line or quote")
            )
        return problems
