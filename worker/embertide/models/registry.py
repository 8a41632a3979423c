"""All kinds of layers, by library and by the word after ``conv``.

A class in `embertide.models.convs` is registered by its decorator; `embertide.models.kinds` loads
them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from embertide.models.known_modules import KnownModule
from embertide.models.layer import Layer, Library
from embertide.models.typed_layer import SeveralTypes

Kind = TypeVar("Kind", bound=Layer)

LAYERS: dict[Library, dict[str, type[Layer]]] = {"dgl": {}, "pyg": {}}
"""Layers of one node type or relation."""
TYPED_LAYERS: dict[Library, dict[str, type[SeveralTypes]]] = {"dgl": {}, "pyg": {}}
"""Layers over several relations."""
KNOWN: dict[Library, dict[str, KnownModule]] = {"dgl": {}, "pyg": {}}
"""Class of a library's module -> how its options are read where it is exported."""
KNOWN_TYPED: dict[Library, dict[str, KnownModule]] = {"dgl": {}, "pyg": {}}
"""The same of layers over several relations."""


def convolution(
    *libraries: Library, module: KnownModule | None = None
) -> Callable[[type[Kind]], type[Kind]]:
    """Register a kind of layer under the only word that its field ``conv`` allows.

    Args:
        libraries: those whose ``model.yaml`` may have it.
        module: how a live module is read; without it, an export records what the module does.
    """

    def register(kind: type[Kind]) -> type[Kind]:
        for library in libraries:
            if issubclass(kind, SeveralTypes):
                TYPED_LAYERS[library][kind.word()] = kind
            else:
                LAYERS[library][kind.word()] = kind
            if module is not None:
                _know(library, kind, module)
        return kind

    return register


def _know(library: Library, kind: type[Layer], module: KnownModule) -> None:
    known = KNOWN_TYPED if issubclass(kind, SeveralTypes) else KNOWN
    for name in kind.module.split(", "):
        known[library][name.rpartition(".")[2]] = replace(module, options=kind)


def sort_kinds() -> None:
    """Order the tables by name, in whatever order the modules were imported."""
    for library in LAYERS:
        LAYERS[library] = dict(sorted(LAYERS[library].items()))
        TYPED_LAYERS[library] = dict(sorted(TYPED_LAYERS[library].items()))
        KNOWN[library] = dict(sorted(KNOWN[library].items()))
