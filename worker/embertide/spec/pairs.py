"""``spec.input.pairs``: pairs of nodes that get a score from the results of both."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationError, model_validator

from embertide.spec.affects import Affects
from embertide.spec.base import ResultName, SpecModel, TypeName, derived_default, raise_problems
from embertide.spec.cel import Rule
from embertide.spec.dialect import DIALECT, DIALECT_RULES, TextDialect
from embertide.spec.edge_columns import Column, with_columns_by_place
from embertide.spec.edge_rules import TEXT_RULES, end_rules, ends_differ
from embertide.spec.edges import EdgeFormat, EdgeInput
from embertide.spec.places import PLACE_RULES, ObjectInput
from embertide.spec.problems import explain
from embertide.spec.readiness import READY, Ready
from embertide.spec.tables import AS_OF, AsOf, table_rules

Score = Literal["model", "dot", "cosine"]
_OWN = {"columns", "score", "result"}


class PairColumns(SpecModel):
    """The columns of a table of pairs."""

    source: Column = Field(
        default="src",
        description="Column with the first node's id. "
        "A 0-based index for npy and for csv and tsv without a header. Default: src, or 0.",
        json_schema_extra=derived_default,
    )
    destination: Column = Field(
        default="dst",
        description="Column with the second node's id. "
        "A 0-based index for npy and for csv and tsv without a header. Default: dst, or 1.",
        json_schema_extra=derived_default,
    )


class PairInput(ObjectInput):
    """A table of pairs of nodes, each of which gets a score, published beside the results."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *PLACE_RULES,
        *end_rules(("source", "destination")),
        Rule(ends_differ(), "source and destination must be different columns", ".columns"),
        *TEXT_RULES,
        *DIALECT_RULES,
        *table_rules("self.format"),
    )

    source_type: TypeName = Field(default="node", description="Node type of the first nodes.")
    destination_type: TypeName = Field(default="node", description="Node type of the second nodes.")
    format: EdgeFormat = Field(
        description="Format of all objects under uri. csv and tsv may be compressed: .gz, .zst. "
        "delta and iceberg: uri is a table, whose metadata lists its files."
    )
    as_of: AsOf | None = Field(default=None, description=AS_OF)
    columns: PairColumns = Field(default_factory=PairColumns, description="The columns to read.")
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
    score: Score = Field(
        default="model",
        description="How a pair's score follows from the rows of its nodes. model: by the decoder "
        "that the model was exported with. dot: their dot product. cosine: its cosine.",
    )
    result: ResultName | None = Field(
        default=None,
        description="The result whose rows are read, of a model that gives several. It is "
        "published, too.",
    )
    ready: Annotated[Ready | None, Affects.WORKERS] = Field(default=None, description=READY)

    @cached_property
    def edges(self) -> EdgeInput:
        """The pairs as readers of edges take them."""
        given = self.model_dump(by_alias=True, exclude=_OWN, exclude_unset=True)
        columns = self.columns.model_dump(by_alias=True, exclude_unset=True)
        return EdgeInput.model_validate({**given, "name": "pairs", "columns": columns})

    @model_validator(mode="before")
    @classmethod
    def _default_columns(cls, data: Any) -> Any:
        """Without column names, the first two columns are the nodes."""
        return with_columns_by_place(data)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        try:
            assert self.edges
        except ValidationError as error:
            raise_problems([(loc, text) for loc, text in explain(EdgeInput, error)])
        return self
