"""A model of several node types beside its model.yaml, on the graph of `typed_world`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from embertide.models.reference import run_typed_reference
from embertide.program.steps import Program
from tests.support.models import program_of, shake
from tests.support.typed_world import COUNTS, layer_of, make_edges, make_typed_features

EXACT = 1e-9
Tensors = dict[str, Tensor]
BUYS, BOUGHT_BY = ("user", "buys", "item"), ("item", "bought_by", "user")
FOLLOWS, NEVER = ("user", "follows", "user"), ("tag", "never", "user")
HAS, OF = ("item", "has", "tag"), ("tag", "of", "item")
RELATIONS = (BUYS, BOUGHT_BY, FOLLOWS, NEVER, HAS, OF)
LISTED = f"relations: [{', '.join(':'.join(one) for one in RELATIONS)}]\n"


@dataclass(frozen=True)
class HeteroCase:
    """One model as a training script makes it, and what describes it.

    Attributes:
        make: takes the library's ``nn``; the model's forward takes features and edges by type.
        text: of ``model.yaml`` without the library.
        weighted: stored edge weights are passed to the model.
        lacks: node types without features.
    """

    make: Callable[[Any], nn.Module]
    text: str
    weighted: bool = False
    lacks: tuple[str, ...] = ()
    tolerance: float = EXACT

    def program(self, library: str, module: nn.Module) -> Program:
        """Of the module's own weights."""
        return program_of(f"library: {library}\n{self.text}", module)

    def features(self) -> Tensors:
        """Node type -> [N, D] float64."""
        given = make_typed_features()
        return {name: x.double() for name, x in given.items() if name not in self.lacks}

    def found(self, program: Program) -> Tensors:
        """What the program makes of the graph in float64."""
        layer = layer_of(make_edges())
        if not self.weighted:
            layer = {name: (graph[0], graph[1], None) for name, graph in layer.items()}
        return run_typed_reference(program, [layer] * program.layers, self.features(), COUNTS)


def edges() -> dict[tuple[str, str, str], Tensor]:
    """Relation -> [2, E]."""
    layer = layer_of(make_edges())
    return {one: torch.stack(layer[":".join(one)][:2]) for one in RELATIONS}


def weights() -> dict[tuple[str, str, str], Tensor]:
    """Relation -> [E] float64, of those that have some."""
    layer = layer_of(make_edges())
    found = {one: layer[":".join(one)][2] for one in RELATIONS}
    return {one: weight.double() for one, weight in found.items() if weight is not None}


class Chain(nn.Module):
    """Layers one behind the other, each a function of features and edges by type."""

    def __init__(self, **layers: nn.Module) -> None:
        super().__init__()
        self.names = list(layers)
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x: Tensors, graph: Any, **more: Any) -> Tensors:
        for name in self.names:
            layer = getattr(self, name)
            x = layer(x) if isinstance(layer, ByType) else self.call(layer, x, graph, **more)
        return x

    def call(self, layer: nn.Module, x: Tensors, graph: Any, **more: Any) -> Tensors:
        """A layer over edges."""
        return layer(x, graph, **more)


class ByType(nn.ModuleDict):
    """A module for each node type; types that have none keep their rows."""

    def forward(self, x: Tensors) -> Tensors:
        return {name: self[name](h) if name in self else h for name, h in x.items()}


class Relu(ByType):
    """Of every type."""

    def forward(self, x: Tensors) -> Tensors:
        return {name: h.relu() for name, h in x.items()}


def shaken(case: HeteroCase, library: Any) -> nn.Module:
    """The module with random parameters."""
    return shake(case.make(library))
