"""Running a module's ``forward`` on a random graph: as it is, or recorded."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from embertide.errors import EmbertideError
from embertide.models.dgl_interop import load_dgl
from embertide.models.folder import Library
from embertide.tracing.arguments import arguments_of
from embertide.tracing.dgl_graph import RecordingGraph
from embertide.tracing.graphs import RandomGraph
from embertide.tracing.messages import Edges
from embertide.tracing.modules import recorded
from embertide.tracing.scopes import Scopes
from embertide.tracing.source import place_of, refuse
from embertide.tracing.tape import Node, Tape, Traced


@dataclass(frozen=True)
class Subject:
    """A module and how it is called.

    Attributes:
        module: in eval mode and float64.
        roles: argument -> role (`arguments.ROLES`).
        fields: what it calls the job's own tensors in a graph of DGL's, once it was recorded:
            ``ndata`` and ``edata`` -> a name.
    """

    module: nn.Module
    roles: dict[str, str]
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def library(self) -> Library:
        """Whose modules it is made of."""
        kinds = (kind for one in self.module.modules() for kind in type(one).__mro__)
        packages = {kind.__module__.partition(".")[0] for kind in kinds}
        if "dgl" in packages or {"graph", "blocks"} & set(self.roles.values()):
            return "dgl"
        return "pyg" if "torch_geometric" in packages else "torch"

    @property
    def weights_are_optional(self) -> bool:
        """Whether it also runs on a graph without edge weights."""
        name = next((one for one, role in self.roles.items() if role == "edge_weight"), None)
        return name is not None and not arguments_of(self.module)[name]

    def forward(self, graph: RandomGraph, weighted: bool) -> Any:
        """What it gives on a graph, untouched.

        Raises:
            ModelError: it raised an error.
        """
        values: dict[str, Any] = {"x": graph.x, "edge_index": graph.edge_index}
        if weighted:
            values["edge_weight"] = graph.weight
        real = self._dgl(graph)
        if "ndata" in self.fields:
            real.ndata[self.fields["ndata"]] = graph.x
        if "edata" in self.fields:
            real.edata[self.fields["edata"]] = graph.weight
        return self._call(values, real, weighted)

    def record(self, graph: RandomGraph) -> Node:
        """What it does on a graph with edge weights: the node of what it returns.

        Raises:
            ModelError: it raised an error, or does what cannot be recorded.
        """
        tape, scopes = Tape(), Scopes()
        edges = Edges(tape, graph)
        values = {
            "x": tape.input("x", graph.x),
            "edge_index": tape.input("edge_index", graph.edge_index),
            "edge_weight": tape.input("edge_weight", graph.weight),
        }
        real = self._dgl(graph)
        recording = None if real is None else RecordingGraph(real, edges, scopes, values)
        with recorded(self.module, edges, scopes):
            out = self._call(values, recording, weighted=True)
        if recording is not None:
            self.fields.update(recording.fields)
        if not isinstance(out, Traced) or out.node.edges or out.shape[:1] != (graph.nodes,):
            raise refuse(
                "",
                f"{type(self.module).__name__}.forward returns {_told(out)}; it must return one"
                " tensor with a row for each node, which are the embeddings",
            )
        return out.node

    def _dgl(self, graph: RandomGraph) -> Any:
        """DGL's graph, where the module takes one."""
        if not {"graph", "blocks"} & set(self.roles.values()):
            return None
        return load_dgl().graph((graph.src, graph.dst), num_nodes=graph.nodes)

    def _call(self, values: dict[str, Any], graph: Any, weighted: bool) -> Any:
        given = {}
        for name, role in self.roles.items():
            if role == "edge_weight" and not weighted:
                continue
            if role == "data":
                from torch_geometric.data import Data

                given[name] = Data(**values)
            elif role in ("graph", "blocks"):
                given[name] = graph if role == "graph" else _Blocks(graph)
            else:
                given[name] = values[role]
        try:
            return self.module(**given)
        except EmbertideError:
            raise
        except Exception as error:
            name = type(self.module).__name__
            raise refuse(
                place_of(error.__traceback__),
                f"{name}.forward failed on a small random graph with {type(error).__name__}:"
                f" {error}",
            ) from error


class _Blocks(list[Any]):
    """As many blocks as anybody asks for: without sampling, each is the graph."""

    def __init__(self, graph: Any) -> None:
        super().__init__([graph] * 64)

    def __getitem__(self, _place: Any) -> Any:
        return super().__getitem__(0)


@contextmanager
def quiet() -> Iterator[None]:
    """No gradients, float64, no warnings of the libraries, one thread for the few rows."""
    before, threads = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_default_dtype(before)
        torch.set_num_threads(threads)


def _told(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)}"
    return f"a {type(value).__name__}"
