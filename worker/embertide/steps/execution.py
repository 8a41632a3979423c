"""What the steps of one execution of a program share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch

from embertide.grid import AxisName, Grid, RowRanges
from embertide.kernels.edge_features import LoopFill
from embertide.kernels.epilogue import Epilogue
from embertide.kernels.memory import as_type
from embertide.layouts import Layout, Shard
from embertide.primitives.exchange import Channel, Exchange
from embertide.primitives.graph import LayerGraph
from embertide.primitives.views import EdgeView
from embertide.steps.base import Step
from embertide.steps.program import Program
from embertide.steps.run import Run
from embertide.steps.tensors import Tensors

Graphs = Callable[[int, str], LayerGraph]
"""Layer and relation -> its graph; called with ascending layers.

Collective: every rank must call.
"""


class OnHop(Protocol):
    """Called with one of the sums of a step that sums several times."""

    def __call__(self, step: Step, number: int, made: Shard, *, scaled: bool) -> None:
        """The sum ``number`` of a step, from 1, is there."""


def _ignored(step: Step, number: int, made: Shard, *, scaled: bool) -> None:
    """For an execution that is not checked."""


@dataclass(frozen=True, kw_only=True)
class Execution:
    """A program being executed on this rank.

    Attributes:
        tensors: our shards of the tensors that are alive.
        ranges: node type -> which worker owns which nodes.
        locations: node type -> [N/(P*M), 2] loader rank and row of the features of our sub-range's
            nodes.
        depth: groups in flight at a time.
        row_type: of the rows that are read over edges, and of those that travel.
        sampled: layers have samples of their own: the next one's graph is not there yet.
        scaled: tensors whose rows are multiplied already by what the sum that reads them has as
            factors of sources.
        ahead: what was made with the result of another step, of the same rows.
        on_hop: called with a step that sums several times, the number of a sum from 1, its result,
            and whether that is multiplied by the factors of sources already.
            Collective: every rank calls it.
    """

    exchange: Exchange
    program: Program
    ranges: dict[str, RowRanges]
    graphs: Graphs
    tensors: Tensors
    locations: dict[str, torch.Tensor]
    depth: int
    row_type: torch.dtype
    sampled: bool
    scaled: set[str] = field(default_factory=set)
    ahead: dict[str, Shard] = field(default_factory=dict)
    on_hop: OnHop = _ignored

    @property
    def grid(self) -> Grid:
        """The grid as seen from this rank."""
        return self.exchange.grid

    @property
    def reads_all(self) -> bool:
        """Whether we read every row of a tensor, with all columns, where it stands."""
        if self.grid.world == 1:
            return True
        return self.grid.feature == 1 and self.exchange.channel("graph", "spmm").in_place

    def graph(self, view: EdgeView) -> LayerGraph:
        """A layer graph as a step sees it. Collective: every rank must call."""
        return self.graphs(view.layer, view.relation).variant(view)

    def edge_features(self, view: EdgeView, fill: LoopFill) -> torch.Tensor:
        """[nnz of our sub-range, K] of the edges as a step sees them, on the CPU.

        Args:
            fill: what a self-loop that the view adds has.
        """
        return self.graphs(view.layer, view.relation).edge_features(view.loops, fill)

    def ranges_of(self, name: str) -> RowRanges:
        """Which worker owns which rows of a tensor."""
        return self.ranges[self.program.types[name]]

    def channel(
        self,
        layer: int,
        axis: AxisName = "feature",
        primitive: str = "gemm",
        *relations: str,
    ) -> Channel:
        """Transfers for a layer, or some relations in it; by default, conversions of layouts."""
        return self.exchange.channel(axis, primitive, layer, relations or ("",))

    def rows(self, name: str, layer: int) -> torch.Tensor:
        """[N/(P*M), D] a tensor in the ``rows`` layout. Collective: every rank must call."""
        return self.tensors.get(name, "rows", self.channel(layer)).data

    def tile(self, name: str, layer: int) -> torch.Tensor:
        """[N/P, D/M] a tensor in the ``tile`` layout. Collective: every rank must call."""
        return self.tensors.get(name, "tile", self.channel(layer)).data

    def gathered(self, name: str, layout: Layout, layer: int) -> torch.Tensor:
        """A tensor in a layout, in the type in which its rows are read over edges.

        A copy where other steps read it as float32. Collective: every rank must call.
        """
        return as_type(self.tensors.get(name, layout, self.channel(layer)).data, self.row_type)

    def of_ours(self, values: torch.Tensor, layout: Layout, name: str) -> torch.Tensor:
        """Of [N/P, ...] values of our partition those of the rows that a tensor's layout has."""
        if layout == "tile":
            return values
        return values[slice(*self.ranges_of(name).within(self.grid.rank))]

    def param(self, name: str) -> torch.Tensor:
        """A parameter, whole, on the device."""
        param = self.tensors.param(name)
        assert param is not None
        return param

    def onto(self, run: Run) -> torch.Tensor | None:
        """[N/(P*M), D'] what the run adds its product to, in place; None: it starts afresh.

        Collective: every rank must call.
        """
        if run.onto is None:
            return None
        self.tensors.settle(run.onto)
        return self.rows(run.onto, run.steps[-1].layer)

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
        if run.reader is None or self.sampled:
            return last
        source = run.reader.source_factors(self)
        if source is None:
            return last
        self.scaled.add(run.out)
        return replace(last, scale=self.of_ours(source, layout, run.out))
