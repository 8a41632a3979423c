"""The matrix product."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from embertide.graph.gemm import linear, ring_gemm
from embertide.graph.landing import RowProduct
from embertide.kernels.epilogue import NOTHING, Epilogue
from embertide.kernels.memory import as_type
from embertide.layouts import Layout, Shard
from embertide.program.steps.alive import Alive
from embertide.program.steps.base import Leader, Norms, Param, Read
from embertide.program.steps.execution import Execution
from embertide.program.steps.op import Input, Op, Product
from embertide.program.steps.reference import ReferenceRun
from embertide.program.steps.shapes import Shapes


@dataclass(frozen=True, kw_only=True)
class Linear(Leader, kind="linear"):
    """out = x @ params[weight].T (+ params[bias]); weight is [D', D].

    Of the loaded features it is computed where they were loaded; of a tile in a ring.
    """

    x: Read
    weight: Param
    bias: Param | None = None

    whole: ClassVar[bool] = True
    reads_rows: ClassVar[bool] = True
    exact: ClassVar[bool] = True

    def width(self, shapes: Shapes) -> int:
        """D'."""
        width = shapes.matrix(self.weight, shapes.width(self.x))
        shapes.values(self.bias, width)
        return width

    def reference(self, run: ReferenceRun) -> Tensor:
        """x @ W.T + b."""
        return functional.linear(run.tensors[self.x], run.params[self.weight], run.param(self.bias))

    def place(self, op: Op, at: Alive) -> Op:
        """``rows``, or of loaded features the layout that the readers of the result want."""
        rows = at.program.wants_rows(op.out) or op.part or op.onto is not None
        return place_product(self.x, op, at, landed="rows" if rows else "tile")

    def lower(self, execution: Execution, op: Op) -> Shard:
        """Collective: every rank must call."""
        onto, last = execution.onto(op), execution.epilogue(op, "rows")
        return multiply(execution, op, self.x, execution.param(self.weight), last, onto)

    def flops_per_node(self, widths: dict[str, int]) -> float:
        """Two operations for each value of the weight."""
        return 2.0 * widths[self.x] * widths[self.out]

    def gains(self, norms: Norms) -> list[tuple[str, float]]:
        """The spectral norm of the weight."""
        return [(self.x, norms(self.weight))]

    @property
    def product(self) -> Product:
        """The step itself."""
        return Product(self.weight, self.bias, self.layer)


def place_product(x: str, op: Op, at: Alive, *, landed: Layout) -> Op:
    """A product is made of loaded features where they are, of rows, or of a tile in a ring.

    Args:
        landed: the layout in which a product of loaded features goes to its place.
    """
    if at.has(x, "loaded"):
        # Factors of its reader are those of the rows' owners.
        return replace(op.placed([Input(x, "loaded")], landed), scales=False)
    rows = at.has(x, "rows") or at.grid.feature == 1
    return op.placed([Input(x, "rows" if rows else "tile")], "rows")


def multiply(
    execution: Execution,
    op: Op,
    x: str,
    weight: Tensor,
    last: Epilogue,
    onto: Tensor | None = None,
) -> Shard:
    """epilogue(x @ weight.T), as it was placed. Collective: every rank must call.

    Args:
        onto: [N/(P*M), D'] what the product is added to, in place.
    """
    layer, width, dtype = op.steps[0].layer, len(weight), execution.tensors.type_of(op.out)
    if op.reads(x, "loaded"):
        return execution.tensors.land(
            x,
            RowProduct(weight, last),
            layout=op.layout,
            width=width,
            layer=layer,
            onto=onto,
            dtype=dtype if onto is None else torch.float32,
        )
    if onto is not None and op.adds_last:
        data = last.apply_(onto.add_(linear(execution.rows(x, layer), weight, NOTHING)))
    elif op.reads(x, "rows"):
        last = execution.of_wanted(op, "rows", last)
        data = linear(execution.rows(x, layer), weight, last, onto, dtype=dtype)
    else:
        tile = as_type(execution.tile(x, layer), execution.row_type)
        channel = execution.channel(layer)
        data = ring_gemm(channel, execution.ranges_of(x), tile, weight, last, onto)
    return Shard("rows", data, width)
