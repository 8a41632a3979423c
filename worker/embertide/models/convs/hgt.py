"""Heterogeneous graph transformers (Hu et al., section 3): one softmax over all relations.

    score_ij = (K_r k_j) . q_i * prior_r / sqrt(D),  out_i = sum over all edges of a_ij V_r v_j

The matrices of a relation are applied at the target: K_r turned to its query, V_r to the sum. So
keys and values of a source type are the same for all relations that leave it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.relation_heads import merged, turned
from embertide.models.node_types import NodeTypes
from embertide.models.registry import convolution
from embertide.models.typed_layer import Relations, SeveralTypes, Tensors
from embertide.models.weights import Scope
from embertide.spec.relations import Relation

Projected = tuple[str, str, str]
"""Keys, queries and values of a node type."""


Names = dict[Relation, tuple[str, str, str]]
"""Relation -> the names of its parameters."""


@dataclass(frozen=True, kw_only=True)
class _Heads:
    """The tensors of all types, ``heads`` times ``width`` columns, and each relation's parameters.

    Attributes:
        query, key, value: node type -> [N, H*D].
        names: relation -> the parameters K_r [H, D, D], V_r [H, D, D], prior_r [H, 1].
    """

    heads: int
    width: int
    query: Tensors
    key: Tensors
    value: Tensors
    names: Names


@convolution("pyg")
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
        made = {}
        for name, rows in x.items():
            with b.of_type(name):
                made[name] = _projected(b, s.at(s.name(f"kqv_lin.lins.{name}")), s, rows)
        names = _pyg_relations(s, types)
        given = _heads(s, made, names)
        found = attend_over_relations(b, types, given)
        for name in types.names:
            for short in (
                f"out_lin.lins.{name}.weight",
                f"out_lin.lins.{name}.bias",
                f"skip.{name}",
            ):
                s.pass_over(short)
        return {name: _finish_pyg(b, s, name, h, x[name]) for name, h in found.items()}


@convolution("dgl")
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
        stacks = [s.raw(f"linear_{one}.W", len(types.names), "in", "columns") for one in "kqv"]
        for rows in x.values():
            b.learn(rows, s.size("in"))
        s.sizes |= {"heads": heads, "width": s.size("columns") // max(1, heads)}
        names = _dgl_relations(s, heads, types)
        made = {}
        for number, name in enumerate(types.names):
            if name not in x:
                continue
            made[name] = x[name], x[name], x[name]
            if None not in stacks:
                weights = [stack[number].t() for stack in stacks if stack is not None]
                with b.of_type(name):
                    key, query, value = (
                        b.linear(x[name], s.put(s.name(f"{kind}.{name}"), weight), len(weight))
                        for kind, weight in zip(("key", "query", "value"), weights, strict=True)
                    )
                made[name] = key, query, value
        found = attend_over_relations(b, types, _heads(s, made, names))
        return _finish_dgl(b, s, self, found, x, types)


def attend_over_relations(b: ProgramBuilder, types: NodeTypes, given: _Heads) -> Tensors:
    """Destination type -> [N, H*D] the weighted sums of the values of all its in-edges."""
    found = {}
    for destination in dict.fromkeys(one.destination for one in types.relations):
        into = [one for one in types.relations if one.destination == destination]
        parts = []
        for relation in into:
            with b.over(relation):
                parts.append(_sums(b, given, relation))
        with b.of_type(destination):
            values = tuple(given.names[one][1] for one in into)
            found[destination] = merged(b, tuple(parts), values, (given.heads, given.width))
    return found


def _sums(b: ProgramBuilder, given: _Heads, relation: Relation) -> str:
    """[N, H*D + H] sums of values within a relation, and the logarithms of their scores' sums."""
    matrix, _, prior = given.names[relation]
    scale = max(1, given.width) ** -0.5
    query = turned(
        b, given.query[relation.destination], matrix, prior, (given.heads, given.width), scale
    )
    return b.pair_attend(
        given.value[relation.source],
        query,
        given.heads,
        kind="dot",
        key=given.key[relation.source],
        log_sum=True,
    )


def _joined(relation: Relation) -> str:
    return "__".join((relation.source, relation.name, relation.destination))


def _heads(s: Scope, made: dict[str, Projected], names: Names) -> _Heads:
    key, query, value = ({name: of[at] for name, of in made.items()} for at in range(3))
    sizes = {"heads": s.size("heads"), "width": s.size("width")}
    return _Heads(**sizes, query=query, key=key, value=value, names=names)


def _projected(b: ProgramBuilder, inner: Scope, s: Scope, rows: str) -> Projected:
    """Keys, queries and values of the Linear that makes all three."""
    inner = Scope(s.weights, inner.prefix, s.label, {})
    inner.expect("in", b.widths[rows])
    weight, bias = inner.raw("weight", "three", "in"), inner.raw("bias", "three")
    b.learn(rows, inner.size("in"))
    if weight is None or bias is None:
        return rows, rows, rows
    columns = len(weight) // 3
    s.agree("columns", columns)
    s.agree("width", columns // max(1, s.size("heads")))
    key, query, value = (
        b.linear(
            rows,
            inner.put(inner.name(kind), of_kind),
            columns,
            inner.put(inner.name(f"{kind}_bias"), shift),
        )
        for kind, of_kind, shift in zip(
            ("key", "query", "value"), weight.chunk(3), bias.chunk(3), strict=True
        )
    )
    return key, query, value


def _pyg_relations(s: Scope, types: NodeTypes) -> Names:
    """Stored head by head, and within a head by relation."""
    heads, width, count = s.size("heads"), s.size("width"), len(types.relations)
    stacks = [
        s.raw(f"{name}.weight", heads * count or "matrices", width or "width", width or "width")
        for name in ("k_rel", "v_rel")
    ]
    found = {}
    for number, relation in enumerate(types.relations):
        names = s.name(f"k_rel.{relation}"), s.name(f"v_rel.{relation}")
        for name, stack in zip(names, stacks, strict=True):
            if stack is not None:
                s.put(name, stack[number::count])
        prior = s.raw(f"p_rel.{_joined(relation)}", 1, "heads")
        if prior is not None:
            s.put(s.name(f"prior.{relation}"), prior.t())
        found[relation] = (*names, s.name(f"prior.{relation}"))
    return found


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


def _dgl_relations(s: Scope, heads: int, types: NodeTypes) -> Names:
    """Stored relation by relation for each head."""
    count, width = len(types.relations), s.size("width") or "width"
    matrices = {
        kind: [s.raw(f"relation_{kind}.{head}.W", count, width, width) for head in range(heads)]
        for kind in ("att", "msg")
    }
    priors = [s.raw(f"relation_pri.{head}", count) for head in range(heads)]
    found = {}
    for number, relation in enumerate(types.relations):
        for kind, given in {**matrices, "pri": priors}.items():
            of_relation = [one[number] for one in given if one is not None]
            if len(of_relation) == heads and heads:
                stack = torch.stack(of_relation)
                s.put(s.name(f"{kind}.{relation}"), stack[:, None] if kind == "pri" else stack)
        att, msg, pri = (s.name(f"{kind}.{relation}") for kind in ("att", "msg", "pri"))
        found[relation] = (att, msg, pri)
    return found


def _finish_dgl(
    b: ProgramBuilder, s: Scope, o: DglHgt, found: Tensors, x: Tensors, types: NodeTypes
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
            if name in found:
                weight = s.name(f"linear_a.{name}")
                if linear is not None:
                    s.put(weight, linear[number].t())
                h = b.linear(found[name], weight, columns)
                h = b.combine(h, own, alpha=share, beta=1.0 - share)
            else:
                h = b.row_wise((own,), (f"out = mul(x0, {1.0 - share!r})",), (), columns)
            out[name] = h if scale is None else b.layer_norm(h, scale, shift, 1e-5)
    return out
