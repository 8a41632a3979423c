"""``spec.input.edges``: the location, format and meaning of edges."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from embertide.spec.affects import Affects
from embertide.spec.base import (
    Problem,
    TypeName,
    raise_problems,
)
from embertide.spec.cel import Rule
from embertide.spec.dialect import DIALECT, TextDialect
from embertide.spec.edge_columns import (
    Column,
    EdgeColumns,
    EdgeFeatures,
    EdgeFilter,
    with_columns_by_place,
)
from embertide.spec.edge_rules import EDGE_RULES, TO_ADD, SelfLoops
from embertide.spec.places import PLACE_RULES, ObjectInput
from embertide.spec.readiness import READY, Ready
from embertide.spec.relations import Relation
from embertide.spec.tables import AS_OF, AsOf, table_problems
from embertide.spec.text_input import named_columns, text_problems
from embertide.spec.unknown_nodes import UnknownNodes

EdgeFormat = Literal["parquet", "csv", "tsv", "npy", "delta", "iceberg"]

_LONGEST_SELF_LOOPS = 16


def _by_rule(schema: dict[str, Any]) -> None:
    """The API server lists an enum's values alone; the rule says what each means."""
    schema["maxLength"] = _LONGEST_SELF_LOOPS
    del schema["enum"]


class EdgeInput(ObjectInput):
    """One edge type and the location of its edges."""

    rules: ClassVar[tuple[Rule, ...]] = (*PLACE_RULES, *EDGE_RULES)

    name: TypeName = Field(
        default="edge", description="Name of this edge type; unique between its node types."
    )
    source_type: TypeName = Field(default="node", description="Node type of the edges' sources.")
    destination_type: TypeName = Field(
        default="node", description="Node type of the edges' destinations."
    )
    format: EdgeFormat = Field(
        description="Format of all objects under uri. csv and tsv may be compressed: .gz, .zst. "
        "delta and iceberg: uri is a table, whose metadata lists its files."
    )
    as_of: AsOf | None = Field(default=None, description=AS_OF)
    columns: EdgeColumns = Field(default_factory=EdgeColumns, description="The columns to read.")
    weights: Literal["ones"] | None = Field(
        default=None,
        description="ones: each edge counts as one of weight 1 in a model that reads weights. Such "
        "a model demands columns.weight, or this word.",
    )
    where: EdgeFilter | None = Field(
        default=None,
        description="Which rows are edges of this type, where one input has those of several. Rows "
        "are counted (minEdges, maxShrink) after it; without any the job fails, unless the type is "
        "optional. If unset, all are.",
    )
    features: EdgeFeatures | None = Field(
        default=None,
        description="The columns with features of the edges. If unset, edges have none. With "
        "directed: false and in a reverse type every edge has them both ways; a self-loop that "
        "selfLoops adds has 1 in each.",
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
    directed: bool = Field(
        default=True,
        description="false adds the reverse of every edge that is not a self-loop, with the same "
        "weight and features.",
    )
    reverse: TypeName | None = Field(
        default=None,
        description="Name of a second edge type, which has every edge the other way round, with "
        "the same weight: from destinationType to sourceType. If unset, there is none.",
    )
    duplicates: Literal["keep", "remove"] = Field(
        default="keep",
        description="Parallel edges (same source and destination), after directed has added the "
        "reverse edges: keep all, or remove all but one: the one with the largest weight; among "
        "equal weights, or without, the one whose features are the largest, compared column by "
        "column. The order of edges in the files has no influence.",
    )
    self_loops: SelfLoops = Field(
        default="keep",
        json_schema_extra=_by_rule,
        description="Self-loops. keep: those of the input. remove: none. addToAll: one more at "
        "every node, whether it has one or not (DGL's add_self_loop, PyG's add_self_loops). "
        "addRemaining: exactly one at every node; a node without one gets one, and of several the "
        "one that duplicates: remove would keep stays (PyG's add_remaining_self_loops). replace: "
        "remove all, then add one to every node (DGL's AddSelfLoop transform). They are removed "
        "before directed and duplicates apply and added after; an added one has weight 1 and 1 in "
        "each feature. Edges between two node types have none.",
    )
    unknown_nodes: UnknownNodes | None = Field(
        default=None,
        description="What becomes of edges whose source or destination is not among the nodes. If "
        "unset, they are refused.",
    )
    optional: bool = Field(
        default=False,
        description="Whether the input may have no objects: the relation is then empty, which the "
        "report, the version's manifest, the status and a metric say; minEdges and maxShrink do "
        "not apply to it. With ready, the job first waits as long as for any other. Not for all "
        "edge types of a job.",
    )
    ready: Annotated[Ready | None, Affects.WORKERS] = Field(default=None, description=READY)
    min_edges: Annotated[int | None, Affects.WORKERS] = Field(
        default=None,
        ge=1,
        description="Least number of edges (rows) of the input; with fewer the job fails before "
        "anything is computed.",
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
        return named_columns(self)

    @property
    def separator(self) -> str:
        """The character between columns of csv and tsv."""
        return "\t" if self.format == "tsv" else self.delimiter or ","

    @property
    def adds_loops(self) -> bool:
        """Whether every node has a self-loop in the end."""
        return self.self_loops in ("addToAll", "addRemaining", "replace")

    @property
    def removes_loops(self) -> bool:
        """Whether the self-loops of the input are dropped."""
        return self.self_loops in ("remove", "replace")

    @field_validator("self_loops", mode="before")
    @classmethod
    def _no_plain_add(cls, value: Any) -> Any:
        """Libraries differ in what they add, so a name that fits several is refused."""
        if value == "add":
            raise ValueError(f"is 'add', which does not say to which nodes; write {TO_ADD}")
        return value

    @model_validator(mode="before")
    @classmethod
    def _default_columns(cls, data: Any) -> Any:
        """Without column names, the first two columns are source and destination."""
        return with_columns_by_place(data)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        problems = [
            *self._column_problems(),
            *text_problems(self),
            *table_problems(self),
        ]
        if self.weights is not None and self.columns.weight is not None:
            message = f"is {self.weights!r}, but columns.weight names {self.columns.weight!r}; keep"
            problems.append((("weights",), f"{message} one of the two"))
        if self.reverse is not None and not self.directed:
            message = f"is {self.reverse!r}; with directed: false every edge goes both ways already"
            problems.append((("reverse",), message))
        if self.optional and self.features is not None and self.features.vector_column:
            message = "is true, which needs features.columns: without objects nothing says how long"
            problems.append((("optional",), message + " vectors are"))
        if self.format in ("csv", "tsv") and self.ready is not None and self.ready.min_rows:
            message = f"is for parquet and npy, whose metadata has it, not {self.format}; use"
            problems.append((("ready", "minRows"), message + " minBytes"))
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
        given = [(("columns", name), value) for name, value in columns.items()]
        if self.where is not None:
            given.append((("where", "column"), self.where.column))
        features = self._feature_columns()
        given += features
        problems: list[Problem] = [
            (place, f"is {value!r}; must be {kind} in {about}")
            for place, value in given
            if not isinstance(value, wanted)
        ]
        problems += [
            (place, f"names {columns[end]!r}, which is columns.{end}; leave it out")
            for end in ("source", "destination")
            for place in dict.fromkeys(place for place, name in features if name == columns[end])
        ]
        if self.features is not None and self.features.vector_column and not self.named_columns:
            message = f"is for parquet, and csv and tsv with a header, not {about}; give columns"
            problems.append((("features", "vectorColumn"), message))
        names = list(columns)
        for i, name in enumerate(names):
            for other in names[:i]:
                if columns[name] == columns[other]:
                    message = f"is {columns[name]!r}, the same as columns.{other}; must differ"
                    problems.append((("columns", name), message))
        return problems

    def _feature_columns(self) -> list[tuple[tuple[str, str], Column]]:
        """The columns that hold the features, and their fields, in order; none without features."""
        if self.features is None:
            return []
        vectors = [self.features.vector_column] if self.features.vector_column else []
        return [
            *((("features", "vectorColumn"), name) for name in vectors),
            *((("features", "columns"), name) for name in self.features.columns or ()),
        ]
