"""Which modules are known as a whole."""

from __future__ import annotations

from torch import nn

from embertide.tracing.dgl.convs import DGL
from embertide.tracing.pyg.convs import PYG
from embertide.tracing.record.known_convs import Conv

_TABLES = {"torch_geometric": PYG, "dgl": DGL}
_HOOKS = (
    *("forward", "message", "aggregate", "update", "propagate"),
    *("message_and_aggregate", "edge_update"),
)


def known(module: nn.Module) -> Conv | None:
    """What is known of a module; None of a subclass that computes something of its own."""
    for kind in type(module).__mro__:
        found = _TABLES.get(kind.__module__.partition(".")[0], {}).get(kind.__name__)
        if found is not None:
            return found if _unchanged(type(module), kind) else None
    return None


def _unchanged(kind: type, base: type) -> bool:
    return all(getattr(kind, name, None) is getattr(base, name, None) for name in _HOOKS)
