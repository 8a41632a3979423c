"""Every layer that the tests hold against its library's module, whatever table it stands in.

The page of convolutions is written from these, so that it says no more than what is tested.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from torch import nn

from embertide.models.description import Description, parse_description
from embertide.models.layer import Layer, Library
from embertide.program.steps import Program
from tests.support import (
    hetero_cases_dgl,
    hetero_cases_pyg,
)
from tests.support.conv_cases import CASES, EXAMPLES, library_nn
from tests.support.conv_cases.models import DGL_LAYERS, PYG_LAYERS
from tests.support.dgl_library import dgl
from tests.support.models import program_of
from tests.support.pyg import pyg


@dataclass(frozen=True)
class HeldLayer:
    """A layer of a tested model.

    Attributes:
        given: what its mapping says.
        weighted: stored edge weights are passed to the model.
        steps: kinds of steps that it becomes, in order; none where more follows its convolution.
    """

    library: Library
    layer: Layer
    given: dict[str, Any]
    weighted: bool
    steps: tuple[str, ...]


def held_layers() -> Iterator[HeldLayer]:
    """All of them. DGL has to be installed."""
    for library, text, module, weighted in _models():
        description = parse_description(text.encode(), "model.yaml")
        program = program_of(text, module)
        given = yaml.safe_load(text)["layers"]
        parts = _steps(description, program)
        for layer, said, steps in zip(description.layers, given, parts, strict=True):
            yield HeldLayer(library, layer, said, weighted, steps)


Model = tuple[Library, str, nn.Module, bool]


def _models() -> Iterator[Model]:
    """(library, model.yaml, module, whether it is given edge weights)."""
    for library, cases in CASES.items():
        for case in cases.values():
            if case.layer:
                module = case.module(library_nn(library))
                yield library, case.text(library), module, case.weighted
    for example in PYG_LAYERS.values():
        yield "pyg", example.yaml, example.make(), example.weighted
    for example in DGL_LAYERS.values():
        yield "dgl", example.yaml, example.make(), example.weighted
    yield from _of_several_types()
    for library, examples in EXAMPLES.items():
        for example in examples.values():
            yield library, example.yaml, example.make(), example.weighted


def _of_several_types() -> Iterator[Model]:
    """Those of several node types or relations."""
    for one in hetero_cases_pyg.CASES.values():
        yield "pyg", f"library: pyg\n{one.text}", one.make(pyg), one.weighted
    for other in hetero_cases_dgl.CASES.values():
        yield "dgl", f"library: dgl\n{other.text}", other.make(dgl.nn.pytorch), other.weighted


def _steps(description: Description, program: Program) -> list[tuple[str, ...]]:
    """The kinds of steps of each layer; empty where norms, activations or links follow."""
    found, at = [], 0
    for layer, out in zip(description.layers, program.outputs, strict=True):
        ends = [place for place, step in enumerate(program.steps) if step.out == out]
        stop = ends[0] + 1 if ends else at
        plain = not set(layer.parts_given()) - {"average"}
        kinds = [type(step).__name__ for step in program.steps[at:stop]]
        found.append(tuple(kinds) if plain else ())
        at = stop
    return found
