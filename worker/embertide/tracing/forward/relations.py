"""Modules that have a part for each relation, compared with the relations of the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from torch import nn

from embertide.spec.relations import Relation
from embertide.tracing.forward.replacements import key_of
from embertide.tracing.record.graphs import GraphTypes
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.user_code import here, refuse

_RELATIONS: dict[tuple[str, str], Callable[[Any], Iterable[Any]]] = {
    ("torch_geometric", "HeteroConv"): lambda m: m.convs.keys(),
    ("torch_geometric", "HGTConv"): lambda m: m.edge_types,
    ("torch_geometric", "HANConv"): lambda m: m.metadata[1],
    ("dgl", "HeteroGraphConv"): lambda m: m.mod_dict,
}
"""By package and class: its relations, as triples or as edge types alone."""


def watch_relations(recording: Recording, module: nn.Module) -> list[Any]:
    """Check a module's relations whenever it is called; returns what removes the hooks again."""

    def check(part: nn.Module, _args: Any) -> None:
        check_relations(recording.types, part)

    if key_of(module) not in _RELATIONS:
        return []
    return [module.register_forward_pre_hook(check)]


def in_order(types: GraphTypes, module: nn.Module) -> GraphTypes:
    """The graph with its relations in the order of the module's, which HGTConv relies on."""
    known = [
        str(Relation(*triple))
        for part in module.modules()
        if key_of(part) == ("torch_geometric", "HGTConv")
        for triple in _RELATIONS[key_of(part)](part)
    ]
    first = [relation for relation in dict.fromkeys(known) if relation in types.relations]
    return replace(types, relations=tuple(dict.fromkeys((*first, *types.relations))))


def check_relations(types: GraphTypes, module: nn.Module) -> None:
    """Refuse a module with a relation that the graph has not, which it would pass over in silence.

    Raises:
        ModelError: names the relations of both.
    """
    kind = type(module).__name__
    triples = [types.triple(relation) for relation in types.relations]
    names = [name for _, name, _ in triples]
    wanted = [
        tuple(relation) if isinstance(relation, list) else relation
        for relation in _RELATIONS[key_of(module)](module)
    ]
    for relation in wanted:
        if relation not in (triples if isinstance(relation, tuple) else names):
            raise refuse(
                here(),
                f"{kind} has a module for {_shown(relation)}, which is not among the graph's"
                f" relations: {', '.join(map(_shown, triples))}; name the relations of the graph as"
                " the module does",
            )
    if kind == "HeteroGraphConv":
        for triple in triples:
            if triple not in wanted and triple[1] not in wanted:
                raise refuse(
                    here(),
                    f"{kind} has no module for the relation {_shown(triple)} of the graph; leave"
                    " the relation out of --graph",
                )


def _shown(relation: Any) -> str:
    return ":".join(relation) if isinstance(relation, tuple) else str(relation)
