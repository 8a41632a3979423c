"""Which function writes the steps of which layer.

Every function takes the builder, the layer's parameters, its options and the name of its input (or
of both ends' inputs), and returns the name of its result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from embertide.models.builder import ProgramBuilder
from embertide.models.convs import (
    dgl,
    dgl_filters,
    edge_features,
    jumping,
    nodewise,
    pna,
    pna_dgl,
    pyg,
    pyg_filters,
)
from embertide.models.convs.ends import Ends
from embertide.models.options import dgl as dgl_options
from embertide.models.options import dgl_edges as dgl_edge_options
from embertide.models.options import dgl_filters as dgl_filter_options
from embertide.models.options import pyg as pyg_options
from embertide.models.options import pyg_edges as pyg_edge_options
from embertide.models.options import pyg_filters as pyg_filter_options
from embertide.models.options.layer import JumpingKnowledge, Layer, LinearLayer
from embertide.models.weights import Scope

BETWEEN_TYPES: dict[type[Layer], Callable[[ProgramBuilder, Scope, Any, Ends], str]] = {
    dgl_options.DglGcn: dgl.gcn,
    dgl_options.DglSage: dgl.sage,
    dgl_options.DglGat: dgl.gat,
    dgl_options.DglGatv2: dgl.gatv2,
    dgl_options.DglGin: dgl.dgl_gin,
    dgl_edge_options.DglGine: edge_features.dgl_gine,
    dgl_edge_options.DglEdgeGat: edge_features.edge_gat,
    dgl_options.DglDotGat: dgl.dotgat,
    pyg_options.PygSage: pyg.sage,
    pyg_options.PygGraph: pyg.graph,
    pyg_options.PygGat: pyg.gat,
    pyg_options.PygGatv2: pyg.gatv2,
    pyg_options.PygTransformer: pyg.transformer,
    pyg_options.PygLe: pyg.le,
    pyg_options.PygGin: pyg.pyg_gin,
    pyg_edge_options.PygGine: edge_features.pyg_gine,
}
"""Convolutions that may lead from one node type to another."""


def _at_both_ends(
    conv: Callable[[ProgramBuilder, Scope, Any, Ends], str],
) -> Callable[[ProgramBuilder, Scope, Any, str], str]:
    """The convolution within one node type."""
    return lambda b, s, o, x: conv(b, s, o, Ends(x, x))


CONVS: dict[type[Layer], Callable[[ProgramBuilder, Scope, Any, str], str]] = {
    **{kind: _at_both_ends(conv) for kind, conv in BETWEEN_TYPES.items()},
    dgl_options.DglPropagate: dgl.dgl_propagate,
    dgl_filter_options.DglAgnn: dgl_filters.agnn,
    dgl_filter_options.DglSg: dgl_filters.sg,
    dgl_filter_options.DglAppnp: dgl_filters.appnp,
    dgl_filter_options.DglTag: dgl_filters.tag,
    dgl_filter_options.DglCheb: dgl_filters.cheb,
    dgl_filter_options.DglGcn2: dgl_filters.gcn2_conv,
    dgl_filter_options.DglPna: pna_dgl.pna,
    pyg_options.PygGcn: pyg.gcn,
    pyg_options.PygAgnn: pyg.agnn,
    pyg_options.PygPropagate: pyg.pyg_propagate,
    pyg_filter_options.PygFa: pyg_filters.fa,
    pyg_filter_options.PygPna: pna.pna,
    pyg_filter_options.PygSg: pyg_filters.sg,
    pyg_filter_options.PygSsg: pyg_filters.ssg,
    pyg_filter_options.PygAppnp: pyg_filters.appnp,
    pyg_filter_options.PygTag: pyg_filters.tag,
    pyg_filter_options.PygCheb: pyg_filters.cheb,
    pyg_filter_options.PygGcn2: pyg_filters.gcn2_conv,
    pyg_filter_options.PygArma: pyg_filters.arma,
    pyg_filter_options.PygLg: pyg_filters.lg,
    pyg_filter_options.PygLightGcn: pyg_filters.lightgcn,
    LinearLayer: nodewise.linear,
    JumpingKnowledge: jumping.jumping_knowledge,
}
