"""``spec.input``: edge lists, nodes and their features.

Lists with names from the start, so that graphs with several node and edge types need no new
version of the manifest.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from embertide.spec.base import (
    ColumnName,
    SpecModel,
    TypeName,
    Uri,
    raise_problems,
)

IdKind = Literal["dense", "int64", "string"]
EdgeFormat = Literal["parquet", "csv", "tsv", "npy"]
FeatureFormat = Literal["parquet", "npy"]
Problem = tuple[tuple[str | int, ...], str]


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
]


class EdgeColumns(SpecModel):
    """Which columns of an edge list mean what."""

    source: Column = Field(
        default="src",
        description="Column with the id of the node an edge leaves. "
        "A 0-based index for npy and for csv without a header (default there: 0).",
    )
    destination: Column = Field(
        default="dst",
        description="Column with the id of the node an edge enters: the node that aggregates. "
        "A 0-based index for npy and for csv without a header (default there: 1).",
    )
    weight: Column | None = Field(
        default=None,
        description="Column with the weight of each edge; without it all edges weigh 1.",
    )


class EdgeInput(SpecModel):
    """One edge type and where its edges lie."""

    name: TypeName = Field(default="edge", description="Name of this edge type; unique.")
    source_type: TypeName = Field(
        default="node", description="Name of the node type that the edges leave."
    )
    destination_type: TypeName = Field(
        default="node", description="Name of the node type that the edges enter."
    )
    uri: Uri = Field(description="One object, or a prefix (directory) with any number of them.")
    format: EdgeFormat = Field(
        description="Format of all objects under uri. csv and tsv may be compressed: .gz, .zst."
    )
    columns: EdgeColumns = Field(
        default_factory=EdgeColumns, description="Which columns mean what."
    )
    header: bool = Field(
        default=True, description="csv and tsv: the first line of every object names the columns."
    )
    delimiter: str | None = Field(
        default=None,
        min_length=1,
        max_length=1,
        description="csv: the one character between columns; ',' when left out.",
    )
    directed: bool = Field(
        default=True, description="false adds the reverse of every edge, with the same weight."
    )
    duplicates: Literal["keep", "remove"] = Field(
        default="keep",
        description="Several edges between the same two nodes: keep them all, or only the first.",
    )
    self_loops: Literal["keep", "add", "remove"] = Field(
        default="keep",
        description="Edges from a node to itself: as they are, one for every node, or none.",
    )

    @property
    def named_columns(self) -> bool:
        """Whether columns are known by name (otherwise by 0-based index)."""
        return self.format == "parquet" or (self.format in ("csv", "tsv") and self.header)

    @property
    def separator(self) -> str:
        """The character between columns of csv and tsv."""
        return "\t" if self.format == "tsv" else self.delimiter or ","

    @model_validator(mode="before")
    @classmethod
    def _default_columns(cls, data: Any) -> Any:
        """Where columns have no names, the first two are source and destination."""
        if not isinstance(data, dict):
            return data
        headerless = data.get("format") in ("csv", "tsv") and data.get("header") is False
        columns = data.get("columns", {})
        if isinstance(columns, dict) and (headerless or data.get("format") == "npy"):
            return data | {"columns": {"source": 0, "destination": 1} | columns}
        return data

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        raise_problems([*self._column_problems(), *self._text_problems()])
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
        if self.delimiter in ("\n", "\r", '"'):
            problems.append(
                (("delimiter",), f"is {self.delimiter!r}; must not end a line or quote")
            )
        return problems


class NodeTable(SpecModel):
    """The authoritative list of nodes, where edges and features alone are not."""

    uri: Uri = Field(description="One object, or a prefix with any number of them.")
    format: FeatureFormat = Field(default="parquet", description="Format of all objects.")
    id_column: ColumnName = Field(default="id", description="parquet: the column with the ids.")


class FeatureInput(SpecModel):
    """The input features of one node type: one row for each node, in any order."""

    uri: Uri = Field(description="One object, or a prefix (directory) with any number of them.")
    format: FeatureFormat = Field(default="parquet", description="Format of all objects under uri.")
    id_column: ColumnName | None = Field(
        default="id",
        description="parquet: the column with the node's id. null means that rows are in the "
        "order of dense ids.",
    )
    vector_column: ColumnName | None = Field(
        default=None,
        description="parquet: the one column that holds a vector in every row. "
        "Either this or columns.",
    )
    columns: list[ColumnName] | None = Field(
        default=None,
        min_length=1,
        description="parquet: the numeric columns that together are the features, in this order. "
        "Either these or vectorColumn.",
    )
    ids_uri: Uri | None = Field(
        default=None,
        description="npy: one object, or a prefix, with the ids of the rows of uri, object by "
        "object. Left out, rows are in the order of dense ids.",
    )

    @property
    def by_row_number(self) -> bool:
        """Whether a row's number is its node's (dense) id."""
        return self.ids_uri is None if self.format == "npy" else self.id_column is None

    @model_validator(mode="before")
    @classmethod
    def _no_id_column_in_npy(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("format") != "npy":
            return data
        return {"idColumn": None} | data if "id_column" not in data else data

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        raise_problems(self._npy_problems() if self.format == "npy" else self._parquet_problems())
        return self

    def _npy_problems(self) -> list[Problem]:
        set_ones = {
            "idColumn": self.id_column,
            "vectorColumn": self.vector_column,
            "columns": self.columns,
        }
        return [
            ((name,), f"is {value!r}; npy has no columns, leave it out (ids come by idsUri)")
            for name, value in set_ones.items()
            if value is not None
        ]

    def _parquet_problems(self) -> list[Problem]:
        problems: list[Problem] = []
        if self.vector_column is None and self.columns is None:
            message = "is required with parquet: name the column that holds the vectors, or give "
            problems.append((("vectorColumn",), message + "columns, a list of numeric columns"))
        if self.vector_column is not None and self.columns is not None:
            message = "stands beside vectorColumn; give one of the two"
            problems.append((("columns",), message))
        if self.ids_uri is not None:
            problems.append((("idsUri",), "is for format npy; with parquet use idColumn"))
        repeated = sorted({c for c in self.columns or [] if (self.columns or []).count(c) > 1})
        if repeated:
            problems.append((("columns",), f"names {', '.join(repeated)} more than once"))
        return problems


class NodeInput(SpecModel):
    """One node type: how its nodes are identified and where their features lie."""

    name: TypeName = Field(default="node", description="Name of this node type; unique.")
    ids: IdKind = Field(
        default="dense",
        description="What identifies a node: dense (0 to count-1), any int64, or a string.",
    )
    count: int | None = Field(
        default=None,
        ge=1,
        description="dense: the number of nodes. Left out, it is the number of feature rows.",
    )
    table: NodeTable | None = Field(
        default=None,
        description="int64 and string: the authoritative list of nodes. Left out, the nodes are "
        "those that have features.",
    )
    features: FeatureInput = Field(description="The input features of these nodes.")

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        problems: list[Problem] = []
        if self.count is not None and self.ids != "dense":
            problems.append(
                (("count",), f"is {self.count}; only ids: dense has it, not {self.ids}")
            )
        if self.table is not None and self.ids == "dense":
            problems.append((("table",), "is not for ids: dense, whose nodes are 0 to count-1"))
        if self.features.by_row_number and self.ids != "dense":
            field = "idsUri" if self.features.format == "npy" else "idColumn"
            message = f"is missing; ids: {self.ids} need it (only dense ids may be row numbers)"
            problems.append((("features", field), message))
        raise_problems(problems)
        return self


class Input(SpecModel):
    """The graph and its features."""

    edges: list[EdgeInput] = Field(min_length=1, description="The edge types, at least one.")
    nodes: list[NodeInput] = Field(min_length=1, description="The node types, at least one.")

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        raise_problems(
            [
                *_repeated_names("edges", [edge.name for edge in self.edges]),
                *_repeated_names("nodes", [node.name for node in self.nodes]),
                *self._end_problems(),
            ]
        )
        return self

    def _end_problems(self) -> list[Problem]:
        """Every edge's ends are node types, of a kind that its format can hold."""
        nodes = {node.name: node for node in self.nodes}
        problems: list[Problem] = []
        for i, edge in enumerate(self.edges):
            ends = {"sourceType": edge.source_type, "destinationType": edge.destination_type}
            for field, name in ends.items():
                if name not in nodes:
                    message = f"is {name!r}; must be the name of a node type: {', '.join(nodes)}"
                    problems.append((("edges", i, field), message))
            strings = [n for n in ends.values() if n in nodes and nodes[n].ids == "string"]
            if strings and edge.format == "npy":
                message = f"is 'npy', which holds numbers, but node type {strings[0]!r} has string"
                message += " ids; use parquet, csv or tsv"
                problems.append((("edges", i, "format"), message))
            if edge.source_type != edge.destination_type and not edge.directed:
                message = "is false; edges between two node types have a direction"
                problems.append((("edges", i, "directed"), message))
        return problems


def _repeated_names(field: str, names: list[str]) -> list[Problem]:
    return [
        (
            (field, i, "name"),
            f"is {name!r}, the same as {field}[{names.index(name)}].name; names must be unique",
        )
        for i, name in enumerate(names)
        if names.index(name) < i
    ]
