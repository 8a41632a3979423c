"""A plan for workers with GPUs: what is on the CPU, what of it is pinned, what is on the GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from embertide.engine.planning.graph import PlannedGraph, plan_graph
from embertide.engine.planning.inputs import list_inputs
from embertide.engine.planning.memory import planned_gpu_memory, planned_memory
from embertide.footprint import FLOAT_BYTES
from embertide.io.storage.opening import open_storage
from embertide.kernels.staging import PINNED_BYTES
from embertide.models.read import read_model
from embertide.program.steps import Program
from embertide.spec.grid import GridShape
from embertide.spec.manifest import load_manifest
from tests.support.plans import planned_for
from tests.support.small_job import SmallJob

NODES, EDGES = 1 << 24, 1 << 26


def large(folder: Path, grid: GridShape) -> tuple[PlannedGraph, Program]:
    """The plan of a small job, as if its graph were large."""
    job, storage = load_manifest(Path(SmallJob.make(folder).manifest)), open_storage(None)
    program = read_model(storage, job.spec.model.uri)
    graph = plan_graph(job, list_inputs(storage, job), program, grid)
    (of_type,), (relation,) = graph.size.nodes, graph.size.edges
    size = replace(graph.size, nodes={of_type: NODES}, edges={relation: EDGES})
    return replace(graph, size=size), program


@pytest.mark.parametrize("grid", ["1x1", "2x1", "2x2"])
def test_the_layers_are_on_the_gpu_and_what_they_are_made_of_is_not(
    tmp_path: Path, grid: str
) -> None:
    shape = GridShape.of(*map(int, grid.split("x")))
    graph, program = large(tmp_path, shape)
    cpu = planned_memory(graph, planned_for(program, graph), None)
    beside = planned_memory(graph, planned_for(program, graph), None, gpu=True)
    gpu = planned_gpu_memory(graph, planned_for(program, graph), None)
    assert {name: beside[name] - cpu[name] for name in ("features", "ingest", "csr")} == {
        "features": 0,
        "ingest": 0,
        "csr": PINNED_BYTES,
    }
    width = program.widths[program.results[""]]
    results = FLOAT_BYTES * NODES * width // shape.workers
    assert cpu["publish"] - beside["publish"] == results - PINNED_BYTES
    # The CSR is on the CPU, the tensors are not, and both have non-zeros.
    assert PINNED_BYTES + 4 * EDGES / shape.workers < beside["infer"] < cpu["infer"]
    assert cpu["infer"] < beside["infer"] + gpu
    assert gpu > results + 4 * EDGES / shape.graph
