"""``spec.input``: the edge types, the node types, and checks across them.

Lists with names from the start, so that graphs with several node and edge types need no new
version of the manifest.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from embertide.spec.affects import Affects
from embertide.spec.base import MAX_TYPES, Problem, SpecModel, raise_problems
from embertide.spec.cel import Rule, or_default
from embertide.spec.edge_columns import EdgeColumns, EdgeFeatures
from embertide.spec.edges import EdgeFormat, EdgeInput
from embertide.spec.features import FeatureFormat, FeatureInput, FeatureScaling
from embertide.spec.matching import Percent
from embertide.spec.nodes import IdKind, NodeInput, NodeTable
from embertide.spec.pairs import PairInput
from embertide.spec.relations import Relation

__all__ = [
    "EdgeColumns",
    "EdgeFeatures",
    "EdgeFormat",
    "EdgeInput",
    "FeatureFormat",
    "FeatureInput",
    "FeatureScaling",
    "IdKind",
    "Input",
    "NodeInput",
    "NodeTable",
    "PairInput",
]


def _unique_names(field: str, default: str) -> Rule:
    a, b = (or_default(f"{item}.name", f"'{default}'") for item in "ab")
    return Rule(
        f"self.{field}.all(a, self.{field}.exists_one(b, {a} == {b}))",
        "names must be unique; give each type its own name",
        f".{field}",
    )


_NAME = or_default("n.name", "'node'")


def _end(name: str) -> str:
    return or_default(f"e.{name}", "'node'")


def _end_exists(end: str) -> Rule:
    return Rule(
        f"self.edges.all(e, self.nodes.exists(n, {_NAME} == {_end(end)}))",
        f"every {end} must be the name of a node type in spec.input.nodes",
        ".edges",
    )


def _pair_end(name: str) -> str:
    return or_default(f"self.pairs.{name}", "'node'")


def _pair_end_exists(end: str) -> Rule:
    return Rule(
        f"!has(self.pairs) || self.nodes.exists(n, {_NAME} == {_pair_end(end)})",
        f"{end} must be the name of a node type in spec.input.nodes",
        ".pairs",
    )


def _unique_relations() -> Rule:
    fields = {"name": "'edge'", "sourceType": "'node'", "destinationType": "'node'"}
    same = " && ".join(
        " == ".join(or_default(f"{item}.{field}", default) for item in "ab")
        for field, default in fields.items()
    )
    return Rule(
        f"self.edges.all(a, self.edges.exists_one(b, {same}))",
        "names must be unique between the same two node types; give each type its own name",
        ".edges",
    )


def _unique_reverses() -> Rule:
    """A reverse is no edge type of the files, nor another one's reverse."""
    name, source, destination = (
        {item: or_default(f"{item}.{field}", default) for item in "ab"}
        for field, default in (
            ("name", "'edge'"),
            ("sourceType", "'node'"),
            ("destinationType", "'node'"),
        )
    )
    own = f"{name['b']} == a.reverse"
    turned = f"{source['b']} == {destination['a']} && {destination['b']} == {source['a']}"
    same = f"{source['b']} == {source['a']} && {destination['b']} == {destination['a']}"
    other = f"has(b.reverse) && b.reverse == a.reverse && {same}"
    return Rule(
        f"self.edges.all(a, !has(a.reverse) || (!self.edges.exists(b, {own} && {turned}) && "
        f"self.edges.exists_one(b, {other})))",
        "every reverse must have a name of its own: no edge type, nor another's reverse, between "
        "the same two node types may have it",
        ".edges",
    )


_INPUT_RULES = (
    Rule(
        f"self.edges.exists(e, !{or_default('e.optional', 'false')})",
        "one edge type at least must not be optional: a graph without edges is a mistake",
        ".edges",
    ),
    _unique_relations(),
    _unique_reverses(),
    _unique_names("nodes", "node"),
    _end_exists("sourceType"),
    _end_exists("destinationType"),
    _pair_end_exists("sourceType"),
    _pair_end_exists("destinationType"),
    Rule(
        "!has(self.pairs) || self.pairs.format != 'npy' || self.nodes.all(n, "
        f"!has(n.ids) || n.ids != 'string' || !({_NAME} in [{_pair_end('sourceType')}, "
        f"{_pair_end('destinationType')}]))",
        "npy holds numbers, and cannot hold string ids; use parquet, csv or tsv",
        ".pairs",
    ),
    Rule(
        "self.edges.all(e, e.format != 'npy' || self.nodes.all(n, "
        f"!has(n.ids) || n.ids != 'string' || "
        f"!({_NAME} in [{_end('sourceType')}, {_end('destinationType')}])))",
        "npy holds numbers, and cannot hold string ids; use parquet, csv or tsv",
        ".edges",
    ),
)


class Input(SpecModel):
    """The graph and its node features."""

    rules: ClassVar[tuple[Rule, ...]] = _INPUT_RULES

    edges: list[EdgeInput] = Field(
        min_length=1,
        max_length=MAX_TYPES,
        description="The edge types, each of the edges between two node types, or within one.",
    )
    nodes: list[NodeInput] = Field(
        min_length=1,
        max_length=MAX_TYPES,
        description="The node types.",
    )
    pairs: PairInput | None = Field(
        default=None,
        description="Pairs of nodes that get a score each, from the published rows of both; they "
        "are no edges. If unset, there are none.",
    )
    max_shrink: Annotated[Percent | None, Affects.WORKERS] = Field(
        default=None,
        description="Share by which the edges of any edge type, and the nodes of any node type, "
        "may be fewer than in the last published version, such as 10%; with fewer the job fails "
        "before anything is computed. If unset, they are not compared.",
    )
    new_objects: Annotated[Literal["refuse", "ignore"], Affects.WORKERS] = Field(
        default="refuse",
        description="What happens where objects were added to an input while it was read. refuse: "
        "the attempt fails, since whatever writes there may not be done, and the next one lists "
        "the inputs again. ignore: those that were listed are published, with a warning.",
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        raise_problems(
            [
                *self._repeated_relations(),
                *_repeated_names("nodes", [node.name for node in self.nodes]),
                *self._end_problems(),
                *self._pair_problems(),
                *self._optional_problems(),
            ]
        )
        return self

    @property
    def relations(self) -> list[Relation]:
        """All relations of the graph, each reverse right after its own."""
        return [relation for edge in self.edges for relation in edge.relations]

    @property
    def several(self) -> bool:
        """Whether there are several node types or relations, so that their names count."""
        return len(self.nodes) > 1 or len(self.relations) > 1

    def node(self, name: str) -> NodeInput:
        """The node type of that name."""
        return next(node for node in self.nodes if node.name == name)

    @property
    def object_inputs(self) -> list[tuple[str, EdgeInput | NodeTable | FeatureInput]]:
        """Each input with objects: its field, such as ``edges[0]``, and the input."""
        inputs: list[tuple[str, EdgeInput | NodeTable | FeatureInput | None]] = [
            *((f"edges[{i}]", edge) for i, edge in enumerate(self.edges)),
            *((f"nodes[{i}].table", node.table) for i, node in enumerate(self.nodes)),
            *((f"nodes[{i}].features", node.features) for i, node in enumerate(self.nodes)),
            ("pairs", None if self.pairs is None else self.pairs.edges),
        ]
        return [(field, item) for field, item in inputs if item is not None]

    def _repeated_relations(self) -> list[Problem]:
        """Edge types, or reverses, that lead between the same types under the same name."""
        problems: list[Problem] = []
        first: dict[Relation, str] = {}
        for i, edge in enumerate(self.edges):
            fields = ("name", "reverse")
            for field, relation in zip(fields, edge.relations, strict=False):
                if relation in first:
                    ends = f"from {relation.source!r} to {relation.destination!r}"
                    message = f"is {relation.name!r}, the same as {first[relation]} {ends}; names"
                    message += " must be unique between the same two node types"
                    problems.append((("edges", i, field), message))
                else:
                    first[relation] = f"edges[{i}].{field}"
        return problems

    def _optional_problems(self) -> list[Problem]:
        """All edge types are optional."""
        if not all(edge.optional for edge in self.edges):
            return []
        message = "is true for every edge type; one at least must not be optional: a graph without"
        return [(("edges", len(self.edges) - 1, "optional"), message + " edges is a mistake")]

    def _pair_problems(self) -> list[Problem]:
        """Pairs of unknown node types, or of ids that the format cannot hold."""
        if self.pairs is None:
            return []
        nodes = {node.name: node for node in self.nodes}
        ends = {
            "sourceType": self.pairs.source_type,
            "destinationType": self.pairs.destination_type,
        }
        problems: list[Problem] = [
            (("pairs", field), f"is {name!r}; must be the name of a node type: {', '.join(nodes)}")
            for field, name in ends.items()
            if name not in nodes
        ]
        strings = [n for n in ends.values() if n in nodes and nodes[n].ids == "string"]
        if strings and self.pairs.format == "npy":
            message = f"is 'npy', which holds numbers, but node type {strings[0]!r} has string ids;"
            problems.append((("pairs", "format"), message + " use parquet, csv or tsv"))
        return problems

    def _end_problems(self) -> list[Problem]:
        """Edges whose ends are unknown node types, or have ids that the format cannot hold."""
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
            if not edge.relation.within and edge.self_loops != "keep":
                message = f"is {edge.self_loops!r}; edges between two node types have no self-loops"
                problems.append((("edges", i, "selfLoops"), message))
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
