"""Writes a program step by step: fresh names, the width of every tensor, the layer's graph.

Each method appends one step and returns the name of its tensor. Widths are 0 where parameters
that tell them are missing; such a program is never handed out, since the differences are raised
first.
"""

from __future__ import annotations

from typing import Literal

from embertide.kernels.edge_features import LoopFill
from embertide.kernels.segments import Reduce
from embertide.models.row_builder import RowBuilder
from embertide.models.step_list import INPUT
from embertide.program.steps import (
    Aggregate,
    Attend,
    Degree,
    DivideByDegree,
    Loops,
    Message,
    Norm,
    PairAttend,
    Propagate,
)

__all__ = ["INPUT", "ProgramBuilder"]


class ProgramBuilder(RowBuilder):
    """The steps so far; those over edges are of the relation that is being written."""

    def aggregate(
        self,
        x: str,
        *,
        reduce: Literal["sum", "max"] = "sum",
        norm: Norm = "none",
        loops: Loops = "keep",
        loop_weight: float = 1.0,
        edge_weight: bool = False,
    ) -> str:
        """Reduce over in-edges; the columns stay."""
        step = Aggregate(
            out=self._fresh("aggregate"),
            layer=self.layer,
            relation=self.relation,
            x=x,
            reduce=reduce,
            norm=norm,
            loops=loops,
            loop_weight=loop_weight,
            edge_weight=edge_weight,
        )
        return self._append(step, self.widths[x])

    def propagate(
        self,
        x: str,
        *,
        times: int,
        alpha: float = 0.0,
        hops: tuple[float, ...] | None = None,
        norm: Norm = "none",
        loops: Loops = "keep",
        loop_weight: float = 1.0,
        edge_weight: bool = False,
    ) -> str:
        """``times`` sums over in-edges, one of the other; the columns stay."""
        step = Propagate(
            out=self._fresh("propagate"),
            layer=self.layer,
            relation=self.relation,
            x=x,
            times=times,
            alpha=alpha,
            hops=hops,
            norm=norm,
            loops=loops,
            loop_weight=loop_weight,
            edge_weight=edge_weight,
        )
        return self._append(step, self.widths[x])

    def message(
        self,
        x: str,
        lines: tuple[str, ...],
        width: int,
        *,
        reduce: Reduce = "sum",
        target: str | None = None,
        params: tuple[str, ...] = (),
        loops: Loops = "keep",
        loop_weight: float = 1.0,
        edge_weight: bool = False,
        log_sum: bool = False,
        edge_features: int = 0,
        loop_features: LoopFill = "mean",
    ) -> str:
        """A few lines of torch's operations on each edge, reduced by row; ``width`` columns."""
        step = Message(
            out=self._fresh("message"),
            layer=self.layer,
            relation=self.relation,
            x=x,
            lines=lines,
            reduce=reduce,
            target=target,
            params=params,
            loops=loops,
            loop_weight=loop_weight,
            edge_weight=edge_weight,
            log_sum=log_sum,
            edge_features=edge_features,
            loop_features=loop_features,
        )
        return self._append(step, width)

    def degree(
        self,
        of: Literal["in", "out", "weight", "out_weight"] = "in",
        *,
        loops: Loops = "keep",
        loop_weight: float = 1.0,
    ) -> str:
        """How many edges each node has, one column."""
        out = self._fresh("count")
        step = Degree(
            out=out,
            layer=self.layer,
            relation=self.relation,
            of=of,
            loops=loops,
            loop_weight=loop_weight,
        )
        return self._append(step, 1)

    def divide_by_degree(self, x: str, add: int) -> str:
        """Divide rows by in-degree + ``add``."""
        out = self._fresh("degree")
        step = DivideByDegree(out=out, layer=self.layer, relation=self.relation, x=x, add=add)
        return self._append(step, self.widths[x])

    def attend(
        self,
        x: str,
        source: str,
        target: str,
        heads: int,
        *,
        negative_slope: float,
        loops: Loops = "keep",
        edge_weight: bool = False,
    ) -> str:
        """Additive attention over in-edges."""
        step = Attend(
            out=self._fresh("attend"),
            layer=self.layer,
            relation=self.relation,
            x=x,
            source=source,
            target=target,
            heads=heads,
            negative_slope=negative_slope,
            loops=loops,
            edge_weight=edge_weight,
        )
        return self._append(step, self.widths[x])

    def pair_attend(
        self,
        x: str,
        query: str,
        heads: int,
        *,
        kind: Literal["gatv2", "dot"],
        key: str | None = None,
        vector: str | None = None,
        negative_slope: float = 0.2,
        scale: float = 1.0,
        loops: Loops = "keep",
        before: str | None = None,
        log_sum: bool = False,
    ) -> str:
        """Attention that needs both ends' features; without a key, the values are the keys."""
        step = PairAttend(
            out=self._fresh("attend"),
            layer=self.layer,
            relation=self.relation,
            x=x,
            key=x if key is None else key,
            query=query,
            heads=heads,
            kind=kind,
            vector=vector,
            negative_slope=negative_slope,
            scale=scale,
            loops=loops,
            before=before,
            log_sum=log_sum,
        )
        return self._append(step, self.widths[x] + (heads if log_sum else 0))
