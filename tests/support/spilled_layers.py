"""What ranks do for the tests of layers on disk; light to import, like all that ranks import."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from embertide.footprint import GraphSize
from embertide.kernels import host_store, scratch, spilled_sort
from embertide.kernels.host_store import HostStore
from embertide.kernels.lanes import Lane, lanes_of
from embertide.kernels.scratch import Scratch
from embertide.kernels.spilled_csr import SpilledCsr
from embertide.pipeline.prepare import target_of
from embertide.planning.edge_memory import logged_bytes
from embertide.planning.graph import PlannedGraph, PlannedRelation
from embertide.planning.spilled import spilled_costs
from embertide.planning.spilled_graph import spilled_graph
from embertide.plans import spill
from embertide.primitives.exchange import Exchange
from embertide.selfcheck.checker import Checker
from embertide.steps import Program
from embertide.steps.execution import Execution
from embertide.telemetry.self_check import SelfCheck
from tests.support.late_lanes import LateLanes
from tests.support.plans import as_given, order_steps
from tests.support.world import GROUP_BYTES, Graph, Rank, make_features, make_job

Cases = dict[str, tuple[Program, str, bool]]
Graphs = dict[tuple[str, bool], Graph]


@dataclass(frozen=True)
class Stored:
    """One case with the graph on disk, too, on one rank.

    Attributes:
        rows: [our rows, D'].
        moved: bytes from and to the disk, without the self-check of several ranks.
        planned: the same two, by the plan.
    """

    rows: np.ndarray
    moved: tuple[int, int]
    planned: tuple[float, float]


@dataclass(frozen=True)
class Answer:
    """One case on one rank.

    Attributes:
        whole, spilled: [our rows, D'] with all tensors in memory, and on disk.
        stored: with the graph on disk, too; None where that is in memory.
        checked: of the latter.
        left: files that are there after the run; the result is one.
        read, written: bytes from and to the disk, beside the features as they were read.
        planned: the same two, by the plan.
        warned: sentences for the run's user.
    """

    whole: np.ndarray
    spilled: np.ndarray
    stored: Stored | None
    checked: SelfCheck
    left: int
    read: int
    written: int
    planned: tuple[float, float]
    warned: list[str]


def spill_layers(
    exchange: Exchange,
    graphs: Graphs,
    cases: Cases,
    folder: str,
    panel: int,
    graph_too: set[str],
    fanout: list[int] | None = None,
    *,
    placed: bool = False,
    late: Collection[Lane] | None = None,
    values: int | None = None,
    summed: int | None = None,
) -> dict[str, Answer]:
    """Our rows of every case, both ways.

    Args:
        folder: of the disk.
        graph_too: cases that also run with the graph on disk.
        fanout: edges that each layer samples of a node; None: all.
        placed: as of :class:`Rank`.
        late: tensors are in host memory instead, and copies on these lanes are late.
        values: the most that a tensor may have on the device then.
        summed: the most columns of a repeated sum that the device has memory for another sum of.
    """
    _use_small_blocks(4096 if values is None else 1024)
    answers: dict[str, Answer] = {}
    for name, (program, kind, weighted) in cases.items():
        sampled: dict[str, Any] = {} if fanout is None else {"fanout": fanout[: program.layers]}
        ordered = order_steps(program, exchange.grid.world)
        rank = Rank(exchange, graphs[kind, weighted], make_job(weighted=weighted, **sampled))
        rank.placed = placed
        whole = rank.embed(ordered, make_features(program.input_width))
        files = Scratch(Path(folder)) if late is None else HostStore(LateLanes(late, values))
        rank.ctx = replace(rank.ctx, scratch=files, panel=panel)
        with _full_after_a_sum(summed):
            answers[name] = _spilled(rank, ordered, whole, graph_too=name in graph_too)
    return answers


def spill_both(
    exchange: Exchange,
    graphs: Graphs,
    cases: Cases,
    folder: str,
    panel: int,
    late: Collection[Lane],
) -> dict[str, tuple[Answer, Answer]]:
    """As :func:`spill_layers`, on disk and in host memory, beside one run in memory."""
    _use_small_blocks(4096)
    answers = {}
    for name, (program, kind, weighted) in cases.items():
        ordered = order_steps(program, exchange.grid.world)
        rank = Rank(exchange, graphs[kind, weighted], make_job(weighted=weighted))
        whole, in_memory = rank.embed(ordered, make_features(program.input_width)), rank.ctx
        rank.ctx = replace(in_memory, scratch=Scratch(Path(folder)), panel=panel)
        on_disk = _spilled(rank, ordered, whole)
        rank.ctx = replace(in_memory, scratch=HostStore(LateLanes(late, None)), panel=panel)
        answers[name] = on_disk, _spilled(rank, ordered, whole)
    return answers


def _use_small_blocks(size: int) -> None:
    """Few of each: the disk is waited for."""
    spill.BLOCK_BYTES = scratch.CHUNK_BYTES = host_store.CHUNK_BYTES = size


def _spilled(rank: Rank, program: Program, whole: np.ndarray, *, graph_too: bool = False) -> Answer:
    """The answer of a rank whose context has tensors elsewhere."""
    features, files = make_features(program.input_width), rank.ctx.scratch
    assert files is not None
    found, checked = rank.checked(program, features, len(features))
    assert checked is not None
    read, written, left = files.read, files.written, files.count
    return Answer(
        whole=whole,
        spilled=found.copy(),
        stored=_stored(rank, program, features) if graph_too else None,
        checked=checked,
        left=left,
        read=read,
        written=written,
        planned=_planned(rank, program, features.nbytes, rank.placed),
        warned=rank.ctx.graph_facts.kept.problems,
    )


@contextmanager
def _full_after_a_sum(columns: int | None) -> Iterator[None]:
    """A device that has no memory for another sum of more than so many columns; None: it has."""
    hop = Checker.hop

    def full(self: Checker, execution: Execution, *sum_: Any, **how: Any) -> None:
        hop(self, execution, *sum_, **how)
        width = sum_[-1].data.shape[1]
        if columns is not None and width > columns:
            raise torch.OutOfMemoryError(f"CUDA out of memory: another sum of {width} columns")

    Checker.hop = full  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Checker.hop = hop  # type: ignore[method-assign]


def stage_layers(exchange: Exchange, graphs: Graphs, cases: Cases, panel: int) -> list[np.ndarray]:
    """Our rows of every case, with tensors in host memory and parts of them on the device."""
    spill.BLOCK_BYTES = host_store.CHUNK_BYTES = 4096
    answers = []
    for program, kind, weighted in cases.values():
        rank = Rank(exchange, graphs[kind, weighted], make_job(weighted=weighted))
        store = HostStore(lanes_of(exchange.device))
        rank.ctx = replace(rank.ctx, scratch=store, panel=panel)
        ordered = order_steps(program, exchange.grid.world)
        rows, checked = rank.checked(ordered, make_features(program.input_width), 1000)
        assert checked is not None
        assert not checked.faults
        answers.append(rows.copy())
    return answers


def _stored(rank: Rank, program: Program, features: torch.Tensor) -> Stored:
    """Our rows with the graph on disk in many parts. Collective: every rank must call.

    Of several ranks the self-check finds nothing; what it reads is not planned.
    """
    spilled_sort.PART_EDGES, spilled_sort.READ_EDGES = 32, 10
    files = rank.ctx.scratch
    assert files is not None
    ctx, rank.ctx = rank.ctx, replace(rank.ctx, spills_graph=True)
    read, written = files.read, files.written
    in_memory, rank.sub_range = rank.sub_range, rank.build()
    assert isinstance(rank.sub_range, SpilledCsr)
    assert len(rank.sub_range.spilled) > 2
    alone = rank.ctx.grid.world == 1
    rows, checked = rank.checked(program, features, None if alone else len(features))
    assert checked is None or not checked.faults
    moved = files.read - read, files.written - written
    stored = Stored(rows.copy(), moved, _planned(rank, program, features.nbytes, rank.placed))
    rank.ctx, rank.sub_range = ctx, in_memory
    return stored


def _planned(rank: Rank, program: Program, features: int, placed: bool) -> tuple[float, float]:
    """Bytes read and written by one of several equal workers; edges are in memory until sorted."""
    target = target_of(rank.ctx)
    size = GraphSize(
        nodes={"": rank.graph.nodes},
        edges={"": len(rank.graph.src)},
        grid=target.grid,
        group_bytes=GROUP_BYTES,
        depth=2,
    )
    edge, edges = rank.ctx.job.spec.input.edges[0], len(rank.graph.src)
    relation = PlannedRelation(
        relation=edge.relation, edge=edge, splits=[], edges=edges, exact=True, features=0
    )
    planned = PlannedGraph(types={}, relations={"": relation}, size=size, several=False)
    graph = spilled_graph(planned, spills=target.spills_graph)
    logged = logged_bytes(relation, size.of_relation("")) * edges if graph else 0.0
    costs = spilled_costs(
        as_given(program, target), size, placed=[""] if placed else [], graph=graph
    )
    return costs.read - logged, costs.written - logged - features / target.grid.workers
