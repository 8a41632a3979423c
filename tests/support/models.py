"""Graphs, model files and comparisons that the tests of models share."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from embertide.errors import ObjectMissing
from embertide.models.folder_reading import parse_folder
from embertide.models.read import read_model
from embertide.models.reference import run_reference
from embertide.program.steps import Program
from embertide.program.steps.reference import LayerGraph
from tests.support.exact import relative_error

if TYPE_CHECKING:
    from embertide.tracing.export import Export

NODES = 37


@dataclass
class Files:
    """A store in memory with what reading a model needs."""

    objects: dict[str, bytes] = field(default_factory=dict)

    def read(self, uri: str) -> bytes:
        if uri not in self.objects:
            raise ObjectMissing(f"no such object: {uri}")
        return self.objects[uri]

    def stat(self, uri: str) -> object | None:
        return self.objects.get(uri)

    def write(self, uri: str, data: bytes) -> None:
        self.objects[uri] = data


def read_again(done: Export) -> Program:
    """The program of an export as workers read it, its parameters in float32."""
    return parse_folder(done.files.program, done.files.weights, "program.yaml").program


@dataclass(frozen=True)
class TensorGraph:
    src: torch.Tensor
    dst: torch.Tensor
    weight: torch.Tensor

    def layer(self, weighted: bool, features: int = 0) -> LayerGraph:
        return self.src, self.dst, self.weight if weighted else None, self.features(features)

    def features(self, columns: int) -> torch.Tensor | None:
        """[E, columns] of the edges, if there are any."""
        g = torch.Generator().manual_seed(19)
        return torch.randn(len(self.src), columns, generator=g) if columns else None


def make_graph(directed: bool) -> TensorGraph:
    """Two hubs (one in, one out), self-loops, duplicates; the last five nodes are isolated, and
    nodes 25..31 have no in-edges in the directed one."""
    g = torch.Generator().manual_seed(11 + directed)
    src = torch.randint(0, NODES - 5, (150,), generator=g)
    dst = torch.randint(0, NODES - 12, (150,), generator=g)
    hub = torch.arange(20)
    src = torch.cat([src, hub, torch.full_like(hub, 1), torch.tensor([3, 4, 5, 9]), src[:15]])
    dst = torch.cat([dst, torch.full_like(hub, 2), hub, torch.tensor([3, 4, 5, 9]), dst[:15]])
    # Ascending: of several loops on a node PyG takes the last, a program the heaviest.
    weight = torch.rand(len(src), generator=g).sort().values + 0.25
    if not directed:
        other = src != dst
        src, dst = torch.cat([src, dst[other]]), torch.cat([dst, src[other]])
        weight = torch.cat([weight, weight[other]])
    return TensorGraph(src, dst, weight)


GRAPHS = {"directed": make_graph(True), "undirected": make_graph(False)}


def features(width: int) -> torch.Tensor:
    return torch.randn(NODES, width, generator=torch.Generator().manual_seed(5)).double()


def shake(module: torch.nn.Module, seed: int = 3) -> torch.nn.Module:
    """Give every parameter and statistic a random value, so that none is zero or one."""
    g = torch.Generator().manual_seed(seed)
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point():
            value = torch.randn(tensor.shape, generator=g) * 0.5
            tensor.copy_(value.abs() + 0.5 if name.endswith("running_var") else value)
    return module.eval()


def program_of(yaml: str, weights: torch.nn.Module | dict[str, torch.Tensor]) -> Program:
    """The program read from a module's own state_dict, saved as torch saves it."""
    data = io.BytesIO()
    torch.save(weights if isinstance(weights, dict) else weights.state_dict(), data)
    files = {"file:///m/model.yaml": yaml.encode(), "file:///m/weights.pt": data.getvalue()}
    return read_model(Files(files), "file:///m")


def assert_same(found: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-9) -> None:
    assert found.dtype == torch.float64
    assert float(expected.abs().max()) > 1e-3
    assert relative_error(found, expected) <= tolerance


def run_program(
    program: Program, graph: TensorGraph, x: torch.Tensor, weighted: bool
) -> torch.Tensor:
    columns = max(program.edge_columns().values(), default=0)
    return run_reference(program, [graph.layer(weighted, columns)] * program.layers, x)
