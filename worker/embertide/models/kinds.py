"""The tables of all kinds of layers, with every module of `embertide.models.convs` loaded."""

from __future__ import annotations

import importlib
import pkgutil

from embertide.models import convs
from embertide.models.layer import Layer, Library
from embertide.models.registry import KNOWN, KNOWN_TYPED, LAYERS, TYPED_LAYERS, sort_kinds

__all__ = ["KNOWN", "KNOWN_TYPED", "LAYERS", "TYPED_LAYERS", "kinds_of"]

for _module in pkgutil.iter_modules(convs.__path__):
    importlib.import_module(f"{convs.__name__}.{_module.name}")
sort_kinds()


def kinds_of(library: Library) -> dict[str, type[Layer]]:
    """Every layer that may stand in the list, by the word after ``conv``."""
    return {**LAYERS[library], **TYPED_LAYERS[library]}
