"""``spec.input.nodes``: how nodes are identified, and the location of their features."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from embertide.spec.base import (
    MAX_COLUMN_NAME,
    MAX_FEATURE_COLUMNS,
    ColumnName,
    Problem,
    SpecModel,
    TypeName,
    Uri,
    derived_default,
    raise_problems,
)
from embertide.spec.cel import Rule

IdKind = Literal["dense", "int64", "string"]
FeatureFormat = Literal["parquet", "npy"]


class NodeTable(SpecModel):
    """The authoritative list of nodes; edges and features may name only these."""

    uri: Uri = Field(description="URI of one object, or of a prefix (directory) of objects.")
    format: FeatureFormat = Field(default="parquet", description="Format of all objects under uri.")
    id_column: ColumnName = Field(default="id", description="parquet: column with the node ids.")


_FEATURE_RULES = (
    *(
        Rule(
            f"self.format != 'npy' || !has(self.{column}) || self.{column}.size() == 0",
            "npy has no columns; omit it (idsUri gives the ids)",
            f".{column}",
            "FieldValueForbidden",
        )
        for column in ("idColumn", "vectorColumn", "columns")
    ),
    Rule(
        "self.format != 'parquet' || has(self.vectorColumn) || has(self.columns)",
        "is required with parquet: name the column that holds the vectors, or give columns, a "
        "list of numeric columns",
        ".vectorColumn",
        "FieldValueRequired",
    ),
    Rule(
        "!has(self.vectorColumn) || !has(self.columns)",
        "cannot be combined with vectorColumn; set one of the two",
        ".columns",
        "FieldValueForbidden",
    ),
    Rule(
        "self.format == 'npy' || !has(self.idsUri)",
        "is for format npy; with parquet use idColumn",
        ".idsUri",
        "FieldValueForbidden",
    ),
)

_NODE_RULES = (
    Rule(
        "self.ids == 'dense' || !has(self.count)",
        "only ids: dense has a count; omit it",
        ".count",
        "FieldValueForbidden",
    ),
    Rule(
        "self.ids != 'dense' || !has(self.table)",
        "is not for ids: dense, whose nodes are 0 to count-1; omit it",
        ".table",
        "FieldValueForbidden",
    ),
    Rule(
        "self.ids == 'dense' || !has(self.features.idColumn) || self.features.idColumn != '' || "
        "self.features.format != 'parquet'",
        "is required unless ids are dense: only dense ids can be row numbers",
        ".features.idColumn",
        "FieldValueRequired",
    ),
    Rule(
        "self.ids == 'dense' || self.features.format != 'npy' || has(self.features.idsUri)",
        "is required with npy unless ids are dense: only dense ids can be row numbers",
        ".features.idsUri",
        "FieldValueRequired",
    ),
)


class FeatureInput(SpecModel):
    """The input features of one node type: one row for each node, in any order."""

    rules: ClassVar[tuple[Rule, ...]] = _FEATURE_RULES

    uri: Uri = Field(description="URI of one object, or of a prefix (directory) of objects.")
    format: FeatureFormat = Field(default="parquet", description="Format of all objects under uri.")
    id_column: Annotated[str, Field(max_length=MAX_COLUMN_NAME)] | None = Field(
        default="id",
        description="parquet: column with the node ids. '' (or null, which kubectl apply drops) "
        "means that there is none: rows are in the order of the dense ids. Default: id.",
        json_schema_extra=derived_default,
    )
    vector_column: ColumnName | None = Field(
        default=None,
        description="parquet: list column with one feature vector per row. Exclusive with columns.",
    )
    columns: list[ColumnName] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_FEATURE_COLUMNS,
        json_schema_extra={"x-kubernetes-list-type": "set"},
        description="parquet: numeric columns that together form the feature vector, in this "
        "order. Exclusive with vectorColumn.",
    )
    ids_uri: Uri | None = Field(
        default=None,
        description="npy: URI of one object, or of a prefix, with the node ids of uri's rows, "
        "object by object. If unset, rows are in the order of the dense ids.",
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

    @field_validator("id_column")
    @classmethod
    def _empty_is_none(cls, value: str | None) -> str | None:
        return value or None

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
            ((name,), f"is {value!r}; npy has no columns; omit it (idsUri gives the ids)")
            for name, value in set_ones.items()
            if value is not None
        ]

    def _parquet_problems(self) -> list[Problem]:
        problems: list[Problem] = []
        if self.vector_column is None and self.columns is None:
            message = "is required with parquet: name the column that holds the vectors, or give "
            problems.append((("vectorColumn",), message + "columns, a list of numeric columns"))
        if self.vector_column is not None and self.columns is not None:
            message = "cannot be combined with vectorColumn; set one of the two"
            problems.append((("columns",), message))
        if self.ids_uri is not None:
            problems.append((("idsUri",), "is for format npy; with parquet use idColumn"))
        repeated = sorted({c for c in self.columns or [] if (self.columns or []).count(c) > 1})
        if repeated:
            problems.append((("columns",), f"names {', '.join(repeated)} more than once"))
        return problems


class NodeInput(SpecModel):
    """One node type: how its nodes are identified, and the location of their features."""

    rules: ClassVar[tuple[Rule, ...]] = _NODE_RULES

    name: TypeName = Field(default="node", description="Name of this node type; unique.")
    ids: IdKind = Field(
        default="dense",
        description="Type of node ids: dense (0 to count-1), int64 (any integer), or string.",
    )
    count: int | None = Field(
        default=None,
        ge=1,
        description="dense: number of nodes. If unset, the number of feature rows.",
    )
    table: NodeTable | None = Field(
        default=None,
        description="int64 and string: the authoritative list of nodes. If unset, the nodes are "
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
            message = f"is required with ids: {self.ids} (only dense ids can be row numbers)"
            problems.append((("features", field), message))
        raise_problems(problems)
        return self
