"""What the kernels' benchmark works on: a graph in all forms that kernels and rivals want."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from benchmarks.dataset import rmat
from benchmarks.edges import sort_edges
from embertide.kernels.block import Block
from embertide.kernels.csr import Csr
from embertide.models.dgl_interop import load_dgl


@dataclass(frozen=True)
class Calls:
    """One kernel: what it must do at least, what bounds it, and how to call it.

    Attributes:
        least: bytes that are read and written, or operations where ``limit`` counts those.
        items: what a rate is counted in, by name, such as edges.
        limit: the machine's limit that bounds it: ``copy``, ``gather_512_bytes``, ``gemm_gflops``.
        ours: the call.
        rivals: others' calls for the same result.
        same: whether two results are equal; None where there is nothing to compare.
    """

    least: float
    items: tuple[str, int]
    limit: str
    ours: Callable[[], Any]
    rivals: dict[str, Callable[[], Any]]
    same: Callable[[Any, Any], bool] | None = None


class Bench:
    """A graph and features of its nodes."""

    def __init__(self, scale: int, width: int) -> None:
        self.scale, self.width, self.nodes = scale, width, 1 << scale
        self.source, self.destination = rmat(scale, 20 << scale)
        self.x = self.random(1, width)
        self.weight = self.random(2, width)[:width].clone() / width**0.5
        self.dgl: Any = load_dgl()

    def random(self, seed: int, width: int) -> torch.Tensor:
        """[N, width], the same each time."""
        return torch.randn(self.nodes, width, generator=torch.Generator().manual_seed(seed))

    @cached_property
    def csr(self) -> Csr:
        """The whole graph's in-edges."""
        return sort_edges(self.source, self.destination, 0, self.nodes, self.nodes)

    @cached_property
    def block(self) -> Block:
        """All non-zeros over all nodes."""
        return Block(None, self.csr.indptr, self.csr.cols)

    @cached_property
    def graph(self) -> Any:
        """DGL's graph, edges numbered as in the CSR."""
        indptr = self.csr.indptr.int()
        unnumbered = torch.empty(0, dtype=torch.int32)
        graph = self.dgl.graph(
            ("csc", (indptr, self.csr.cols, unnumbered)), num_nodes=self.nodes, idtype=torch.int32
        )
        graph.create_formats_()
        return graph

    @cached_property
    def matrix(self) -> torch.Tensor:
        """torch's sparse matrix of ones."""
        ones = torch.ones(self.csr.nnz)
        size = (self.nodes, self.nodes)
        return torch.sparse_csr_tensor(self.csr.indptr.int(), self.csr.cols, ones, size)


def close(a: Any, b: Any) -> bool:
    """Equal to float32 rounding of sums."""
    return bool(torch.allclose(a, b, rtol=1e-3, atol=1e-3))
