"""Cuts keep workers near their plan, by what the plan says of rows and edges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from embertide.engine.planning.graph import PlannedGraph, plan_graph
from embertide.engine.planning.growth import EVEN, Growth, growths
from embertide.engine.planning.inputs import list_inputs
from embertide.engine.planning.memory import planned_gpu_memory, planned_memory
from embertide.engine.stages.csr import cut_ranges
from embertide.grid import Grid
from embertide.io.storage.opening import open_storage
from embertide.models.read import read_model
from embertide.program.steps import Program
from embertide.spec.grid import GridShape
from embertide.spec.manifest import load_manifest
from tests.support.plans import planned_for
from tests.support.small_job import SmallJob

NODES, EDGES = 1 << 24, 1 << 28
OWNING = ("csr", "infer", "publish")


def large(folder: Path, grid: GridShape) -> tuple[PlannedGraph, Program]:
    """The plan of a small job, as if its graph were large."""
    job, storage = load_manifest(Path(SmallJob.make(folder).manifest)), open_storage(None)
    program = read_model(storage, job.spec.model.uri)
    graph = plan_graph(job, list_inputs(storage, job), program, grid, in_place=True)
    (of_type,), (relation,) = graph.size.nodes, graph.size.edges
    size = replace(graph.size, nodes={of_type: NODES}, edges={relation: EDGES})
    return replace(graph, size=size), program


@pytest.mark.parametrize("gpu", [False, True])
def test_an_equal_share_of_the_fullest_stage_leaves_a_tenth(tmp_path: Path, gpu: bool) -> None:
    graph, program = large(tmp_path, GridShape.of(2, 2))
    (found,) = growths(graph, planned_for(program, graph), None, gpu=gpu).values()
    planned = planned_memory(graph, planned_for(program, graph), None, gpu=gpu)
    stages, most = [planned[name] for name in OWNING], [max(planned.values())] * 3
    if gpu:
        stages.append(planned_gpu_memory(graph, planned_for(program, graph), None))
        most.append(stages[-1])
    for growth, stage, peak in zip(found, stages, most, strict=True):
        own = growth.row_bytes * NODES / 4 + growth.edge_bytes * EDGES / 4
        assert growth.most_bytes == pytest.approx(own + EVEN * peak - stage, rel=1e-3)
        assert own <= stage


def test_the_plan_of_a_larger_graph_is_what_the_growth_says(tmp_path: Path) -> None:
    graph, program = large(tmp_path, GridShape.of(2, 1))
    (found,) = growths(graph, planned_for(program, graph), None, gpu=False).values()
    (of_type,), (relation,) = graph.size.nodes, graph.size.edges
    size = replace(graph.size, nodes={of_type: NODES * 9 // 8}, edges={relation: EDGES * 9 // 8})
    more = planned_memory(replace(graph, size=size), planned_for(program, graph), None)
    before = planned_memory(graph, planned_for(program, graph), None)
    for growth, name in zip(found, OWNING, strict=True):
        grown = (growth.row_bytes * NODES + growth.edge_bytes * EDGES) / 8 / 2
        assert more[name] - before[name] == pytest.approx(grown, rel=0.01)


def degrees_in_order(nodes: int) -> np.ndarray:
    """From many edges down to none: most enter a small part of the nodes."""
    return (4000 * np.exp(-np.arange(nodes) / (nodes / 8))).astype(np.int64)


@pytest.mark.parametrize("grid", ["2x1", "4x1", "2x2"])
@pytest.mark.parametrize(("row_bytes", "edge_bytes"), [(1000.0, 0.1), (1.0, 1000.0), (0.0, 1.0)])
def test_no_worker_takes_more_than_the_most(grid: str, row_bytes: float, edge_bytes: float) -> None:
    degrees, shape = degrees_in_order(4000), GridShape.parse(grid)
    mean = (row_bytes * 4000 + edge_bytes * degrees.sum()) / shape.workers
    limit = Growth(row_bytes=row_bytes, edge_bytes=edge_bytes, most_bytes=EVEN * mean)

    def taken(limits: list[Growth]) -> float:
        bounds = cut_ranges(degrees, 1, 4000, Grid(shape), lambda: limits).workers
        edges = np.diff(np.concatenate([[0], degrees.cumsum()])[list(bounds)])
        return limit.share(np.diff(bounds).astype(float), edges.astype(float))

    assert taken([]) > EVEN
    # Cuts are at whole nodes.
    assert taken([limit]) <= 1 + degrees.max() * edge_bytes / limit.most_bytes


def test_rows_weigh_no_more_than_is_enough() -> None:
    degrees, grid = degrees_in_order(4000), Grid(GridShape.of(2, 1))
    roomy = Growth(row_bytes=1.0, edge_bytes=0.0, most_bytes=10_000.0)
    tight = Growth(row_bytes=1.0, edge_bytes=0.0, most_bytes=EVEN * 2000)
    by_work = cut_ranges(degrees, 1, 4000, grid)
    assert cut_ranges(degrees, 1, 4000, grid, lambda: [roomy]) == by_work
    (_, bound, _) = cut_ranges(degrees, 1, 4000, grid, lambda: [tight]).workers
    assert 4000 - 2200 <= bound < 1950


def test_cuts_keep_to_limits_that_no_weight_of_rows_does() -> None:
    """One stage's peak grows with rows, another's with edges, and workers have most of either."""
    degrees, grid = degrees_in_order(4000), Grid(GridShape.of(4, 1))
    limits = [
        Growth(row_bytes=1.0, edge_bytes=0.0, most_bytes=1.7 * 1000),
        Growth(row_bytes=0.0, edge_bytes=1.0, most_bytes=1.5 * degrees.sum() / 4),
    ]
    bounds = cut_ranges(degrees, 1, 4000, grid, lambda: limits).workers
    rows, edges = np.diff(bounds), np.diff(np.concatenate([[0], degrees.cumsum()])[list(bounds)])
    assert sum(rows) == 4000
    for limit in limits:
        assert limit.share(rows.astype(float), edges.astype(float)) <= 1


def test_nobody_plans_for_rows_that_are_even() -> None:
    def never() -> list[Growth]:
        raise AssertionError("asked")

    cut_ranges(np.full(4000, 5), 1, 4000, Grid(GridShape.of(4, 1)), never)


def test_a_hub_that_no_cut_divides_is_cut_as_well_as_it_can_be() -> None:
    degrees = np.ones(100, np.int64)
    degrees[7] = 10**6
    limit = Growth(row_bytes=0.0, edge_bytes=1.0, most_bytes=300_000.0)
    bounds = cut_ranges(degrees, 1, 100, Grid(GridShape.of(4, 1)), lambda: [limit]).workers
    assert min(np.diff(bounds)) >= 1
