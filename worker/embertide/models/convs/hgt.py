"""Heterogeneous graph transformers (Hu et al., section 3): one softmax over all relations.

    score_ij = (K_r k_j) . q_i * prior_r / sqrt(D),  out_i = sum over all edges of a_ij V_r v_j

The matrices of a relation are applied at the target: K_r turned to its query, V_r to the sum. So
keys and values of a source type are the same for all relations that leave it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from embertide.models.builder import ProgramBuilder
from embertide.models.node_types import NodeTypes
from embertide.models.options.relational import DglHgt, PygHgt
from embertide.models.weights import Scope
from embertide.spec.relations import Relation

Tensors = dict[str, str]


@dataclass(frozen=True, kw_only=True)
class _Heads:
    """The tensors of all types, ``heads`` times ``width`` columns, and each relation's parameters.

    Attributes:
        query: node type -> [N, H*D].
        pairs: node type -> [N, 2*H*D] keys, then values.
        names: relation -> the parameters K_r [H, D, D], V_r [H, D, D], prior_r [H, 1].
    """

    heads: int
    width: int
    query: Tensors
    pairs: Tensors
    names: dict[Relation, tuple[str, str, str]]

    @property
    def columns(self) -> int:
        """Of the result."""
        return self.heads * self.width


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
            found[destination] = _merge(b, given, tuple(parts), values)
    return found


def _sums(b: ProgramBuilder, given: _Heads, relation: Relation) -> str:
    """[N, H*D + H] sums of values within a relation, and the logarithms of their scores' sums."""
    matrix, _, prior = given.names[relation]
    heads, width, columns = given.heads, given.width, given.columns
    turned = (
        f"apart = reshape(x0, [{heads}, {width}])",
        "through = einsum('nhg,hfg->nhf', apart, p0)",
        "weighed = mul(through, p1)",
        f"scaled = mul(weighed, {max(1, width) ** -0.5!r})",
        "out = flatten(scaled)",
    )
    query = b.row_wise((given.query[relation.destination],), turned, (matrix, prior), columns)
    scored = (
        f"keys = narrow(s, 1, 0, {columns})",
        f"key = reshape(keys, [{heads}, {width}])",
        f"query = reshape(t, [{heads}, {width}])",
        "both = mul(key, query)",
        "score = sum(both, 2)",
        f"out = narrow(s, 1, {columns}, {columns})",
    )
    return b.message(
        given.pairs[relation.source],
        scored,
        columns + heads,
        reduce="softmax",
        target=query,
        log_sum=True,
    )


def _merge(
    b: ProgramBuilder, given: _Heads, parts: tuple[str, ...], matrices: tuple[str, ...]
) -> str:
    """Each relation's sums through its V_r, as one softmax over the edges of all has them."""
    heads, width, columns = given.heads, given.width, given.columns
    lines, sums, logs = [], [], []
    for at in range(len(parts)):
        lines += [
            f"values{at} = narrow(x{at}, 1, 0, {columns})",
            f"apart{at} = reshape(values{at}, [{heads}, {width}])",
            f"sum{at} = einsum('nhf,hfg->nhg', apart{at}, p{at})",
            f"log{at} = narrow(x{at}, 1, {columns}, {heads})",
        ]
        sums.append(f"sum{at}")
        logs.append(f"log{at}")
    lines += [
        f"sums = stack([{', '.join(sums)}], 1)",
        f"logs = stack([{', '.join(logs)}], 1)",
        "softmaxed = softmax(logs, 1)",
        "share = unsqueeze(softmaxed, 3)",
        "weighed = mul(sums, share)",
        "total = sum(weighed, 1)",
        "out = flatten(total)",
    ]
    return b.row_wise(parts, tuple(lines), matrices, columns)


def pyg_hgt(b: ProgramBuilder, s: Scope, _o: PygHgt, x: Tensors, types: NodeTypes) -> Tensors:
    """HGTConv: gelu, a Linear for each type, and a gate where the input has the same width."""
    for relation in types.relations:
        s.raw(f"p_rel.{_joined(relation)}", 1, "heads")
    query, pairs = {}, {}
    for name, rows in x.items():
        with b.of_type(name):
            query[name], pairs[name] = _projected(b, s.at(s.name(f"kqv_lin.lins.{name}")), s, rows)
    names = _pyg_relations(s, types)
    given = _Heads(
        heads=s.size("heads"), width=s.size("width"), query=query, pairs=pairs, names=names
    )
    found = attend_over_relations(b, types, given)
    for name in types.names:
        for short in (f"out_lin.lins.{name}.weight", f"out_lin.lins.{name}.bias", f"skip.{name}"):
            s.pass_over(short)
    return {name: _pyg_behind(b, s, name, h, x[name]) for name, h in found.items()}


def _joined(relation: Relation) -> str:
    return "__".join((relation.source, relation.name, relation.destination))


def _projected(b: ProgramBuilder, inner: Scope, s: Scope, rows: str) -> tuple[str, str]:
    """Queries, and keys beside values, of the Linear that makes all three."""
    inner = Scope(s.weights, inner.prefix, s.label, {})
    inner.expect("in", b.widths[rows])
    weight, bias = inner.raw("weight", "three", "in"), inner.raw("bias", "three")
    b.learn(rows, inner.size("in"))
    if weight is None or bias is None:
        return rows, rows
    s.agree("columns", len(weight) // 3)
    s.agree("width", s.size("columns") // max(1, s.size("heads")))
    (key, query, value), shifts = weight.chunk(3), bias.chunk(3)
    of_query = inner.put(inner.name("query"), query), inner.put(inner.name("query_bias"), shifts[1])
    of_pairs = (
        inner.put(inner.name("pairs"), torch.cat([key, value])),
        inner.put(inner.name("pairs_bias"), torch.cat([shifts[0], shifts[2]])),
    )
    columns = len(query)
    return (
        b.linear(rows, of_query[0], columns, of_query[1]),
        b.linear(rows, of_pairs[0], 2 * columns, of_pairs[1]),
    )


def _pyg_relations(s: Scope, types: NodeTypes) -> dict[Relation, tuple[str, str, str]]:
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


def _pyg_behind(b: ProgramBuilder, s: Scope, node_type: str, h: str, x: str) -> str:
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


def dgl_hgt(b: ProgramBuilder, s: Scope, o: DglHgt, x: Tensors, types: NodeTypes) -> Tensors:
    """HGTConv: a Linear for each type, a gate with the input, and a norm; of every type."""
    for rows in x.values():
        s.expect("in", b.widths[rows])
    heads = _count(s, "relation_pri")
    stacks = [s.raw(f"linear_{one}.W", len(types.names), "in", "columns") for one in "kqv"]
    for rows in x.values():
        b.learn(rows, s.size("in"))
    s.sizes |= {"heads": heads, "width": s.size("columns") // max(1, heads)}
    names = _dgl_relations(s, heads, types)
    query, pairs = {}, {}
    for number, name in enumerate(types.names):
        if name not in x:
            continue
        query[name] = pairs[name] = x[name]
        if None not in stacks:
            key, asked, value = (stack[number].t() for stack in stacks if stack is not None)
            of_query = s.put(s.name(f"query.{name}"), asked)
            of_pairs = s.put(s.name(f"pairs.{name}"), torch.cat([key, value]))
            with b.of_type(name):
                query[name] = b.linear(x[name], of_query, len(asked))
                pairs[name] = b.linear(x[name], of_pairs, 2 * len(asked))
    given = _Heads(heads=heads, width=s.size("width"), query=query, pairs=pairs, names=names)
    found = attend_over_relations(b, types, given)
    return _dgl_behind(b, s, o, found, x, types)


def _count(s: Scope, prefix: str) -> int:
    """How many parameters a list of them has."""
    count = 0
    while s.has(f"{prefix}.{count}"):
        count += 1
    if not count:
        s.raw(f"{prefix}.0", "relations")
    return count


def _dgl_relations(s: Scope, heads: int, types: NodeTypes) -> dict[Relation, tuple[str, str, str]]:
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


def _dgl_behind(
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
