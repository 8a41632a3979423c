"""The plan of the memory in which workers send each other edges, round by round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from embertide.engine.planning.edge_memory import relations, sending_bytes, sorting, spilled_sorting
from embertide.engine.planning.graph import PlannedGraph, plan_graph
from embertide.engine.planning.inputs import list_inputs
from embertide.graph.shuffle import round_edges
from embertide.io.storage.opening import open_storage
from embertide.models.read import read_model
from embertide.spec.grid import GridShape
from embertide.spec.manifest import load_manifest
from tests.support.small_job import SmallJob

WORKERS = 4
ROUND, EDGE_BYTES = round_edges(WORKERS), 8


def graph_of(folder: Path, edges: list[int]) -> PlannedGraph:
    """A graph whose workers read so many edges each."""
    job, storage = load_manifest(Path(SmallJob.make(folder).manifest)), open_storage(None)
    inputs = list_inputs(storage, job)
    ((relation, (split, *_)),) = inputs.by_edges.items()
    splits = [replace(split, start=0, stop=count, size=count) for count in edges if count]
    inputs = replace(inputs, by_edges={relation: splits})
    program = read_model(storage, job.spec.model.uri)
    return plan_graph(job, inputs, program, GridShape.of(WORKERS, 1), in_place=True)


@pytest.mark.parametrize(
    ("rounds", "in_flight"), [(0.5, 0.5), (1, 1), (1.25, 1.25), (2, 2), (3, 2)], ids=str
)
def test_no_more_than_two_rounds_of_edges_are_in_memory(
    tmp_path: Path, rounds: float, in_flight: float
) -> None:
    graph = graph_of(tmp_path, [int(rounds * ROUND)] * WORKERS)
    ((relation, size),) = relations(graph)
    of_others = (WORKERS - 1) / WORKERS
    planned = sending_bytes(relation, size, worker=0)
    assert planned == (1 + of_others) * in_flight * ROUND * EDGE_BYTES
    # They are gone when all edges are there.
    both = sorting(graph, worker=0)
    assert 0 < both.kept < both.peak


def test_the_only_reader_of_edges_sends_them_and_receives_none(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, [3 * ROUND])
    ((relation, size),) = relations(graph)
    *others, reader = sorted(sending_bytes(relation, size, worker) for worker in range(WORKERS))
    assert reader == 2 * ROUND * EDGE_BYTES
    assert others == [2 * ROUND * EDGE_BYTES / WORKERS] * (WORKERS - 1)


def test_self_loops_of_a_graph_without_edges_are_planned_on_disk(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, [])
    ((name, relation),) = graph.relations.items()
    loops = relation.edge.model_copy(update={"self_loops": "addToAll"})
    looped = replace(graph, relations={name: replace(relation, edge=loops)})
    without, planned = (spilled_sorting(of, worker=0) for of in (graph, looped))
    assert planned.kept > without.kept
    assert planned.peak >= planned.kept


def test_the_ends_of_rows_of_relations_before_are_planned_on_disk(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, [3 * ROUND])
    ((name, relation),) = graph.relations.items()
    more = {f"node:{number}:node": relation for number in range(3)}
    nodes = {"node": graph.size.nodes[name]}
    size = replace(graph.size, nodes=nodes, edges=dict.fromkeys(more, relation.edges))
    three = replace(graph, relations=more, size=size)
    one, all_three = (spilled_sorting(of, worker=0) for of in (graph, three))
    ends = 8 * graph.size.of_relation(name).nodes / WORKERS
    assert all_three.peak == one.peak + 2 * ends
    assert all_three.kept == one.kept + 2 * ends
