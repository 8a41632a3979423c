"""A graph as DGL's modules see it, which records what they do with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from embertide.tracing.messages import REDUCES, Edges
from embertide.tracing.scopes import Scopes
from embertide.tracing.source import here, refuse
from embertide.tracing.tape import Traced

_NODE_COUNTS = tuple(
    f"{verb}_{kind}nodes" for verb in ("num", "number_of") for kind in ("", "src_", "dst_")
)
_EDGE_COUNTS = ("num_edges", "number_of_edges")


class RecordingGraph:
    """Stands for a ``DGLGraph`` of one node type and one edge type, and for its blocks.

    Attributes:
        real: DGL's graph, on which known convolutions run.
    """

    is_block = False

    def __init__(self, real: Any, edges: Edges, scopes: Scopes, inputs: dict[str, Traced]) -> None:
        self.real, self._edges, self._scopes = real, edges, scopes
        self._nodes = _Frame("ndata", inputs["x"])
        self._of_edges = _Frame("edata", inputs.get("edge_weight"))
        for name in _NODE_COUNTS:
            setattr(self, name, lambda *_args: edges.graph.nodes)
        for name in _EDGE_COUNTS:
            setattr(self, name, lambda *_args: len(edges.graph.src))

    @property
    def ndata(self) -> _Frame:
        """Tensors of the nodes; one that was never set is the job's features."""
        return self._nodes

    srcdata = dstdata = ndata

    @property
    def edata(self) -> _Frame:
        """Tensors of the edges; one that was never set is the job's edge weights."""
        return self._of_edges

    @property
    def fields(self) -> dict[str, str]:
        """The names under which the job's own tensors were read: ``ndata``, ``edata``."""
        return {one.kind: one.inputs[0] for one in (self._nodes, self._of_edges) if one.inputs}

    @property
    def device(self) -> Any:
        """Where the graph is."""
        return self.real.device

    def to(self, *_args: Any, **_kwargs: Any) -> RecordingGraph:
        """It stays where it is."""
        return self

    int = long = to

    @contextmanager
    def local_scope(self) -> Iterator[RecordingGraph]:
        """What is set within it is forgotten behind it."""
        saved = self._nodes.copy(), self._of_edges.copy()
        try:
            yield self
        finally:
            self._nodes, self._of_edges = saved

    def apply_edges(self, func: Any, *_args: Any, **_kwargs: Any) -> None:
        """Set tensors of the edges."""
        self._of_edges.update(self._messages(func))

    def update_all(self, message_func: Any, reduce_func: Any, apply_node_func: Any = None) -> None:
        """Messages along all edges, reduced at their ends."""
        messages = self._messages(message_func)
        reduce = REDUCES.get(str(getattr(reduce_func, "name", "")))
        if reduce is None:
            raise refuse(
                here(),
                "a reduce function of your own is not known; use dgl.function.sum, mean or max",
            )
        message = messages.get(reduce_func.msg_field)
        if message is None:
            raise refuse(here(), f"no message is called {reduce_func.msg_field!r}")
        out = self._edges.aggregate(message, reduce, self._scopes.current())
        self._nodes[reduce_func.out_field] = out
        if apply_node_func is not None:
            self._nodes.update(apply_node_func(SimpleNamespace(data=self._nodes)))

    def _messages(self, func: Any) -> dict[str, Any]:
        """What a message function gives, by name."""
        if hasattr(func, "binary_op"):
            left = self._end(func.lhs, func.lhs_field)
            right = self._end(func.rhs, func.rhs_field)
            return {func.out_field: _binary(func.binary_op, left, right)}
        if hasattr(func, "in_field"):
            return {func.out_field: self._end(func.target, func.in_field)}
        ends = SimpleNamespace(
            src=_At(self._nodes, self._edges.source),
            dst=_At(self._nodes, self._edges.target),
            data=self._of_edges,
        )
        found: dict[str, Any] = func(ends)
        return found

    def _end(self, kind: Any, name: str) -> Any:
        """The rows of an edge's source (0, u), destination (1, v), or of the edge (2, e)."""
        if str(kind) in ("u", "src", "0"):
            return self._edges.source(self._nodes[name])
        if str(kind) in ("v", "dst", "1"):
            return self._edges.target(self._nodes[name])
        return self._of_edges[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise refuse(
            here(),
            f"the graph's {name} is not known here; known are update_all, apply_edges, ndata,"
            " srcdata, dstdata, edata, local_scope and the numbers of nodes and edges",
        )


def _binary(op: str, left: Any, right: Any) -> Any:
    """DGL's built-in functions of two tensors: equal ranks, or the shorter one broadcast."""
    while left.dim() < right.dim():
        left = left.unsqueeze(-1)
    while right.dim() < left.dim():
        right = right.unsqueeze(-1)
    if op == "dot":
        return (left * right).sum(-1, keepdim=True)
    operations = {"add": left.add, "sub": left.sub, "mul": left.mul, "div": left.div}
    return operations[op](right)


class _Frame(dict[str, Any]):
    """Tensors by name; one name that was never set is the job's own input."""

    def __init__(self, kind: str, given: Traced | None, values: dict[str, Any] | None = None):
        super().__init__(values or {})
        self.kind, self._given = kind, given
        self.inputs: list[str] = []

    def copy(self) -> _Frame:
        """The same tensors and the same input."""
        frame = _Frame(self.kind, self._given, dict(self))
        frame.inputs = self.inputs
        return frame

    def __missing__(self, name: str) -> Any:
        what = "features" if self.kind == "ndata" else "edge weights"
        if name not in self.inputs:
            if self._given is None or self.inputs:
                raise refuse(here(), f"{self.kind}[{name!r}] was never set, and is not the {what}")
            self.inputs.append(name)
        return self._given


class _At:
    """``edges.src`` and ``edges.dst`` of a message function."""

    def __init__(self, frame: _Frame, take: Any) -> None:
        self._frame, self._take = frame, take

    def __getitem__(self, name: str) -> Any:
        return self._take(self._frame[name])
