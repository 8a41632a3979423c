"""Functions of PyG and DGL over edges, recorded as one operation wherever a module calls them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from embertide.tracing import pyg_functions
from embertide.tracing.dgl_graph import RecordingGraph
from embertide.tracing.recording import Recording
from embertide.tracing.source import here, refuse

Function = Callable[..., Any]
Maker = Callable[[Recording, Function], Function]


def _edge_softmax(_recording: Recording, real: Function) -> Function:
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


_MAKERS: dict[tuple[str, str], Maker] = {
    ("torch_geometric.utils", "softmax"): pyg_functions.softmax,
    ("torch_geometric.utils", "degree"): pyg_functions.degree,
    ("torch_geometric.utils", "scatter"): pyg_functions.scatter,
    ("torch_geometric.utils", "add_self_loops"): pyg_functions.add_self_loops,
    (
        "torch_geometric.utils",
        "add_remaining_self_loops",
    ): pyg_functions.add_remaining_self_loops,
    ("torch_geometric.utils", "remove_self_loops"): pyg_functions.remove_self_loops,
    ("dgl.ops", "edge_softmax"): _edge_softmax,
}
"""Where each is found under its own name; elsewhere it is the same object."""
_WITHOUT = {
    *sys.stdlib_module_names,
    *("torch", "numpy", "scipy", "pandas", "pyarrow", "sympy", "networkx", "pydantic"),
}
"""Packages with many names of which none stands for such a function."""


@contextmanager
def standing_in(recording: Recording) -> Iterator[None]:
    """Within it, every module's name for such a function stands for one that records."""
    by_function: dict[int, Function] = {}
    for (module, name), make in _MAKERS.items():
        function = getattr(sys.modules.get(module), name, None)
        if function is not None:
            by_function[id(function)] = make(recording, function)
    replaced = _replace(by_function)
    try:
        yield
    finally:
        for names, name, function in replaced:
            names[name] = function


def _replace(by_function: Mapping[int, Function]) -> list[tuple[dict[str, Any], str, Any]]:
    """Put functions in place of others, in all modules; returns what was replaced."""
    found = []
    for path, module in list(sys.modules.items()):
        if path.partition(".")[0] in _WITHOUT:
            continue
        names = getattr(module, "__dict__", {})
        for name, value in list(names.items()):
            by = by_function.get(id(value))
            if by is not None:
                found.append((names, name, value))
                names[name] = by
    return found
