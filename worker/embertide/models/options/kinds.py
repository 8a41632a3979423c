"""The classes of all layers, by library and by the word after ``conv``."""

from __future__ import annotations

from embertide.models.options import (
    dgl,
    dgl_edges,
    dgl_filters,
    pyg,
    pyg_edges,
    pyg_filters,
)
from embertide.models.options.layer import JumpingKnowledge, Layer, Library, LinearLayer

LAYERS: dict[Library, dict[str, type[Layer]]] = {
    "dgl": {
        "gcn": dgl.DglGcn,
        "sage": dgl.DglSage,
        "gat": dgl.DglGat,
        "gatv2": dgl.DglGatv2,
        "gin": dgl.DglGin,
        "gine": dgl_edges.DglGine,
        "edge_gat": dgl_edges.DglEdgeGat,
        "dotgat": dgl.DglDotGat,
        "agnn": dgl_filters.DglAgnn,
        "sg": dgl_filters.DglSg,
        "appnp": dgl_filters.DglAppnp,
        "tag": dgl_filters.DglTag,
        "cheb": dgl_filters.DglCheb,
        "gcn2": dgl_filters.DglGcn2,
        "pna": dgl_filters.DglPna,
        "propagate": dgl.DglPropagate,
        "linear": LinearLayer,
        "jumping_knowledge": JumpingKnowledge,
    },
    "pyg": {
        "gcn": pyg.PygGcn,
        "sage": pyg.PygSage,
        "gat": pyg.PygGat,
        "gatv2": pyg.PygGatv2,
        "gin": pyg.PygGin,
        "gine": pyg_edges.PygGine,
        "graph": pyg.PygGraph,
        "transformer": pyg.PygTransformer,
        "le": pyg.PygLe,
        "agnn": pyg.PygAgnn,
        "fa": pyg_filters.PygFa,
        "pna": pyg_filters.PygPna,
        "sg": pyg_filters.PygSg,
        "ssg": pyg_filters.PygSsg,
        "appnp": pyg_filters.PygAppnp,
        "tag": pyg_filters.PygTag,
        "cheb": pyg_filters.PygCheb,
        "gcn2": pyg_filters.PygGcn2,
        "arma": pyg_filters.PygArma,
        "lg": pyg_filters.PygLg,
        "lightgcn": pyg_filters.PygLightGcn,
        "propagate": pyg.PygPropagate,
        "linear": LinearLayer,
        "jumping_knowledge": JumpingKnowledge,
    },
}
