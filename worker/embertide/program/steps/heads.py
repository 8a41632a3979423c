"""Steps over the heads of a tensor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from embertide.errors import ModelError
from embertide.kernels import nodewise
from embertide.kernels.epilogue import Epilogue
from embertide.layouts import Shard
from embertide.program.steps.alive import Alive
from embertide.program.steps.base import Param
from embertide.program.steps.execution import Execution
from embertide.program.steps.linear import multiply, place_product
from embertide.program.steps.nodewise import RowStep
from embertide.program.steps.op import Op, Product
from embertide.program.steps.reference import ReferenceRun
from embertide.program.steps.shapes import Shapes


@dataclass(frozen=True, kw_only=True)
class HeadDot(RowStep, kind="head_dot"):
    """out[n, h] = sum_f y[n, h*F + f] * params[vector][h, f]; out is [N, H].

    y is ``x``, or with a ``weight`` x @ params[weight].T (+ params[bias]), which is never made:
    (x W) a = x (W a), one product with H columns.
    """

    vector: Param
    heads: int
    weight: Param | None = None
    bias: Param | None = None

    sliced: ClassVar[bool] = False
    exact: ClassVar[bool] = True

    def width(self, shapes: Shapes) -> int:
        """H."""
        scored = shapes.width(self.x)
        if self.weight is not None:
            scored = shapes.matrix(self.weight, scored)
            if scored % max(1, self.heads):
                raise ModelError(
                    f"{scored} columns are made, which {self.heads} heads do not divide"
                )
        elif self.bias is not None:
            raise ModelError("bias is that of a weight, and there is none")
        else:
            shapes.per_head(self.x, self.heads)
        shapes.values(self.bias, scored)
        shapes.values(self.vector, scored)
        return self.heads

    def reference(self, run: ReferenceRun) -> Tensor:
        """A dot product per head, of the whole product where there is one."""
        x = run.tensors[self.x]
        if self.weight is not None:
            x = functional.linear(x, run.params[self.weight], run.param(self.bias))
        vector = run.params[self.vector].reshape(self.heads, -1)
        return (x.reshape(len(x), self.heads, x.shape[1] // self.heads) * vector).sum(2)

    def place(self, op: Op, at: Alive) -> Op:
        """Rows; of loaded features it is computed where they were loaded."""
        if self.weight is None:
            return super().place(op, at)
        return place_product(self.x, op, at, landed="rows")

    def lower(self, execution: Execution, op: Op) -> Shard:
        """Collective: every rank must call."""
        if self.weight is None:
            return super().lower(execution, op)
        folded, shift = fold_heads(
            execution.param(self.vector),
            execution.param(self.weight),
            execution.tensors.param(self.bias),
            self.heads,
        )
        return multiply(execution, op, self.x, folded, Epilogue(shift))

    def compute(self, execution: Execution, x: Tensor) -> Tensor:
        """[n, H*F] -> [n, H]."""
        return nodewise.head_dot(x, execution.param(self.vector).reshape(self.heads, -1))

    def of_product(self, x: str, product: Product) -> HeadDot | None:
        """(x W) a = x (W a)."""
        if self.weight is not None:
            return None
        return replace(self, x=x, weight=product.weight, bias=product.bias)

    def flops_per_node(self, widths: dict[str, int]) -> float:
        """Those of the product, if there is one."""
        return 0.0 if self.weight is None else 2.0 * widths[self.x] * self.heads


def fold_heads(
    vector: Tensor, weight: Tensor, bias: Tensor | None, heads: int
) -> tuple[Tensor, Tensor | None]:
    """A vector [H, F] of heads applied to a product [H*F, D]: its weight [H, D] and bias [H].

    Summed in float64; returned in the weight's type.
    """
    apart = vector.double().reshape(heads, -1)
    folded = torch.einsum("hf,hfd->hd", apart, weight.double().reshape(*apart.shape, -1))
    shift = None if bias is None else (apart * bias.double().reshape(apart.shape)).sum(1)
    return folded.to(weight.dtype), None if shift is None else shift.to(weight.dtype)


@dataclass(frozen=True, kw_only=True)
class HeadMean(RowStep, kind="head_mean"):
    """[N, H*F] -> [N, F]: the mean over heads."""

    heads: int

    exact: ClassVar[bool] = True

    def width(self, shapes: Shapes) -> int:
        """F."""
        return shapes.per_head(self.x, self.heads)

    def reference(self, run: ReferenceRun) -> Tensor:
        """The mean over heads."""
        return run.heads(self.x, self.heads).mean(1)

    def compute(self, _execution: Execution, x: Tensor) -> Tensor:
        """[n, H*F] -> [n, F]."""
        return x.reshape(x.shape[0], self.heads, -1).mean(1)
