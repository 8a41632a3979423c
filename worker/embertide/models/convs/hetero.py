"""HeteroConv and HeteroGraphConv: a convolution for each relation, results joined by type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from embertide.models.after import parts_behind
from embertide.models.builder import ProgramBuilder
from embertide.models.convs.ends import Ends
from embertide.models.convs.kinds import BETWEEN_TYPES, CONVS
from embertide.models.node_types import NodeTypes
from embertide.models.options.hetero import DglHetero, Hetero, PygHetero
from embertide.models.options.layer import Layer
from embertide.models.weights import Scope, Weights
from embertide.spec.relations import Relation

Tensors = dict[str, str]
"""Node type -> tensor."""
Join = Literal["sum", "mean", "min", "max", "cat"]


def pyg_hetero(b: ProgramBuilder, s: Scope, o: PygHetero, x: Tensors, types: NodeTypes) -> Tensors:
    """HeteroConv, and what ``to_hetero`` makes of a convolution."""
    return {
        name: joined(b, s, name, parts, o.aggr)
        for name, parts in _by_type(b, s, o, x, types).items()
    }


def dgl_hetero(b: ProgramBuilder, s: Scope, o: DglHetero, x: Tensors, types: NodeTypes) -> Tensors:
    """HeteroGraphConv."""
    return {
        name: joined(b, s, name, parts, o.aggregate)
        for name, parts in _by_type(b, s, o, x, types).items()
    }


def _by_type(
    b: ProgramBuilder, s: Scope, o: Hetero, x: Tensors, types: NodeTypes
) -> dict[str, list[str]]:
    """Destination type -> the results of its relations, in order."""
    found: dict[str, list[str]] = {}
    for relation in o.over(types.relations):
        with b.over(relation):
            conv = o.conv_of(relation)
            made = convolve(b, _scope(s, o, relation, conv), conv, relation, x)
        found.setdefault(relation.destination, []).append(made)
    return found


def convolve(b: ProgramBuilder, s: Scope, conv: Layer, relation: Relation, x: Tensors) -> str:
    """A convolution over the edges of a relation, and the parts behind it; the result's name.

    The builder has to be ``over`` the relation.
    """
    ends = Ends(x[relation.source], x.get(relation.destination, ""))
    s.expect("in", b.widths[ends.source])
    if ends.within:
        made = CONVS[type(conv)](b, s, conv, ends.source)
    else:
        s.expect("own", b.widths.get(ends.target, 0))
        made = BETWEEN_TYPES[type(conv)](b, s, conv, ends)
        if ends.target:
            b.learn(ends.target, s.size("own"))
    b.learn(ends.source, s.size("in"))
    return parts_behind(b, s, conv, made)


def _scope(s: Scope, o: Hetero, relation: Relation, conv: Layer) -> Scope:
    """The parameters of a relation's module; a scope of none where it is not stored."""
    label = f"{s.label}, {conv.conv} of {relation}"
    if conv.prefix is not None:
        return Scope(s.weights, conv.prefix, label, {})
    keys = o.keys(relation)
    for key in keys:
        if any(name.startswith(s.name(f"{key}.")) for name in s.weights.found):
            return Scope(s.weights, s.name(key), label, {})
    if not conv.stores_parameters():
        return Scope(s.weights, s.name(keys[0]), label, {})
    s.weights.differ(s.name(keys[0]), f"a module  ({label})", "missing")
    return Scope(Weights({}, s.weights.source), s.name(keys[0]), label, {})


def joined(b: ProgramBuilder, s: Scope, node_type: str, parts: Sequence[str], how: Join) -> str:
    """The results of several relations that lead to one type; a single one is taken as it is."""
    if len(parts) == 1:
        return parts[0]
    with b.of_type(node_type):
        if how == "cat":
            return b.concat(tuple(parts))
        widths = [b.widths[name] for name in parts]
        if all(widths) and len(set(widths)) > 1:
            expected = f"results of equal widths for {node_type}  ({s.label})"
            s.weights.differ(f"({how})", expected, ", ".join(map(str, widths)))
        return b.elementwise(tuple(parts), how)
