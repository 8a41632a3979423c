"""Modules that have a part for each relation, held against the relations of the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from embertide.tracing.recording import Recording
from embertide.tracing.source import here, refuse

RELATIONS_OF: dict[str, Callable[[Any], Iterable[Any]]] = {
    "HeteroConv": lambda m: m.convs.keys(),
    "HGTConv": lambda m: m.edge_types,
    "HeteroGraphConv": lambda m: m.mod_dict,
}
"""By class: its relations, as triples or as edge types alone."""


def check_relations(recording: Recording, module: Any, _args: Any) -> None:
    """Refuse a module with a relation that the graph has not, which it would pass over in silence.

    Raises:
        ModelError: names the relations of both.
    """
    kind = type(module).__name__
    triples = [recording.types.triple(relation) for relation in recording.types.relations]
    names = [name for _, name, _ in triples]
    wanted = [tuple(one) if isinstance(one, list) else one for one in RELATIONS_OF[kind](module)]
    for one in wanted:
        if one not in (triples if isinstance(one, tuple) else names):
            raise refuse(
                here(),
                f"{kind} has a module for {_told(one)}, which is not among the graph's relations:"
                f" {', '.join(map(_told, triples))}; name the relations of the graph as the module"
                " does",
            )
    if kind == "HeteroGraphConv":
        for triple in triples:
            if triple not in wanted and triple[1] not in wanted:
                raise refuse(
                    here(),
                    f"{kind} has no module for the relation {_told(triple)} of the graph; leave the"
                    " relation out of --graph",
                )


def _told(relation: Any) -> str:
    return ":".join(relation) if isinstance(relation, tuple) else str(relation)
