"""The classes of all layers, by library and by the word after ``conv``."""

from __future__ import annotations

from embertide.models.options import dgl, pyg
from embertide.models.options.layer import JumpingKnowledge, Layer, Library, LinearLayer

LAYERS: dict[Library, dict[str, type[Layer]]] = {
    "dgl": {
        "gcn": dgl.DglGcn,
        "sage": dgl.DglSage,
        "gat": dgl.DglGat,
        "gatv2": dgl.DglGatv2,
        "gin": dgl.DglGin,
        "dotgat": dgl.DglDotGat,
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
        "propagate": pyg.PygPropagate,
        "linear": LinearLayer,
        "jumping_knowledge": JumpingKnowledge,
    },
}
