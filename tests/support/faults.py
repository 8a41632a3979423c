"""Faults that change one row in a thousand, put into a run's own code for the time of a test.

Ranks import this module, so it stays light.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from embertide.graph import arriving
from embertide.graph.exchange import Exchange
from embertide.graph.graph import LayerGraph
from embertide.layouts import Shard
from embertide.program.steps import Program
from embertide.program.steps.execution import Execution
from embertide.program.steps.op import Input, Op
from embertide.program.steps.tensors import Tensors
from tests.support.world import Graph, Rank, make_features, make_job

ONE_IN = 1000
FAULTS = ("kernel", "exchange", "memory", "degrees")


def count_caught(
    exchange: Exchange, graph: Graph, program: Program, fault: str, rows: int, trials: int
) -> tuple[int, float, int, int]:
    """How often a fault in layer 1 is caught, with other rows changed and drawn each time.

    Returns:
        how often, the least probability that the results state, the fewest in-edges of the rows of
        a layer, and rows that were changed.
    """
    rank, features = Rank(exchange, graph, make_job()), make_features(9, graph.nodes)
    caught, changed, checked = 0, 0, []
    for trial in range(trials):
        with injected(fault, program, trial, graph.nodes) as number:
            _, found = rank.checked(program, features, rows, seed=trial)
        assert found is not None
        changed += number()
        checked += [one for one in found.checked if one.rows]
        caught += bool(found.faults)
    chance = min(one.chance for one in checked)
    in_edges = min(one.in_edges for one in checked if one.in_edges)
    return caught, chance, in_edges, changed


@contextmanager
def injected(fault: str, program: Program, trial: int, nodes: int) -> Iterator[Callable[[], int]]:
    """Change rows in layer 1; yields what says how many this rank has changed."""
    changed: list[int] = []

    def change(data: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
        """Some rows, by their numbers, a hundredth larger in their first column."""
        bad = torch.from_numpy(np.flatnonzero(rows % ONE_IN == trial * 37 % ONE_IN))
        out = data.clone()
        out[bad, 0] += 0.01 * data.abs().max()
        changed.append(len(bad))
        return out

    with _patched(*_PATCHES[fault](change, program)):
        yield lambda: sum(changed)


Change = Callable[[torch.Tensor, np.ndarray], torch.Tensor]


def _kernel(change: Change, _program: Program) -> tuple[type, str, Any]:
    """What an operation of the layer has made."""
    plain = Op.lower

    def lower(self: Op, execution: Execution) -> Shard:
        made = plain(self, execution)
        if self.steps[0].layer == 1 and self.steps[0].edges is not None:
            made = Shard(
                made.layout, change(made.data, _numbers(execution, self.out, made)), made.width
            )
        return made

    return Op, "lower", lower


def _exchange(change: Change, _program: Program) -> tuple[type, str, Any]:
    """Rows of peers as they have arrived."""
    plain, counted = arriving._Message.rows, [0]

    def rows(self: Any, sources: Any, number: int, apart: Any) -> torch.Tensor:
        found = plain(self, sources, number, apart)
        first, counted[0] = counted[0], counted[0] + len(found)
        return change(found, np.arange(first, counted[0]))

    return arriving._Message, "rows", rows


def _memory(change: Change, program: Program) -> tuple[type, str, Any]:
    """A tensor that is there, before the operation that reads it begins."""
    plain = Tensors.begin
    reader = next(one for one in program.steps if one.layer == 1 and one.edges is not None)
    (name,) = reader.gathered

    def begin(self: Tensors, inputs: Sequence[Input], frees: Collection[str]) -> None:
        plain(self, inputs, frees)
        shard = self.current(name)
        read = name in {one.name for one in inputs}
        if read and shard is not None and not getattr(self, "changed", False):
            self.changed = True  # type: ignore[attr-defined]
            ranges, grid = self._ranges[""], self._exchange.grid
            rows = shard.layout == "rows"
            first, last = ranges.worker(grid.rank) if rows else ranges.partition(grid.p)
            shard.data.copy_(change(shard.data, np.arange(first, last)))

    return Tensors, "begin", begin


def _degrees(change: Change, _program: Program) -> tuple[type, str, Any]:
    """Out-degrees as they were counted together."""
    plain = LayerGraph.out_degree

    def out_degree(self: LayerGraph) -> torch.Tensor:
        first, last = self.origins.partition(self.exchange.grid.p)
        return change(plain(self).unsqueeze(1), np.arange(first, last)).squeeze(1)

    return LayerGraph, "out_degree", out_degree


_PATCHES = {"kernel": _kernel, "exchange": _exchange, "memory": _memory, "degrees": _degrees}


def _numbers(execution: Execution, name: str, shard: Shard) -> np.ndarray:
    """The dense ids of a tensor's rows."""
    ranges, grid = execution.ranges_of(name), execution.grid
    rows = shard.layout == "rows"
    return np.arange(*(ranges.worker(grid.rank) if rows else ranges.partition(grid.p)))


@contextmanager
def _patched(owner: type, name: str, function: Any) -> Iterator[None]:
    plain = getattr(owner, name)
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, plain)
