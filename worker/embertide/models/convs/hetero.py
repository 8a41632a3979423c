"""HeteroConv and HeteroGraphConv: a convolution for each relation, results joined by type.

    out_i = join over relations r into the type of i of conv_r(x)_i

Node types that several relations lead to have one result [N, width].
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, SerializeAsAny, field_validator
from torch import Tensor

from embertide.models.after import parts_after
from embertide.models.builder import ProgramBuilder
from embertide.models.ends import Ends
from embertide.models.layer import Layer, Library, Problems
from embertide.models.layer_reading import read_layer
from embertide.models.node_types import NodeTypes, Relations
from embertide.models.registry import LAYERS, convolution
from embertide.models.typed_layer import SeveralTypes, Tensors, parse_relation
from embertide.models.weights import Scope, Weights
from embertide.spec.base import raise_problems
from embertide.spec.problems import Loc
from embertide.spec.relations import Relation

_OUTSIDE = ("batch_norm", "layer_norm", "graph_norm", "skip")
"""What follows all relations' results, never in the convolution of one."""


Join = Literal["sum", "mean", "min", "max", "cat"]


class Hetero(SeveralTypes):
    """A separate convolution for each relation; results of one destination type are joined."""

    library: ClassVar[Library]
    conv: Literal["hetero"] = Field(description="a convolution for each relation")
    convs: dict[str, SerializeAsAny[Layer]] = Field(
        default={},
        description="relation -> its convolution, a layer of one node type without norm and skip",
    )
    each: SerializeAsAny[Layer] | None = Field(
        default=None,
        description="the convolution of every relation of `relations` that `convs` has not, each"
        " with separate weights",
    )
    bias: Literal[True] = Field(default=True, description="its convolutions say it themselves")

    @field_validator("convs", mode="plain")
    @classmethod
    def _read_convs(cls, value: Any) -> dict[str, Layer]:
        if not isinstance(value, dict):
            raise ValueError(f"is {value!r}; must be a mapping: relation -> its convolution")
        problems: list[tuple[Loc, str]] = []
        found = {}
        for name, given in value.items():
            try:
                parse_relation(name)
            except ValueError as error:
                problems.append(((str(name),), str(error)))
                continue
            found[name] = cls._read_one(given, (name,), problems)
        raise_problems(problems)
        return {name: layer for name, layer in found.items() if layer is not None}

    @field_validator("each", mode="plain")
    @classmethod
    def _read_each(cls, value: Any) -> Layer | None:
        if value is None:
            return None
        problems: list[tuple[Loc, str]] = []
        layer = cls._read_one(value, (), problems)
        raise_problems(problems)
        return layer

    @classmethod
    def _read_one(cls, value: Any, place: Loc, problems: list[tuple[Loc, str]]) -> Layer | None:
        if isinstance(value, Layer):
            return value
        kinds = {name: kind for name, kind in LAYERS[cls.library].items() if kind.reads_edges}
        layer = read_layer(cls.library, kinds, value, place, problems)
        problems += [
            ((*place, name), "follows all relations' results: set it at the layer itself")
            for name in _OUTSIDE
            if layer is not None and getattr(layer, name) is not None
        ]
        return layer

    def conflicts(self) -> Problems:
        """It has to say some convolution."""
        if self.convs or self.each is not None:
            return []
        return [(("convs",), "is required: relation -> its convolution; or each, for all")]

    def over(self, listed: Relations) -> Relations:
        """Those of ``convs``, or all."""
        if self.each is not None:
            return listed
        return tuple(map(parse_relation, self.convs))

    def demands_weights(self, relation: str) -> bool:
        """As the relation's convolution does."""
        return self.conv_of(parse_relation(relation)).demands_weights(relation)

    def conv_of(self, relation: Relation) -> Layer:
        """The convolution of a relation."""
        given = self.convs.get(str(relation), self.each)
        assert given is not None
        return given

    def wants(self, relation: Relation) -> list[str]:
        """Both ends, or the source alone where the convolution does without the target."""
        both = super().wants(relation)
        return both[:1] if self.conv_of(relation).target_optional else both

    def misfits(self, listed: Relations) -> Problems:
        """Unknown relations, and convolutions that cannot lead from one type to another."""
        problems: Problems = []
        known = [str(relation) for relation in listed]
        for name in self.convs:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
                hint = f" (did you mean {near[0]}?)" if near else ""
                problems.append(
                    (("convs", name), f"is no relation of {', '.join(known)}{hint}; add it there")
                )
        for relation in self.over(listed):
            if str(relation) in known and not relation.within:
                place = ("convs", str(relation)) if str(relation) in self.convs else ("each",)
                problems += [
                    ((*place, *field), why)
                    for field, why in _between(self.conv_of(relation), relation)
                ]
        return list(dict.fromkeys(problems))

    def stores_parameters(self) -> bool:
        """Whether any of its convolutions does."""
        convs = [*self.convs.values(), *filter(None, [self.each])]
        return any(conv.stores_parameters() for conv in convs)

    def known_by(self) -> tuple[str, ...]:
        """The modules of relations."""
        return tuple(f"{container}.<relation>" for container in self.containers)

    def found_in(self, names: Mapping[str, Tensor]) -> set[str]:
        """The prefixes below which modules for relations are stored."""
        found = set()
        for name in names:
            for container in self.containers:
                # A list of layers may have the same name: convs.0.convs.<relation>.
                before, dot, after = f".{name}".rpartition(f".{container}.")
                if dot and not after.partition(".")[0].isdigit():
                    found.add(before.removeprefix("."))
        return found

    containers: ClassVar[tuple[str, ...]]
    """What the library's module calls the modules of its relations."""

    def keys(self, relation: Relation) -> list[str]:
        """The names below the layer's prefix that the module of a relation may have."""
        raise NotImplementedError


def _between(conv: Layer, relation: Relation) -> Problems:
    """Why a convolution cannot lead from one node type to another."""
    if not conv.between_types:
        return [(("conv",), f"{conv.conv} needs both ends of one node type, unlike {relation}")]
    if getattr(conv, "add_self_loops", False):
        return [
            (
                ("add_self_loops",),
                f"must be false: {relation} leads from one node type to another, where there are"
                " no self-loops",
            )
        ]
    return []


@convolution("pyg")
class PygHetero(Hetero):
    """A separate convolution for each relation; results of one destination type are joined."""

    library = "pyg"
    containers = ("convs",)
    module = "torch_geometric.nn.HeteroConv, torch_geometric.nn.to_hetero"
    aggr: Literal["sum", "mean", "min", "max", "cat"] = Field(
        default="sum", description="how the results of several relations become one"
    )

    def keys(self, relation: Relation) -> list[str]:
        """HeteroConv's own, those of older versions, and those that `to_hetero` makes."""
        ends = (relation.source, relation.name, relation.destination)
        new, old = f"<{'___'.join(ends)}>".replace(".", "#"), "__".join(ends)
        return [f"convs.{new}", f"convs.{old}", new, old]

    def steps_by_type(self, b: ProgramBuilder, s: Scope, x: Tensors, types: NodeTypes) -> Tensors:
        """HeteroConv, and what ``to_hetero`` makes of a convolution."""
        return {
            name: joined(b, s, name, parts, self.aggr)
            for name, parts in _by_type(b, s, self, x, types).items()
        }


@convolution("dgl")
class DglHetero(Hetero):
    """A separate convolution for each relation; results of one destination type are joined."""

    library = "dgl"
    containers = ("mods",)
    module = "dgl.nn.HeteroGraphConv"
    refused: ClassVar[dict[str, dict[str, str]]] = {
        "aggregate": {"stack": "what follows takes one row of numbers for each node"}
    }
    aggregate: Literal["sum", "mean", "min", "max"] = Field(
        default="sum", description="how the results of several relations become one"
    )

    def keys(self, relation: Relation) -> list[str]:
        """By the edge type's name, or by all three."""
        ends = (relation.source, relation.name, relation.destination)
        return [f"mods.{ends}", f"mods.{relation.name}"]

    def steps_by_type(self, b: ProgramBuilder, s: Scope, x: Tensors, types: NodeTypes) -> Tensors:
        """HeteroGraphConv."""
        return {
            name: joined(b, s, name, parts, self.aggregate)
            for name, parts in _by_type(b, s, self, x, types).items()
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
    """A convolution over the edges of a relation, and the parts after it; the result's name.

    The builder has to be ``over`` the relation.
    """
    ends = Ends(x[relation.source], x.get(relation.destination, ""))
    s.expect("in", b.widths[ends.source])
    s.expect(ends.own, b.widths.get(ends.target, 0))
    made = conv.steps(b, s, ends)
    if ends.target:
        b.learn(ends.target, s.size(ends.own))
    b.learn(ends.source, s.size("in"))
    return parts_after(b, s, conv, made)


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
