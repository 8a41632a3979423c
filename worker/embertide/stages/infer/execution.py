"""What the steps of one execution of a program share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from embertide.context import RunContext
from embertide.grid import AxisName, Grid, RowRanges
from embertide.kernels.spmm import Epilogue
from embertide.layouts import Layout, Shard
from embertide.models.fuse import Run
from embertide.models.program import Program, Step
from embertide.primitives.exchange import Channel
from embertide.primitives.graph import LayerGraph
from embertide.primitives.tensors import Tensors

Graphs = Callable[[int], LayerGraph]
"""Layer -> its graph; called with ascending layers. Collective: every rank must call."""


@dataclass(frozen=True, kw_only=True)
class Execution:
    """A program being executed on this rank.

    Attributes:
        tensors: our shards of the tensors that are alive.
        locations: [N/(P*M), 2] loader rank and row of the features of our sub-range's nodes.
    """

    ctx: RunContext
    program: Program
    ranges: RowRanges
    graphs: Graphs
    tensors: Tensors
    locations: torch.Tensor

    @property
    def grid(self) -> Grid:
        """The grid as seen from this rank."""
        return self.ctx.grid

    @property
    def depth(self) -> int:
        """Groups in flight at a time."""
        return self.ctx.job.spec.inference.depth

    def channel(self, step: Step, axis: AxisName = "feature", primitive: str = "gemm") -> Channel:
        """Transfers for a step's layer; by default, conversions between layouts."""
        return self.ctx.exchange.channel(axis, primitive, step.layer)

    def rows(self, name: str, step: Step) -> torch.Tensor:
        """[N/(P*M), D] a tensor in the ``rows`` layout. Collective: every rank must call."""
        return self.tensors.get(name, "rows", self.channel(step)).data

    def param(self, name: str) -> torch.Tensor:
        """A parameter, whole, on the device."""
        param = self.tensors.param(name)
        assert param is not None
        return param

    def epilogue(self, run: Run, layout: Layout) -> Epilogue:
        """Bias and activation of a run, cut to our columns of its result."""
        shard = Shard(layout, torch.empty(0), self.program.widths[run.out])
        bias = self.tensors.columns(run.shift, shard)
        if run.activation is None:
            return Epilogue(bias)
        return Epilogue(bias, run.activation.kind, run.activation.slope)
