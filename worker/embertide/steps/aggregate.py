"""Sums and maxima of neighbours, with the product, bias and activation that follow them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from embertide.errors import ModelError
from embertide.kernels.epilogue import NOTHING
from embertide.kernels.memory import as_type
from embertide.layouts import Layout, Shard
from embertide.primitives.gemm import linear, ring_gemm
from embertide.primitives.spmm import Reduction, spmm, spmm_each, spmm_linear
from embertide.spec.grid import GridShape
from embertide.steps import source_rows
from embertide.steps.base import EdgeStep, Leader
from embertide.steps.execution import Execution
from embertide.steps.norms import (
    WITHIN_A_TYPE,
    Norm,
    counts_out,
    degrees_read,
    reference_factors,
    reference_source_factors,
    scales_sources,
    source_factors,
    target_factors,
    weighs,
)
from embertide.steps.program import Program
from embertide.steps.reference import Degrees, End, ReferenceRun
from embertide.steps.run import Product, Run
from embertide.steps.shapes import Shapes
from embertide.steps.walk import Walk


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
        reduction, source = self._reduction(execution)
        channel, (sources,), operand = source_rows.find(execution, [self], source)
        width, depth = execution.program.widths[run.out], execution.depth
        if run.product is None:
            last = execution.scaling_epilogue(run, "tile")
            dtype = execution.tensors.type_of(run.out)
            out = spmm(channel, sources, operand, reduction, last, depth=depth, dtype=dtype)
            return Shard("tile", out, width)
        if execution.grid.world == 1 or (sources.window and execution.grid.feature == 1):
            weight = execution.param(run.product.weight)
            last, onto = execution.scaling_epilogue(run, "rows"), execution.onto(run)
            dtype = execution.tensors.type_of(run.out)
            out = spmm_linear(channel, sources, operand, weight, reduction, last, onto, dtype=dtype)
            return Shard("rows", out, width)
        dtype = self._sum_type(execution)
        sums = spmm(channel, sources, operand, reduction, NOTHING, depth=depth, dtype=dtype)
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
            dtype = execution.tensors.type_of(run.out)
            return Shard("rows", linear(sums, weight, last, onto, dtype=dtype), width)
        channel = execution.channel(product.layer)
        ranges, sums = execution.ranges_of(self.out), as_type(sums, execution.row_type)
        return Shard("rows", ring_gemm(channel, ranges, sums, weight, last, onto), width)

    def _sum_type(self, execution: Execution) -> torch.dtype:
        """The type of sums that are multiplied next, which travel first where there are slices."""
        return execution.row_type if execution.grid.feature > 1 else torch.float32

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
        steps = self._group(execution.program, execution.grid.shape)
        if len(steps) == 1 or source_rows.in_place(execution, self.x):
            return False
        channel, sources, operand = source_rows.find(execution, steps, None)
        reductions = [step._reduction(execution)[0] for step in steps]
        lasts = [NOTHING] * len(steps)
        sums = spmm_each(channel, sources, operand, reductions, lasts, depth=execution.depth)
        made = [Shard("tile", one, execution.program.widths[self.x]) for one in sums]
        execution.ahead.update(zip((step.out for step in steps), made, strict=True))
        return True

    def _group(self, program: Program, grid: GridShape) -> list[Aggregate]:
        """The sums whose rows travel once for all, in order: this one alone where none travel."""
        if grid.graph == 1:
            return [self]
        return [step for step in program.groups[self.out] if isinstance(step, Aggregate)]

    def _reduction(self, execution: Execution) -> tuple[Reduction, torch.Tensor | None]:
        """How we sum, and [N/P] factors that our rows still need as sources, or None.

        Collective: every rank must call.
        """
        graph = execution.graph(self.edges)
        source = None if self.x in execution.scaled else self.source_factors(execution)
        weighted = self.edge_weight and graph.csr.weights is not None
        target = target_factors(self.norm, self.edges, graph)
        return Reduction(self.reduce, weighted, target), source

    def source_factors(self, execution: Execution) -> torch.Tensor | None:
        """Those of the norm. Collective: every rank must call."""
        return source_factors(self.norm, self.edges, execution.graph(self.edges))

    @property
    def degrees_read(self) -> set[tuple[End, bool]]:
        """Those of the norm."""
        return degrees_read(self.norm)

    def reference_source_factors(self, degrees: Degrees) -> torch.Tensor | None:
        """Those of the norm."""
        return reference_source_factors(self.norm, degrees)

    # -- what it costs -----------------------------------------------------------------------

    def walk_run(self, walk: Walk, run: Run) -> Layout:
        """Sums beside what is summed; among several a product comes when that is gone."""
        if self._walk_together(walk):
            return self._walk_finish(walk, run)
        loaded = source_rows.at_loaders(walk, self.x)
        if counts_out(self.norm):
            walk.degrees(self.edges, weighted=weighs(self.norm))
        beside = source_rows.bring(walk, [self], scaled=self.scales_sources)
        fused = walk.size.reads_all
        if run.product is None or fused:
            result = walk.result(run)
            walk.need(
                beside + (self._made(walk, result, loaded) if run.product is None else result)
            )
            return "tile" if run.product is None else "rows"
        walk.need(beside + self._made(walk, self._sum_bytes(walk), loaded))
        return self._walk_product(walk, run, run.product)

    def _walk_product(self, walk: Walk, run: Run, product: Product) -> Layout:
        """Behind the sums; what was summed makes room for it."""
        walk.read(self.x)
        walk.need(self._sum_bytes(walk) + walk.result(run))
        walk.convert(self.out, product.layer)
        if walk.grid.feature > 1 and run.onto is None:
            walk.round(run.out)
        return "rows"

    def _sum_bytes(self, walk: Walk) -> float:
        """Bytes of sums that are multiplied next, which travel first where there are slices."""
        return (walk.sent(self.out) if walk.grid.feature > 1 else 0.0) or walk.whole(self.out)

    def _made(self, walk: Walk, held: float, loaded: bool) -> float:
        """Bytes of sums that are ``held`` so, while groups are added to them in float32."""
        whole = walk.whole(self.out)
        grouped = loaded or (walk.grid.graph > 1 and not walk.size.in_place)
        return whole + held if grouped and held < whole else held

    def _walk_together(self, walk: Walk) -> bool:
        """Whether the sums are there, made with those of other relations: as lowered."""
        if self.out in walk.ahead:
            return True
        steps = self._group(walk.program, walk.grid)
        if len(steps) == 1 or source_rows.is_in_place(walk, self.x):
            return False
        beside = source_rows.bring(walk, steps, scaled=False)
        walk.ahead |= {step.out: walk.whole(step.out) for step in steps}
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
