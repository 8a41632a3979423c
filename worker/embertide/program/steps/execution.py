"""The state that the steps of one execution of a program share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch

from embertide.graph.exchange import Channel, Exchange
from embertide.graph.graph import LayerGraph
from embertide.graph.sources import Sources
from embertide.graph.views import EdgeView
from embertide.grid import AxisName, Grid, RowRanges
from embertide.kernels.edge_features import LoopFill
from embertide.kernels.epilogue import Epilogue
from embertide.kernels.memory import as_type, copy_of
from embertide.kernels.spilled_csr import AnyFeatures
from embertide.layouts import Layout, Shard
from embertide.program.steps.base import EdgeStep
from embertide.program.steps.op import Input, Op
from embertide.program.steps.program import Program
from embertide.program.steps.tensors import Tensors

Graphs = Callable[[int, str], LayerGraph]
"""Layer and relation -> its graph; called with ascending layers.

Collective: every rank must call.
"""


MOST_WANTED = 0.75
"""The share of rows from which on those that are read are not put together for a product."""


class OnHop(Protocol):
    """Called with one of the sums of a step that sums several times."""

    def __call__(
        self,
        step: EdgeStep,
        number: int,
        shard: Shard,
        *,
        scaled: bool,
        columns: Sequence[slice] | None = None,
    ) -> None:
        """The sum ``number`` of a step, from 1, is done; of some columns of every slice, or all."""


def ignored(
    step: EdgeStep,
    number: int,
    shard: Shard,
    *,
    scaled: bool,
    columns: Sequence[slice] | None = None,
) -> None:
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
        reads_all: we read every row of a tensor, with all columns, where it stands.
        scaled: tensors whose rows are multiplied by the factors of sources of the sum that reads
            them.
        some: layout -> the rows of our partition in it that operations are run for; None: all.
        wanted: tensor -> [N] bool, the rows of it that are read, where these are not all.
        factors: [N/P] of sources by which the op multiplies its rows, where they are known.
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
    reads_all: bool
    scaled: set[str]
    some: Mapping[Layout, slice | torch.Tensor] | None = None
    wanted: Mapping[str, torch.Tensor] = field(default_factory=dict)
    factors: torch.Tensor | None = None
    on_hop: OnHop = ignored

    @property
    def grid(self) -> Grid:
        """The grid as seen from this rank."""
        return self.exchange.grid

    def graph(self, view: EdgeView) -> LayerGraph:
        """A layer graph as a step sees it. Collective: every rank must call."""
        return self.graphs(view.layer, view.relation).variant(view)

    def edge_features(self, view: EdgeView, fill: LoopFill, sources: Sources) -> AnyFeatures:
        """[nnz of our sub-range, K] of the edges as a step sees them, on the CPU or on disk.

        Args:
            fill: what a self-loop that the view adds has.
            sources: of our sub-range, whose blocks find them.
        """
        return self.graphs(view.layer, view.relation).edge_features(view.loops, fill, sources)

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

    def shard(self, name: str, layout: Layout, layer: int) -> Shard:
        """A tensor in a layout. Collective: every rank must call."""
        return self.tensors.get(name, layout, self.channel(layer))

    def owned(self, name: str, layout: Layout, layer: int) -> Shard:
        """A tensor to be changed in place: a copy where later operations read it.

        Collective: every rank must call.
        """
        shard = self.shard(name, layout, layer)
        return shard if self.tensors.dies(name) else replace(shard, data=copy_of(shard.data))

    def rows(self, name: str, layer: int) -> torch.Tensor:
        """[N/(P*M), D] a tensor in the ``rows`` layout. Collective: every rank must call."""
        return self.shard(name, "rows", layer).data

    def tile(self, name: str, layer: int) -> torch.Tensor:
        """[N/P, D/M] a tensor in the ``tile`` layout. Collective: every rank must call."""
        return self.shard(name, "tile", layer).data

    def gathered(self, name: str, layout: Layout, layer: int) -> torch.Tensor:
        """A tensor in a layout, in the type in which its rows are read over edges.

        A copy where other steps read it as float32. Collective: every rank must call.
        """
        return as_type(self.shard(name, layout, layer).data, self.row_type)

    def of_ours(self, values: torch.Tensor, layout: Layout, name: str) -> torch.Tensor:
        """The rows of [N/P, ...] values of our partition that a worker has in a layout."""
        if self.some is not None:
            return values[self.some[layout]]
        if layout == "tile":
            return values
        return values[slice(*self.ranges_of(name).within(self.grid.rank))]

    def param(self, name: str) -> torch.Tensor:
        """A parameter, whole, on the device."""
        param = self.tensors.param(name)
        assert param is not None
        return param

    def onto(self, op: Op) -> torch.Tensor | None:
        """[N/(P*M), D'] what the op adds its product to, in place; None: to nothing.

        Collective: every rank must call.
        """
        if op.onto is None:
            return None
        self.tensors.settle(op.onto)
        return self.rows(op.onto, op.steps[-1].layer)

    def result(self, op: Op, data: torch.Tensor) -> Shard:
        """Our shard of the op's result."""
        return Shard(op.layout, data, self.program.widths[op.out])

    def with_factors(self, op: Op) -> Execution:
        """The same for some rows of an op at a time: all rows' factors are made once.

        Collective: every rank must call.
        """
        if not op.scales or op.reader is None:
            return self
        return replace(self, factors=op.reader.source_factors(self))

    def epilogue(self, op: Op, layout: Layout) -> Epilogue:
        """Bias and activation of an op, cut to our columns of its result, whatever its rows are.

        Where the op multiplies its rows by the next sum's factors of sources, these too: they are
        read once per node, and not once per edge. Collective: every rank must call.
        """
        shard = Shard(layout, torch.empty(0), self.program.widths[op.out])
        last = Epilogue(self.tensors.columns(op.shift, shard))
        if op.activation is not None:
            last = replace(last, activation=op.activation.kind, slope=op.activation.slope)
        if not op.scales or op.reader is None:
            return last
        source = op.reader.source_factors(self) if self.factors is None else self.factors
        return last if source is None else replace(last, scale=self.of_ours(source, layout, op.out))

    def of_wanted(self, op: Op, layout: Layout, last: Epilogue) -> Epilogue:
        """An epilogue of products of which rows that are not read are not made.

        Args:
            layout: in which the rows are.
        """
        if (rows := self.wanted.get(op.out)) is None or self.some is not None:
            return last
        ranges = self.ranges_of(op.out)
        at = ranges.partition(self.grid.p) if layout == "tile" else ranges.worker(self.grid.rank)
        ours = rows[slice(*at)]
        few = int(ours.count_nonzero()) < MOST_WANTED * len(ours)
        return replace(last, wanted=ours.nonzero().squeeze(1)) if few else last


def results_in_rows(execution: Execution) -> dict[str, torch.Tensor]:
    """Key of a result -> [N/(P*M), D'] float32. Collective: every rank must call."""
    program, tensors = execution.program, execution.tensors
    names = program.results.values()
    tensors.begin([Input(name, "rows") for name in names], names)
    last = execution.channel(program.layers - 1)
    return {key: tensors.get(name, "rows", last).data for key, name in program.results.items()}
