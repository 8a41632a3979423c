"""The matrix product."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from embertide.kernels.spmm import NOTHING
from embertide.layouts import Layout, Shard
from embertide.primitives.gemm import linear, ring_gemm
from embertide.steps.base import Leader, Param, Read
from embertide.steps.execution import Execution
from embertide.steps.reference import ReferenceRun
from embertide.steps.run import Product, Run
from embertide.steps.shapes import Shapes
from embertide.steps.walk import Walk


@dataclass(frozen=True, kw_only=True)
class Linear(Leader, kind="linear"):
    """out = x @ params[weight].T (+ params[bias]); weight is [D', D].

    Of the loaded features it is computed where they were loaded; of a tile in a ring.
    """

    x: Read
    weight: Param
    bias: Param | None = None

    def width(self, shapes: Shapes) -> int:
        """D'."""
        width = shapes.matrix(self.weight, shapes.width(self.x))
        shapes.values(self.bias, width)
        return width

    def reference(self, run: ReferenceRun) -> Tensor:
        """x @ W.T + b."""
        return functional.linear(run.tensors[self.x], run.params[self.weight], run.param(self.bias))

    def lower_run(self, execution: Execution, run: Run) -> Shard:
        """``rows``, or of loaded features where the readers of the result want it.

        Collective: every rank must call.
        """
        tensors, channel = execution.tensors, execution.channel(self.layer)
        weight = execution.param(self.weight)
        if tensors.is_loaded(self.x):
            return self._land(execution, run)
        last, onto = execution.scaling_epilogue(run, "rows"), execution.onto(run)
        if tensors.has(self.x, "rows") or execution.grid.feature == 1:
            data = linear(tensors.get(self.x, "rows", channel).data, weight, last, onto)
        else:
            tile = tensors.get(self.x, "tile", channel).data
            data = ring_gemm(channel, execution.ranges_of(self.x), tile, weight, last, onto)
        return Shard("rows", data, len(weight))

    def _land(self, execution: Execution, run: Run) -> Shard:
        """Of loaded features: each product goes to its owner. Collective: every rank must call."""
        tensors, weight = execution.tensors, execution.param(self.weight)
        last, onto = execution.epilogue(run, "rows"), execution.onto(run)
        alone = NOTHING if run.onto else last
        landed = tensors.land(
            self.x,
            lambda x: linear(x, weight, alone),
            layout=_landing(run, rows=tensors.wants_rows(run.out)),
            width=len(weight),
            layer=self.layer,
        )
        if onto is None:
            return landed
        return Shard("rows", last.apply_(onto.add_(landed.data)), len(weight))

    def wants_rows(self, _name: str) -> bool:
        """A product reads whole rows."""
        return True

    def walk_run(self, walk: Walk, run: Run) -> Layout:
        """The result beside what is read; a tile is multiplied on its way to rows."""
        more = walk.result(run)
        if walk.has(self.x, "loaded"):
            rows = walk.program.wants_rows(run.out)
            return walk.land_product(
                self.x, walk.width(self.out), run.out, _landing(run, rows=rows)
            )
        walk.need(more)
        if not walk.has(self.x, "rows"):
            walk.convert(self.x, self.layer)
        return "rows"

    def flops_per_node(self, widths: dict[str, int]) -> float:
        """Two for each value of the weight."""
        return 2.0 * widths[self.x] * widths[self.out]

    @property
    def product(self) -> Product:
        """The step itself."""
        return Product(self.weight, self.bias, self.layer)


def _landing(run: Run, *, rows: bool) -> Layout:
    """The layout in which products of loaded features arrive: sums are made in rows."""
    return "rows" if rows or run.part or run.onto else "tile"
