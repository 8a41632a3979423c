"""Steps that need no neighbours: products, norms, activations, sums of tensors.

Steps over whole rows run in the ``rows`` layout; element-wise steps in the layout their input
has. Inputs may have to be converted between layouts, so each function is collective: every rank
must call.
"""

from __future__ import annotations

import torch

from embertide.kernels import nodewise
from embertide.layouts import Layout, Shard
from embertide.models import program as steps
from embertide.models.fuse import Run
from embertide.models.program import Step
from embertide.primitives.gemm import linear, ring_gemm
from embertide.stages.infer.execution import Execution


def run_node_step(execution: Execution, step: Step) -> Shard:
    """Our shard of the result of a node-wise step. Collective: every rank must call."""
    match step:
        case steps.HeadDot() | steps.HeadMean() | steps.LayerNorm() | steps.RowNormalize():
            return _whole_rows(execution, step)
        case steps.Affine():
            return _affine(execution, step)
        case steps.Activation():
            return _activation(execution, step)
        case steps.Combine():
            return _combine(execution, step)
        case steps.Concat():
            return _concat(execution, step)
        case steps.Maximum():
            return _maximum(execution, step)
        case steps.DivideByDegree():
            return _divide_by_degree(execution, step)
        case _:
            raise AssertionError(f"no such step: {step}")


def run_linear(execution: Execution, run: Run, step: steps.Linear) -> Shard:
    """Our shard of the result of a run that starts with a product.

    Collective: every rank must call.
    """
    tensors, channel = execution.tensors, execution.channel(step)
    weight = execution.param(step.weight)
    if tensors.is_loaded(step.x):
        last = execution.epilogue(run, "rows")
        layout: Layout = "rows" if tensors.wants_rows(run.out) else "tile"
        return tensors.land(
            lambda x: linear(x, weight, last), layout=layout, width=len(weight), layer=step.layer
        )
    last = execution.scaling_epilogue(run, "rows")
    if tensors.has(step.x, "rows") or execution.grid.feature == 1:
        data = linear(tensors.get(step.x, "rows", channel).data, weight, last)
    else:
        tile = tensors.get(step.x, "tile", channel).data
        data = ring_gemm(channel, execution.ranges, tile, weight, last)
    return Shard("rows", data, len(weight))


def _whole_rows(
    execution: Execution,
    step: steps.HeadDot | steps.HeadMean | steps.LayerNorm | steps.RowNormalize,
) -> Shard:
    x = execution.rows(step.x, step)
    match step:
        case steps.HeadDot():
            data = nodewise.head_dot(x, execution.param(step.vector).reshape(step.heads, -1))
        case steps.HeadMean():
            data = x.reshape(len(x), step.heads, -1).mean(1)
        case steps.LayerNorm():
            scale, shift = map(execution.tensors.param, (step.scale, step.shift))
            data = torch.nn.functional.layer_norm(x, x.shape[1:], scale, shift, step.eps)
        case steps.RowNormalize():
            data = torch.nn.functional.normalize(x, dim=1, eps=step.eps)
    return Shard("rows", data, data.shape[1])


def _affine(execution: Execution, step: steps.Affine) -> Shard:
    tensors = execution.tensors
    x = tensors.own(step.x, execution.channel(step))
    scale, shift = tensors.columns(step.scale, x), tensors.columns(step.shift, x)
    return Shard(x.layout, nodewise.affine_(x.data, scale, shift), x.width)


def _activation(execution: Execution, step: steps.Activation) -> Shard:
    tensors = execution.tensors
    x = tensors.own(step.x, execution.channel(step))
    weight = tensors.param(step.weight)
    if weight is not None and weight.numel() > 1:
        weight = tensors.columns(step.weight, x)
    return Shard(x.layout, nodewise.activate_(x.data, step.kind, step.slope, weight), x.width)


def _combine(execution: Execution, step: steps.Combine) -> Shard:
    """In tiles if both are tiles already; else in rows."""
    tensors, channel = execution.tensors, execution.channel(step)
    tiles = all(tensors.has(name, "tile") for name in (step.a, step.b))
    layout: Layout = "tile" if tiles or execution.grid.feature == 1 else "rows"
    a = tensors.get(step.a, layout, channel)
    b = tensors.get(step.b, layout, channel)
    fresh = tensors.dies(step.b) and step.a != step.b
    data = b.data if fresh else b.data.clone()
    if step.beta != 1.0:
        data.mul_(step.beta)
    return Shard(layout, data.add_(a.data, alpha=step.alpha), a.width)


def _concat(execution: Execution, step: steps.Concat) -> Shard:
    """In rows: columns of a tile are cut by the width of the whole, not of its inputs."""
    data = torch.cat([execution.rows(name, step) for name in step.inputs], dim=1)
    return Shard("rows", data, data.shape[1])


def _maximum(execution: Execution, step: steps.Maximum) -> Shard:
    """In tiles if all are tiles already; else in rows."""
    tensors, channel = execution.tensors, execution.channel(step)
    layout: Layout = "tile" if all(tensors.has(n, "tile") for n in step.inputs) else "rows"
    first, *others = (tensors.get(name, layout, channel) for name in step.inputs)
    out = first.data.clone()
    for other in others:
        torch.maximum(out, other.data, out=out)
    return Shard(layout, out, first.width)


def _divide_by_degree(execution: Execution, step: steps.DivideByDegree) -> Shard:
    x = execution.tensors.own(step.x, execution.channel(step))
    degree = execution.graphs(step.layer).in_degree()
    if x.layout == "rows":
        degree = degree[slice(*execution.ranges.within(execution.grid.rank))]
    divisor = (degree + step.add).clamp_(min=1).unsqueeze(1)
    return Shard(x.layout, x.data.div_(divisor), x.width)
