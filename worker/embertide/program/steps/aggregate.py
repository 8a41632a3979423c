"""Sums and maxima of neighbours, with the product, bias and activation that follow them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from embertide.errors import ModelError
from embertide.graph.gemm import linear, ring_gemm
from embertide.graph.spmm import Reduction, spmm, spmm_each, spmm_linear
from embertide.kernels.distances import add_at_targets
from embertide.kernels.epilogue import NOTHING
from embertide.kernels.memory import as_type
from embertide.layouts import Layout, Shard
from embertide.program.steps import source_rows
from embertide.program.steps.alive import Alive
from embertide.program.steps.base import EdgeStep, Leader
from embertide.program.steps.execution import Execution
from embertide.program.steps.frontier import Far, Moved
from embertide.program.steps.norms import (
    WITHIN_A_TYPE,
    Norm,
    degrees_needed,
    degrees_read,
    reference_factors,
    reference_source_factors,
    scales_sources,
    source_factors,
    target_factors,
)
from embertide.program.steps.op import Op, Product
from embertide.program.steps.reference import Degrees, End, ReferenceRun
from embertide.program.steps.shapes import Shapes


@dataclass(frozen=True, kw_only=True)
class Aggregate(EdgeStep, Leader, kind="aggregate"):
    """out[i] = reduce over j in N(i) of w_ij * x[j], normalised; rows without in-edges are zero.

    ``max`` takes no norm.
    """

    reduce: Literal["sum", "max"] = "sum"
    norm: Norm = "none"

    takes_product: ClassVar[bool] = True
    exact: ClassVar[bool] = True

    def width(self, shapes: Shapes) -> int:
        """The width of ``x``."""
        return shapes.width(self.x)

    def node_type(self, types: dict[str, str]) -> str:
        """The destination type; a norm that takes every node as both ends stays within one."""
        destination = super().node_type(types)
        if self.norm in WITHIN_A_TYPE and destination != types[self.x]:
            raise ModelError(
                f"step {self.out!r}: norm {self.norm} counts every node as source and destination,"
                f" but {self.relation} leads from one node type to another; use both, in or out"
            )
        return destination

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
    def shares_rows(self) -> bool:
        """If rows are taken as they are: factors of sources differ by relation."""
        return not self.scales_sources

    def place(self, op: Op, at: Alive) -> Op:
        """A ``tile``; ``rows`` after a product. Sums of other relations may be made with ours."""
        travel = at.grid.graph > 1 and not source_rows.are_in_place(self.x, at)
        steps, source = at.group_of(self, travel=travel), source_rows.place(self.x, at)
        layout: Layout = "rows" if op.product else "tile"
        return op.placed([source], layout, brings=None if len(steps) == 1 else steps)

    def lower(self, execution: Execution, op: Op) -> Shard:
        """Collective: every rank must call."""
        if op.brings:
            execution.tensors.add(op.brings, self._sum_all(execution, op))
        if op.finishes_sums:
            return self._finish(execution, op, execution.tensors.take(self.out).data)
        reduction, source = self._reduction(execution)
        channel, (sources,), operand = source_rows.find(execution, op, [self], source)
        depth = execution.depth
        if op.product is None:
            last = execution.epilogue(op, "tile")
            dtype = execution.tensors.type_of(op.out)
            out = spmm(channel, sources, operand, reduction, last, depth=depth, dtype=dtype)
            return execution.result(op, out)
        if execution.reads_all:
            weight = execution.param(op.product.weight)
            last, onto = execution.epilogue(op, "rows"), execution.onto(op)
            last = execution.of_wanted(op, "rows", last)
            dtype = execution.tensors.type_of(op.out)
            out = spmm_linear(channel, sources, operand, weight, reduction, last, onto, dtype=dtype)
            return execution.result(op, out)
        # The type in which sums travel next, where there are slices.
        dtype = execution.row_type if execution.grid.feature > 1 else torch.float32
        sums = spmm(channel, sources, operand, reduction, NOTHING, depth=depth, dtype=dtype)
        # What was summed makes room for the product.
        del sources, operand
        return self._multiplied(execution, op, op.product, sums)

    def _sum_all(self, execution: Execution, op: Op) -> list[Shard]:
        """The sums of all relations that need the same rows. Collective: every rank must call."""
        steps = [step for step in op.brings if isinstance(step, Aggregate)]
        channel, sources, operand = source_rows.find(execution, op, steps, None)
        reductions = [step._reduction(execution)[0] for step in steps]
        lasts = [NOTHING] * len(steps)
        sums = spmm_each(channel, sources, operand, reductions, lasts, depth=execution.depth)
        return [Shard("tile", own, execution.program.widths[self.x]) for own in sums]

    def _finish(self, execution: Execution, op: Op, sums: torch.Tensor) -> Shard:
        """Apply what follows the sums to their rows. Collective: every rank must call."""
        if op.product is not None:
            return self._multiplied(execution, op, op.product, sums)
        return execution.result(op, execution.epilogue(op, "tile").apply_(sums))

    def _multiplied(
        self, execution: Execution, op: Op, product: Product, sums: torch.Tensor
    ) -> Shard:
        """Sums, times the weight of a product. Collective: every rank must call."""
        execution.tensors.read(self.x)
        last, onto = execution.epilogue(op, "rows"), execution.onto(op)
        weight = execution.param(product.weight)
        if execution.grid.feature == 1:
            dtype = execution.tensors.type_of(op.out)
            return execution.result(op, linear(sums, weight, last, onto, dtype=dtype))
        channel = execution.channel(product.layer)
        ranges, sums = execution.ranges_of(self.out), as_type(sums, execution.row_type)
        return execution.result(op, ring_gemm(channel, ranges, sums, weight, last, onto))

    def _reduction(self, execution: Execution) -> tuple[Reduction, torch.Tensor | None]:
        """How we sum, and [N/P] factors that our rows still need as sources, or None.

        Collective: every rank must call.
        """
        graph = execution.graph(self.edges)
        source = None if self.x in execution.scaled else self.source_factors(execution)
        weighted = self.edge_weight and graph.csr.weighted
        target = target_factors(self.norm, self.edges, graph)
        return Reduction(self.reduce, weighted, target), source

    @property
    def has_bounds(self) -> bool:
        """A sum has."""
        return self.commutes

    def moves(self, at: Moved) -> Far:
        """The sum of how far its sources move. Collective: every rank must call."""
        execution, of_x = at.execution, at.everywhere(self.x)
        csr = at.edges_of(self.layer, self.relation)
        reduction, source = self._reduction(execution)
        if source is not None:
            channel = execution.channel(self.layer, "graph", "refresh", self.relation)
            factors = torch.cat(channel.all_gather(source))[of_x.rows]
            of_x = of_x.times(factors.double().abs())
        sums, own = Far.none(), of_x.within(csr.first, csr.first + csr.rows)
        if len(of_x.rows):
            numbers = of_x.of_all(execution.ranges_of(self.x).nodes)
            every = add_at_targets(csr, numbers, weighted=reduction.weighted)
            rows = every.nonzero().squeeze(1)
            sums = Far(rows + csr.first, every[rows])
        if self.loops not in ("keep", "none"):
            # A loop that is there already counts twice, which is farther.
            loop = abs(self.loop_weight) if reduction.weighted else 1.0
            sums = Far.sum([sums, own.times(loop)])
        if reduction.target is None:
            return sums
        return sums.times(reduction.target[sums.rows - csr.first].double().abs())

    def source_factors(self, execution: Execution) -> torch.Tensor | None:
        """The norm's factors of sources. Collective: every rank must call."""
        return source_factors(self.norm, self.edges, execution.graph(self.edges))

    @property
    def degrees_read(self) -> set[tuple[End, bool]]:
        """The degrees that the norm needs."""
        return degrees_read(self.norm)

    @property
    def degrees_needed(self) -> set[tuple[End, bool]]:
        """Those of both ends that the norm has factors of."""
        return degrees_needed(self.norm)

    def reference_source_factors(self, degrees: Degrees) -> torch.Tensor | None:
        """The norm's factors of sources."""
        return reference_source_factors(self.norm, degrees)

    def values_per_edge(self, widths: dict[str, int]) -> float:
        """The columns of a row."""
        return float(widths[self.x])

    @property
    def scales_sources(self) -> bool:
        """Whether the norm has factors of sources."""
        return scales_sources(self.norm)

    def columns_together(self, _widths: Mapping[str, int], _slices: int) -> int:
        """One: each is summed by itself."""
        return 1

    @property
    def commutes(self) -> bool:
        """True: a sum commutes with a product, whatever factors and edge weights it has."""
        return self.reduce == "sum"
