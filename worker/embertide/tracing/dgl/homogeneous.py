"""A graph of DGL's with the nodes of all types together, as ``dgl.to_homogeneous`` makes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from embertide.tracing.dgl.frames import Field, Frame
from embertide.tracing.record.counts import Count
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.roles import ALL
from embertide.tracing.record.traced import Traced
from embertide.tracing.record.user_code import here, refuse

NUMBERS = "_TYPE"
"""``dgl.NTYPE`` and ``dgl.ETYPE``."""


class TogetherGraph:
    """Its frames have numbers of types; what goes along its edges are whole convolutions.

    Attributes:
        normed: whether its edges have a ``norm``, which RelGraphConv reads by itself.
    """

    is_block = False

    def __init__(self, recording: Recording, tensors: dict[str, Traced], *, normed: bool) -> None:
        self._recording, self.normed = recording, normed
        nodes = {} if tensors.get("x") is None else {"ndata": tensors["x"]}
        self.ndata = Frame(ALL, nodes, {NUMBERS: tensors["node_type"]})
        of_edges = {name: tensors[name] for name in ("edge_weight", "norm")}
        self.edata = Frame(ALL, of_edges, {NUMBERS: tensors["edge_type"]})

    @property
    def srcdata(self) -> Frame:
        """All nodes are sources,"""
        return self.ndata

    @property
    def dstdata(self) -> Frame:
        """and destinations."""
        return self.ndata

    @property
    def fields(self) -> dict[Field, str]:
        """The names under which the job's own tensors were read."""
        both = (self.ndata, self.edata)
        return {(kind, ALL): name for frame in both for kind, name in frame.inputs.items()}

    def num_nodes(self) -> int:
        """The number of nodes of all types."""
        return Count(sum(self._recording.graph.counts.values()))

    number_of_nodes = num_dst_nodes = num_src_nodes = num_nodes

    def to(self, *_args: Any, **_kwargs: Any) -> TogetherGraph:
        """It stays where it is."""
        return self

    @contextmanager
    def local_scope(self) -> Iterator[TogetherGraph]:
        """What is set within it is forgotten after it."""
        saved = self.ndata, self.edata
        self.ndata, self.edata = (frame.copy() for frame in saved)
        try:
            yield self
        finally:
            self.ndata, self.edata = saved

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise refuse(
            here(),
            f"the graph has all node types together, and its {name} is not known; known on it are"
            " RelGraphConv, HGTConv and TypedLinear: give each relation its own convolution"
            " (HeteroGraphConv)",
        )
