"""Sums and maxima of neighbours, with the product, bias and activation that follow them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from embertide.errors import ModelError
from embertide.kernels.spmm import NOTHING
from embertide.layouts import Layout, Shard
from embertide.primitives.directory import look_up
from embertide.primitives.exchange import Channel
from embertide.primitives.gemm import linear, ring_gemm
from embertide.primitives.graph import LayerGraph
from embertide.primitives.landing import loaded_operand
from embertide.primitives.sources import LoadedHolders, Sources
from embertide.primitives.spmm import (
    Operand,
    Reduction,
    spmm,
    spmm_each,
    spmm_linear,
    tile_operand,
)
from embertide.steps.base import EdgeStep, Leader
from embertide.steps.execution import Execution
from embertide.steps.moves import LoadedRows, TileRows
from embertide.steps.norms import (
    WITHIN_A_TYPE,
    Norm,
    counts_out,
    norm_factors,
    reference_factors,
    scales_sources,
    weighs,
)
from embertide.steps.program import Program
from embertide.steps.reference import ReferenceRun
from embertide.steps.run import Product, Run
from embertide.steps.shapes import Shapes
from embertide.steps.walk import Walk

_SOURCE_BYTES = 14
"""Of a source whose row is looked up at its loader."""


@dataclass(frozen=True, kw_only=True)
class Aggregate(EdgeStep, Leader, kind="aggregate"):
    """out[i] = reduce over j in N(i) of w_ij * x[j], normalised; rows without in-edges are zero.

    ``max`` takes no norm.
    """

    reduce: Literal["sum", "max"] = "sum"
    norm: Norm = "none"

    takes_product: ClassVar[bool] = True

    def width(self, shapes: Shapes) -> int:
        """That of ``x``."""
        return shapes.width(self.x)

    def node_type(self, types: dict[str, str]) -> str:
        """The destination type; a norm that takes every node as both ends stays within one."""
        found = super().node_type(types)
        if self.norm in WITHIN_A_TYPE and found != types[self.x]:
            raise ModelError(
                f"step {self.out!r}: norm {self.norm} counts every node as source and destination,"
                f" but {self.relation} leads from one node type to another; use both, in or out"
            )
        return found

    # -- what it means -----------------------------------------------------------------------

    def reference(self, run: ReferenceRun) -> torch.Tensor:
        """Messages along every edge, then one scatter."""
        edges, x = run.edges(self.edges), run.tensors[self.x]
        source, target = reference_factors(self.norm, edges)
        messages = (edges.weight * source[edges.src])[:, None] * x[edges.src]
        if self.reduce == "max":
            index = edges.dst[:, None].expand_as(messages)
            out = x.new_zeros(edges.nodes, x.shape[1])
            # Rows without in-edges stay zero, as include_self=False leaves them.
            return out.scatter_reduce(0, index, messages, "amax", include_self=False)
        return target[:, None] * edges.sum_at(edges.dst, messages)

    # -- how it runs -------------------------------------------------------------------------

    def lower_run(self, execution: Execution, run: Run) -> Shard:
        """A ``tile``; ``rows`` behind a product. Collective: every rank must call."""
        sums = self._sum_together(execution)
        if sums is not None:
            return self._finish(execution, run, sums)
        over, reduction = self._over(execution)
        width, depth = execution.program.widths[run.out], execution.depth
        if run.product is None:
            last = execution.scaling_epilogue(run, "tile")
            return Shard("tile", spmm(*over, reduction, last, depth=depth), width)
        if execution.grid.world == 1:
            weight = execution.param(run.product.weight)
            last, onto = execution.scaling_epilogue(run, "rows"), execution.onto(run)
            return Shard("rows", spmm_linear(*over, weight, reduction, last, onto), width)
        sums = spmm(*over, reduction, NOTHING, depth=depth)
        # What was summed makes room for the product.
        del over
        execution.tensors.read(self.x)
        return self._multiplied(execution, run, run.product, sums)

    def _multiplied(
        self, execution: Execution, run: Run, product: Product, sums: torch.Tensor
    ) -> Shard:
        """Sums, times the weight of a product. Collective: every rank must call."""
        last, onto = execution.scaling_epilogue(run, "rows"), execution.onto(run)
        weight = execution.param(product.weight)
        width = len(weight)
        if execution.grid.feature == 1:
            return Shard("rows", linear(sums, weight, last, onto), width)
        channel = execution.channel(product.layer)
        ranges = execution.ranges_of(self.out)
        return Shard("rows", ring_gemm(channel, ranges, sums, weight, last, onto), width)

    def _finish(self, execution: Execution, run: Run, sums: torch.Tensor) -> Shard:
        """The rest of a run whose sums are there. Collective: every rank must call."""
        if run.product is None:
            last = execution.scaling_epilogue(run, "tile")
            return Shard("tile", last.apply_(sums), execution.program.widths[run.out])
        execution.tensors.read(self.x)
        return self._multiplied(execution, run, run.product, sums)

    def _sum_together(self, execution: Execution) -> torch.Tensor | None:
        """Our sums, where those of other relations need rows of the same tensor.

        The first of these steps makes the sums of all, so that each row travels once for all
        relations. None where there are no others. Collective: every rank must call.
        """
        if self.out in execution.ahead:
            return execution.ahead.pop(self.out)
        group = self.sharing(execution.program)
        if execution.grid.graph == 1 or len(group) == 1:
            return None
        graphs = [execution.graph(step.edges) for step in group]
        reductions = []
        for step, graph in zip(group, graphs, strict=True):
            weighted = step.edge_weight and graph.csr.weights is not None
            _, target = norm_factors(step.norm, step.edges, graph)
            reductions.append(Reduction(step.reduce, weighted, target))
        names, lasts = self.together(execution.program), [NOTHING] * len(group)
        channel = execution.channel(self.layer, "graph", "spmm", *names)
        operand = tile_operand(execution.tile(self.x, self.layer))
        sources = graphs[0].tiles_with(names, graphs)
        sums = spmm_each(channel, sources, operand, reductions, lasts, depth=execution.depth)
        execution.ahead.update(zip((step.out for step in group), sums, strict=True))
        return execution.ahead.pop(self.out)

    def sharing(self, program: Program) -> list[Aggregate]:
        """The sums over relations that read rows of the same tensor, in the order of the steps.

        Only those that take rows as they are: factors of sources differ by relation.
        """
        return [
            step
            for step in program.steps
            if step is self
            or (isinstance(step, Aggregate) and step._reads_together() == self._reads_together())
        ]

    def together(self, program: Program) -> tuple[str, ...]:
        """Those of the sums that are made together."""
        return tuple(step.relation for step in self.sharing(program))

    def _reads_together(self) -> tuple[object, ...]:
        """Equal for sums that are made together."""
        alone = not self.relation or self.scales_sources or self.loops != "keep"
        return (self.out,) if alone else (self.x, self.layer)

    def _over(self, execution: Execution) -> tuple[tuple[Channel, Sources, Operand], Reduction]:
        """What is summed, and how. Collective: every rank must call."""
        graph = execution.graph(self.edges)
        weighted = self.edge_weight and graph.csr.weights is not None
        source, target = norm_factors(self.norm, self.edges, graph)
        if self.x in execution.scaled:
            source = None
        reduction = Reduction(self.reduce, weighted, target)
        # One worker puts its rows in order instead: a pattern of its own would cost more than
        # the copy.
        if execution.grid.world > 1 and execution.tensors.is_loaded(self.x):
            return self._over_loaded(execution, graph, source), reduction
        x = execution.tile(self.x, self.layer)
        channel = execution.channel(self.layer, "graph", "spmm", self.relation)
        return (channel, graph.tiles(), tile_operand(x, source)), reduction

    def _over_loaded(
        self, execution: Execution, graph: LayerGraph, source: torch.Tensor | None
    ) -> tuple[Channel, Sources, Operand]:
        """Features on the ranks that loaded them. Collective: every rank must call.

        Args:
            source: [N/P] factors of our rows as sources, or None.
        """
        channel = execution.channel(self.layer, "world", "features", self.relation)
        ranges, loaded = execution.ranges_of(self.x), execution.tensors.loaded(self.x)
        locations = execution.locations[execution.program.types[self.x]]
        scale = None
        if source is not None:
            mine = execution.of_ours(source, "rows", self.x).cpu()
            scale = look_up(channel, ranges, mine, loaded.ids).to(channel.device)
        holders = LoadedHolders(
            channel.axis, lambda nodes: look_up(channel, ranges, locations, nodes).long()
        )
        return channel, graph.loaded(holders), loaded_operand(execution.grid, loaded, scale)

    def source_factors(self, execution: Execution) -> torch.Tensor | None:
        """Those of the norm. Collective: every rank must call."""
        return norm_factors(self.norm, self.edges, execution.graph(self.edges))[0]

    # -- what it costs -----------------------------------------------------------------------

    def walk_run(self, walk: Walk, run: Run) -> Layout:
        """Sums beside what is summed; among several a product comes when that is gone."""
        if self._walk_together(walk):
            return self._walk_finish(walk, run)
        width, size, more = walk.width(self.x), walk.over(self.edges), 0.0
        loaded = walk.has(self.x, "loaded") and size.workers > 1
        if loaded:
            more = walk.block.get(self.relation, 0.0) + _SOURCE_BYTES * size.unique()
            more += walk.tensor(self.x) if size.feature > 1 else 0.0
        else:
            walk.get(self.x, "tile")
        walk.build(self.edges)
        if counts_out(self.norm):
            walk.degrees(self.edges, weighted=weighs(self.norm))
        if loaded:
            walk.moves.append(LoadedRows(self.edges, self.x, width, self.scales_sources))
        else:
            walk.moves.append(TileRows(self.edges, width / size.feature))
        if run.product is None or size.workers == 1:
            walk.need(more + walk.result(run) + size.in_flight(width))
            return "tile" if run.product is None else "rows"
        walk.need(more + walk.tensor(self.out) + size.in_flight(width))
        return self._walk_product(walk, run, run.product)

    def _walk_product(self, walk: Walk, run: Run, product: Product) -> Layout:
        """Behind the sums; what was summed makes room for it."""
        walk.read(self.x)
        walk.need(walk.tensor(self.out) + walk.result(run))
        walk.convert(self.out, product.layer)
        return "rows"

    def _walk_together(self, walk: Walk) -> bool:
        """Whether the sums are there, made with those of other relations: as lowered."""
        group = self.sharing(walk.program)
        if walk.grid.graph == 1 or len(group) == 1:
            return False
        if self.out not in walk.ahead:
            width, names = walk.width(self.x), self.together(walk.program)
            walk.get(self.x, "tile")
            walk.build(*(step.edges for step in group))
            columns = width / walk.grid.feature
            walk.moves.append(TileRows(self.edges, columns, together=names))
            walk.ahead |= {step.out: walk.tensor(step.out) for step in group}
            walk.need(walk.size.of_relations(names).in_flight(width))
        return True

    def _walk_finish(self, walk: Walk, run: Run) -> Layout:
        """The rest of a run whose sums are there."""
        sums = walk.ahead.pop(self.out)
        if run.product is not None:
            return self._walk_product(walk, run, run.product)
        walk.need(sums)
        return "tile"

    def values_per_edge(self, widths: dict[str, int]) -> float:
        """The columns of a row."""
        return float(widths[self.x])

    @property
    def scales_sources(self) -> bool:
        """Those of the norm."""
        return scales_sources(self.norm)

    @property
    def commutes(self) -> bool:
        """A sum does, whatever factors and edge weights it has."""
        return self.reduce == "sum"
