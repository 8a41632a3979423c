"""PyG's and DGL's softmax over edges, recorded as one operation wherever a module calls it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from embertide.tracing.dgl_graph import RecordingGraph
from embertide.tracing.recording import Recording
from embertide.tracing.roles import target_of
from embertide.tracing.source import here, refuse
from embertide.tracing.tape import Traced

_FUNCTIONS = (
    ("torch_geometric.utils", "softmax"),
    ("dgl.ops", "edge_softmax"),
)
"""Where each is found under its own name; elsewhere it is the same object."""
_WITHOUT = {
    *sys.stdlib_module_names,
    *("torch", "numpy", "scipy", "pandas", "pyarrow", "sympy", "networkx", "pydantic"),
}
"""Packages with many names of which none stands for such a function."""


@contextmanager
def softmaxes_recorded(recording: Recording) -> Iterator[None]:
    """Within it, every module's name for such a function stands for one that records."""
    makers = {"softmax": _softmax, "edge_softmax": _edge_softmax}
    replaced: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for module, name in _FUNCTIONS:
            function = getattr(sys.modules.get(module), name, None)
            if function is not None:
                replaced += _replace(function, makers[name](recording, function))
        yield
    finally:
        for names, name, function in replaced:
            names[name] = function


def _replace(
    function: Callable[..., Any], by: Callable[..., Any]
) -> list[tuple[dict[str, Any], str, Any]]:
    """Put another function in place of one, in all modules; returns what was replaced."""
    found = []
    for path, module in list(sys.modules.items()):
        if path.partition(".")[0] in _WITHOUT:
            continue
        names = getattr(module, "__dict__", {})
        for name in [one for one, value in names.items() if value is function]:
            names[name] = by
            found.append((names, name, function))
    return found


def _softmax(recording: Recording, real: Callable[..., Any]) -> Callable[..., Any]:
    def softmax(
        src: Any, index: Any = None, ptr: Any = None, num_nodes: Any = None, dim: int = 0
    ) -> Any:
        if not isinstance(src, Traced):
            return real(src, index, ptr, num_nodes, dim)
        relation = target_of(index.node) if isinstance(index, Traced) else None
        if relation is None or dim != 0:
            raise refuse(
                here(),
                "softmax is known over the in-edges of each node: give it the argument index of"
                " message, and dim=0",
            )
        return recording.edges[relation].softmax(src)

    return softmax


def _edge_softmax(_recording: Recording, real: Callable[..., Any]) -> Callable[..., Any]:
    def edge_softmax(graph: Any, logits: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(graph, RecordingGraph):
            return real(graph, logits, *args, **kwargs)
        if args or set(kwargs) - {"norm_by"} or kwargs.get("norm_by", "dst") != "dst":
            raise refuse(
                here(),
                "edge_softmax is known over all in-edges of each node, norm_by='dst'; leave the"
                " other arguments out",
            )
        return graph.softmax(logits)

    return edge_softmax
