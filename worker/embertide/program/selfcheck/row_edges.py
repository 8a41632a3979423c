"""The in-edges of the rows that are computed again, and out-degrees of some nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from embertide.graph.exchange import Channel
from embertide.graph.views import EdgeView
from embertide.kernels.csr import Csr
from embertide.kernels.spilled_csr import AnyCsr
from embertide.program.selfcheck.draw import MOST_IN_EDGES, Nodes

_WINDOW_ROWS, _WINDOW_EDGES = 4096, 1 << 16
"""Rows, and their in-edges, among which special rows are looked for."""
_SPECIAL_ROWS = 4
"""Rows with self-loops, and rows without in-edges, that are added to those drawn."""
_CHUNK = 1 << 20
"""Edges that are looked at together."""


@dataclass(frozen=True, kw_only=True)
class RowEdges:
    """Some rows of a CSR.

    Attributes:
        rows: [n] dense ids, ascending.
        indptr: [n + 1] where the in-edges of each begin.
        cols: [e] dense ids of their sources, as the CSR has them.
        weights: [e] float32, or None.
        features: [e, K] float32, or None.
    """

    rows: Nodes
    indptr: Nodes
    cols: torch.Tensor
    weights: torch.Tensor | None
    features: torch.Tensor | None

    @classmethod
    def of(cls, csr: AnyCsr, rows: Nodes, most_edges: int) -> RowEdges:
        """Rows of a sub-range, without hubs, and no more than have so many edges together.

        Args:
            csr: of our sub-range.
            rows: of ours, the first to keep first.
        """
        indptr = csr.indptr.numpy()
        at = rows - csr.first
        counts = indptr[at + 1] - indptr[at]
        kept = counts <= MOST_IN_EDGES
        kept[kept] = np.cumsum(counts[kept]) <= most_edges
        at = np.sort(at[kept])
        return _joined([cls._within(part, span, at) for span, part in csr.parts()])

    @classmethod
    def _within(cls, csr: Csr, span: slice, at: Nodes) -> RowEdges:
        """The rows of a part that are among ``at`` [k], places in all parts, ascending."""
        every = cls(
            rows=np.arange(csr.first, csr.first + csr.rows),
            indptr=csr.indptr.numpy(),
            cols=csr.cols,
            weights=csr.weights,
            features=csr.features,
        )
        return every.take(at[slice(*np.searchsorted(at, [span.start, span.stop]))] - span.start)

    def take(self, at: Nodes) -> RowEdges:
        """Some of the rows; ``at`` [k] are their places, ascending."""
        starts, counts = self.indptr[at], self.indptr[at + 1] - self.indptr[at]
        ends = np.concatenate([[0], np.cumsum(counts)])
        place = torch.from_numpy(np.repeat(starts - ends[:-1], counts) + np.arange(ends[-1]))
        return RowEdges(
            rows=self.rows[at],
            indptr=ends,
            cols=self.cols[place],
            weights=None if self.weights is None else self.weights[place],
            features=None if self.features is None else self.features[place],
        )

    def of_rows(self, rows: Nodes) -> RowEdges:
        """Some of the rows, by their dense ids, ascending."""
        return self.take(np.searchsorted(self.rows, rows))

    @property
    def sources(self) -> Nodes:
        """[e] dense ids of the sources."""
        return self.cols.numpy().astype(np.int64)


def _joined(parts: list[RowEdges]) -> RowEdges:
    """The rows of parts that follow each other."""
    if len(parts) == 1:
        return parts[0]
    counts = [np.zeros(1, np.int64), *(np.diff(part.indptr) for part in parts)]
    weights = [part.weights for part in parts if part.weights is not None]
    features = [part.features for part in parts if part.features is not None]
    return RowEdges(
        rows=np.concatenate([part.rows for part in parts]),
        indptr=np.cumsum(np.concatenate(counts)),
        cols=torch.cat([part.cols for part in parts]),
        weights=torch.cat(weights) if weights else None,
        features=torch.cat(features) if features else None,
    )


def special_rows(csr: AnyCsr, seed: int) -> Nodes:
    """A few rows with self-loops, and a few without in-edges, of a window of our sub-range.

    Of rows with self-loops, those with the fewest in-edges: of a graph with hubs most are hubs,
    which would take more memory than all rows that are drawn, and in whose sums a loop is least.
    """
    if csr.rows == 0:
        return np.empty(0, np.int64)
    indptr = csr.indptr.numpy()
    first = seed % csr.rows
    last = int(np.searchsorted(indptr, indptr[first] + _WINDOW_EDGES, "right")) - 1
    last = min(last, first + _WINDOW_ROWS)
    counts = np.diff(indptr[first : last + 1])
    cols = csr.without_weights().without_features().read_rows(first, last).cols.numpy()
    nodes = np.arange(first, last) + csr.first
    loops = np.unique(cols[cols == np.repeat(nodes, counts)])
    loops = loops[np.argsort(counts[loops - nodes[0]], kind="stable")] if len(loops) else loops
    alone = nodes[counts == 0]
    return np.concatenate([loops[:_SPECIAL_ROWS], alone[:_SPECIAL_ROWS]]).astype(np.int64)


@dataclass(frozen=True)
class OutEdges:
    """What the out-edges of some nodes come to, in one pass over the edges of all workers: a row's
    in-edges are at hand where it is checked, its out-edges are in rows of all workers.

    Attributes:
        nodes: [n] dense ids, ascending; the same on every rank.
        sums: [n, 4] float64: edges, self-loops among them, and the weights of both.
        heaviest: [n] the largest weight of a node's self-loops; minus infinity without one.
        weighted: whether edges have weights.
    """

    nodes: Nodes
    sums: Tensor
    heaviest: Tensor
    weighted: bool

    @classmethod
    def of(cls, csr: AnyCsr, nodes: Nodes, origins: int, *, within: bool) -> OutEdges:
        """In the rows of our sub-range.

        Args:
            origins: N of the source type.
            within: the edges lead from a type to itself, so that there may be self-loops.
        """
        wanted = np.zeros(origins, np.bool_)
        wanted[nodes] = True
        sums = torch.zeros(len(nodes), 4, dtype=torch.float64)
        heaviest = torch.full((len(nodes),), -torch.inf, dtype=torch.float64)
        out = cls(nodes, sums, heaviest, csr.weighted)
        for _, part in csr.parts():
            out._add(part, wanted, within=within)
        return out

    def _add(self, csr: Csr, wanted: npt.NDArray[np.bool_], *, within: bool) -> None:
        """The edges of a part; ``wanted`` [origins] is true for our nodes."""
        for first in range(0, csr.nnz, _CHUNK):
            cols = csr.cols[first : first + _CHUNK].numpy()
            (at,) = np.nonzero(wanted[cols])
            place = torch.from_numpy(np.searchsorted(self.nodes, cols[at]))
            rows = np.searchsorted(csr.indptr.numpy(), first + at, "right") - 1 + csr.first
            loop = torch.from_numpy((rows == cols[at]) & within)
            weight = torch.ones(len(at), dtype=torch.float64)
            if csr.weights is not None:
                weight = csr.weights[first : first + _CHUNK][torch.from_numpy(at)].double()
            values = [torch.ones_like(weight), loop.double(), weight, weight * loop]
            self.sums.index_add_(0, place, torch.stack(values, 1))
            self.heaviest.scatter_reduce_(0, place[loop], weight[loop], "amax")

    def joined(self, channel: Channel) -> OutEdges:
        """In the rows of all ranks. Collective: every rank must call."""
        every = torch.stack(channel.all_gather(torch.cat([self.sums, self.heaviest[:, None]], 1)))
        return replace(self, sums=every[:, :, :4].sum(0), heaviest=every[:, :, 4].amax(0))

    def degrees(self, view: EdgeView, *, weighted: bool) -> Tensor:
        """[n] float64 as a step sees the graph.

        Args:
            weighted: weights are added up, where the step's view counts them.
        """
        weighs = weighted and view.edge_weight and self.weighted
        first = 2 if weighs else 0
        every, loops = self.sums[:, first], self.sums[:, first + 1]
        new = torch.full_like(every, view.loop_weight if weighs else 1.0)
        match view.loops:
            case "keep":
                return every
            case "none":
                return every - loops
            case "more":
                return every + new
            case "replace":
                return every - loops + new
            case "single":
                kept = (self.heaviest > -torch.inf) & weighs
                return every - loops + torch.where(kept, self.heaviest, new)
        assert_never(view.loops)
