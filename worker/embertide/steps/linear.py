"""The matrix product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from embertide.kernels.epilogue import Epilogue
from embertide.kernels.memory import as_type
from embertide.layouts import Layout, Shard
from embertide.primitives.gemm import linear, ring_gemm
from embertide.primitives.landing_in_place import RowProduct
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

    whole: ClassVar[bool] = True

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
        loaded, onto = execution.tensors.is_loaded(self.x), execution.onto(run)
        finish = execution.epilogue if loaded else execution.scaling_epilogue
        last, weight = finish(run, "rows"), execution.param(self.weight)
        layout = _landing(run, rows=execution.tensors.wants_rows(run.out))
        dtype = execution.tensors.type_of(run.out)
        return multiply(
            execution, self.x, self.layer, weight, last, landed=layout, onto=onto, dtype=dtype
        )

    def wants_rows(self, _name: str) -> bool:
        """A product reads whole rows."""
        return True

    def walk_run(self, walk: Walk, run: Run) -> Layout:
        """The result beside what is read; a tile is multiplied on its way to rows."""
        layout = _landing(run, rows=walk.program.wants_rows(run.out))
        result = walk.result(run)
        return walk_product(walk, self.x, self.layer, run.out, landed=layout, result=result)

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


def multiply(
    execution: Execution,
    x: str,
    layer: int,
    weight: Tensor,
    last: Epilogue,
    *,
    landed: Layout,
    onto: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> Shard:
    """epilogue(x @ weight.T) as ``rows``; of loaded features where they were loaded.

    Collective: every rank must call.

    Args:
        landed: the layout of a product of loaded features.
        onto: [N/(P*M), D'] what the product is added to, in place; loaded ones arrive as rows then.
        dtype: of a result that is added to nothing.
    """
    tensors, channel = execution.tensors, execution.channel(layer)
    if tensors.is_loaded(x):
        product = RowProduct(weight, last)
        return tensors.land(
            x,
            product,
            layout=landed,
            width=len(weight),
            layer=layer,
            onto=onto,
            dtype=dtype if onto is None else torch.float32,
        )
    if tensors.has(x, "rows") or execution.grid.feature == 1:
        data = linear(tensors.get(x, "rows", channel).data, weight, last, onto, dtype=dtype)
    else:
        tile = as_type(tensors.get(x, "tile", channel).data, execution.row_type)
        data = ring_gemm(channel, execution.ranges_of(x), tile, weight, last, onto)
    return Shard("rows", data, len(weight))


def walk_product(
    walk: Walk, x: str, layer: int, out: str, *, landed: Layout, result: float | None = None
) -> Layout:
    """As :func:`multiply` does: the result beside what is read; a tile is multiplied on its way.

    Args:
        out: the product, or what is made of it element by element.
        landed: the layout of a product of loaded features.
        result: bytes of it that are not there yet; None: all.
    """
    if walk.has(x, "loaded"):
        return walk.land_product(x, out, landed)
    walk.need(walk.tensor(out) if result is None else result)
    if not walk.has(x, "rows"):
        walk.convert(x, layer)
        if walk.grid.feature > 1:
            walk.need(walk.sent(x))
            walk.round(out)
    return "rows"
