"""A graph as DGL's modules see it, which records what they do with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch

from embertide.models.convs.shared.aggregation import REDUCES
from embertide.tracing.dgl.frames import At, Field, Frame, Frames, Together, View
from embertide.tracing.dgl.mailbox import reduced_by
from embertide.tracing.dgl.self_loops import Change, changed
from embertide.tracing.dgl.types import GraphView
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.user_code import here, refuse

_CROSS: dict[str, Callable[..., Any]] = {
    "sum": torch.sum,
    "mean": torch.mean,
    "max": torch.amax,
    "min": torch.amin,
}


class RecordingGraph(GraphView):
    """Stands for a ``DGLGraph`` or one of its relations, and for blocks."""

    is_block = False

    def __init__(
        self,
        real: Any,
        recording: Recording,
        relations: tuple[str, ...] | None = None,
        frames: tuple[Frames, Frames] | None = None,
    ) -> None:
        super().__init__(real, recording, relations)
        self._nodes, self._of_edges = frames or (
            _frames(recording.types.nodes, ndata=recording.features, node_id=recording.numbers),
            _frames(
                recording.edges,
                edge_weight=recording.edge_weight,
                edge_features=recording.edge_features,
            ),
        )

    def __getitem__(self, etype: Any) -> RecordingGraph:
        relation = self._relation(etype)
        real = self.real[self._recording.types.triple(relation)]
        return RecordingGraph(real, self._recording, (relation,), (self._nodes, self._of_edges))

    # -- tensors -----------------------------------------------------------------------------------

    @property
    def ndata(self) -> Frame | Together:
        """Tensors of the nodes; one that was never set is the job's features."""
        return self._data(self._types(0, 1))

    @property
    def srcdata(self) -> Frame | Together:
        """Tensors of the sources."""
        return self._data(self._types(0))

    @property
    def dstdata(self) -> Frame | Together:
        """Tensors of the destinations."""
        return self._data(self._types(1))

    def _data(self, names: list[str]) -> Frame | Together:
        if len(names) == 1:
            return self._nodes[names[0]]
        return Together(Frames({name: self._nodes[name] for name in names}))

    @property
    def edata(self) -> Frame:
        """Tensors of the edges; one that was never set is their features, or weights."""
        return self._of_edges[self.relation]

    @property
    def nodes(self) -> View:
        """By node type."""
        return View(self._nodes, self._node_type)

    srcnodes = dstnodes = nodes

    @property
    def edges(self) -> View:
        """By edge type."""
        return View(self._of_edges, self._relation)

    @property
    def fields(self) -> dict[Field, str]:
        """The names under which the job's own tensors were read."""
        both = (*self._nodes.values(), *self._of_edges.values())
        return {(kind, frame.of): name for frame in both for kind, name in frame.inputs.items()}

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
        """What is set within it is forgotten after it."""
        saved = self._nodes, self._of_edges
        self._nodes, self._of_edges = (_copied(frames) for frames in saved)
        try:
            yield self
        finally:
            self._nodes, self._of_edges = saved

    def local_var(self) -> RecordingGraph:
        """The same graph, in which nothing is set for others."""
        frames = _copied(self._nodes), _copied(self._of_edges)
        return RecordingGraph(self.real, self._recording, self._relations, frames)

    def add_self_loop(
        self, edge_feat_names: Any = None, fill_data: Any = 1.0, etype: Any = None
    ) -> RecordingGraph:
        """`dgl.add_self_loop`: one more at each node."""
        if edge_feat_names is not None:
            raise refuse(here(), "add_self_loop is known without edge_feat_names; leave it out")
        return self._changed("add_self_loop", etype, fill_data)

    def remove_self_loop(self, etype: Any = None) -> RecordingGraph:
        """`dgl.remove_self_loop`."""
        return self._changed("remove_self_loop", etype, 1.0)

    def _changed(self, change: Change, etype: Any, fill: Any) -> RecordingGraph:
        relation = self._relation(etype)
        own = self._of_edges[relation]
        edges = changed(self._recording, relation, own, change, fill)
        frames = self._nodes, edges
        return RecordingGraph(self.real, self._recording, tuple(edges), frames)

    # -- messages ----------------------------------------------------------------------------------

    def apply_edges(self, func: Any, edges: Any = "__ALL__", etype: Any = None) -> None:
        """Set tensors of the edges."""
        if not isinstance(edges, str):
            raise refuse(here(), "apply_edges is known for all edges of a relation")
        relation = self._relation(etype)
        self._of_edges[relation].update(self._messages(func, relation))

    def update_all(
        self, message_func: Any, reduce_func: Any, apply_node_func: Any = None, etype: Any = None
    ) -> None:
        """Messages along all edges of a relation, reduced at their ends."""
        relation = self._relation(etype)
        frame = self._nodes[self._recording.types.ends(relation)[1]]
        frame.update(self._reduced(message_func, reduce_func, relation))
        if apply_node_func is not None:
            frame.update(apply_node_func(SimpleNamespace(data=frame)))

    def multi_update_all(
        self, etype_dict: Mapping[Any, Any], cross_reducer: Any, apply_node_func: Any = None
    ) -> None:
        """Messages along several relations, whose results at a node type are reduced together."""
        results: dict[tuple[str, str], list[Any]] = {}
        for etype, (message_func, reduce_func, *_apply) in etype_dict.items():
            relation = self._relation(etype)
            node_type = self._recording.types.ends(relation)[1]
            for name, part in self._reduced(message_func, reduce_func, relation).items():
                results.setdefault((node_type, name), []).append(part)
        for (node_type, name), parts in results.items():
            self._nodes[node_type][name] = _together(parts, cross_reducer)
        for node_type in dict.fromkeys(node_type for node_type, _ in results):
            if apply_node_func is not None:
                frame = self._nodes[node_type]
                frame.update(apply_node_func(SimpleNamespace(data=frame)))

    def softmax(self, scores: Any) -> Any:
        """Scores of the edges as shares that add up to 1 at each destination."""
        return self._along(None).softmax(scores)

    def _reduced(self, message_func: Any, reduce_func: Any, relation: str) -> dict[str, Any]:
        """What arrives at each node, by name."""
        messages = self._messages(message_func, relation)
        edges, scope = self._recording.edges[relation], self._recording.scopes.current()
        if not hasattr(reduce_func, "out_field"):
            data = self._nodes[self._recording.types.ends(relation)[1]]
            return reduced_by(reduce_func, messages, data, edges, scope)
        message = messages.get(reduce_func.msg_field)
        if message is None:
            raise refuse(here(), f"no message is called {reduce_func.msg_field!r}")
        reduce = REDUCES.get(str(reduce_func.name))
        if reduce is None:
            raise refuse(
                here(),
                f"fn.{reduce_func.name} is not known as a reduction; use fn.sum, fn.mean,"
                " fn.max or fn.min",
            )
        return {reduce_func.out_field: edges.aggregate(message, reduce, scope)}

    def _messages(self, func: Any, relation: str) -> dict[str, Any]:
        """What a message function gives, by name."""
        edges, types = self._recording.edges[relation], self._recording.types
        source, destination = (self._nodes[name] for name in types.ends(relation))
        ends = SimpleNamespace(
            src=At(source, edges.source),
            dst=At(destination, edges.target),
            data=self._of_edges[relation],
        )
        if hasattr(func, "binary_op"):
            left, right = _end(ends, func.lhs, func.lhs_field), _end(ends, func.rhs, func.rhs_field)
            return {func.out_field: _binary(func.binary_op, left, right)}
        if hasattr(func, "in_field"):
            return {func.out_field: _end(ends, func.target, func.in_field)}
        messages: dict[str, Any] = func(ends)
        return messages

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.startswith("batch_"):
            raise refuse(
                here(),
                f"{name} is of a batch of graphs, as readouts of whole graphs use it (SumPooling,"
                " dgl.mean_nodes); here all nodes are of one graph, and each gets an embedding:"
                " return what the readout is given, by a method that FILE.py:NAME.METHOD names",
            )
        raise refuse(
            here(),
            f"the graph's {name} is not known here; known are update_all, multi_update_all,"
            " apply_edges, g[etype], ndata, srcdata, dstdata, edata, nodes, edges, local_scope and"
            " the numbers of nodes and edges",
        )


def _frames(names: Iterable[str], **tensors: Mapping[str, Any]) -> Frames:
    """Frames by node type or relation, each with the job's tensors for it."""
    return Frames(
        {
            name: Frame(name, {kind: of[name] for kind, of in tensors.items() if name in of})
            for name in names
        }
    )


def _copied(frames: Frames) -> Frames:
    return Frames({name: frame.copy() for name, frame in frames.items()})


def _together(parts: list[Any], cross_reducer: Any) -> Any:
    """Results of several relations at one node type."""
    if callable(cross_reducer):
        return cross_reducer(parts)
    if len(parts) == 1:
        return parts[0]
    if cross_reducer not in _CROSS:
        raise refuse(
            here(), f"cross_reducer={cross_reducer!r} is not known; use sum, mean, max or min"
        )
    return _CROSS[cross_reducer](torch.stack(parts), 0)


def _end(ends: SimpleNamespace, kind: Any, name: str) -> Any:
    """The rows of an edge's source (0, u), destination (1, v), or of the edge (2, e)."""
    if str(kind) in ("u", "src", "0"):
        return ends.src[name]
    if str(kind) in ("v", "dst", "1"):
        return ends.dst[name]
    return ends.data[name]


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
