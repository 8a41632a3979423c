"""Norms whose statistics are taken over all nodes of a type."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from embertide.errors import ModelError
from embertide.graph.statistics import all_columns, column_moments
from embertide.kernels import nodewise
from embertide.kernels.moments import Moments
from embertide.layouts import Shard
from embertide.program.steps.base import Param
from embertide.program.steps.execution import Execution
from embertide.program.steps.nodewise import ElementStep
from embertide.program.steps.op import Reach
from embertide.program.steps.reference import ReferenceRun
from embertide.program.steps.shapes import Shapes

Over = Literal["columns", "rows", "all", "none"]


@dataclass(frozen=True, kw_only=True)
class GraphNorm(ElementStep, kind="graph_norm"):
    """out = (x - mean) * factor / d * params[scale] + params[shift], by all nodes of the type.

    The mean is that of each column, times params[mean_scale] if there is one; `over` sets d, with
    y = x - mean:

    - `columns`: sqrt(mean over the nodes of y^2 + eps), per column (GraphNorm, InstanceNorm, a
      batch norm without running statistics);
    - `rows`: sqrt(mean over the nodes of ||y||^2 + eps), one number (PairNorm);
    - `all`: the standard deviation of all values + eps, and the mean is theirs, too (PyG's
      LayerNorm with mode="graph");
    - `none`: 1 (MeanSubtractionNorm).

    Statistics are summed up in float64.
    """

    reach: ClassVar[Reach] = Reach.GRAPH

    over: Over
    scale: Param | None = None
    shift: Param | None = None
    mean_scale: Param | None = None
    factor: float = 1.0
    eps: float = 1e-5

    def width(self, shapes: Shapes) -> int:
        """The width of ``x``."""
        width = shapes.width(self.x)
        for name in (self.scale, self.shift, self.mean_scale):
            shapes.values(name, width)
        if self.mean_scale is not None and self.over != "columns":
            raise ModelError(f"mean_scale goes with over: columns, not {self.over}")
        return width

    def reference(self, run: ReferenceRun) -> Tensor:
        """As the libraries write it."""
        x, scale, shift = run.tensors[self.x], run.param(self.scale), run.param(self.shift)
        mean = x.mean() if self.over == "all" else x.mean(0)
        times = run.param(self.mean_scale)
        y = x - (mean if times is None else mean * times)
        out = self.factor * y / self._divisor_of(y)
        out = out if scale is None else out * scale
        return out if shift is None else out + shift

    def _divisor_of(self, y: Tensor) -> Tensor:
        match self.over:
            case "columns":
                return (y.square().mean(0) + self.eps).sqrt()
            case "rows":
                return (y.square().sum(1).mean() + self.eps).sqrt()
            case "all":
                return y.std(correction=0) + self.eps
            case "none":
                return torch.ones((), dtype=y.dtype)

    def change(self, execution: Execution, x: Shard) -> Tensor:
        """In place."""
        exchange, tensors = execution.exchange, execution.tensors
        moments = column_moments(exchange, execution.ranges_of(self.x), x, self.layer)
        if self._reads_all_columns:
            whole = all_columns(exchange, moments, x.layout, self.layer)
            moments = whole.over_all() if self.over == "all" else moments
        else:
            whole = moments
        names = (self.scale, self.shift, self.mean_scale)
        scale, shift, times = (tensors.columns(name, x) for name in names)
        mean = moments.mean if times is None else moments.mean * times
        factor = self.factor / self._divisor(moments, whole, mean)
        factor = factor if scale is None else factor * scale
        return nodewise.center_(x.data, mean, factor, shift)

    @property
    def _reads_all_columns(self) -> bool:
        """Whether a column's result depends on others."""
        return self.over in ("rows", "all")

    def _divisor(self, moments: Moments, whole: Moments, mean: Tensor) -> Tensor:
        """[d] or [1] what our columns are divided by, where ``mean`` is subtracted from them."""
        match self.over:
            case "columns":
                return (moments.variance + (moments.mean - mean).square() + self.eps).sqrt()
            case "rows":
                return (whole.variance.sum(0, keepdim=True) + self.eps).sqrt()
            case "all":
                return moments.variance.sqrt() + self.eps
            case "none":
                return torch.ones_like(mean)


@dataclass(frozen=True, kw_only=True)
class SizeNorm(ElementStep, kind="size_norm"):
    """out = x / sqrt(N), N the nodes of the type (PyG's GraphSizeNorm, DGL's PNAConv)."""

    reach: ClassVar[Reach] = Reach.GRAPH

    def reference(self, run: ReferenceRun) -> Tensor:
        """By the rows that there are."""
        x = run.tensors[self.x]
        return x / math.sqrt(max(1, len(x)))

    def change(self, execution: Execution, x: Shard) -> Tensor:
        """In place."""
        nodes = execution.ranges_of(self.x).nodes
        return x.data.mul_(1 / math.sqrt(max(1, nodes)))
