"""What the steps of one execution of a program share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

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
from embertide.stages.infer.norms import norms

Graphs = Callable[[int], LayerGraph]
"""Layer -> its graph; called with ascending layers. Collective: every rank must call."""


@dataclass(frozen=True, kw_only=True)
class Execution:
    """A program being executed on this rank.

    Attributes:
        tensors: our shards of the tensors that are alive.
        locations: [N/(P*M), 2] loader rank and row of the features of our sub-range's nodes.
        scaled: tensors whose rows are multiplied already by what the sum that reads them has as
            factors of sources.
    """

    ctx: RunContext
    program: Program
    ranges: RowRanges
    graphs: Graphs
    tensors: Tensors
    locations: torch.Tensor
    scaled: set[str] = field(default_factory=set)

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
        """Bias and activation of a run, cut to our columns of its result, whatever its rows are."""
        shard = Shard(layout, torch.empty(0), self.program.widths[run.out])
        bias = self.tensors.columns(run.shift, shard)
        if run.activation is None:
            return Epilogue(bias)
        return Epilogue(bias, run.activation.kind, run.activation.slope)

    def scaling_epilogue(self, run: Run, layout: Layout) -> Epilogue:
        """As :meth:`epilogue`, with the factors that the next sum has for its sources.

        Multiplied here they are read once per node, and not once per edge. Where layers have
        samples of their own, the next one is not there yet. Collective: every rank must call.
        """
        last = self.epilogue(run, layout)
        if run.reader is None or self.ctx.job.spec.inference.fanout != "full":
            return last
        graph = self.graphs(run.reader.layer).variant(run.reader)
        source, _ = norms(run.reader, graph)
        if source is None:
            return last
        self.scaled.add(run.out)
        mine = slice(*self.ranges.within(self.grid.rank)) if layout == "rows" else slice(None)
        return replace(last, scale=source[mine])
