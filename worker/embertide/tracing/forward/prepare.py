"""A copy of the user's module that can be run on any graph: in eval mode, float64, no caches."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from embertide.errors import ModelError
from embertide.spec.base import MAX_EDGE_FEATURES
from embertide.tracing.forward.entry import Entry
from embertide.tracing.forward.hooks import refuse_unknown, remove_hooks
from embertide.tracing.forward.replacements import BY_NUMBER, key_of
from embertide.tracing.forward.subject import Subject
from embertide.tracing.record.arguments import is_by_type, roles_of, takes_edge_features
from embertide.tracing.record.graphs import GraphTypes, random_graph
from embertide.tracing.record.tables import NumbersReadAsFeatures, Tables, with_tables

_WIDTHS = ("in_channels", "_in_src_feats", "_in_feats", "in_feats", "in_features")
"""Attributes of modules that hold the columns of their input."""
_EDGE_WIDTHS = ("edge_dim", "_edge_feats", "edge_feats")
"""Attributes of modules that hold the number of features of each edge."""
_TRIED = 7


def prepare(
    module: nn.Module,
    inputs: Mapping[str, str],
    graph: GraphTypes | None,
    tables: Tables | None = None,
    *,
    edge_features: bool = False,
) -> Subject:
    """What is traced; the user's own module stays as it is.

    Parameters are rounded to float32, as workers have them, before they become float64.

    Args:
        tables: of each node type that has some; they are not copied.
        edge_features: the graph's edges have features.

    Raises:
        ModelError: an argument of ``forward`` is not known, the module is for a graph with
            types and the types were not given, or it has hooks that no record follows.
    """
    tables = tables or {}
    left = [part for of_type in tables.values() for one in of_type for part in one.parts(module)]
    empty: dict[int, Any] = {
        id(part): nn.Parameter(none) if isinstance(part, nn.Parameter) else none
        for part in left
        for none in [part.detach()[:0].clone()]
    }
    copied = _copied(module, empty).eval().float().double()
    refuse_unknown(copied)
    if isinstance(vars(copied).get("forward"), Entry):
        remove_hooks(copied)  # A method runs none of the module's.
    for part in copied.modules():
        _forget_graph(part)
        if key_of(part) in _REVERSIBLE:
            # Their own function of autograd frees what it was given.
            vars(part)["disable"] = True
        if "_allow_zero_in_degree" in vars(part):
            vars(part)["_allow_zero_in_degree"] = True
    roles = roles_of(copied, inputs, tables=bool(tables), edge_features=edge_features)
    by_type, numbered = _is_by_type(copied, roles, graph, tables)
    doubled = any(part.dtype is torch.float64 for part in module.parameters())
    return Subject(copied, roles, by_type, numbered, tables, doubled=doubled)


def _copied(module: nn.Module, known: dict[int, Any]) -> nn.Module:
    """A copy that may be changed.

    Raises:
        ModelError: an attribute cannot be copied.
    """
    try:
        return copy.deepcopy(module, known)
    except Exception as error:
        raise ModelError(
            f"{type(module).__name__} cannot be copied: {error}; keep it out of the module's"
            " attributes, since export works on a copy"
        ) from error


_REVERSIBLE = {("torch_geometric", "GroupAddRev")}
_OF_TYPES = {
    *(("torch_geometric", name) for name in ("HeteroConv", "HGTConv", "HANConv")),
    ("dgl", "HeteroGraphConv"),
    ("torch", "GraphModule"),
}
"""Modules that take dicts by type, by package and class; the last is what ``to_hetero`` makes."""


def _is_by_type(
    module: nn.Module,
    roles: Mapping[str, str],
    graph: GraphTypes | None,
    tables: Tables,
) -> tuple[bool, bool]:
    """Whether ``forward`` takes dicts by type, or all types together with numbers of types."""
    kind, keys = type(module).__name__, {key_of(part) for part in module.modules()}
    wanted = is_by_type(module) or bool(keys & _OF_TYPES)
    numbers = {"edge_type", "node_type"} & set(roles.values())
    numbered = bool(numbers) or (not wanted and bool(keys & set(BY_NUMBER)))
    if graph is None and (wanted or numbered):
        raise ModelError(
            f"{kind} is for a graph with types; name its node types and relations with --graph: a"
            """ job's file, or '{"nodes": {"user": 64}, "edges": ["user:follows:user"]}'"""
        )
    if numbered and "edge_features" in roles.values():
        raise ModelError(
            f"{kind}.forward takes features of edges beside edge_type; what is known with edge_type"
            " reads none: give each relation its own convolution (HeteroConv)"
        )
    if numbered and graph is not None and len(graph.nodes) > 1:
        _check_together(kind, graph, tables)
    by_type = not numbered and graph is not None and (wanted or len(graph.nodes) > 1)
    return by_type, numbered


def _check_together(kind: str, graph: GraphTypes, tables: Tables) -> None:
    """Refuse features of all nodes in one tensor where types' columns differ, and tables."""
    columns = ", ".join(f"{name} {width or 'none'}" for name, width in graph.nodes.items())
    if len(set(graph.nodes.values())) > 1 or not all(graph.nodes.values()):
        raise ModelError(
            f"{kind} has the nodes of all types in one tensor, but their features have different"
            f" columns: {columns}; give all types as many, or name one node type and a relation for"
            " each number"
        )
    if tables:
        raise ModelError(
            f"{kind} has the nodes of all types in one tensor, so that no table is of one type;"
            " name one node type, and a relation for each number"
        )


_REACHED = {("dgl", "EGATConv")}
"""Modules that refuse nodes without in-edges, by package and class."""


def reached(module: nn.Module, types: GraphTypes) -> GraphTypes:
    """A graph's types, with in-edges at every node where the module refuses it otherwise."""
    demands = bool({key_of(part) for part in module.modules()} & _REACHED)
    return replace(types, reached=True) if demands else types


def _forget_graph(module: nn.Module) -> None:
    """Keep nothing of one graph for the next: PyG's ``cached=True``, DGL's ``cached``."""
    for name, value in list(vars(module).items()):
        if name in ("cached", "_cached") and isinstance(value, bool):
            setattr(module, name, False)
        elif name.startswith("_cached_"):
            setattr(module, name, None)


def edge_columns(
    module: nn.Module, inputs: Mapping[str, str], graph: GraphTypes | None, columns: int | None
) -> Mapping[str, int]:
    """Relation -> features of each of its edges: the graph's, as given, or what a module shows.

    Raises:
        ModelError: they are given, but the graph has its own, or ``forward`` cannot read any.
    """
    kind = type(module).__name__
    if graph is not None:
        if columns is not None:
            raise ModelError(
                "--edge-features is for a graph of one type; with --graph each relation has its"
                ' own: a job has them, or {"edges": {"user:buys:item": 3}}'
            )
        return graph.edge_features
    if columns is not None and not 1 <= columns <= MAX_EDGE_FEATURES:
        raise ModelError(f"--edge-features is {columns}; edges have 1 to {MAX_EDGE_FEATURES}")
    takes = takes_edge_features(module, inputs)
    if columns is not None and not takes:
        raise ModelError(
            f"--edge-features is {columns}, but {kind}.forward has no argument for them; call it"
            " edge_attr, or say which one it is with --inputs"
        )
    sizes = (getattr(part, name, None) for part in module.modules() for name in _EDGE_WIDTHS)
    width = columns or next((size for size in sizes if takes and _is_size(size)), None)
    return {"": width} if width else {}


def find_types(
    subject: Subject, width: int | None, init: Mapping[str, Any], bare: GraphTypes
) -> GraphTypes:
    """A graph of one node type with the columns that the module reads.

    Where the nodes have tables and no width is known, ``forward`` gets the nodes' numbers; if it
    reads features there, they are found beside the tables.

    Args:
        bare: the graph without features of nodes.

    Raises:
        ModelError: as :func:`find_width`, or a table is of a named node type.
    """
    both = {"x", "node_id"} <= set(subject.roles.values())
    if subject.tables and width is None and not both and not bare.categories:
        alone = with_tables(bare, subject.tables)
        try:
            subject.fresh().record(random_graph(alone, _TRIED, seed=0))
        except NumbersReadAsFeatures:
            width = find_width(subject, None, init, bare)
        except ModelError:
            return alone
        else:
            return alone
    else:
        width = find_width(subject, width, init, bare)
    return with_tables(replace(bare, nodes={"": width}), subject.tables)


def find_weighted(subject: Subject, types: GraphTypes) -> GraphTypes:
    """The graph without weights of relations whose convolutions take none.

    PyG's HeteroConv passes each relation's weight on to its convolution; of the relations that may
    have weights, those have none whose convolution fails with one.
    """

    def fails(weighted: frozenset[str] | None) -> bool:
        graph = random_graph(replace(types, weighted=weighted), _TRIED, seed=0)
        try:
            subject.fresh().record(graph)
        except ModelError as error:
            return any(text in str(error) for text in _NOT_TAKEN)
        return False

    passed = "edge_weight" in subject.roles.values()
    if not (subject.by_type and passed and fails(types.weighted)):
        return types
    some = filter(types.weighs, types.relations)
    return replace(types, weighted=frozenset(name for name in some if not fails(frozenset({name}))))


_NOT_TAKEN = ("got an unexpected keyword argument", "is given size, which is not known")
"""How a convolution without weights fails that is given some."""


def find_width(
    subject: Subject, stated: int | None, init: Mapping[str, Any], bare: GraphTypes
) -> int:
    """Columns of the features: as given, or the first that the module's own sizes allow.

    Args:
        bare: the graph without features of nodes.

    Raises:
        ModelError: ``forward`` fails with each of them.
    """
    problem: ModelError | None = None
    beside = [table.columns for table in subject.tables.get("", ())]
    least = max(bare.categories.get("", {}), default=-1) + 1
    sizes = (
        [stated] if stated else [*_categorical(bare), *_candidates(subject.module, init, beside)]
    )
    if stated and stated < least:
        raise ModelError(
            f"column {least - 1} is declared to have categories, but the features have {stated}"
            f" columns, 0 to {stated - 1}"
        )
    tried = [size for size in dict.fromkeys(sizes) if size >= least]
    for width in tried:
        try:
            types = with_tables(replace(bare, nodes={"": width}), subject.tables)
            subject.fresh().record(random_graph(types, _TRIED, seed=0))
        except ModelError as error:
            if error.__cause__ is None:
                return width  # It is no matter of sizes.
            problem = problem or error
        else:
            return width
    if problem is not None:
        if stated is None and isinstance(problem.__cause__, RuntimeError):
            columns = ", ".join(map(str, tried))
            more = f"tried with features of {columns} columns; --width gives another number"
            raise ModelError(f"{problem} ({more})") from problem.__cause__
        raise problem
    raise ModelError(
        f"nothing in {type(subject.module).__name__} tells the columns of the features; give them"
        " with --width"
    )


def _categorical(bare: GraphTypes) -> list[int]:
    """The columns up to the last one of categories, where these may be all."""
    columns = bare.categories.get("", {})
    return [len(columns)] if columns and max(columns) + 1 == len(columns) else []


def _candidates(module: nn.Module, init: Mapping[str, Any], beside: Sequence[int]) -> Iterator[int]:
    """Sizes of inputs, the likeliest first.

    Args:
        beside: columns of each table, which an input may have beside the features.
    """
    sizes = [value for name, value in init.items() if "in" in name and _is_size(value)]
    for part in module.modules():
        for name in _WIDTHS:
            value: Any = getattr(part, name, None)
            value = value[0] if isinstance(value, tuple) and value else value
            if _is_size(value):
                sizes.append(value)
    for size in sizes:
        yield size
        yield from (size - less for less in (sum(beside), *beside) if 0 < less < size)
    yield from beside


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
