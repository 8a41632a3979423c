"""A plan's operations run on ghosts: what they hold and move, without computing a tensor.

Steps have no second description of what they cost. Their :meth:`Step.lower` runs as it is, on the
same tensors by name, with an exchange and layer graphs that only count: the peak is the plan of
memory, the moves are the plan of traffic.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Self

import torch

from embertide.footprint import FLOAT_BYTES, GraphSize
from embertide.graph.ghosts import GhostExchange, GhostGraph, GhostLoaded, GhostRanges, StoredEdges
from embertide.graph.moves import Move
from embertide.graph.views import EdgeView
from embertide.kernels.ghost_store import GhostStore
from embertide.kernels.ghosts import Ledger
from embertide.layouts import Shard
from embertide.program.steps.execution import Execution, results_in_rows
from embertide.program.steps.op import Op
from embertide.program.steps.program import Program
from embertide.program.steps.tensors import Tensors


@dataclass
class DryRun:
    """The state while operations run on ghosts, one after another.

    Attributes:
        placed: node types whose features are in the order of their ids from the start.
        building: relation -> bytes that its layer graph takes while it is built, beyond what stays.
        block: relation -> bytes of the blocks of a sum over features where they were loaded.
        m: the slice of columns that the worker has, where parts of tensors are in a store.
        store: where the features are; None: in memory.
        stored: relation -> its edges there; the others are in memory.
    """

    program: Program
    size: GraphSize
    placed: InitVar[Collection[str]] = ()
    building: dict[str, float] = field(default_factory=dict)
    block: dict[str, float] = field(default_factory=dict)
    m: int = 0
    store: GhostStore | None = None
    stored: Mapping[str, StoredEdges] = field(default_factory=dict)

    def __post_init__(self, placed: Collection[str]) -> None:
        size, program, store = self.size, self.program, self.store
        self._ledger = ledger = Ledger() if store is None else store.ledger
        bytes_of = self.building, self.block
        exchange = GhostExchange(size, ledger, *bytes_of, m=self.m, store=store, stored=self.stored)
        types = {name: size.of_type(name) for name in size.nodes}
        ranges = {name: GhostRanges.of(name, of_type, ledger) for name, of_type in types.items()}
        loaded = {
            of: GhostLoaded.of(exchange, name, types[of], program.widths[name], of in placed)
            for of, name in program.inputs.items()
        }
        places = {of: exchange.counted(own.nodes / own.workers, 2) for of, own in types.items()}
        row_type = torch.float32 if size.row_bytes == FLOAT_BYTES else torch.bfloat16
        self.exchange = exchange
        self.execution = Execution(
            exchange=exchange,
            program=program,
            ranges=dict(ranges),
            graphs=self._graph,
            tensors=Tensors(
                exchange,
                program,
                dict(ranges),
                dict(loaded),
                places,
                batch_bytes=size.group_bytes,
                row_type=row_type,
            ),
            locations=places,
            depth=size.depth,
            row_type=row_type,
            reads_all=size.reads_all,
            scaled=set(),
        )

    @property
    def peak(self) -> float:
        """The most bytes so far."""
        return self._ledger.peak

    @property
    def moves(self) -> list[Move]:
        """What has moved, in order."""
        return self.exchange.moves

    def to_results(self, ops: Sequence[Op]) -> Self:
        """Run operations from the inputs to the results as rows."""
        self.run(ops)
        results_in_rows(self.execution)
        # Of graphs whose sources are never found, what else is freed then stays.
        self._ledger.peak += sum(self.building.values())
        return self

    def run(self, ops: Sequence[Op], starts: Sequence[str] = ()) -> None:
        """Run operations whose inputs are there.

        Args:
            starts: tensors of operations before, which are there as rows.
        """
        tensors = self.execution.tensors
        tensors.begin((), ())
        for name in starts:
            of, width = self.size.of_type(self.program.types[name]), self.program.widths[name]
            rows = self.exchange.tensor(of.nodes / of.workers, width)
            tensors.keep(name, Shard("rows", rows, width))
        self.execution.scaled.update(op.out for op in ops if op.scales)
        for op in ops:
            tensors.begin(op.inputs, op.frees)
            tensors.keep(op.out, op.lower(self.execution))

    def _graph(self, layer: int, relation: str) -> GhostGraph:
        needs = self.program.edge_needs(relation)
        graph = GhostGraph(self.exchange, EdgeView(layer, relation=relation), needs)
        graph.sample()
        return graph
