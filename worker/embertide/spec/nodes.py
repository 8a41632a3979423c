"""``spec.input.nodes``: how nodes are identified, and the location of their features, if any."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from embertide.spec.affects import Affects
from embertide.spec.base import (
    ColumnName,
    Problem,
    SpecModel,
    TypeName,
    raise_problems,
)
from embertide.spec.cel import Rule, or_default
from embertide.spec.features import FEATURE_FORMAT, FeatureFormat, FeatureInput
from embertide.spec.places import PLACE_RULES, ObjectInput
from embertide.spec.readiness import READY, Ready
from embertide.spec.tables import AS_OF, AsOf, table_problems, table_rules

IdKind = Literal["dense", "int64", "string"]
Missing = Literal["refuse", "zeros", "mean"]


class NodeTable(ObjectInput):
    """The authoritative list of nodes; edges and features may name only these."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *PLACE_RULES,
        *table_rules(or_default("self.format", "'parquet'")),
    )

    format: FeatureFormat = Field(default="parquet", description=FEATURE_FORMAT)
    as_of: AsOf | None = Field(default=None, description=AS_OF)
    id_column: ColumnName = Field(default="id", description="parquet: column with the node ids.")
    ready: Annotated[Ready | None, Affects.WORKERS] = Field(default=None, description=READY)

    @model_validator(mode="after")
    def _check_table(self) -> Self:
        raise_problems(table_problems(self))
        return self


_IDS = or_default("self.ids", "'dense'")
_FORMAT = or_default("self.features.format", "'parquet'")
_NO_FEATURES = "!has(self.features)"
_MISSING = or_default("self.missing", "'refuse'")

_NODE_RULES = (
    Rule(
        f"{_IDS} == 'dense' || !has(self.count)",
        "only ids: dense has a count; omit it",
        ".count",
        "FieldValueForbidden",
    ),
    Rule(
        f"{_IDS} != 'dense' || !has(self.table)",
        "is not for ids: dense, whose nodes are 0 to count-1; omit it",
        ".table",
        "FieldValueForbidden",
    ),
    Rule(
        f"{_NO_FEATURES} || {_IDS} == 'dense' || !has(self.features.idColumn) || "
        f"self.features.idColumn != '' || {_FORMAT} == 'npy'",
        "is required unless ids are dense: only dense ids can be row numbers",
        ".features.idColumn",
        "FieldValueRequired",
    ),
    Rule(
        f"{_NO_FEATURES} || {_IDS} == 'dense' || {_FORMAT} != 'npy' || has(self.features.idsUri)",
        "is required with npy unless ids are dense: only dense ids can be row numbers",
        ".features.idsUri",
        "FieldValueRequired",
    ),
    Rule(
        "has(self.features) || has(self.count) || has(self.table)",
        "is required unless count (ids: dense) or table says which nodes there are",
        ".features",
        "FieldValueRequired",
    ),
    Rule(
        f"{_MISSING} == 'refuse' || has(self.count) || has(self.features)",
        "is for nodes that a table of the model has no row of: give their count, or features",
        ".missing",
        "FieldValueForbidden",
    ),
)


class NodeInput(SpecModel):
    """One node type: how its nodes are identified, and the location of their features, if any."""

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
    features: FeatureInput | None = Field(
        default=None,
        description="The input features of these nodes. If unset, they have none, and count or "
        "table says which nodes there are.",
    )
    missing: Missing = Field(
        default="refuse",
        description="What new nodes get, which the model's own tables of this type have no rows "
        "of: by the ids of the rows, or those from the number of rows to count - 1. refuse: "
        "nothing, the job fails. zeros: a row of zeros. mean: the mean of the table's rows. They "
        "are counted in the report, the version's manifest, the status and a metric. Needs count "
        "or features.",
    )
    min_nodes: Annotated[int | None, Affects.WORKERS] = Field(
        default=None,
        ge=1,
        description="Least number of nodes of this type; with fewer the job fails before anything "
        "is computed.",
    )

    @property
    def listed_in(self) -> str:
        """The URI of what says which nodes there are; how many there are, for a count alone."""
        listed = self.table or self.features
        return f"{self.count} nodes (count)" if listed is None else listed.location

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        problems: list[Problem] = []
        if self.count is not None and self.ids != "dense":
            problems.append(
                (("count",), f"is {self.count}; only ids: dense has it, not {self.ids}")
            )
        if self.table is not None and self.ids == "dense":
            problems.append((("table",), "is not for ids: dense, whose nodes are 0 to count-1"))
        features = self.features
        if features is None and self.count is None and self.table is None:
            message = "is required unless count (ids: dense) or table says which nodes there are"
            problems.append((("features",), message))
        if features is not None and features.by_row_number and self.ids != "dense":
            field = "idsUri" if features.format == "npy" else "idColumn"
            message = f"is required with ids: {self.ids} (only dense ids can be row numbers)"
            problems.append((("features", field), message))
        if self.missing != "refuse" and self.count is None and features is None:
            message = f"is {self.missing!r}, which is for nodes that a table of the model has no"
            problems.append((("missing",), message + " row of: give their count, or features"))
        raise_problems(problems)
        return self
