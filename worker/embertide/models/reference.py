"""The slow and obvious executor: one process, float64, whole tensors, plain scatter loops.

Everything fast is tested against this, and this against DGL's and PyG's own modules. It follows
the words of `program`, step by step, and is meant to be read beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from embertide.models.program import (
    Activation,
    Affine,
    Aggregate,
    Attend,
    Combine,
    Concat,
    DivideByDegree,
    HeadDot,
    HeadMean,
    LayerNorm,
    Linear,
    Maximum,
    PairAttend,
    Program,
    RowNormalize,
    Step,
)

LayerGraph = tuple[Tensor, Tensor, Tensor | None]
"""Sources [E], destinations [E] (int64) and weights [E] or None of one layer graph."""


def run_reference(program: Program, graphs: Sequence[LayerGraph], x: Tensor) -> Tensor:
    """The embeddings [N, output_width] in float64 of features ``x`` [N, input_width].

    ``graphs`` holds one layer graph for each convolution layer.
    """
    assert len(graphs) == program.layers
    run = _Run(
        params={name: tensor.double() for name, tensor in program.params.items()},
        tensors={program.input: x.double()},
        graphs=graphs,
        nodes=len(x),
    )
    for step in program.steps:
        run.tensors[step.out] = _value(run, step)
    return run.tensors[program.output]


@dataclass(frozen=True)
class _Run:
    params: dict[str, Tensor]
    tensors: dict[str, Tensor]
    graphs: Sequence[LayerGraph]
    nodes: int

    def param(self, name: str | None) -> Tensor | None:
        return None if name is None else self.params[name]

    def heads(self, name: str, heads: int) -> Tensor:
        """A tensor [N, H*F] as [N, H, F]."""
        return self.tensors[name].reshape(self.nodes, heads, -1)


@dataclass(frozen=True)
class _Edges:
    """A layer graph as one step sees it; ``weight`` is 1 where weights do not count."""

    src: Tensor
    dst: Tensor
    weight: Tensor
    nodes: int

    def sum_at(self, ends: Tensor, values: Tensor) -> Tensor:
        """Values [E, ...] added up at one of the ends: [N, ...]."""
        out = torch.zeros(self.nodes, *values.shape[1:], dtype=torch.float64)
        return out.index_add_(0, ends, values)

    def softmax(self, scores: Tensor) -> Tensor:
        """Scores [E, H] to weights that add up to 1 over the in-edges of each node."""
        top = torch.full((self.nodes, scores.shape[1]), -torch.inf, dtype=torch.float64)
        index = self.dst[:, None].expand_as(scores)
        top = top.scatter_reduce(0, index, scores, "amax")
        shifted = (scores - top[self.dst]).exp()
        return shifted / self.sum_at(self.dst, shifted)[self.dst]


def _edges(run: _Run, step: Aggregate | Attend | PairAttend, loop_weight: float = 1.0) -> _Edges:
    src, dst, stored = run.graphs[step.layer]
    counts = step.edge_weight and stored is not None
    weight = torch.ones(len(src), dtype=torch.float64)
    if counts and stored is not None:
        weight = stored.double()
    if step.loops == "keep":
        return _Edges(src, dst, weight, run.nodes)
    own, other, every = src == dst, src != dst, torch.arange(run.nodes)
    heaviest = torch.full((run.nodes,), -torch.inf, dtype=torch.float64)
    heaviest = heaviest.scatter_reduce(0, src[own], weight[own], "amax")
    loops = torch.where(heaviest > -torch.inf, heaviest, loop_weight if counts else 1.0)
    return _Edges(
        torch.cat([src[other], every]),
        torch.cat([dst[other], every]),
        torch.cat([weight[other], loops]),
        run.nodes,
    )


def _value(run: _Run, step: Step) -> Tensor:
    """The tensor that a step makes."""
    match step:
        case Linear():
            return functional.linear(
                run.tensors[step.x], run.params[step.weight], run.param(step.bias)
            )
        case Aggregate():
            return _aggregate(run, step)
        case DivideByDegree():
            degree = torch.bincount(run.graphs[step.layer][1], minlength=run.nodes)
            return run.tensors[step.x] / (degree + step.add).clamp(min=1)[:, None]
        case HeadDot():
            return (run.heads(step.x, step.heads) * run.params[step.vector]).sum(2)
        case Attend():
            return _attend(run, step)
        case PairAttend():
            return _pair_attend(run, step)
        case HeadMean():
            return run.heads(step.x, step.heads).mean(1)
        case _:
            return _row_wise(run, step)


def _row_wise(run: _Run, step: Step) -> Tensor:
    match step:
        case Affine():
            out = run.tensors[step.x]
            scale, shift = run.param(step.scale), run.param(step.shift)
            out = out if scale is None else out * scale
            return out if shift is None else out + shift
        case LayerNorm():
            x, scale, shift = run.tensors[step.x], run.param(step.scale), run.param(step.shift)
            return functional.layer_norm(x, x.shape[1:], scale, shift, step.eps)
        case Activation():
            return _activation(run, step)
        case Combine():
            return step.alpha * run.tensors[step.a] + step.beta * run.tensors[step.b]
        case Concat():
            return torch.cat([run.tensors[name] for name in step.inputs], dim=1)
        case Maximum():
            return torch.stack([run.tensors[name] for name in step.inputs]).amax(0)
        case RowNormalize():
            x = run.tensors[step.x]
            length: Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True)
            return x / length.clamp(min=step.eps)
        case _:
            raise AssertionError(f"no such step: {step}")


def _activation(run: _Run, step: Activation) -> Tensor:
    x = run.tensors[step.x]
    match step.kind:
        case "leaky_relu":
            return functional.leaky_relu(x, step.slope)
        case "elu":
            return functional.elu(x, step.slope)
        case "prelu":
            assert step.weight is not None
            return functional.prelu(x, run.params[step.weight])
        case "gelu_tanh":
            return functional.gelu(x, approximate="tanh")
        case "relu" | "gelu" | "silu" | "softplus":
            return getattr(functional, step.kind)(x)  # type: ignore[no-any-return]
        case "tanh" | "sigmoid":
            return getattr(torch, step.kind)(x)  # type: ignore[no-any-return]


def _aggregate(run: _Run, step: Aggregate) -> Tensor:
    e, x = _edges(run, step, step.loop_weight), run.tensors[step.x]
    ones = torch.ones(len(e.src), dtype=torch.float64)
    degree_in = e.sum_at(e.dst, ones).clamp(min=1)[:, None]
    degree_out = e.sum_at(e.src, ones).clamp(min=1)[:, None]
    if step.norm == "sym_in_weighted":
        root = e.sum_at(e.dst, e.weight).pow(-0.5)
        root[root == torch.inf] = 0
        return e.sum_at(e.dst, (root[e.src] * e.weight * root[e.dst])[:, None] * x[e.src])
    if step.norm == "sym_in":
        x = x / degree_in.sqrt()
    if step.norm == "out":
        x = x / degree_out
    if step.norm == "both":
        x = x / degree_out.sqrt()
    messages = e.weight[:, None] * x[e.src]
    if step.reduce == "max":
        index = e.dst[:, None].expand_as(messages)
        # Rows without in-edges stay zero, as include_self=False leaves them.
        return torch.zeros_like(x).scatter_reduce(0, index, messages, "amax", include_self=False)
    total = e.sum_at(e.dst, messages)
    if step.norm == "in":
        return total / degree_in
    return total / degree_in.sqrt() if step.norm in ("both", "sym_in") else total


def _attend(run: _Run, step: Attend) -> Tensor:
    e = _edges(run, step)
    scores = run.tensors[step.source][e.src] + run.tensors[step.target][e.dst]
    return _weigh(run, step, e, functional.leaky_relu(scores, step.negative_slope))


def _pair_attend(run: _Run, step: PairAttend) -> Tensor:
    e = _edges(run, step)
    key = run.heads(step.key, step.heads)[e.src]
    query = run.heads(step.query, step.heads)[e.dst]
    if step.kind == "dot":
        return _weigh(run, step, e, step.scale * (key * query).sum(2))
    assert step.vector is not None
    lit = functional.leaky_relu(key + query, step.negative_slope)
    return _weigh(run, step, e, (lit * run.params[step.vector]).sum(2))


def _weigh(run: _Run, step: Attend | PairAttend, e: _Edges, scores: Tensor) -> Tensor:
    """The sum over in-edges of softmax(scores) [E, H], times the edge weight, times values."""
    attention = e.softmax(scores) * e.weight[:, None]
    values = run.heads(step.x, step.heads)[e.src]
    return e.sum_at(e.dst, attention[:, :, None] * values).reshape(run.nodes, -1)
