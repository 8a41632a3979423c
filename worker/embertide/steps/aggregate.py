"""Sums and maxima of neighbours, with the product, bias and activation that follow them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from embertide.errors import ModelError
from embertide.kernels.spmm import NOTHING
from embertide.layouts import Layout, Shard
from embertide.primitives.arriving import Operand, tile_operand
from embertide.primitives.directory import look_up
from embertide.primitives.exchange import Channel
from embertide.primitives.gemm import linear, ring_gemm
from embertide.primitives.graph import LayerGraph
from embertide.primitives.landing import loaded_operand
from embertide.primitives.sources import LoadedHolders, Sources
from embertide.primitives.spmm import Reduction, spmm, spmm_each, spmm_linear
from embertide.spec.grid import GridShape
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
"""Of a source while its row is looked up at its loader."""
_REQUEST_BYTES = 4
"""Of a row that was asked for: its number."""


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

    @property
    def shared(self) -> tuple[str, ...]:
        """What is summed, if rows are taken as they are: factors of sources differ by relation."""
        return () if self.scales_sources else (self.x,)

    def lower_run(self, execution: Execution, run: Run) -> Shard:
        """A ``tile``; ``rows`` behind a product. Collective: every rank must call."""
        if self._sum_together(execution):
            return self._finish(execution, run, execution.ahead.pop(self.out).data)
        (reduction,), channel, (sources,), operand = self._over(execution, [self])
        width, depth = execution.program.widths[run.out], execution.depth
        if run.product is None:
            last = execution.scaling_epilogue(run, "tile")
            out = spmm(channel, sources, operand, reduction, last, depth=depth)
            return Shard("tile", out, width)
        if execution.grid.world == 1 or (sources.window and execution.grid.feature == 1):
            weight = execution.param(run.product.weight)
            last, onto = execution.scaling_epilogue(run, "rows"), execution.onto(run)
            out = spmm_linear(channel, sources, operand, weight, reduction, last, onto)
            return Shard("rows", out, width)
        sums = spmm(channel, sources, operand, reduction, NOTHING, depth=depth)
        # What was summed makes room for the product.
        del sources, operand
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

    def _sum_together(self, execution: Execution) -> bool:
        """Whether our sums are there, made with those of other relations that need the same rows.

        The first of these steps makes the sums of all. Collective: every rank must call.
        """
        if self.out in execution.ahead:
            return True
        loaded = execution.tensors.is_loaded(self.x)
        steps = self._sharing(execution.program, execution.grid.shape, loaded=loaded)
        if len(steps) == 1:
            return False
        reductions, channel, sources, operand = self._over(execution, steps)
        lasts = [NOTHING] * len(steps)
        sums = spmm_each(channel, sources, operand, reductions, lasts, depth=execution.depth)
        made = [Shard("tile", one, execution.program.widths[self.x]) for one in sums]
        execution.ahead.update(zip((step.out for step in steps), made, strict=True))
        return True

    def _sharing(self, program: Program, grid: GridShape, *, loaded: bool) -> list[Aggregate]:
        """The sums that are made together: this one alone where no rows of sources travel.

        Args:
            loaded: the rows are where they were read.
        """
        if (grid.workers if loaded else grid.graph) == 1:
            return [self]
        return [step for step in program.groups[self.out] if isinstance(step, Aggregate)]

    def _over(
        self, execution: Execution, steps: Sequence[Aggregate]
    ) -> tuple[list[Reduction], Channel, list[Sources], Operand]:
        """How sums of the same rows are made, and of what. Collective: every rank must call."""
        graphs = [execution.graph(step.edges) for step in steps]
        reductions, source = [], None
        for step, graph in zip(steps, graphs, strict=True):
            weighted = step.edge_weight and graph.csr.weights is not None
            source, target = norm_factors(step.norm, step.edges, graph)
            reductions.append(Reduction(step.reduce, weighted, target))
        if self.x in execution.scaled:
            source = None
        relations = [step.relation for step in steps]
        # One worker puts its rows in order instead: a pattern of its own would cost more than
        # the copy.
        if execution.grid.world > 1 and execution.tensors.is_loaded(self.x):
            channel = execution.channel(self.layer, "world", "features", *relations)
            return reductions, channel, *self._over_loaded(execution, channel, graphs, source)
        operand = tile_operand(execution.tile(self.x, self.layer), source)
        channel = execution.channel(self.layer, "graph", "spmm", *relations)
        return reductions, channel, graphs[0].tiles_with(graphs[1:]), operand

    def _over_loaded(
        self,
        execution: Execution,
        channel: Channel,
        graphs: Sequence[LayerGraph],
        source: torch.Tensor | None,
    ) -> tuple[list[Sources], Operand]:
        """Features on the ranks that loaded them. Collective: every rank must call.

        Args:
            source: [N/P] factors of our rows as sources, or None.
        """
        ranges, loaded = execution.ranges_of(self.x), execution.tensors.loaded(self.x)
        locations = execution.locations[execution.program.types[self.x]]
        scale = None
        if source is not None:
            mine = execution.of_ours(source, "rows", self.x).cpu()
            scale = look_up(channel, ranges, mine, loaded.ids).to(channel.device)
        holders = LoadedHolders(
            channel.axis, lambda nodes: look_up(channel, ranges, locations, nodes).long()
        )
        sources = graphs[0].loaded_with(graphs[1:], holders)
        return sources, loaded_operand(execution.grid, loaded, scale)

    def source_factors(self, execution: Execution) -> torch.Tensor | None:
        """Those of the norm. Collective: every rank must call."""
        return norm_factors(self.norm, self.edges, execution.graph(self.edges))[0]

    # -- what it costs -----------------------------------------------------------------------

    def walk_run(self, walk: Walk, run: Run) -> Layout:
        """Sums beside what is summed; among several a product comes when that is gone."""
        if self._walk_together(walk):
            return self._walk_finish(walk, run)
        beside = self._walk_rows(walk, [self])
        if run.product is None or walk.grid.workers == 1:
            walk.need(beside + walk.result(run))
            return "tile" if run.product is None else "rows"
        walk.need(beside + walk.tensor(self.out))
        return self._walk_product(walk, run, run.product)

    def _walk_rows(self, walk: Walk, steps: Sequence[Aggregate]) -> float:
        """Rows of sources come, for all of these; the bytes of what is held of them."""
        names, width = tuple(step.relation for step in steps), walk.width(self.x)
        union = walk.size.of_relations(names)
        loaded = self._from_loaders(walk)
        held = union.in_flight(width, loaded=loaded)
        if loaded:
            blocks = sum(walk.block.get(name, 0.0) for name in names)
            walk.need(blocks + _SOURCE_BYTES * union.unique())
            held += blocks + _REQUEST_BYTES * union.unique()
            held += walk.tensor(self.x) if union.feature > 1 else 0.0
        else:
            walk.get(self.x, "tile")
        walk.build(*(step.edges for step in steps))
        if counts_out(self.norm):
            walk.degrees(self.edges, weighted=weighs(self.norm))
        if loaded:
            walk.moves.append(LoadedRows(self.edges, self.x, width, self.scales_sources, names))
        else:
            walk.moves.append(TileRows(self.edges, width / union.feature, names))
        return held

    def _from_loaders(self, walk: Walk) -> bool:
        """Whether rows come from where they were read."""
        return walk.has(self.x, "loaded") and walk.grid.workers > 1

    def _walk_product(self, walk: Walk, run: Run, product: Product) -> Layout:
        """Behind the sums; what was summed makes room for it."""
        walk.read(self.x)
        walk.need(walk.tensor(self.out) + walk.result(run))
        walk.convert(self.out, product.layer)
        return "rows"

    def _walk_together(self, walk: Walk) -> bool:
        """Whether the sums are there, made with those of other relations: as lowered."""
        if self.out in walk.ahead:
            return True
        loaded = self._from_loaders(walk)
        steps = self._sharing(walk.program, walk.grid, loaded=loaded)
        if len(steps) == 1:
            return False
        beside = self._walk_rows(walk, steps)
        walk.ahead |= {step.out: walk.tensor(step.out) for step in steps}
        walk.need(beside)
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
