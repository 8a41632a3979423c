"""``row, col = edge_index`` and ``x[row]``: the ends of edges, and rows taken to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from embertide.tracing.record.edges import Edges
from embertide.tracing.record.roles import edges_of, origin_of, target_of
from embertide.tracing.record.scatter import SCATTERS, becomes, counts, scattered
from embertide.tracing.record.scopes import Called
from embertide.tracing.record.traced import Traced
from embertide.tracing.record.user_code import here, refuse

PRODUCTS = ("mm", "spmm", "matmul", "__matmul__", "sparse_mm", "_sparse_mm")
"""torch's names of a product of two matrices."""


class EdgeEnds:
    """What functions of torch make of a recorded ``edge_index`` and its two rows.

    Attributes:
        edges, origin, index: of a recording.
        scope: the call of a module that has not returned yet.
    """

    def __init__(
        self,
        edges: Mapping[str, Edges],
        origin: Mapping[str, Traced],
        index: Mapping[str, Traced],
        scope: Callable[[], Called],
    ) -> None:
        self.edges, self.origin, self.index, self.scope = edges, origin, index, scope

    def call(self, op: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """A row of ``edge_index``, both, or a tensor of nodes at the ends; None for other calls."""
        if op in PRODUCTS and self._is_whole(args[0]):
            raise refuse(
                here(),
                "edges are multiplied as a sparse matrix; say so with --inputs"
                ' \'{"adj": "adjacency"}\', with the name of your argument',
            )
        if op in SCATTERS:
            result = scattered(self.edges, self.scope(), op, args, kwargs)
            return result if result is None or not op.endswith("_") else becomes(args[0], result)
        if op == "bincount":
            return counts(self.edges, args, kwargs)
        if op == "unbind" and self._is_whole(args[0]) and {0, *args[1:], *kwargs.values()} == {0}:
            return self._both(args[0])
        if op == "__getitem__":
            x, key = args
            picked = self._picked(x, key)
            if picked is not None:
                return picked
            if self._is_whole(x):
                return self._both(x)[key] if type(key) is int and -2 <= key < 2 else None
            return self._taken(x, key)
        if op == "index_select":
            x, dim, index = (*args, *kwargs.values())
            return self._taken(x, index) if dim == 0 else None
        return None

    def lengths(self) -> set[int]:
        """How many edges each relation has, changed or not."""
        return {len(edges.own.src) for edges in self.edges.values()}

    def of_relation(self, name: str) -> Edges | None:
        """The edges whose tensors are of a name; None for the edges of all relations."""
        return self.edges.get(name)

    def _picked(self, x: Any, key: Any) -> Any:
        """Tensors of all relations' edges at those of one; None for other keys."""
        known = isinstance(x, Traced) and x.node.edges and x.node.of in self.edges
        return self.edges[x.node.of].picked(x, key) if known else None

    def _is_whole(self, x: Any) -> bool:
        return isinstance(x, Traced) and edges_of(x.node) in self.edges and x.shape[:1] == (2,)

    def _both(self, edge_index: Traced) -> tuple[Traced, Traced]:
        name = str(edges_of(edge_index.node))
        return self.origin[name], self.index[name]

    def _taken(self, x: Any, index: Any) -> Any:
        """Rows of nodes at the ends of edges."""
        if not isinstance(index, Traced) or (isinstance(x, Traced) and x.node.edges):
            return None
        for of, at in ((origin_of, 0), (target_of, 1)):
            name = of(index.node)
            if name in self.edges:
                edges = self.edges[str(name)]
                return edges.target(x) if at else edges.source(x)
        return None
