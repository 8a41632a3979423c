"""Attention over tensors, and not over edges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from embertide.graph.statistics import PRIMITIVE
from embertide.layouts import Shard
from embertide.program.steps.alive import Alive
from embertide.program.steps.base import Param, Read, Step
from embertide.program.steps.execution import Execution
from embertide.program.steps.op import Op, Reach
from embertide.program.steps.reference import ReferenceRun
from embertide.program.steps.shapes import Shapes

CHUNK_VALUES = 1 << 17
"""Values of the scores' hidden layer that are held at a time."""


@dataclass(frozen=True, kw_only=True)
class SemanticAttend(Step, kind="semantic_attend"):
    """out = sum over r of a_r * inputs[r], a = softmax over r of one score for each tensor.

    score_r = mean over all nodes i of params[vector] . tanh(W inputs[r][i] + b), W and b being
    params[weight] [D', D] and params[bias] (HAN's semantic-level attention, Wang et al., 2019,
    eq. 7-9). The mean is taken in float64.
    """

    reach: ClassVar[Reach] = Reach.GRAPH
    reads_rows: ClassVar[bool] = True

    inputs: tuple[Read, ...]
    weight: Param
    vector: Param
    bias: Param | None = None

    def width(self, shapes: Shapes) -> int:
        """The width of all inputs, which is the same."""
        width = shapes.same(list(self.inputs))
        hidden = shapes.matrix(self.weight, width)
        shapes.values(self.vector, hidden)
        shapes.values(self.bias, hidden)
        return width

    def reference(self, run: ReferenceRun) -> Tensor:
        """The tensors stacked, as PyG has them."""
        stacked = torch.stack([run.tensors[name] for name in self.inputs])
        hidden = functional.linear(stacked, run.params[self.weight], run.param(self.bias))
        scores = hidden.tanh().mean(1) @ run.params[self.vector].flatten()
        return torch.einsum("r,rnd->nd", scores.softmax(0), stacked)

    def place(self, op: Op, at: Alive) -> Op:
        """In rows; the last input is changed where no later step reads it."""
        return replace(super().place(op, at), reuses=at.last_free(self.inputs))

    def lower(self, execution: Execution, op: Op) -> Shard:
        """In rows. Collective: every rank must call."""
        rows = [execution.rows(name, self.layer) for name in self.inputs]
        own = torch.stack([self._score(execution, x) for x in rows])
        world = execution.channel(self.layer, "world", PRIMITIVE)
        nodes = execution.ranges_of(self.out).nodes
        scores = torch.stack(world.all_gather(own)).sum(0) / nodes
        shares = scores.softmax(0).tolist()
        out = rows[-1].mul_(shares[-1]) if op.reuses else rows[-1] * shares[-1]
        for x, share in zip(rows[:-1], shares[:-1], strict=True):
            out.add_(x, alpha=share)
        return Shard("rows", out, out.shape[1])

    def _score(self, execution: Execution, x: Tensor) -> Tensor:
        """The sum over our rows, in float64."""
        weight, vector = execution.param(self.weight), execution.param(self.vector).flatten()
        bias = None if self.bias is None else execution.param(self.bias)
        total = x.new_zeros(len(vector), dtype=torch.float64)
        for part in x.split(max(1, CHUNK_VALUES // len(vector))):
            total += functional.linear(part, weight, bias).tanh_().double().sum(0)
        return total @ vector.double()

    def flops_per_node(self, widths: dict[str, int]) -> float:
        """As if the hidden layer had the tensors' width."""
        return 2.0 * len(self.inputs) * widths[self.out] ** 2
