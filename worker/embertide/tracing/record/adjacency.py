"""A sparse adjacency matrix, as plain torch has it: ``torch.spmm(adj, x)``, ``adj @ x``.

Row i has the edges into node i, column j those out of node j; the values are the edges' weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from embertide.tracing.record.edge_ends import PRODUCTS
from embertide.tracing.record.edges import Edges
from embertide.tracing.record.graphs import RandomEdges
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.traced import name_of
from embertide.tracing.record.user_code import here, refuse


def matrix(edges: RandomEdges, shape: tuple[int, int]) -> Tensor:
    """[destinations, sources] sparse, of the weights of edges."""
    return torch.sparse_coo_tensor(
        torch.stack([edges.dst, edges.src]), edges.weight, shape, check_invariants=True
    ).coalesce()


class Adjacency:
    """Stands for such a matrix while a module is recorded: it is multiplied with rows of nodes."""

    is_sparse, layout, dtype = True, torch.sparse_coo, torch.float64

    def __init__(self, recording: Recording, edges: Edges, weight: Any) -> None:
        self._recording, self._edges, self._weight = recording, edges, weight

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], _types: Any, args: tuple[Any, ...] = (), _kwargs: Any = None
    ) -> Any:
        """Products with the matrix on the left; all else is refused."""
        if name_of(func) in PRODUCTS and len(args) == 2 and isinstance(args[0], cls):
            return args[0] @ args[1]
        raise _unknown(name_of(func))

    def __matmul__(self, x: Any) -> Any:
        edges, scope = self._edges, self._recording.scopes.current()
        return edges.aggregate(edges.source(x) * self._weight.view(-1, 1), "sum", scope)

    mm = matmul = spmm = __matmul__

    @property
    def shape(self) -> torch.Size:
        """Destinations and sources."""
        return torch.Size((self._edges.destinations, self._edges.sources))

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one dimension, as torch's ``size``."""
        return self.shape if dim is None else self.shape[dim]

    def to(self, *_args: Any, **_kwargs: Any) -> Adjacency:
        """The matrix as it is: type and device stay."""
        return self

    float = double = coalesce = cpu = contiguous = to

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise _unknown(name)


def _unknown(what: str) -> Exception:
    return refuse(
        here(),
        f"{what} of an adjacency matrix is not known; known is its product with rows of nodes,"
        " adj @ x or torch.spmm(adj, x): take edge_index instead",
    )
