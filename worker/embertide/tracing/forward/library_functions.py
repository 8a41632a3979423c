"""Functions of PyG and DGL over edges, recorded as one operation wherever a module calls them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

import torch

from embertide.tracing.dgl import functions as dgl_functions
from embertide.tracing.dgl.graph import RecordingGraph
from embertide.tracing.pyg import computed_weights
from embertide.tracing.pyg import functions as pyg_functions
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.traced import Traced
from embertide.tracing.record.user_code import here, refuse

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


def _packed(_recording: Recording, real: Function) -> Function:
    def pack(input: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(input, Traced):
            return real(input, *args, **kwargs)
        raise refuse(
            here(),
            "pack_padded_sequence puts tokens of all nodes into one tensor; give the layer the"
            " padded tokens, and take each node's last state: h[torch.arange(len(h)), lengths - 1]",
        )

    return pack


_MAKERS: dict[tuple[str, str], Maker] = {
    ("torch_geometric.utils", "softmax"): pyg_functions.softmax,
    ("torch_geometric.utils", "degree"): pyg_functions.degree,
    ("torch_geometric.utils", "to_dense_batch"): pyg_functions.to_dense_batch,
    ("torch_geometric.utils", "scatter"): pyg_functions.scatter,
    ("torch_geometric.utils", "add_self_loops"): pyg_functions.add_self_loops,
    (
        "torch_geometric.utils",
        "add_remaining_self_loops",
    ): pyg_functions.add_remaining_self_loops,
    ("torch_geometric.utils", "remove_self_loops"): pyg_functions.remove_self_loops,
    **{
        (
            f"torch_geometric.{'nn.pool' if name in pyg_functions.NEAR else 'utils'}",
            name,
        ): pyg_functions.refused(name)
        for name in pyg_functions.REFUSED
    },
    ("torch_geometric.nn.conv.gcn_conv", "gcn_norm"): computed_weights.gcn_norm,
    ("torch.nn.utils.rnn", "pack_padded_sequence"): _packed,
    ("dgl.ops", "edge_softmax"): _edge_softmax,
    ("dgl", "add_self_loop"): dgl_functions.add_self_loop,
    ("dgl", "remove_self_loop"): dgl_functions.remove_self_loop,
    **{("dgl", name): dgl_functions.refused(name) for name in dgl_functions.REFUSED},
}
"""Where each is found under its own name; elsewhere it is the same object."""


@contextmanager
def _scripted_as_written() -> Iterator[None]:
    """Within it, functions that torch.jit.script compiled run as the Python that they were."""
    kind: Any = torch.jit.ScriptFunction
    compiled = kind.__call__

    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        original = getattr(function, "_torchdynamo_inline", None)
        if original is None:
            raise refuse(
                here(),
                f"{function.name} is traced by torch.jit, so that its Python code is not there to"
                " be recorded; call the function that it was made of",
            )
        return original(*args, **kwargs)

    kind.__call__ = call
    try:
        yield
    finally:
        kind.__call__ = compiled


@contextmanager
def standing_in(recording: Recording) -> Iterator[None]:
    """Within it, such functions record, wherever a module keeps them: a name, a dict, a partial.

    What a function does is exchanged, not the names for it, which may be anywhere.
    """
    changed = list[tuple[FunctionType, CodeType, Any]]()
    try:
        for (module, name), make in _MAKERS.items():
            function = getattr(sys.modules.get(module), name, None)
            if isinstance(function, FunctionType):
                changed.append((function, function.__code__, function.__kwdefaults__))
                by = make(recording, _copy(function))
                free = function.__code__.co_freevars
                function.__code__ = _call.__code__.replace(co_freevars=free)
                function.__kwdefaults__ = {"_by": by}
        with _scripted_as_written():
            yield
    finally:
        for function, code, defaults in reversed(changed):
            function.__code__, function.__kwdefaults__ = code, defaults


def _call(*args: Any, _by: Function, **kwargs: Any) -> Any:
    """What a function does while it stands for another."""
    return _by(*args, **kwargs)


def _copy(function: FunctionType) -> FunctionType:
    """The same function as another object."""
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy
