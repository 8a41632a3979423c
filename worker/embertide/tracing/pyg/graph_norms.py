"""PyG's norms over all nodes, each recorded as a whole: no line of a row can express them."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from embertide.models.norm_options import GraphNormOptions, LayerNormOptions
from embertide.tracing.record.tape import Tape
from embertide.tracing.record.traced import Traced, plain
from embertide.tracing.record.user_code import here, refuse

Options = GraphNormOptions | LayerNormOptions


def graph_norm_of(module: nn.Module) -> Options | None:
    """A norm of PyG's that reads all nodes as ``model.yaml`` would have it; else None."""
    m: Any = module
    if not type(m).__module__.startswith("torch_geometric.nn.norm."):
        return None
    match type(m).__name__:
        case "GraphNorm":
            return GraphNormOptions(eps=m.eps)
        case "PairNorm":
            return GraphNormOptions(
                kind="pair", eps=m.eps, scale=m.scale, scale_individually=m.scale_individually
            )
        case "MeanSubtractionNorm":
            return GraphNormOptions(kind="mean_subtraction")
        case "GraphSizeNorm":
            return GraphNormOptions(kind="size")
        case "InstanceNorm":
            return GraphNormOptions(
                kind="instance",
                prefix="here",
                eps=m.eps,
                affine=m.affine,
                track_running_stats=m.track_running_stats,
            )
        case "LayerNorm" if m.mode == "graph":
            return LayerNormOptions(mode="graph", eps=m.eps, affine=m.affine)
    return None


class NormCall:
    """In place of such a norm's ``forward``."""

    def __init__(self, path: str, module: nn.Module, options: Options, tape: Tape) -> None:
        self.path, self.module, self.options, self.tape = path, module, options, tape

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute it, and record it as one operation."""
        forward = type(self.module).forward
        bound = inspect.signature(forward).bind(self.module, *args, **kwargs).arguments
        x, name = bound.pop("x"), type(self.module).__name__
        more = [key for key, value in bound.items() if key != "self" and value is not None]
        if more:
            raise refuse(
                here(),
                f"{self.path} ({name}) is given {', '.join(more)}; all nodes here are of one graph,"
                " so leave it out",
            )
        if isinstance(x, Traced) and x.node.edges:
            raise refuse(
                here(),
                f"{self.path} ({name}) is over all edges, whose numbers no step adds up; use"
                " norm='batch_norm', or LayerNorm(..., mode='node')",
            )
        if not isinstance(x, Traced) or x.dim() != 2:
            raise refuse(
                here(), f"{self.path} ({name}) is known over a tensor of nodes, [N, columns]"
            )
        value = forward(self.module, plain(x))
        return self.tape.wrap(
            self.tape.add("graph_norm", (self.path, name, self.options, x), {}, value)
        )
