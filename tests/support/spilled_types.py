"""What ranks do for the tests of graphs of several types on disk; light to import."""

from __future__ import annotations

from dataclasses import dataclass, replace
from mmap import PAGESIZE
from pathlib import Path
from typing import Any

import numpy as np

from embertide.footprint import GraphSize
from embertide.kernels import scratch, spilled_sort
from embertide.kernels.scratch import Scratch
from embertide.kernels.spilled_csr import SpilledCsr
from embertide.pipeline.prepare import target_of
from embertide.planning.graph import PlannedGraph, PlannedRelation
from embertide.planning.matching import narrow
from embertide.planning.spilled import spilled_costs
from embertide.planning.spilled_graph import graph_problem, spilled_graph
from embertide.plans import spill
from embertide.primitives import edge_log
from embertide.primitives.exchange import Exchange
from embertide.steps import Program
from embertide.telemetry.self_check import SelfCheck
from tests.support.plans import as_given
from tests.support.typed_world import COUNTS, TypedRank, make_edges
from tests.support.world import GROUP_BYTES

Rows = dict[str, np.ndarray]
"""Node type -> [our rows, D']."""


@dataclass(frozen=True)
class TypedStored:
    """A program over several node types with the graph on disk, too, on one rank.

    Attributes:
        rows: ours.
        checked: what checks them.
        moved: bytes from and to the disk, from when edges are there until the embeddings are.
        planned: the same two, by the plan of one of several equal workers.
        parts: of the relation that has most.
    """

    rows: Rows
    checked: SelfCheck
    moved: tuple[int, int]
    planned: tuple[float, float]
    parts: int


@dataclass(frozen=True)
class TypedAnswer:
    """A program over several node types on one rank.

    Attributes:
        whole, spilled: our rows with all tensors in memory, and on disk.
        checked: what checks the latter.
        stored: with the graph on disk, too; None where it can't be.
    """

    whole: Rows
    spilled: Rows
    checked: SelfCheck
    stored: TypedStored | None


def spill_typed(
    exchange: Exchange,
    programs: list[Program],
    folder: str,
    panel: int,
    edges: dict[str, Any] | None = None,
) -> list[TypedAnswer]:
    """Our rows of every program over several node types, both ways; with the graph on disk, too,
    where it can be.

    Args:
        edges: name of an edge type -> what the job says of it beside what it has.
    """
    spill.BLOCK_BYTES = scratch.CHUNK_BYTES = 4096
    spilled_sort.PART_EDGES, spilled_sort.READ_EDGES = 12, 10
    # Pieces of the log are full, as planned.
    edge_log.PIECE_EDGES = 1
    rank, answers = TypedRank(exchange, edges=edges), []
    job, grid = rank.ctx.job, exchange.grid.shape
    whole = [rank.embed(program) for program in programs]
    for program, in_memory in zip(programs, whole, strict=True):
        files = Scratch(Path(folder))
        rank.ctx = replace(rank.ctx, scratch=files, panel=panel, spills_graph=False)
        spilled, checked = rank.checked(program, 1000)
        assert checked is not None
        on_disk = {key: values.copy() for key, values in spilled.items()}
        stored, target = None, target_of(rank.ctx)
        problem = graph_problem(job, program, grid, in_place=target.in_place)
        # Steps run in the order that they have, for which other rows may be best.
        if not problem and as_given(program, target).grid.feature == 1:
            stored = _stored_types(rank, program)
        answers.append(TypedAnswer(in_memory, on_disk, checked, stored))
    return answers


def _stored_types(rank: TypedRank, program: Program) -> TypedStored:
    """Our rows with the graph on disk in many parts. Collective: every rank must call."""
    files = rank.ctx.scratch
    assert files is not None
    ctx, in_memory = rank.ctx, rank.graph
    rank.ctx = replace(ctx, spills_graph=True)
    read, written, before = files.read, files.written, files.held
    rank.graph = rank.build(program)
    csrs = [csr for csr in rank.graph.sub_ranges.values() if isinstance(csr, SpilledCsr)]
    assert len(csrs) == len(rank.graph.sub_ranges)
    # Edges that are not sorted are gone.
    kept = (4 * (1 + csr.weighted) * part.nnz for csr in csrs for part in csr.spilled)
    assert files.held - before == sum(-(-size // PAGESIZE) * PAGESIZE for size in kept)
    parts = max(len(csr.spilled) for csr in csrs)
    del csrs
    rows = {key: values.copy() for key, values in rank.embed(program).items()}
    moved = files.read - read, files.written - written
    _, checked = rank.checked(program, 1000)
    assert checked is not None
    planned = _planned_types(rank, program)
    rank.ctx, rank.graph = ctx, in_memory
    return TypedStored(rows, checked, moved, planned, parts)


def _planned_types(rank: TypedRank, program: Program) -> tuple[float, float]:
    """Bytes read and written by one of several equal workers after features were written."""
    target, read = target_of(rank.ctx), narrow(rank.ctx.job, program).spec.input.edges
    counts = {name: len(own.src) for name, own in make_edges().items()}
    relations = {
        str(relation): PlannedRelation(
            relation=relation, edge=edge, splits=[], edges=counts[edge.name], exact=True, features=0
        )
        for edge in read
        for relation in edge.relations
        if str(relation) in program.relations
    }
    plan = as_given(program, target)
    size = GraphSize(
        nodes=dict(COUNTS),
        edges={name: relation.edges for name, relation in relations.items()},
        grid=plan.grid,
        group_bytes=GROUP_BYTES,
        depth=2,
        in_place=target.in_place,
    )
    planned = PlannedGraph(types={}, relations=relations, size=size, several=True)
    graph = spilled_graph(planned, spills=True)
    costs = spilled_costs(plan, size, placed=[], graph=graph)
    features = sum(4 * COUNTS[name] * program.widths[x] for name, x in program.inputs.items())
    return costs.read, costs.written - features / target.grid.workers
