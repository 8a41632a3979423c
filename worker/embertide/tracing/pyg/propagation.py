"""`propagate` and `edge_updater` of a module of PyG's that is not known as a whole."""

from __future__ import annotations

import inspect
from typing import Any

from embertide.tracing.pyg.aggregations import aggregated
from embertide.tracing.record.edges import Edges
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.roles import edges_of, other_edges
from embertide.tracing.record.traced import Traced
from embertide.tracing.record.user_code import here, refuse


class Propagate:
    """In place of ``propagate``: messages of the module's own, recorded."""

    def __init__(self, module: Any, recording: Recording) -> None:
        self.module, self.recording = module, recording

    @property
    def name(self) -> str:
        """Path and class of the module."""
        path, kind = self.recording.scopes.current().path, type(self.module).__name__
        return f"{path} ({kind})" if path else kind

    def __call__(self, edge_index: Any, size: Any = None, **kwargs: Any) -> Any:
        """What arrives at each node, updated."""
        del size
        m, edges = self.module, self._edges(edge_index)
        base: Any = next(kind for kind in type(m).__mro__ if kind.__name__ == "MessagePassing")
        message = m.message(**self._arguments("message", edges, kwargs))
        if type(m).aggregate is base.aggregate:
            scope = self.recording.scopes.current()
            out = aggregated(edges, message, m.aggr_module, scope, self.name)
            out = self._with_loops(out, kwargs)
        else:
            out = self._own_aggregate(message, edges, kwargs)
        return m.update(out, **self._arguments("update", edges, kwargs, skip=1))

    def _with_loops(self, out: Any, passed: dict[str, Any]) -> Any:
        """With the messages of self-loops, where the edges' weights came without those of loops."""
        weight = passed.get("edge_weight")
        node = weight.node if isinstance(weight, Traced) else None
        if node is None or node not in self.recording.loop_weights:
            return out
        rows = {
            name: value[0] if isinstance(value, tuple) else value for name, value in passed.items()
        }
        rows["edge_weight"] = self.recording.loop_weights[node]
        names = inspect.signature(self.module.message).parameters
        own = {name: rows.get(name, rows.get(name[:-2])) for name in names}
        sums = type(self.module.aggr_module).__name__ == "SumAggregation"
        if not sums or any(value is None for value in own.values()):
            raise refuse(
                here(),
                f"{self.name} has self-loops beside weights that are computed, which is known of a"
                " sum of messages of x_i, x_j and edge_weight; make it with add_self_loops=False",
            )
        return out + self.module.message(**own)

    def _own_aggregate(self, message: Any, edges: Edges, passed: dict[str, Any]) -> Any:
        arguments = self._arguments("aggregate", edges, passed, skip=1)
        out = self.module.aggregate(message, **arguments)
        if not isinstance(out, Traced) or out.node.edges:
            raise refuse(
                here(),
                f"{self.name} has its own aggregate, which gives no row for each node; use"
                " torch_geometric.utils.scatter(inputs, index, dim=0, dim_size=dim_size), or give"
                " the name of PyG's as aggr",
            )
        return out

    def update_edges(self, edge_index: Any, size: Any = None, **kwargs: Any) -> Any:
        """In place of ``edge_updater``: tensors of the edges."""
        del size
        edges = self._edges(edge_index)
        return self.module.edge_update(**self._arguments("edge_update", edges, kwargs))

    def _edges(self, edge_index: Any) -> Edges:
        relation = edges_of(edge_index.node) if isinstance(edge_index, Traced) else None
        if edge_index is None:
            raise refuse(
                here(),
                f"{self.name} is given no edges: its relation is not among the graph's, which has"
                f" {self.recording.types}",
            )
        if relation is None:
            raise refuse(here(), f"{self.name} {other_edges(edge_index)}")
        if self.module.flow != "source_to_target":
            raise refuse(
                here(), f"{self.name} has flow={self.module.flow!r}; turn the edges in the manifest"
            )
        return self.recording.edges[relation]

    def _arguments(
        self, hook: str, edges: Edges, passed: dict[str, Any], skip: int = 0
    ) -> dict[str, Any]:
        """What a hook is called with: ``x_j`` and ``x_i`` are the rows at the edges' ends."""
        names = list(inspect.signature(getattr(self.module, hook)).parameters.items())[skip:]
        of_graph = {
            **dict.fromkeys(("index", "edge_index_i"), self.recording.index[edges.view.name]),
            "edge_index_j": self.recording.origin[edges.view.name],
            "edge_index": self.recording.edge_index[edges.view.name],
            "ptr": None,
            "size_i": edges.destinations,
            "size_j": edges.sources,
            "dim_size": edges.destinations,
        }
        arguments = {}
        for name, parameter in names:
            if name in passed:
                arguments[name] = passed[name]
            elif name[-2:] in ("_j", "_i") and name[:-2] in passed:
                arguments[name] = self._at_end(edges, passed[name[:-2]], name[-2:])
            elif name in of_graph:
                arguments[name] = of_graph[name]
            elif parameter.default is parameter.empty:
                raise refuse(
                    here(),
                    f"{self.name}.{hook} reads {name}, which is not known here;"
                    " known are the arguments of propagate, with _i and _j",
                )
        return arguments

    def _at_end(self, edges: Edges, x: Any, end: str) -> Any:
        if isinstance(x, tuple):
            x = x[end == "_i"]
        take = edges.source if end == "_j" else edges.target
        return None if x is None else take(x)
