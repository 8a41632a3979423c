"""Attention of every node to all nodes that is linear in both: two products with one small sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from embertide.graph.statistics import sum_over_all
from embertide.kernels.memory import empty_as
from embertide.layouts import Shard
from embertide.program.steps.base import Read, Step
from embertide.program.steps.execution import Execution
from embertide.program.steps.op import Op, Reach
from embertide.program.steps.ops import in_chunks
from embertide.program.steps.reference import ReferenceRun
from embertide.program.steps.shapes import Shapes

CHUNK_VALUES = 1 << 19
"""Values of rows that are widened to float64, or multiplied, at a time."""


@dataclass(frozen=True, kw_only=True)
class LinearAttend(Step, kind="linear_attend"):
    """out[i] = q[i] @ S of each head, S = sum over all nodes j of the type of outer(k[j], v[j]).

    q and k have F columns for each head, v has G, and so has the result: what SGFormer, Performer
    and Polynormer compute, with phi(Q) as q and phi(K) as k; a v of ones gives their normaliser.
    S [H, F, G] is summed up in float64. Nothing has a row for each pair of nodes, and no tensor of
    the nodes has F * G columns.
    """

    reach: ClassVar[Reach] = Reach.GRAPH
    whole: ClassVar[bool] = True
    reads_rows: ClassVar[bool] = True

    q: Read
    k: Read
    v: Read
    heads: int = 1

    def width(self, shapes: Shapes) -> int:
        """The width of ``v``."""
        shapes.same([self.q, self.k])
        shapes.per_head(self.k, self.heads)
        shapes.per_head(self.v, self.heads)
        return shapes.width(self.v)

    def reference(self, run: ReferenceRun) -> Tensor:
        """As SGFormer writes it."""
        q, k, v = (run.heads(name, self.heads) for name in (self.q, self.k, self.v))
        return torch.einsum("nhf,hfg->nhg", q, torch.einsum("nhf,nhg->hfg", k, v)).flatten(1)

    def lower(self, execution: Execution, _op: Op) -> Shard:
        """In ``rows``. Collective: every rank must call."""
        q, k, v = (execution.rows(name, self.layer) for name in (self.q, self.k, self.v))
        total = sum_over_all(execution.exchange, self._own_sum(k, v), self.layer).float()
        out = empty_as(q, q.shape[0], v.shape[1])
        for rows in self._chunks(q, q.shape[1] + v.shape[1]):
            out[rows] = torch.einsum("nhf,hfg->nhg", self._heads(q[rows]), total).flatten(1)
        return Shard("rows", out, out.shape[1])

    def _own_sum(self, k: Tensor, v: Tensor) -> Tensor:
        """[H, F, G] float64 the sum over our rows."""
        columns = (one.shape[1] // self.heads for one in (k, v))
        total = k.new_zeros(self.heads, *columns, dtype=torch.float64)
        for rows in self._chunks(k, k.shape[1] + v.shape[1]):
            wide = (self._heads(one[rows]).double() for one in (k, v))
            total += torch.einsum("nhf,nhg->hfg", *wide)
        return total

    def _heads(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], self.heads, x.shape[1] // self.heads)

    def _chunks(self, rows: Tensor, columns: int) -> list[slice]:
        return in_chunks(rows, max(1, CHUNK_VALUES // columns))

    def flops_per_node(self, widths: dict[str, int]) -> float:
        """The outer product of a row, and its product with the sum."""
        return 4.0 * widths[self.k] * widths[self.v] / self.heads
