"""The classes of the layers of models with several node types."""

from __future__ import annotations

from embertide.models.options import relational
from embertide.models.options.hetero import DglHetero, PygHetero, SeveralTypes
from embertide.models.options.kinds import LAYERS
from embertide.models.options.layer import Layer, Library

TYPED_LAYERS: dict[Library, dict[str, type[SeveralTypes]]] = {
    "dgl": {"hetero": DglHetero, "rgcn": relational.DglRgcn, "hgt": relational.DglHgt},
    "pyg": {
        "hetero": PygHetero,
        "rgcn": relational.PygRgcn,
        "hgt": relational.PygHgt,
        "han": relational.PygHan,
    },
}


def kinds_of(library: Library) -> dict[str, type[Layer]]:
    """Every layer that may stand in the list, by the word after ``conv``."""
    return {**LAYERS[library], **TYPED_LAYERS[library]}
