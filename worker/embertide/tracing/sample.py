"""What real tensors show of a graph: columns, categories, features of edges, types.

A sample holds what ``forward`` is called with. Only shapes and the largest values of integer
columns are read from it; the module is recorded and proved on random graphs anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from embertide.errors import ModelError
from embertide.tracing.categories import CategoriesOf
from embertide.tracing.forward.entry import unwrapped, with_encoder
from embertide.tracing.graph_types import written_types
from embertide.tracing.record.arguments import arguments_of, roles_of, takes_edge_features
from embertide.tracing.record.graphs import GraphTypes
from embertide.tracing.sample_graphs import graph_parts
from embertide.tracing.sample_tensors import categories_in, ends_of, features_of, weights_of

_OF_EDGES = ("edge_weight", "edge_features")


@dataclass(frozen=True)
class Sample:
    """What an export takes from options and, where they leave it open, from a sample.

    Attributes:
        width: columns of the features in a graph of one type; None where they are not known.
        edge_features: columns of the edges' features in a graph of one type; None without any.
        weighted: whether edges have weights in a graph of one type; `graph` states its own.
        graph: node types and relations; None for a graph with one of each.
        categories: node type ("" in a graph of one) -> column -> how many categories it has: the
            sample's largest value + 1.
        edge_categories: relation -> the same of its edges' features.
    """

    width: int | None = None
    edge_features: int | None = None
    weighted: bool = False
    graph: GraphTypes | None = None
    categories: CategoriesOf = field(default_factory=dict)
    edge_categories: CategoriesOf = field(default_factory=dict)

    def under(
        self,
        graph: GraphTypes | None,
        width: int | None,
        edge_features: int | None,
        categories: Mapping[Any, Any] | None,
        edge_categories: Mapping[Any, Any] | None,
    ) -> Sample:
        """The sample, with each option that is set in place of what the sample shows.

        Args:
            categories, edge_categories: by column in a graph of one type, else by type.
        """
        types = graph or self.graph
        if graph is not None and self.graph is not None and graph.weighted is None:
            shown = (self.graph.weighted or frozenset()).intersection(graph.relations)
            types = replace(graph, weighted=shown or None)
        bare = self if graph is None else replace(self, edge_features=None)
        nodes, relations = ([""], [""]) if types is None else (types.nodes, types.relations)
        return Sample(
            width=width or bare.width,
            edge_features=edge_features or bare.edge_features,
            weighted=bare.weighted,
            graph=types,
            categories=_by_type(categories, self.categories, types, list(nodes)),
            edge_categories=_by_type(edge_categories, self.edge_categories, types, list(relations)),
        )

    @contextmanager
    def in_errors(self) -> Iterator[None]:
        """Add what was taken to the message where ``forward`` fails on a graph like the sample."""
        try:
            yield
        except ModelError as error:
            if not isinstance(error.__cause__, RuntimeError | IndexError):
                raise
            raise ModelError(
                f"{error}. With the sample and the options beside it: {self}"
            ) from error.__cause__

    def __str__(self) -> str:
        facts = {
            "width": self.width,
            "edge_features": self.edge_features,
            "weights of": ", ".join(self._weighted),
            "graph": self.graph,
            "categories": dict(self.categories),
            "edge_categories": dict(self.edge_categories),
        }
        return "; ".join(f"{name} {value}" for name, value in facts.items() if value)

    @property
    def _weighted(self) -> list[str]:
        """The relations whose edges have weights; a graph of one has ""."""
        of = {""} if self.weighted else set[str]()
        return sorted(of if self.graph is None else self.graph.weighted or ())

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        graph = self.graph
        return {
            "width": self.width,
            "edge_features": self.edge_features,
            "weighted": self._weighted,
            "nodes": dict(graph.nodes) if graph else {},
            "relations": list(graph.relations) if graph else [],
            "categories": {name: dict(columns) for name, columns in self.categories.items()},
            "edge_categories": {
                name: dict(columns) for name, columns in self.edge_categories.items()
            },
        }


def _by_type(
    option: Mapping[Any, Any] | None,
    sampled: CategoriesOf,
    types: GraphTypes | None,
    names: list[str],
) -> CategoriesOf:
    """Categories by type: the option's, else the sample's.

    Tensors of all types together (``edge_type`` distinguishes them) have the same columns in each.
    """
    if option is not None:
        return option if types is not None or not option else {"": option}
    return dict.fromkeys(names, sampled[""]) if "" in sampled else sampled


def read_sample(
    module: nn.Module, sample: object, inputs: Mapping[str, str], *, tables: bool = False
) -> Sample:
    """Read columns, categories and types from what ``forward`` is called with.

    Args:
        sample: the arguments, in their order or by their names: ``x`` [N, D], ``edge_index``
            [2, E] and what edges have [E] or [E, K], or dicts of them by node type and relation;
            PyG's ``Data`` or ``HeteroData``, a graph of DGL's. ``None`` counts as left out.
        inputs: roles of arguments whose names do not show them.
        tables: the nodes have embedding tables, whose rows [N] integers may name in x's place.

    Raises:
        ModelError: the sample has other arguments than ``forward``, or its tensors do not fit each
            other; names the argument, and row and column where there is one.
    """
    module = with_encoder(unwrapped(module))
    parts = _parts(module, sample, inputs, tables)
    if any(isinstance(value, Mapping) for value in parts.values()):
        return _typed(parts)
    x, edges = parts.get("x"), parts.get("edge_index")
    rows = None if x is None else features_of("x", x)
    count = None if edges is None else ends_of("edge_index", edges, rows, rows)
    columns = _edge_columns(parts, count)
    return Sample(
        width=None if rows is None else rows.shape[1],
        edge_features=None if columns is None else columns.shape[1],
        weighted=_has_weights(parts),
        categories=_some({"": categories_in("x", rows)}),
        edge_categories=_some({"": categories_in("features of edges", columns)}),
    )


def _typed(parts: Mapping[str, Any]) -> Sample:
    """What dicts by node type and relation show."""
    alone = [role for role, value in parts.items() if not isinstance(value, Mapping)]
    if alone or "edge_index" not in parts:
        raise ModelError(
            f"the sample has {' and '.join(alone) or 'no edge_index'} beside dicts by type; give x"
            " as a dict by node type, and what edges have as dicts by relation"
        )
    x = {str(name): features_of(f"x of {name}", of) for name, of in parts.get("x", {}).items()}
    _check_relations(parts)
    edges: dict[str, Tensor | None] = {}
    for relation, ends in parts["edge_index"].items():
        triple = _triple(relation)
        source, destination = x.get(triple[0]), x.get(triple[-1])
        name = ":".join(triple)
        count = ends_of(f"edge_index of {name}", ends, source, destination)
        edges[name] = _edge_columns(_of_relation(parts, relation), count, f" of {name}")
    weighted = frozenset(
        ":".join(_triple(relation))
        for relation in parts["edge_index"]
        if _has_weights(_of_relation(parts, relation))
    )
    ends = [_triple(name) for name in edges]
    nodes = dict.fromkeys([*x, *(name for triple in ends for name in (triple[0], triple[-1]))], 0)
    nodes |= {name: rows.shape[1] for name, rows in x.items()}
    types = written_types(
        {"nodes": nodes, "edges": {name: _width(of) for name, of in edges.items()}}
    )
    return Sample(
        graph=replace(types, weighted=weighted or None),
        categories=_some({name: categories_in(f"x of {name}", rows) for name, rows in x.items()}),
        edge_categories=_some(
            {name: categories_in(f"features of {name}", of) for name, of in edges.items()}
        ),
    )


def _check_relations(parts: Mapping[str, Any]) -> None:
    """Refuse what edges have of a relation without edges."""
    for role in _OF_EDGES:
        for relation in parts.get(role, {}):
            if relation not in parts["edge_index"]:
                raise ModelError(
                    f"the sample has {role} of {relation!r}, but edge_index has only"
                    f" {', '.join(map(repr, parts['edge_index']))}; name relations alike in both"
                )


def _width(part: Tensor | None) -> int:
    return 0 if part is None else part.shape[1]


def _some(categories: Mapping[str, Mapping[int, int]]) -> CategoriesOf:
    return {name: columns for name, columns in categories.items() if columns}


def _triple(relation: Any) -> list[str]:
    """Source, name and destination; `written_types` refuses what is none."""
    return relation.split(":") if isinstance(relation, str) else [str(name) for name in relation]


def _of_relation(parts: Mapping[str, Any], relation: Any) -> dict[str, Any]:
    return {role: parts[role][relation] for role in _OF_EDGES if relation in parts.get(role, {})}


def _has_weights(parts: Mapping[str, Any]) -> bool:
    """Whether a relation's edges have one number each."""
    features = parts.get("edge_features")
    return "edge_weight" in parts or (isinstance(features, Tensor) and features.dim() == 1)


def _edge_columns(parts: Mapping[str, Any], count: int | None, of: str = "") -> Tensor | None:
    """[E, K] the features of edges; numbers of one dimension are weights."""
    weight, features = parts.get("edge_weight"), parts.get("edge_features")
    if isinstance(features, Tensor) and features.dim() == 1:
        weight, features = features, None
    if weight is not None:
        weights_of(f"edge_weight{of}", weight, count)
    return None if features is None else features_of(f"the features of edges{of}", features, count)


def _parts(
    module: nn.Module, sample: object, inputs: Mapping[str, str], tables: bool
) -> dict[str, Any]:
    """Role -> what the sample has for it."""
    roles = roles_of(module, inputs, tables=True, edge_features=takes_edge_features(module, inputs))
    parts: dict[str, Any] = {}
    for name, value in _arguments(module, sample).items():
        role = roles.get(name)
        if role is None:
            raise ModelError(
                f"the sample has {name}, but no job has what {type(module).__name__}.forward takes"
                f" there; leave it out, so that its default holds"
            )
        parts |= graph_parts(role, name, value)
    fields = parts.pop("node_data", ())
    if fields and "x" not in parts and isinstance(parts["edge_index"], Mapping):
        raise ModelError(
            f"the sample's graph has {', '.join(fields)} in its node data, and forward takes no x,"
            " so that nothing shows which of them are the features; give graph= in place of the"
            " sample"
        )
    if tables and (left := _features_alone(parts.pop("x", None))) is not None:
        parts["x"] = left
    return parts


def _features_alone(x: Any) -> Any:
    """The features without numbers of nodes, [N] integers that name rows of a table."""
    if isinstance(x, Mapping):
        return {name: of for name, of in x.items() if _features_alone(of) is not None}
    numbers = isinstance(x, Tensor) and x.dim() == 1 and not x.is_floating_point()
    return None if numbers else x


def _arguments(module: nn.Module, sample: object) -> dict[str, Any]:
    """The value of each argument that the sample has, by name.

    Raises:
        ModelError: there are more than ``forward`` has, others, or too few.
    """
    there, kind = arguments_of(module), type(module).__name__
    names = list(there)
    if isinstance(sample, Mapping):
        passed = {str(name): value for name, value in sample.items()}
    else:
        values = sample if isinstance(sample, tuple | list) else (sample,)
        passed = dict(
            zip([*names, *map(str, range(len(names), len(values)))], values, strict=False)
        )
    unknown = [name for name in passed if name not in there]
    missing = [name for name in names if there[name] and passed.get(name) is None]
    if unknown or missing:
        problem = f"has no {missing[0]}" if missing else f"has {len(passed)} values"
        if unknown and isinstance(sample, Mapping):
            problem = f"has {unknown[0]!r}"
        raise ModelError(
            f"the sample {problem}, but {kind}.forward takes {', '.join(names) or 'nothing'}; give"
            " its arguments in their order, or as a dict by their names"
        )
    return {name: value for name, value in passed.items() if value is not None}
