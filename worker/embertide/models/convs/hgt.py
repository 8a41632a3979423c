"""Heterogeneous graph transformers (Hu et al., 2020, section 3), for both libraries.

    score_ij = (K_r k_j) . q_i * prior_r / sqrt(D),  out_i = sum over all edges of a_ij V_r v_j

One softmax goes over the in-edges of all relations into a node type; x and out by node type,
[N, in] and [N, H*D]. The matrices of a relation are applied at the target (`relation_heads`), so
that keys and values of a source type travel once for all relations that leave it. Where a single
relation leaves a type and parameters are float64, its matrices are multiplied into the weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.relation_heads import Along, attend_relations
from embertide.models.known_modules import KnownModule
from embertide.models.node_types import NodeTypes, Relations
from embertide.models.registry import convolution
from embertide.models.typed_layer import SeveralTypes, Tensors
from embertide.models.weights import Scope
from embertide.spec.relations import Relation

Linear = tuple[Tensor, Tensor | None]
"""A weight [H*D, in], and a bias [H*D]."""
Kind = Literal["key", "query", "value"]
KINDS: tuple[Kind, ...] = ("key", "query", "value")
Matrices = tuple[Tensor, Tensor, Tensor]
"""K_r [H, D, D], V_r [H, D, D] and prior_r [H, 1] of a relation."""


@convolution("pyg", module=KnownModule(bias=""))
class PygHgt(SeveralTypes):
    """Attention with one softmax over the edges of all relations, and weights by node type.

    It needs the features of all node types that `relations` name.
    """

    marks = ("k_rel.weight",)
    module = "torch_geometric.nn.HGTConv"
    conv: Literal["hgt"] = Field(description="heterogeneous graph transformer")
    bias: Literal[True] = Field(default=True, description="the module has them")

    def steps_by_type(self, b: ProgramBuilder, s: Scope, x: Tensors, types: NodeTypes) -> Tensors:
        """HGTConv: gelu, a Linear for each type, and a gate where the input has the same width."""
        for relation in types.relations:
            s.raw(f"p_rel.{_joined(relation)}", 1, "heads")
        linears = {name: _pyg_linears(b, s, name, rows) for name, rows in x.items()}
        total = _Attention(b, s, x, types, linears, _pyg_matrices(s, types)).steps()
        for name in types.names:
            for short in (f"out_lin.lins.{name}.{part}" for part in ("weight", "bias")):
                s.pass_over(short)
            s.pass_over(f"skip.{name}")
        return {name: _finish_pyg(b, s, name, h, x[name]) for name, h in total.items()}


@convolution("dgl", module=KnownModule(bias=""))
class DglHgt(SeveralTypes):
    """Attention with one softmax over the edges of all relations, and weights by node type.

    Weights are numbered in the order of `types` and of `relations`.
    """

    marks = ("linear_a.W",)
    module = "dgl.nn.HGTConv"
    conv: Literal["hgt"] = Field(description="heterogeneous graph transformer")
    bias: Literal[False] = Field(default=False, description="the module has none")
    use_norm: bool = Field(default=False, description="a layer norm in the module (norm)")

    def makes(self, listed: Relations, have: set[str]) -> set[str]:
        """Every type, by its gate."""
        return super().makes(listed, have) | have

    def steps_by_type(self, b: ProgramBuilder, s: Scope, x: Tensors, types: NodeTypes) -> Tensors:
        """HGTConv: a Linear for each type, a gate with the input, and a norm; of every type."""
        for rows in x.values():
            s.expect("in", b.widths[rows])
        heads = _count(s, "relation_pri")
        stacks = [s.raw(f"linear_{kind[0]}.W", len(types.names), "in", "columns") for kind in KINDS]
        for rows in x.values():
            b.learn(rows, s.size("in"))
        s.sizes |= {"heads": heads, "width": s.size("columns") // max(1, heads)}
        linears = _dgl_linears(stacks, types, x)
        total = _Attention(b, s, x, types, linears, _dgl_matrices(s, heads, types)).steps()
        return _finish_dgl(b, s, self, total, x, types)


@dataclass(frozen=True)
class _Attention:
    """What the steps of the attention are written from.

    Attributes:
        linears: node type -> those of its keys, queries and values; none where some are missing.
        matrices: of the relations whose parameters are all there.
    """

    b: ProgramBuilder
    s: Scope
    x: Tensors
    types: NodeTypes
    linears: dict[str, dict[Kind, Linear]]
    matrices: dict[Relation, Matrices]

    def steps(self) -> Tensors:
        """Destination type -> [N, H*D] the weighed sums of the values of all its in-edges."""
        relations, total = self.types.relations, {}
        leaving = Counter(relation.source for relation in relations)
        shared = {
            name: (self.rows(name, "key"), self.rows(name, "value"))
            for name, count in leaving.items()
            if count > 1 or not self.folds
        }
        for name in dict.fromkeys(relation.destination for relation in relations):
            query, into = self.rows(name, "query"), self.types.into(name)
            parts = [self.along(relation, shared.get(relation.source)) for relation in into]
            heads = self.s.size("heads"), self.s.size("width")
            with self.b.of_type(name):
                total[name] = attend_relations(
                    self.b, query, parts, heads, max(1, heads[1]) ** -0.5
                )
        return total

    @property
    def folds(self) -> bool:
        """Whether a product of weights is rounded to no less than their own digits."""
        return self.s.weights.dtype == torch.float64

    def rows(self, name: str, kind: Kind) -> str:
        """[N, H*D] keys, queries or values of a node type; its input where weights are missing."""
        linear = self.linears[name].get(kind)
        return self.x[name] if linear is None else self.linear(name, f"{kind}.{name}", *linear)

    def linear(self, name: str, short: str, weight: Tensor, bias: Tensor | None) -> str:
        """A type's rows through a Linear that is made of stored ones."""
        s = self.s
        shift = None if bias is None else s.put(s.name(f"{short}.bias"), bias)
        with self.b.of_type(name):
            return self.b.linear(self.x[name], s.put(s.name(short), weight), len(weight), shift)

    def along(self, relation: Relation, shared: tuple[str, str] | None) -> Along:
        """A relation's keys and values: those of its source type, or folded with its matrices."""
        matrices, linears = self.matrices.get(relation), self.linears[relation.source]
        if shared is None and (matrices is None or not linears):
            shared = self.x[relation.source], self.x[relation.source]
        if shared is not None:
            names = [self.s.name(f"{kind}.{relation}") for kind in ("att", "msg", "prior")]
            for name, matrix in zip(names, matrices or (), strict=False):
                self.s.put(name, matrix)
            return Along(relation, *shared, (names[0], names[1], names[2]))
        assert matrices is not None
        of_key, of_value, prior = (matrix.double() for matrix in matrices)
        of_key = of_key * prior.unsqueeze(-1) * self.s.size("width") ** -0.5
        folded = _through(linears["key"], of_key), _through(linears["value"], of_value)
        key, value = (
            self.linear(relation.source, f"{kind}.{relation}", *linear)
            for kind, linear in zip(("key", "value"), folded, strict=True)
        )
        return Along(relation, key, value, None)


def _through(linear: Linear, matrix: Tensor) -> Linear:
    """A Linear followed by the matrices [H, D, D] of all heads."""
    (weight, bias), whole = linear, torch.block_diag(*matrix)
    return whole.t() @ weight.double(), None if bias is None else bias.double() @ whole


def _joined(relation: Relation) -> str:
    return "__".join((relation.source, relation.name, relation.destination))


def _pyg_linears(b: ProgramBuilder, s: Scope, name: str, rows: str) -> dict[Kind, Linear]:
    """Keys, queries and values of the Linear that makes all three."""
    inner = Scope(s.weights, s.name(f"kqv_lin.lins.{name}"), s.label, {})
    inner.expect("in", b.widths[rows])
    weight, bias = inner.raw("weight", "three", "in"), inner.raw("bias", "three")
    b.learn(rows, inner.size("in"))
    if weight is None or bias is None:
        return {}
    columns = len(weight) // 3
    s.agree("columns", columns)
    s.agree("width", columns // max(1, s.size("heads")))
    parts = zip(weight.chunk(3), bias.chunk(3), strict=True)
    return dict(zip(KINDS, parts, strict=True))


def _pyg_matrices(s: Scope, types: NodeTypes) -> dict[Relation, Matrices]:
    """Stored head by head, and within a head by relation."""
    heads, width, count = s.size("heads"), s.size("width"), len(types.relations)
    keys, values = (
        s.raw(f"{name}.weight", heads * count or "matrices", width or "width", width or "width")
        for name in ("k_rel", "v_rel")
    )
    priors = [s.raw(f"p_rel.{_joined(relation)}", 1, "heads") for relation in types.relations]
    if keys is None or values is None:
        return {}
    return {
        relation: (keys[number::count], values[number::count], prior.t())
        for number, (relation, prior) in enumerate(zip(types.relations, priors, strict=True))
        if prior is not None
    }


def _finish_pyg(b: ProgramBuilder, s: Scope, node_type: str, h: str, x: str) -> str:
    """gelu, the type's Linear, and the gate."""
    columns = s.size("columns")
    with b.of_type(node_type):
        weight = s.take(f"out_lin.lins.{node_type}.weight", columns or "columns", "columns")
        bias = s.take(f"out_lin.lins.{node_type}.bias", columns or "columns")
        out = b.linear(b.activation(h, "gelu"), weight, columns, bias)
        gate = s.raw(f"skip.{node_type}", 1)
        if gate is None or b.widths[x] != columns:
            return out
        share = float(gate.double().sigmoid())
        return b.combine(out, x, alpha=share, beta=1.0 - share)


def _count(s: Scope, prefix: str) -> int:
    """How many parameters a list of them has."""
    count = 0
    while s.has(f"{prefix}.{count}"):
        count += 1
    if not count:
        s.raw(f"{prefix}.0", "relations")
    return count


def _dgl_linears(
    stacks: Sequence[Tensor | None], types: NodeTypes, x: Tensors
) -> dict[str, dict[Kind, Linear]]:
    """Stored type by type, without biases."""
    whole = [stack for stack in stacks if stack is not None]
    if len(whole) < len(KINDS):
        return {name: {} for name in x}
    return {
        name: {kind: (stack[number].t(), None) for kind, stack in zip(KINDS, whole, strict=True)}
        for number, name in enumerate(types.names)
        if name in x
    }


def _dgl_matrices(s: Scope, heads: int, types: NodeTypes) -> dict[Relation, Matrices]:
    """Stored relation by relation for each head."""
    count, width = len(types.relations), s.size("width") or "width"
    stacks = [
        _stacked([s.raw(f"relation_{kind}.{head}.W", count, width, width) for head in range(heads)])
        for kind in ("att", "msg")
    ]
    stacks.append(_stacked([s.raw(f"relation_pri.{head}", count) for head in range(heads)]))
    keys, values, priors = stacks
    if keys is None or values is None or priors is None:
        return {}
    return {
        relation: (keys[:, number], values[:, number], priors[:, number, None])
        for number, relation in enumerate(types.relations)
    }


def _stacked(of_heads: Sequence[Tensor | None]) -> Tensor | None:
    """[H, R, ...] what every head has; None where one is missing, or there is none."""
    present = [tensor for tensor in of_heads if tensor is not None]
    return torch.stack(present) if present and len(present) == len(of_heads) else None


def _finish_dgl(
    b: ProgramBuilder, s: Scope, o: DglHgt, total: Tensors, x: Tensors, types: NodeTypes
) -> Tensors:
    """What follows the attention; types to which no relation leads have none of it."""
    columns = s.size("columns")
    linear = s.raw("linear_a.W", len(types.names), columns or "columns", "columns")
    gates = s.raw("skip", len(types.names))
    projected = s.size("in") != columns
    residual = s.take("residual_w", "in", "columns", turned=True) if projected else None
    scale = s.take("norm.weight", "columns") if o.use_norm else None
    shift = s.take("norm.bias", "columns") if o.use_norm else None
    out = {}
    for number, name in enumerate(types.names):
        if name not in x:
            continue
        share = 0.5 if gates is None else float(gates[number].double().sigmoid())
        with b.of_type(name):
            own = x[name] if residual is None else b.linear(x[name], residual, columns)
            if name in total:
                weight = s.name(f"linear_a.{name}")
                if linear is not None:
                    s.put(weight, linear[number].t())
                h = b.linear(total[name], weight, columns)
                h = b.combine(h, own, alpha=share, beta=1.0 - share)
            else:
                h = b.row_wise((own,), (f"out = mul(x0, {1.0 - share!r})",), (), columns)
            out[name] = h if scale is None else b.layer_norm(h, scale, shift, 1e-5)
    return out
