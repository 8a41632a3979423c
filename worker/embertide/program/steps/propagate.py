"""The same sum over in-edges several times, which never leaves the ``tile`` layout.

No product and no conversion stands between the sums (NeutronTP, section 4): with one partition
nothing moves between the first and the last, else the rows of neighbours do, once for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from embertide.errors import ModelError
from embertide.graph.arriving import Operand, tile_operand
from embertide.graph.sources import Sources
from embertide.graph.spmm import Reduction, spmm
from embertide.kernels.epilogue import Epilogue
from embertide.layouts import Shard
from embertide.program.steps.aggregate import Aggregate
from embertide.program.steps.alive import Alive
from embertide.program.steps.base import EdgeStep
from embertide.program.steps.execution import Execution
from embertide.program.steps.norms import (
    Norm,
    degrees_needed,
    degrees_read,
    reference_source_factors,
    source_factors,
    target_factors,
)
from embertide.program.steps.op import Input, Op
from embertide.program.steps.reference import Degrees, End, ReferenceRun
from embertide.program.steps.shapes import Shapes


@dataclass(frozen=True, kw_only=True)
class Propagate(EdgeStep, kind="propagate"):
    """h_0 = x, h_t = (1 - alpha) * A(h_{t-1}) + alpha * x; A is the sum that `aggregate` makes.

    out = h_times (SGC; APPNP with ``alpha``, Gasteiger et al., eq. 4), or with ``hops``
    sum over t of hops[t] * h_t, t from 0 to ``times`` (LightGCN, SSGC).
    """

    times: int
    norm: Norm = "none"
    alpha: float = 0.0
    hops: tuple[float, ...] | None = None

    exact: ClassVar[bool] = True

    def width(self, shapes: Shapes) -> int:
        """The width of ``x``."""
        if self.times < 1:
            raise ModelError(f"times is {self.times}, but must be at least 1")
        if self.hops is not None and len(self.hops) != self.times + 1:
            raise ModelError(f"hops has {len(self.hops)} numbers, but must have {self.times + 1}")
        return shapes.width(self.x)

    @property
    def passes(self) -> int:
        """One for each sum."""
        return self.times

    @property
    def shares(self) -> tuple[float, ...] | None:
        """See ``hops``."""
        return self.hops

    @property
    def only_gathers(self) -> bool:
        """The first h is summed, and not added as it is."""
        return not self.alpha and self.hops is None

    @property
    def gathered(self) -> tuple[str, ...]:
        """``x``, where it is only summed."""
        return (self.x,) if self.only_gathers else ()

    def node_type(self, types: dict[str, str]) -> str:
        """The one type that all sums are of."""
        node_type = super().node_type(types)
        if node_type != types[self.x]:
            raise ModelError(
                f"step {self.out!r} sums again what it has summed, but {self.relation} leads from"
                " one node type to another"
            )
        return node_type

    def reference(self, run: ReferenceRun) -> Tensor:
        """One sum after the other."""
        every = [run.tensors[self.x]]
        for _ in range(self.times):
            every.append(self.reference_pass(run, every[-1]))
        if self.hops is None:
            return every[-1]
        return sum((hop * h for hop, h in zip(self.hops, every, strict=True)), every[0] * 0)

    def reference_pass(self, run: ReferenceRun, before: Tensor) -> Tensor:
        """h_t in float64 of h_(t-1) [N, D]."""
        once = Aggregate(
            out=self.out,
            layer=self.layer,
            x=self.out,
            norm=self.norm,
            loops=self.loops,
            loop_weight=self.loop_weight,
            edge_weight=self.edge_weight,
            relation=self.relation,
        )
        summed = once.reference(replace(run, tensors={self.out: before}))
        return (1 - self.alpha) * summed + self.alpha * run.tensors[self.x]

    @property
    def degrees_read(self) -> set[tuple[End, bool]]:
        """The degrees that the norm needs."""
        return degrees_read(self.norm)

    @property
    def degrees_needed(self) -> set[tuple[End, bool]]:
        """Those of both ends that the norm has factors of."""
        return degrees_needed(self.norm)

    def reference_source_factors(self, degrees: Degrees) -> Tensor | None:
        """The norm's factors of sources."""
        return reference_source_factors(self.norm, degrees)

    # -- how it runs -------------------------------------------------------------------------

    def place(self, op: Op, _at: Alive) -> Op:
        """From tile to tile."""
        return op.placed([Input(self.x, "tile")], "tile")

    def lower(self, execution: Execution, _op: Op) -> Shard:
        """Collective: every rank must call."""
        tensors, width = execution.tensors, execution.program.widths[self.out]
        h = execution.gathered(self.x, "tile", self.layer)
        x = h if self.only_gathers else execution.tile(self.x, self.layer)
        over, teleport = self._over(execution, x), x if self.alpha else None
        total = None if self.hops is None else x * self.hops[0]
        del x
        if teleport is None:
            # A tensor that is read once is freed before the second sum.
            tensors.read(self.x)
        for number in range(1, self.times + 1):
            # Factors of sources are multiplied once per node, by the sum before: but for the first
            # sum, the result, and sums that are results as well.
            inner = total is None and number < self.times
            last = Epilogue(scale=over.source if inner else None, added=teleport, share=self.alpha)
            scale = over.source if total is not None or number == 1 else None
            dtype = execution.row_type if number < self.times else torch.float32
            h = self._hop(execution, over, tile_operand(h, scale), last, dtype)
            scaled = last.scale is not None
            execution.on_hop(self, number, Shard("tile", h, width), scaled=scaled)
            if total is not None and self.hops is not None:
                total.add_(h, alpha=self.hops[number])
        return Shard("tile", h if total is None else total, width)

    def _over(self, execution: Execution, x: Tensor) -> _Over:
        """The values that every sum needs. Collective: every rank must call."""
        graph = execution.graph(self.edges)
        source = source_factors(self.norm, self.edges, graph)
        target = target_factors(self.norm, self.edges, graph)
        if self.alpha:
            target = torch.ones(len(x), device=x.device) if target is None else target
            target = target * (1 - self.alpha)
        weighted = self.edge_weight and graph.csr.weighted
        return _Over(graph.tiles(), source, Reduction("sum", weighted, target))

    def _hop(
        self, execution: Execution, over: _Over, h: Operand, last: Epilogue, dtype: torch.dtype
    ) -> Tensor:
        """The next h, in another tensor than the last. Collective: every rank must call."""
        channel = execution.channel(self.layer, "graph", "spmm", self.relation)
        return spmm(
            channel, over.sources, h, over.reduction, last, depth=execution.depth, dtype=dtype
        )

    def values_per_edge(self, widths: dict[str, int]) -> float:
        """The columns of a row, each time."""
        return float(self.times * widths[self.x])

    def columns_together(self, _widths: Mapping[str, int], _slices: int) -> int:
        """One: all sums of a column need that column alone."""
        return 1

    @property
    def commutes(self) -> bool:
        """All of it is a sum of rows."""
        return True


@dataclass(frozen=True)
class _Over:
    """The values that every sum needs."""

    sources: Sources
    source: Tensor | None
    reduction: Reduction
