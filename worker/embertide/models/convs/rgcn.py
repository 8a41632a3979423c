"""RGCN (Schlichtkrull et al., 2018, eq. 2), for both libraries: a sum over relations.

    out_i = W_0 x_i + sum over r of reduce over edges j -> i of r of W_r x_j + b

x and out by node type, [N, in] and [N, out].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.aggregation import LINEAR, aggregate
from embertide.models.convs.shared.relation_weights import RelationWeights, relational
from embertide.models.known_modules import KnownModule
from embertide.models.layer import Problems
from embertide.models.node_types import NodeTypes, Relations
from embertide.models.registry import convolution
from embertide.models.typed_layer import SeveralTypes, Tensors
from embertide.models.weights import Scope
from embertide.spec.relations import Relation


class Relational(SeveralTypes):
    """A sum over all relations, each with its own weight, and the node itself."""

    conv: Literal["rgcn"] = Field(description="relational graph convolution")

    @property
    def rooted(self) -> bool:
        """Whether the node itself counts."""
        raise NotImplementedError

    def wants(self, relation: Relation) -> list[str]:
        """The target counts as the node itself alone."""
        both = super().wants(relation)
        return both if self.rooted else both[:1]

    def makes(self, listed: Relations, have: set[str]) -> set[str]:
        """Where the node itself counts, of every type."""
        return super().makes(listed, have) | (have if self.rooted else set())


@convolution("pyg", module=KnownModule(read={"root_weight": lambda m: m.root is not None}))
class PygRgcn(Relational):
    """A sum over all relations, each with its own weight, and the node itself.

    Weights are numbered in the order of `relations`; of a basis or block decomposition the
    weights themselves show the number.
    """

    marks = ("weight [relations, in, out]",)
    module = "torch_geometric.nn.RGCNConv, torch_geometric.nn.FastRGCNConv"
    aggr: Literal["mean", "add", "sum", "max", "min", "var"] = Field(
        default="mean", description="how the neighbours of one relation are joined; `add` is `sum`"
    )
    root_weight: bool = Field(default=True, description="adds the node itself (root)")

    def found_in(self, names: Mapping[str, Tensor]) -> set[str]:
        """By its weight, a stack of matrices or of blocks."""
        found = {name for name, tensor in names.items() if tensor.dim() in (3, 4)}
        return {
            name.removesuffix("weight").removesuffix(".")
            for name in found
            if name == "weight" or name.endswith(".weight")
        }

    @property
    def rooted(self) -> bool:
        """By its ``root``."""
        return self.root_weight

    def steps_by_type(self, b: ProgramBuilder, s: Scope, x: Tensors, types: NodeTypes) -> Tensors:
        """RGCNConv; FastRGCNConv is the same function."""
        _learn_widths(b, s, x, types)
        relations = len(types.relations)
        if s.has("comp"):
            weights = _of_bases(s, "comp", "weight", relations)
        elif s.dims("weight") == 4:
            blocks = s.raw("weight", relations, "blocks", "block in", "block out")
            s.bind("in", "blocks", "block in")
            s.bind("out", "blocks", "block out")
            weights = None if blocks is None else RelationWeights(blocks=blocks)
        else:
            full = s.raw("weight", relations, "in", "out")
            weights = None if full is None else RelationWeights(full=full)
        root = s.take("root", "in", "out", turned=True) if self.root_weight else None
        bias = s.take("bias", "out") if self.bias else None
        made = relational(
            b,
            s,
            x,
            types,
            weights,
            lambda h: aggregate(b, h, self.aggr),
            linear=self.aggr in LINEAR,
        )
        _tell_widths(b, s, x)
        return {
            name: _with_node(b, s, name, parts, x.get(name, ""), root, bias)
            for name, parts in _every_type(made, x, every=self.root_weight or types.every).items()
        }


@convolution(
    "dgl",
    module=KnownModule(
        bias="",
        read={
            "bias": lambda m: bool(m.bias),
            "regularizer": lambda m: m.linear_r.regularizer,
            "num_bases": lambda m: (
                m.linear_r.num_bases if m.linear_r.regularizer == "bdd" else None
            ),
            "norm_inside": lambda m: bool(m.layer_norm),
        },
        weight="norm",
    ),
)
class DglRgcn(Relational):
    """A sum over all relations, each with its own weight, and the node itself.

    Weights are numbered in the order of `relations`.
    """

    weighted = False
    marks = ("linear_r.W",)
    module = "dgl.nn.RelGraphConv"
    regularizer: Literal["basis", "bdd"] | None = Field(
        default=None,
        description="decomposition of the weights: sums of bases, or blocks on the diagonal",
    )
    num_bases: int | None = Field(
        default=None, ge=1, description="of `bdd` the number of blocks, which no weights show"
    )
    self_loop: bool = Field(default=True, description="adds the node itself (loop_weight)")
    norm_inside: bool = Field(
        default=False,
        description="the module was made with layer_norm=True: a norm before bias and node",
    )
    norm: Literal["none", "relation", "all"] = Field(
        default="none",
        description="what the forward was given as `norm`: nothing; one over the in-degree within"
        " the edge's relation (means); one over that of all relations, as dgl.norm_by_dst gives it",
    )

    @property
    def rooted(self) -> bool:
        """By its ``loop_weight``."""
        return self.self_loop

    def conflicts(self) -> Problems:
        """Blocks are counted, and nothing else is; edge weights are the `norm` of the forward."""
        if self.uses_edge_weight and self.norm != "none":
            return [(("edge_weight",), f"must be false beside norm: {self.norm}")]
        blocks = self.regularizer == "bdd"
        if blocks and self.num_bases is None:
            return [(("num_bases",), "is required with regularizer: bdd")]
        if not blocks and self.num_bases is not None:
            return [(("num_bases",), "is read from the weights; remove it")]
        return []

    def steps_by_type(self, b: ProgramBuilder, s: Scope, x: Tensors, types: NodeTypes) -> Tensors:
        """RelGraphConv: the norm comes before the bias, and both before the node itself."""
        _learn_widths(b, s, x, types)
        root = s.take("loop_weight", "in", "out", turned=True) if self.self_loop else None
        bias = s.take("h_bias", "out") if self.bias else None
        weights = _dgl_weights(s, self, len(types.relations))
        aggr, weighted = ("mean" if self.norm == "relation" else "sum"), self.uses_edge_weight
        made = relational(
            b, s, x, types, weights, lambda h: aggregate(b, h, aggr, edge_weight=weighted)
        )
        _tell_widths(b, s, x)
        found = {}
        for name, parts in _every_type(made, x, every=self.self_loop or types.every).items():
            into = [one for one in types.relations if one.destination == name]
            total = _sum(b, name, parts)
            if self.norm == "all" and into:
                total = _over_all_degrees(b, name, total, into)
            with b.of_type(name):
                found[name] = _finish_dgl(b, s, self, total, x.get(name, ""), root, bias)
        return found


def _of_bases(s: Scope, shares: str, bases: str, relations: int) -> RelationWeights | None:
    """Bases, and each relation's share of them."""
    found = s.raw(shares, relations, "bases")
    full = s.raw(bases, "bases", "in", "out")
    return None if found is None or full is None else RelationWeights(full=full, shares=found)


def _learn_widths(b: ProgramBuilder, s: Scope, x: Tensors, types: NodeTypes) -> None:
    """All node types have the same columns."""
    for name in dict.fromkeys(x[one.source] for one in types.relations):
        if b.widths[name]:
            s.agree("in", b.widths[name])


def _tell_widths(b: ProgramBuilder, s: Scope, x: Tensors) -> None:
    """What the weights say of the inputs' columns."""
    for name in x.values():
        b.learn(name, s.size("in"))


def _every_type(made: dict[str, list[str]], x: Tensors, *, every: bool) -> dict[str, list[str]]:
    """The same with node types to which no relation leads, if ``every`` type has a result."""
    return {**({name: [] for name in x} if every else {}), **made}


def _with_node(
    b: ProgramBuilder,
    s: Scope,
    node_type: str,
    parts: list[str],
    x: str,
    root: str | None,
    bias: str | None,
) -> str:
    """The sum of the relations' results, the node itself through ``root``, and the bias."""
    with b.of_type(node_type):
        if root is not None:
            parts = [*parts, b.linear(x, root, s.size("out"), bias)]
        parts = parts or [_zeros(b, s, x)]
        total = parts[0] if len(parts) == 1 else b.elementwise(tuple(parts), "sum")
        return total if root is not None or bias is None else b.affine(total, None, bias)


def _sum(b: ProgramBuilder, node_type: str, parts: list[str]) -> str:
    """The sum of all parts; "" where there are none."""
    if len(parts) < 2:
        return "".join(parts)
    with b.of_type(node_type):
        return b.elementwise(tuple(parts), "sum")


def _dgl_weights(s: Scope, o: DglRgcn, relations: int) -> RelationWeights | None:
    """Those of its TypedLinear."""
    if o.regularizer == "basis":
        return _of_bases(s, "linear_r.coeff", "linear_r.W", relations)
    if o.regularizer is None:
        full = s.raw("linear_r.W", relations, "in", "out")
        return None if full is None else RelationWeights(full=full)
    flat, count = s.raw("linear_r.W", relations, "values"), o.num_bases or 1
    if flat is None:
        return None
    width = s.size("in") or s.size("values") * count // max(1, s.size("out"))
    if width % count or flat.shape[1] % max(1, width):
        expected = f"{count} blocks of {width} columns  ({s.label})"
        s.weights.differ(s.name("linear_r.W"), expected, f"{flat.shape[1]} values")
        return None
    s.agree("in", width)
    s.agree("out", flat.shape[1] * count // width)
    return RelationWeights(blocks=flat.reshape(relations, count, width // count, -1))


def _over_all_degrees(
    b: ProgramBuilder, node_type: str, total: str, into: Sequence[Relation]
) -> str:
    """Divided by the number of in-edges of all relations."""
    degrees = []
    for relation in into:
        with b.over(relation):
            degrees.append(b.degree())
    with b.of_type(node_type):
        degree = _sum(b, node_type, degrees)
        lines = ("a = clamp(x1, 1.0)", "out = div(x0, a)")
        return b.row_wise((total, degree), lines, (), b.widths[total])


def _zeros(b: ProgramBuilder, s: Scope, x: str) -> str:
    """[N, out] the sum over relations of a node type to which none leads."""
    zero = s.put(s.name("nothing"), torch.zeros(s.size("out"), s.size("in")))
    return b.linear(x, zero, s.size("out"))


def _finish_dgl(
    b: ProgramBuilder, s: Scope, o: DglRgcn, total: str, x: str, root: str | None, bias: str | None
) -> str:
    """Norm, bias and the node itself; a type to which no relation leads has a sum of zeros."""
    columns = s.size("out")
    if not total:
        total = _zeros(b, s, x)
    if o.norm_inside:
        scale, shift = (s.take(f"layer_norm_weight.{name}", "out") for name in ("weight", "bias"))
        total = b.layer_norm(total, scale, shift, 1e-5)
    if root is None:
        return total if bias is None else b.affine(total, None, bias)
    return b.combine(b.linear(x, root, columns, bias), total)
