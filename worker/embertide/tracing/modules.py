"""While a module is traced, its convolutions are called as a whole.

Known ones become one node. PyG's others run as they are, but for `propagate`, whose message is
recorded; DGL's others meet a recording graph (`dgl_graph`).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from embertide.tracing.convs import Conv
from embertide.tracing.dgl_graph import RecordingGraph
from embertide.tracing.known import known
from embertide.tracing.messages import REDUCES, Edges
from embertide.tracing.roles import is_edges, is_weight
from embertide.tracing.scopes import Scopes
from embertide.tracing.source import here, refuse
from embertide.tracing.tape import Traced, plain


@contextmanager
def recorded(module: nn.Module, edges: Edges, scopes: Scopes) -> Iterator[None]:
    """Within it, calls of convolutions are recorded on the edges' tape."""
    patched: list[tuple[nn.Module, str]] = []
    handles = []
    try:
        for path, one in module.named_modules():
            conv = known(one)
            if conv is not None:
                one.forward = _Call(path, one, conv, edges)
                patched.append((one, "forward"))
                continue
            handles += scopes.watch(path, one)
            if is_message_passing(one):
                one.propagate = _Propagate(one, edges, scopes)
                one.edge_updater = _refuse_edge_updater
                patched += [(one, "propagate"), (one, "edge_updater")]
        yield
    finally:
        for one, name in patched:
            del one.__dict__[name]
        for handle in handles:
            handle.remove()


def is_message_passing(module: nn.Module) -> bool:
    """Whether it is one of PyG's, by name, so that PyG need not be imported."""
    return any(
        kind.__name__ == "MessagePassing" and kind.__module__.startswith("torch_geometric.")
        for kind in type(module).__mro__
    )


class _Call:
    """In place of a known convolution's ``forward``."""

    def __init__(self, path: str, module: nn.Module, conv: Conv, edges: Edges) -> None:
        self.path, self.module, self.conv, self.edges = path, module, conv, edges
        self.forward = type(module).forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        problem = self.conv.problem(self.module)
        if getattr(self.module, "flow", "source_to_target") != "source_to_target":
            problem = "flow='target_to_source' (turn the edges in the manifest instead)"
        if problem:
            raise self._refuse(f"has {problem}, which is not known here")
        bound = inspect.signature(self.forward).bind(self.module, *args, **kwargs).arguments
        xs = bound.get(self.conv.x)
        pair = xs if isinstance(xs, tuple) else (xs, xs)
        earlier = bound.get(self.conv.earlier)
        for x in (*pair, *([earlier] if self.conv.earlier else [])):
            if not isinstance(x, Traced):
                raise self._refuse(
                    "is given features that do not come from the graph's (an embedding table?);"
                    " give the table as the job's features"
                )
        weighted, given = self._check_edges(bound), self._given(bound)
        after = [getattr(self.module, name) for name in self.conv.after]
        value = self._run(plain_graphs(args), plain_graphs(kwargs))
        node = self.edges.tape.add(
            "conv", (self.path, self.module, self.conv, weighted, given, earlier, *pair), {}, value
        )
        out: Any = self.edges.tape.wrap(node)
        for function in after:
            out = out if function is None else function(out)
        return out

    def _run(self, args: Any, kwargs: Any) -> Any:
        """What it gives without the functions that it would apply to the result."""
        saved = {name: getattr(self.module, name) for name in self.conv.after}
        try:
            for name in saved:
                setattr(self.module, name, None)
            return self.forward(self.module, *args, **kwargs)
        finally:
            for name, function in saved.items():
                setattr(self.module, name, function)

    def _check_edges(self, bound: dict[str, Any]) -> bool:
        """Whether edge weights are passed; all else but features and edges is refused."""
        weighted = False
        for name, value in bound.items():
            if name in ("self", self.conv.x, self.conv.earlier, *self.conv.given):
                continue
            if value is None or isinstance(value, RecordingGraph):
                continue
            if name == "edge_index":
                if not isinstance(value, Traced) or not is_edges(value.node):
                    where = f" at {value.node.where}" if isinstance(value, Traced) else ""
                    raise self._refuse(
                        f"is given edges that were changed{where}; convolutions here read the"
                        " job's edges: change those, or let the convolution do it"
                        " (add_self_loops)"
                    )
            elif name == self.conv.weight:
                if not isinstance(value, Traced) or not is_weight(value.node):
                    raise self._refuse("is given edge weights that are not the graph's own")
                weighted = True
            elif isinstance(value, Traced) or value is not False:
                raise self._refuse(f"is given {name}, which is not known here; leave it out")
        return weighted

    def _given(self, bound: dict[str, Any]) -> dict[str, float]:
        """Options that the call gives: single numbers."""
        found = {}
        for name, reason in self.conv.given.items():
            value = bound.get(name)
            if value is None and reason:
                raise self._refuse(f"is not given {name}; {reason}")
            if value is not None:
                numbers = torch.as_tensor(plain(value)).flatten()
                if len(numbers) != 1:
                    raise self._refuse(f"is given {len(numbers)} numbers as {name}; give one")
                found[name] = float(numbers[0])
        return found

    def _refuse(self, what: str) -> Exception:
        return refuse(here(), f"{self.path} ({type(self.module).__name__}) {what}")


class _Propagate:
    """In place of ``propagate`` of a module of PyG's that is not known as a whole."""

    def __init__(self, module: Any, edges: Edges, scopes: Scopes) -> None:
        self.module, self.edges, self.scopes = module, edges, scopes

    def __call__(self, edge_index: Any, _size: Any = None, /, **kwargs: Any) -> Any:
        kwargs.pop("size", None)
        m, name = self.module, type(self.module).__name__
        base: Any = next(kind for kind in type(m).__mro__ if kind.__name__ == "MessagePassing")
        if not isinstance(edge_index, Traced) or not is_edges(edge_index.node):
            raise refuse(
                here(),
                f"{name} propagates along edges that were changed; only the job's own edges are"
                " known: add loops or drop edges there",
            )
        if m.flow != "source_to_target":
            raise refuse(here(), f"{name} has flow={m.flow!r}; turn the edges in the manifest")
        reduce = REDUCES.get(str(m.aggr))
        if type(m).aggregate is not base.aggregate or reduce is None:
            raise refuse(here(), f"{name} aggregates by {m.aggr!r}; known are sum, mean and max")
        message = m.message(**self._arguments("message", kwargs))
        out = self.edges.aggregate(message, reduce, self.scopes.current(m))
        return m.update(out, **self._arguments("update", kwargs, skip=1))

    def _arguments(self, hook: str, given: dict[str, Any], skip: int = 0) -> dict[str, Any]:
        """What a hook is called with: ``x_j`` and ``x_i`` are the rows at the edges' ends."""
        names = list(inspect.signature(getattr(self.module, hook)).parameters.items())[skip:]
        found = {}
        for name, parameter in names:
            stem, end = name[:-2], name[-2:]
            if end in ("_j", "_i") and stem in given:
                x = given[stem]
                if isinstance(x, tuple):
                    x = x[end == "_i"]
                take = self.edges.source if end == "_j" else self.edges.target
                found[name] = None if x is None else take(x)
            elif name in given:
                found[name] = given[name]
            elif parameter.default is parameter.empty:
                raise refuse(
                    here(),
                    f"{type(self.module).__name__}.{hook} reads {name}, which is not known here;"
                    " known are the arguments of propagate, with _i and _j",
                )
        return found


def _refuse_edge_updater(*_args: Any, **_kwargs: Any) -> Any:
    raise refuse(here(), "edge_updater is not known here; compute it in message")


def plain_graphs(value: Any) -> Any:
    """Plain tensors and graphs in place of those that record."""
    if isinstance(value, RecordingGraph):
        return value.real
    if type(value) in (tuple, list):
        return type(value)(plain_graphs(one) for one in value)
    if type(value) is dict:
        return {key: plain_graphs(one) for key, one in value.items()}
    return plain(value)
