"""Out-degrees of some nodes, counted again in one pass over the edges of all workers.

A row's in-edges are at hand where it is checked; its out-edges are in rows of all workers.
"""

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
from embertide.program.selfcheck.draw import Nodes

_CHUNK = 1 << 20
"""Edges that are looked at together."""


@dataclass(frozen=True)
class OutEdges:
    """What the out-edges of some nodes come to.

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
