"""The convolutions that export knows: each live module says its options, as ``model.yaml`` would.

The steps are those of `embertide.models.convs`, so a described and an exported model run alike. A
new convolution is one entry of `KNOWN`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from embertide.models.builder import ProgramBuilder
from embertide.models.convs import dgl, nodewise, pyg
from embertide.models.options import dgl as dgl_options
from embertide.models.options import pyg as pyg_options
from embertide.models.options.layer import LinearLayer
from embertide.models.weights import Scope

Steps = Callable[[ProgramBuilder, Scope, Any, str], str]


@dataclass(frozen=True)
class Conv:
    """One convolution of a library.

    Attributes:
        options: from the live module and whether it is given edge weights.
        steps: writes the steps of one layer.
        x: the argument of its ``forward`` that has the features.
        weight: the argument that has edge weights; "" if it takes none.
        after: attributes that hold functions applied to the result, in this order.
        problem: what of a module cannot be run; "" if nothing.
    """

    options: Callable[[Any, bool], Any]
    steps: Steps
    x: str = "x"
    weight: str = ""
    after: tuple[str, ...] = ()
    problem: Callable[[Any], str] = lambda _module: ""


def known(module: nn.Module) -> Conv | None:
    """What is known of a module; None of a subclass that computes something of its own."""
    for kind in type(module).__mro__:
        found = KNOWN.get(f"{kind.__module__.partition('.')[0]}.{kind.__name__}")
        if found is not None and kind.__module__.split(".")[0] in ("torch_geometric", "dgl"):
            return found if _unchanged(type(module), kind) else None
    return None


_HOOKS = ("forward", "message", "aggregate", "update", "message_and_aggregate", "edge_update")


def _unchanged(kind: type, base: type) -> bool:
    return all(getattr(kind, name, None) is getattr(base, name, None) for name in _HOOKS)


def _pyg(problem: Callable[[Any], str] = lambda _m: "") -> Callable[[Any], str]:
    """What holds for all of PyG's."""

    def found(m: Any) -> str:
        if m.flow != "source_to_target":
            return f"flow={m.flow!r}; turn the edges with direction in the manifest instead"
        return problem(m)

    return found


def _aggr(*allowed: str) -> Callable[[Any], str]:
    def found(m: Any) -> str:
        if m.aggr in allowed:
            return ""
        return f"aggr={m.aggr!r}; known are {', '.join(allowed)}"

    return found


def _no_edge_features(m: Any) -> str:
    if m.edge_dim is not None:
        return "edge_dim: attention over edge features"
    return ""


def _sgconv(b: ProgramBuilder, s: Scope, o: Any, x: str) -> str:
    """PyG's SGConv: propagation, then ``lin``."""
    return _linear(b, s, "lin", pyg.pyg_propagate(b, s, o, x))


def _dgl_sgconv(b: ProgramBuilder, s: Scope, o: Any, x: str) -> str:
    """DGL's SGConv: propagation, then ``fc``."""
    return _linear(b, s, "fc", dgl.dgl_propagate(b, s, o, x))


def _linear(b: ProgramBuilder, s: Scope, name: str, x: str) -> str:
    prefix = s.name(name)
    inner = Scope(s.weights, prefix, s.label, {"in": b.widths[x]})
    options = LinearLayer(conv="linear", prefix=prefix, bias=inner.has("bias"))
    return nodewise.linear(b, inner, options, x)


def _has_bias(m: Any, *names: str) -> bool:
    return any(getattr(getattr(m, name, None), "bias", None) is not None for name in names)


_PYG: dict[str, Conv] = {
    "GCNConv": Conv(
        lambda m, weighted: pyg_options.PygGcn(
            conv="gcn",
            bias=m.bias is not None,
            normalize=m.normalize,
            improved=m.improved,
            add_self_loops=m.add_self_loops,
            edge_weight=weighted,
        ),
        pyg.gcn,
        weight="edge_weight",
        problem=_pyg(_aggr("add", "sum")),
    ),
    "SAGEConv": Conv(
        lambda m, _weighted: pyg_options.PygSage(
            conv="sage",
            bias=m.lin_l.bias is not None,
            aggr=m.aggr,
            normalize=m.normalize,
            root_weight=m.root_weight,
            project=m.project,
        ),
        pyg.sage,
        problem=_pyg(_aggr("mean", "max", "sum", "add")),
    ),
    "GATConv": Conv(
        lambda m, _weighted: pyg_options.PygGat(
            conv="gat",
            bias=m.bias is not None,
            heads=m.heads,
            concat=m.concat,
            negative_slope=m.negative_slope,
            add_self_loops=m.add_self_loops,
            residual=m.residual,
        ),
        pyg.gat,
        problem=_pyg(_no_edge_features),
    ),
    "GATv2Conv": Conv(
        lambda m, _weighted: pyg_options.PygGatv2(
            conv="gatv2",
            bias=m.lin_l.bias is not None,
            heads=m.heads,
            concat=m.concat,
            negative_slope=m.negative_slope,
            add_self_loops=m.add_self_loops,
            residual=m.residual,
            share_weights=m.share_weights,
        ),
        pyg.gatv2,
        problem=_pyg(_no_edge_features),
    ),
    "APPNP": Conv(
        lambda m, weighted: pyg_options.PygPropagate(
            conv="propagate",
            K=m.K,
            alpha=m.alpha,
            normalize=m.normalize,
            add_self_loops=m.normalize and m.add_self_loops,
            edge_weight=weighted,
        ),
        pyg.pyg_propagate,
        weight="edge_weight",
        problem=_pyg(),
    ),
    "SGConv": Conv(
        lambda m, weighted: pyg_options.PygPropagate(
            conv="propagate", K=m.K, add_self_loops=m.add_self_loops, edge_weight=weighted
        ),
        _sgconv,
        weight="edge_weight",
        problem=_pyg(),
    ),
}

_DGL: dict[str, Conv] = {
    "GraphConv": Conv(
        lambda m, weighted: dgl_options.DglGcn(
            conv="gcn",
            bias=m.bias is not None,
            norm=m._norm,
            weight=m.weight is not None,
            edge_weight=weighted,
        ),
        dgl.gcn,
        x="feat",
        weight="edge_weight",
        after=("_activation",),
    ),
    "SAGEConv": Conv(
        lambda m, weighted: dgl_options.DglSage(
            conv="sage",
            bias=_has_bias(m, "fc_self") or getattr(m, "bias", None) is not None,
            aggregator_type=m._aggre_type,
            edge_weight=weighted,
        ),
        dgl.sage,
        x="feat",
        weight="edge_weight",
        after=("activation", "norm"),
        problem=lambda m: (
            "aggregator_type='lstm' depends on the order of edges" * (m._aggre_type == "lstm")
        ),
    ),
    "GATConv": Conv(
        lambda m, weighted: dgl_options.DglGat(
            conv="gat",
            bias=m.bias is not None or _has_bias(m, "res_fc"),
            num_heads=m._num_heads,
            negative_slope=m.leaky_relu.negative_slope,
            residual=m.res_fc is not None,
            edge_weight=weighted,
        ),
        dgl.gat,
        x="feat",
        weight="edge_weight",
        after=("activation",),
    ),
    "GATv2Conv": Conv(
        lambda m, _weighted: dgl_options.DglGatv2(
            conv="gatv2",
            bias=m.bias,
            num_heads=m._num_heads,
            negative_slope=m.leaky_relu.negative_slope,
            residual=m.res_fc is not None,
            share_weights=m.share_weights,
        ),
        dgl.gatv2,
        x="feat",
        after=("activation",),
    ),
    "DotGatConv": Conv(
        lambda m, _weighted: dgl_options.DglDotGat(conv="dotgat", num_heads=m._num_heads),
        dgl.dotgat,
        x="feat",
    ),
    "APPNPConv": Conv(
        lambda m, _weighted: dgl_options.DglPropagate(
            conv="propagate", k=m._k, alpha=m._alpha, norm="both"
        ),
        dgl.dgl_propagate,
        x="feat",
    ),
    "SGConv": Conv(
        lambda m, _weighted: dgl_options.DglPropagate(conv="propagate", k=m._k, norm="in_degree"),
        _dgl_sgconv,
        x="feat",
        problem=lambda m: "norm: a function of the features" * (m.norm is not None),
    ),
}

KNOWN: dict[str, Conv] = {
    **{f"torch_geometric.{name}": conv for name, conv in _PYG.items()},
    **{f"dgl.{name}": conv for name, conv in _DGL.items()},
}
"""By library and class."""
