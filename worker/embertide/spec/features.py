"""``features`` of a node type: the location of its features, and what one row consists of."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from embertide.spec.affects import Affects
from embertide.spec.base import (
    MAX_COLUMN_NAME,
    MAX_FEATURE_COLUMNS,
    ColumnName,
    Problem,
    SpecModel,
    Uri,
    derived_default,
    raise_problems,
)
from embertide.spec.cel import Rule, or_default
from embertide.spec.places import PLACE_RULES, ObjectInput, is_pattern
from embertide.spec.readiness import READY, Ready
from embertide.spec.tables import AS_OF, TABLE_FORMATS, AsOf, table_problems, table_rules

FeatureFormat = Literal["parquet", "npy", "delta", "iceberg"]
FEATURE_FORMAT = (
    "Format of all objects under uri. delta and iceberg: uri is a table, whose metadata lists its "
    "files."
)
"""Description of the field ``format``."""

_SCALING_RULES = (
    Rule(
        "has(self.uri) || has(self.mean) || has(self.scale)",
        "is empty; give mean, scale or both, or the uri of an object that holds them",
        reason="FieldValueRequired",
    ),
    Rule(
        "!has(self.uri) || (!has(self.mean) && !has(self.scale))",
        "cannot be combined with mean and scale; give either",
        ".uri",
        "FieldValueForbidden",
    ),
    Rule(
        "!has(self.mean) || !has(self.scale) || self.mean.size() == self.scale.size()",
        "must have as many values as mean, one for each feature",
        ".scale",
    ),
)

_Number = Annotated[float, Field(allow_inf_nan=False)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class FeatureScaling(SpecModel):
    """Mean and scale of every feature, such as ``mean_`` and ``scale_`` of a StandardScaler."""

    rules: ClassVar[tuple[Rule, ...]] = _SCALING_RULES

    mean: list[_Number] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_FEATURE_COLUMNS,
        description="Subtracted from each feature: one number for each, in their order. If unset, "
        "nothing is subtracted.",
    )
    scale: list[_Positive] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_FEATURE_COLUMNS,
        description="Divides each feature (less its mean): one number above 0 for each, in their "
        "order. If unset, nothing is divided.",
    )
    uri: Uri | None = Field(
        default=None,
        description="URI of a json or npz object with the vectors mean, scale or both. Exclusive "
        "with mean and scale.",
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        problems: list[Problem] = []
        given = [name for name in ("mean", "scale") if getattr(self, name) is not None]
        if self.uri is None and not given:
            message = "is empty; give mean, scale or both, or the uri of an object with them"
            problems.append(((), message))
        if self.uri is not None and given:
            message = f"cannot be combined with {' and '.join(given)}; give either"
            problems.append((("uri",), message))
        if self.mean is not None and self.scale is not None and len(self.mean) != len(self.scale):
            message = f"has {len(self.scale)} values, but mean has {len(self.mean)}; give one for"
            problems.append((("scale",), message + " each feature in both"))
        raise_problems(problems)
        return self


_FORMAT = or_default("self.format", "'parquet'")
_NO_ORDER = "is required with a table, whose rows have no order"

_NO_HISTORY = "needs idColumn: rows without ids are those of different nodes"

_FEATURE_RULES = (
    *(
        Rule(
            f"{_FORMAT} != 'npy' || !has(self.{column}) || self.{column}.size() == 0",
            "npy has no columns; omit it (idsUri gives the ids)",
            f".{column}",
            "FieldValueForbidden",
        )
        for column in ("idColumn", "vectorColumn", "columns", "latestBy")
    ),
    Rule(
        "!has(self.latestBy) || !has(self.idColumn) || self.idColumn != ''",
        _NO_HISTORY,
        ".latestBy",
        "FieldValueForbidden",
    ),
    Rule(
        f"{_FORMAT} == 'npy' || has(self.vectorColumn) || has(self.columns)",
        "is required unless format is npy: name the column that holds the vectors, or give "
        "columns, a list of numeric columns",
        ".vectorColumn",
        "FieldValueRequired",
    ),
    Rule(
        f"{_FORMAT} == 'npy' || !has(self.idsUri)",
        "is for format npy; with parquet use idColumn",
        ".idsUri",
        "FieldValueForbidden",
    ),
    Rule(
        "!has(self.idsUri) || (has(self.uri) && !has(self.window) && "
        r"!self.uri.matches(r'[*?\[]') && !self.idsUri.matches(r'[*?\[]'))",
        "goes with one uri, without a pattern or window: each object has its ids in one of idsUri",
        ".idsUri",
        "FieldValueForbidden",
    ),
    Rule(
        f"!({_FORMAT} in {list(TABLE_FORMATS)}) || !has(self.idColumn) || self.idColumn != ''",
        _NO_ORDER,
        ".idColumn",
        "FieldValueRequired",
    ),
    *table_rules(_FORMAT),
)


class FeatureInput(ObjectInput):
    """The input features of one node type: one row for each node, in any order."""

    rules: ClassVar[tuple[Rule, ...]] = (*PLACE_RULES, *_FEATURE_RULES)

    format: FeatureFormat = Field(default="parquet", description=FEATURE_FORMAT)
    as_of: AsOf | None = Field(default=None, description=AS_OF)
    id_column: Annotated[str, Field(max_length=MAX_COLUMN_NAME)] | None = Field(
        default="id",
        description="parquet: column with the node ids. '' (or null, which kubectl apply drops) "
        "means that there is none: rows are in the order of the dense ids. Default: id.",
        json_schema_extra=derived_default,
    )
    vector_column: ColumnName | None = Field(
        default=None,
        description="parquet: list column with one feature vector per row. With columns, a row's "
        "features are its vector, then these.",
    )
    columns: list[ColumnName] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_FEATURE_COLUMNS,
        json_schema_extra={"x-kubernetes-list-type": "set"},
        description="parquet: numeric columns that together form the feature vector, in this "
        "order. In a name, * stands for any characters and ? for one: all columns that match, "
        "except idColumn and vectorColumn, in the order of the first object.",
    )
    latest_by: ColumnName | None = Field(
        default=None,
        description="parquet: column of times, numbers or strings by which the last of an id's "
        "rows is the one that counts, where the table is a history. If unset, an id may have one "
        "row.",
    )
    ids_uri: Uri | None = Field(
        default=None,
        description="npy: URI of one object, or of a prefix, with the node ids of uri's rows, "
        "object by object. If unset, rows are in the order of the dense ids.",
    )

    scaling: FeatureScaling | None = Field(
        default=None,
        description="Standardises the features as training did: (x - mean) / scale, column by "
        "column. If unset, they are used as they are.",
    )
    ready: Annotated[Ready | None, Affects.WORKERS] = Field(default=None, description=READY)

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
        own = self._npy_problems() if self.format == "npy" else self._parquet_problems()
        raise_problems([*own, *table_problems(self)])
        return self

    def _npy_problems(self) -> list[Problem]:
        set_ones = {
            "idColumn": self.id_column,
            "vectorColumn": self.vector_column,
            "columns": self.columns,
            "latestBy": self.latest_by,
        }
        problems: list[Problem] = [
            ((name,), f"is {value!r}; npy has no columns; omit it (idsUri gives the ids)")
            for name, value in set_ones.items()
            if value is not None
        ]
        several = self.uri is None or self.window is not None or is_pattern(self.uri)
        if self.ids_uri is not None and (several or is_pattern(self.ids_uri)):
            message = f"is {self.ids_uri!r}; it goes with one uri, without a pattern or window"
            problems.append((("idsUri",), message + ": each object has its ids in one of idsUri"))
        return problems

    def _parquet_problems(self) -> list[Problem]:
        problems: list[Problem] = []
        if self.vector_column is None and self.columns is None:
            message = "is required unless format is npy: name the column that holds the vectors, or"
            problems.append(
                (("vectorColumn",), f"{message} give columns, a list of numeric columns")
            )
        if self.format in TABLE_FORMATS and self.id_column is None:
            problems.append((("idColumn",), _NO_ORDER))
        if self.latest_by is not None and self.id_column is None:
            problems.append((("latestBy",), _NO_HISTORY))
        if self.ids_uri is not None:
            problems.append((("idsUri",), "is for format npy; with parquet use idColumn"))
        repeated = sorted({c for c in self.columns or [] if (self.columns or []).count(c) > 1})
        if repeated:
            problems.append((("columns",), f"names {', '.join(repeated)} more than once"))
        return problems
