"""``columns`` and ``features`` of an edge type: which columns of an edge list are read."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import Discriminator, Field, Tag, WithJsonSchema, model_validator

from embertide.spec.base import (
    MAX_COLUMN_NAME,
    MAX_EDGE_FEATURES,
    ColumnName,
    Problem,
    SpecModel,
    derived_default,
    raise_problems,
)
from embertide.spec.cel import Rule


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


def with_columns_by_place(data: Any) -> Any:
    """An input as the manifest has it; without names of columns, the first two are the ends."""
    if not isinstance(data, dict):
        return data
    headerless = data.get("format") in ("csv", "tsv") and data.get("header") is False
    columns = data.get("columns", {})
    if isinstance(columns, dict) and (headerless or data.get("format") == "npy"):
        return data | {"columns": {"source": 0, "destination": 1} | columns}
    return data


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
        description="Column with the edge weights. If unset, edges have none: a model that demands "
        "weights is refused (weights: ones makes each 1); one that takes them as an option runs "
        "without.",
    )


def _value_tag(value: Any) -> str | None:
    if isinstance(value, str):
        return "<text>"
    if isinstance(value, int) and not isinstance(value, bool):
        return "<number>"
    return None


_LEAST, _MOST = -(2**63), 2**63 - 1
Value = Annotated[
    Annotated[str, Field(min_length=1, max_length=MAX_COLUMN_NAME), Tag("<text>")]
    | Annotated[int, Field(ge=_LEAST, le=_MOST), Tag("<number>")],
    Discriminator(
        _value_tag,
        custom_error_type="value",
        custom_error_message="must be a text, or a whole number without quotes",
    ),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "minLength": 1,
            "maxLength": MAX_COLUMN_NAME,
        }
    ),
]


class EdgeFilter(SpecModel):
    """The rows of the input that are edges of this type."""

    column: Column = Field(
        description="Column that says which rows these are. A 0-based index for npy and for csv "
        "and tsv without a header.",
    )
    equals: Value = Field(
        description="The value of that column in them: a string, or an integer where the column "
        "holds numbers. Compared exactly; a row without a value is left out.",
    )

    @property
    def is_text(self) -> bool:
        """Whether the column holds text."""
        return isinstance(self.equals, str)


_FEATURE_RULES = (
    Rule(
        "has(self.columns) || has(self.vectorColumn)",
        "is empty; give columns, a list of numeric columns, or vectorColumn, one column of vectors",
        reason="FieldValueRequired",
    ),
)


class EdgeFeatures(SpecModel):
    """The features of the edges, which convolutions with edge features read."""

    rules: ClassVar[tuple[Rule, ...]] = _FEATURE_RULES

    columns: list[Column] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_EDGE_FEATURES,
        description="Numeric columns that together form an edge's feature vector, in this order. "
        "0-based indexes for npy and for csv and tsv without a header.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    vector_column: ColumnName | None = Field(
        default=None,
        description="parquet, and csv and tsv with a header: column with one feature vector per "
        "edge, a list or text such as [0.1, 0.2]. With columns, an edge's features are its vector, "
        "then these.",
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        problems: list[Problem] = []
        if self.columns is None and self.vector_column is None:
            message = "is empty; give columns, a list of numeric columns, or vectorColumn, one"
            problems.append(((), message + " column of vectors"))
        given = self.columns or []
        repeated = sorted({str(column) for column in given if given.count(column) > 1})
        if repeated:
            problems.append((("columns",), f"names {', '.join(repeated)} more than once"))
        raise_problems(problems)
        return self
