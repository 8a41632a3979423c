"""What an export understood of a module: arguments, graph, layers with their lines, the proof.

`Understood` is filled while a module is exported, so that a refusal leaves what was known until
then; `Explanation` is the same as plain data, with the program's own summary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from torch import nn

from embertide.facts.telemetry.notebook import html_table
from embertide.models.summary import ModelSummary, summarise
from embertide.program.steps import Program
from embertide.tracing.forward.subject import Subject
from embertide.tracing.lower.lowering import Lowered
from embertide.tracing.prove.proof import Proof
from embertide.tracing.record.arguments import KEPT, arguments_of, suggested_roles
from embertide.tracing.record.graphs import GraphTypes
from embertide.tracing.record.roles import ALL
from embertide.tracing.record.tables import Tables, columns_of

_MEANINGS = {
    "x": "features of the nodes",
    "node_id": "numbers of the nodes, which name the rows of tables",
    "edge_index": "the edges",
    "edge_weight": "a weight of each edge, one number",
    "edge_features": "features of the edges",
    "edge_type": "the number of each edge's relation",
    "node_type": "the number of each node's type",
    "norm": "for each edge 1 / in-edges of its end along the relation",
    "graph": "DGL's graph, with the job's edges",
    "blocks": "DGL's blocks, each of them the whole graph",
    "data": "PyG's data, with the job's features and edges",
    "adjacency": "the edges as a sparse matrix of their weights",
    "batch": "None, as all nodes are of one graph",
}
"""Role of an argument -> what ``forward`` gets for it."""


@dataclass
class Understood:
    """What is known so far of a module that is being exported.

    Attributes:
        inputs: roles of arguments that the user named.
        edge_features: whether the graph's edges have features.
        graph: node types with the columns of their features (not of tables), and relations.
        subject: how the module is called, once each argument has a role.
        lowered: its program, once it was recorded.
        proof: once the program agreed with the module.
    """

    module: nn.Module | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    edge_features: bool = False
    graph: GraphTypes | None = None
    tables: Tables = field(default_factory=dict)
    subject: Subject | None = None
    lowered: Lowered | None = None
    proof: Proof | None = None

    def set_graph(self, types: GraphTypes) -> None:
        """Keep a graph whose node types have the columns of their tables after the features'."""
        nodes = {
            name: width - columns_of(self.tables.get(name, ()))
            for name, width in types.nodes.items()
        }
        self.graph = replace(types, nodes=nodes)


@dataclass(frozen=True)
class Argument:
    """An argument of ``forward``, or an attribute that holds a graph of DGL's.

    Attributes:
        role: what it was taken for; None if that is not known, or if it is not passed.
        meaning: the same in words, with columns and node types or relations.
        known_by: ``name``, ``--inputs`` or ``attribute``; "" without a role.
    """

    name: str
    role: str | None
    meaning: str
    known_by: str


@dataclass(frozen=True)
class NodeType:
    """A node type; its name is "" in a graph of one.

    Attributes:
        columns: of its features; None if they are not known.
        categories: column -> how many categories it has.
        tables: name of each embedding table -> its columns.
    """

    name: str
    columns: int | None
    categories: dict[int, int]
    tables: dict[str, int]


@dataclass(frozen=True)
class RelationType:
    """A relation; its name is "" in a graph of one.

    Attributes:
        columns: of its edges' features, 0 without any.
        categories: column -> how many categories it has.
    """

    name: str
    columns: int
    categories: dict[int, int]


@dataclass(frozen=True)
class Explanation:
    """What was understood, as plain data.

    Attributes:
        module: its class.
        summary, program: its layers and steps; None if it was refused before it was recorded.
        places: name of a tensor -> ``file:line`` that its step comes from.
        scores: lines that give pairs of nodes scores; none without a decoder.
        proof: None if module and program were not compared, or do not agree.
    """

    module: str
    arguments: list[Argument]
    nodes: list[NodeType]
    relations: list[RelationType]
    summary: ModelSummary | None
    program: Program | None
    places: dict[str, str]
    scores: list[str]
    proof: Proof | None

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {value}" for name, value in self.facts().items() if value)

    def _repr_html_(self) -> str:
        """For notebooks."""
        return html_table(f"What was understood of {self.module}", self.facts())

    def facts(self) -> dict[str, str]:
        """What people read first, a line each; all of it is in the attributes."""
        summary, proof = self.summary, self.proof
        layers = () if summary is None else summary.layers
        return {
            "Module": self.module,
            **{f"Argument {one.name}": one.meaning for one in self.arguments},
            **{f"Nodes {one.name}".strip(): _sizes(one) for one in self.nodes},
            **{f"Edges {one.name}".strip(): _sizes(one) for one in self.relations},
            **{
                f"Layer {number}": f"{layer.name}, {layer.columns} columns,"
                f" {layer.parameters:,} parameters"
                for number, layer in enumerate(layers)
            },
            "Parameters": "" if summary is None else f"{summary.parameters:,}",
            "Scores": "; ".join(self.scores),
            "Agreement": "not compared, or not reached"
            if proof is None
            else f"largest error {proof.largest_error:.3g} on"
            f" {len(proof.graphs) - len(proof.not_compared)} random graphs",
            "Warning": "" if proof is None else "; ".join(proof.warnings),
        }

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "module": self.module,
            "arguments": [asdict(argument) for argument in self.arguments],
            "nodes": [asdict(node_type) for node_type in self.nodes],
            "relations": [asdict(relation) for relation in self.relations],
            "model": None if self.summary is None else self.summary.to_json(),
            "places": self.places,
            "scores": self.scores,
            "proof": None if self.proof is None else self.proof.to_json(),
            "warnings": [] if self.proof is None else self.proof.warnings,
        }


def _sizes(of: NodeType | RelationType) -> str:
    """Columns of features, categories and tables of nodes or edges."""
    tables = of.tables if isinstance(of, NodeType) else {}
    parts = [
        "columns not known" if of.columns is None else f"{of.columns} columns",
        *(f"column {column} has {count} categories" for column, count in of.categories.items()),
        *(f"table {name} of {columns} columns" for name, columns in tables.items()),
    ]
    return ", ".join(parts)


def explain(understood: Understood) -> Explanation | None:
    """What is known; None before there is a module."""
    if understood.module is None:
        return None
    lowered, program, summary = understood.lowered, None, None
    if lowered is not None and understood.subject is not None:
        program = lowered.program
        names = [layer.label for layer in lowered.layers]
        summary = summarise(program, understood.subject.library, names)
    steps = () if program is None else program.steps
    places = {} if lowered is None else lowered.places
    return Explanation(
        module=type(understood.module).__name__,
        arguments=_arguments(understood.module, understood),
        nodes=_nodes(understood),
        relations=_relations(understood.graph),
        summary=summary,
        program=program,
        places={step.out: places[step.out] for step in steps if places.get(step.out)},
        scores=list(program.decoder.lines) if program and program.decoder else [],
        proof=understood.proof,
    )


def _nodes(understood: Understood) -> list[NodeType]:
    graph, tables = understood.graph, understood.tables
    columns = dict.fromkeys(tables or [""]) if graph is None else graph.nodes
    return [
        NodeType(
            name=name,
            columns=width,
            categories={} if graph is None else dict(graph.categories.get(name, {})),
            tables={table.name: table.columns for table in tables.get(name, ())},
        )
        for name, width in columns.items()
    ]


def _relations(graph: GraphTypes | None) -> list[RelationType]:
    return [
        RelationType(
            name=relation,
            columns=graph.edge_features.get(relation, 0),
            categories=dict(graph.edge_categories.get(relation, {})),
        )
        for relation in (() if graph is None else graph.relations)
        if graph is not None
    ]


def _arguments(module: nn.Module, understood: Understood) -> list[Argument]:
    """The arguments with their roles, or with those that names suggest if there was a refusal."""
    subject, required = understood.subject, arguments_of(module)
    if subject is not None:
        roles: Mapping[str, str | None] = subject.roles
    else:
        edges = understood.edge_features
        roles = suggested_roles(module, understood.inputs, edge_features=edges)
    names = dict.fromkeys([*required, *roles, *(() if subject is None else subject.left_out)])
    return [
        Argument(
            name=name,
            role=roles.get(name),
            meaning=_meaning(roles.get(name), understood, required.get(name, False)),
            known_by=_known_by(name, roles.get(name), understood),
        )
        for name in names
    ]


def _known_by(name: str, role: str | None, understood: Understood) -> str:
    if role is None:
        return ""
    if name.startswith(KEPT):
        return "attribute"
    return "--inputs" if name in understood.inputs else "name"


def _meaning(role: str | None, understood: Understood, required: bool) -> str:
    """What ``forward`` gets for an argument."""
    if role is None:
        return "not known" if required else "not passed; its default holds"
    graph, subject = understood.graph, understood.subject
    if role == "x":
        return _features(graph, understood.tables)
    text = _MEANINGS[role]
    if role == "edge_weight" and subject is not None and subject.weights_are_optional:
        return f"{text}; compared with and without"
    if role == "edge_features":
        return f"{text}{_columns({} if graph is None else graph.edge_features)}"
    if role in ("graph", "blocks") and subject is not None and subject.fields:
        reads = (_field(kind, of, name) for (kind, of), name in subject.fields.items())
        return f"{text}; reads {', '.join(reads)}"
    if graph is not None and graph.typed and role in ("edge_index", "data", "adjacency"):
        return f"{text} of {', '.join(graph.relations)}"
    return text


def _field(kind: str, of: str, name: str) -> str:
    """A tensor that is read in a graph of DGL's, by its name there."""
    what = _MEANINGS["x" if kind == "ndata" else kind]
    return f"{what}{f' ({of})' if of not in ('', ALL) else ''} as {name!r}"


def _features(graph: GraphTypes | None, tables: Tables) -> str:
    """What ``x`` is: features, or the nodes' numbers where tables take their place."""
    if graph is None:
        return f"{_MEANINGS['x']}, columns not known"
    if tables and not any(graph.nodes.values()):
        return _MEANINGS["node_id"]
    return f"{_MEANINGS['x']}{_columns(graph.nodes)}"


def _columns(columns: Mapping[str, int]) -> str:
    parts = [f"{name} {width}".strip() for name, width in columns.items() if width]
    return f", columns: {', '.join(parts)}" if parts else ""
