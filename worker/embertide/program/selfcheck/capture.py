"""Rows of the tensors that a unit reads, brought together before they are gone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from embertide.graph.fetch import RowFetch
from embertide.graph.views import EdgeView
from embertide.layouts import Shard
from embertide.program.selfcheck.draw import Nodes
from embertide.program.steps.execution import Execution
from embertide.program.steps.reference import End

PRIMITIVE = "check"
"""Under which the transfers are counted."""


@dataclass(frozen=True)
class Captured:
    """Rows of a tensor.

    Attributes:
        nodes: [n] dense ids, ascending.
        values: [n, width] float32, on the CPU.
        scaled: they are multiplied by factors of sources already.
    """

    nodes: Nodes
    values: Tensor
    scaled: bool = False

    def at(self, nodes: Nodes) -> Tensor:
        """[k, width] float64 of nodes that are there."""
        return self.values[torch.from_numpy(np.searchsorted(self.nodes, nodes))].double()


@dataclass(frozen=True)
class Fetch:
    """Brings rows of any tensor of an execution for the same nodes of a type.

    Collective: every rank must make one, and call the same methods.
    """

    execution: Execution
    nodes: Nodes
    rows: RowFetch

    @classmethod
    def of(cls, execution: Execution, node_type: str, nodes: Nodes) -> Fetch:
        """For ascending dense ids of a node type."""
        channel = execution.exchange.channel("world", PRIMITIVE)
        wanted = torch.from_numpy(nodes)
        return cls(execution, nodes, RowFetch(channel, execution.ranges[node_type], wanted))

    def tensor(self, name: str) -> Captured:
        """Rows of a tensor as it is held; it is left as it is."""
        execution, tensors = self.execution, self.execution.tensors
        shard = tensors.current(name)
        if shard is None:
            of_type = execution.program.types[name]
            locations = execution.locations[of_type]
            return self._kept(self.rows.of_loaded(tensors.loaded(name), locations), scaled=False)
        return self.shard(shard, scaled=name in execution.scaled)

    def shard(self, shard: Shard, *, scaled: bool = False) -> Captured:
        """Rows of a tensor, given our part of it."""
        return self._kept(self.rows.of(shard), scaled=scaled)

    def degrees(self, view: EdgeView, end: End, *, weighted: bool) -> Captured:
        """[n, 1] degrees as the run has counted them, at one end of a layer graph."""
        graph = self.execution.graph(view)
        weighs = weighted and view.edge_weight
        if end == "in":
            values = graph.weighted_in_degree() if weighs else graph.in_degree()
            ranges = graph.targets
        else:
            values = graph.weighted_out_degree() if weighs else graph.out_degree()
            ranges = graph.origins
        own = values[slice(*ranges.within(self.execution.grid.rank))]
        return self.shard(Shard("rows", own.unsqueeze(1), 1))

    def _kept(self, values: Tensor, *, scaled: bool) -> Captured:
        return Captured(self.nodes, values, scaled)
