"""The plan knows what is on its way from a store that is far away, and to one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from embertide.engine.planning.graph import plan_graph
from embertide.engine.planning.inputs import Inputs, list_inputs
from embertide.engine.planning.memory import planned_memory
from embertide.io.readers.splits import Split
from embertide.io.storage.opening import open_storage
from embertide.models.read import read_model
from embertide.spec.grid import GridShape
from embertide.spec.manifest import load_manifest
from tests.support.plans import planned_for
from tests.support.small_job import SmallJob

MIB = 1 << 20


def test_readers_beyond_the_threads_are_planned(tmp_path: Path) -> None:
    job, storage = load_manifest(Path(SmallJob.make(tmp_path).manifest)), open_storage(None)
    inputs = list_inputs(storage, job)
    program = read_model(storage, job.spec.model.uri)
    ((name, nodes),) = inputs.by_nodes.items()
    ((relation, edges),) = inputs.by_edges.items()

    def planned(scheme: str) -> dict[str, int]:
        def many(splits: list[Split], size: int) -> list[Split]:
            uri = splits[0].uri.replace("file", scheme)
            # One with all rows: how many rows there are stays the same.
            return [replace(splits[0], uri=uri, size=size)] + [
                replace(splits[0], uri=uri, size=size, start=0, stop=0) for _ in range(9)
            ]

        given: Inputs = replace(
            inputs,
            by_nodes={name: replace(nodes, features=many(nodes.features, 4 * MIB))},
            by_edges={relation: many(edges, 16 * MIB)},
        )
        graph = plan_graph(job, given, program, GridShape(), in_place=True)
        return planned_memory(graph, planned_for(program, graph), None, threads=2)

    here, remote = planned("file"), planned("s3")
    more = {stage: round((remote[stage] - here[stage]) / MIB) for stage in here}
    # Eight and four readers, what comes for them, and what their threads hold of files.
    client, threads = 20, 2 * 18
    assert more.pop("features") == client + 8 * 4 + 16 - threads
    assert more.pop("ingest") == client + 4 * 16 + 16 - threads
    # One of the threads' buffers has been given back by then.
    assert more.pop("publish") == client - threads // 2
    assert set(more.values()) == {client}


class FarFeatures:
    """The plan of features that are in a store that is far away.

    Args:
        mib: of the rows of all splits, for each worker.
        changes: to every split.
    """

    def __init__(self, folder: Path, mib: int, **changes: Any) -> None:
        self._job = load_manifest(Path(SmallJob.make(folder).manifest))
        storage = open_storage(None)
        self._inputs = list_inputs(storage, self._job)
        self._program = read_model(storage, self._job.spec.model.uri)
        self._mib, self._changes = mib, changes

    def planned(self, splits: int, grid: GridShape, *, in_place: bool = True, size: int) -> int:
        """MiB of a worker's stage ``features``, of ``splits`` that have ``size`` MiB each."""
        ((name, nodes),) = self._inputs.by_nodes.items()
        (first, *_), rows = nodes.features, self._mib * MIB * grid.workers // (4 * nodes.width)
        first = replace(
            first, uri=first.uri.replace("file", "s3"), size=size * MIB, **self._changes
        )
        step = rows // splits
        many = [replace(first, start=at * step, stop=(at + 1) * step) for at in range(splits)]
        given = replace(self._inputs, by_nodes={name: replace(nodes, features=many)})
        graph = plan_graph(self._job, given, self._program, grid, in_place=in_place)
        return round(
            planned_memory(graph, planned_for(self._program, graph), None, threads=2)["features"]
            / MIB
        )


def test_rows_that_are_not_in_their_places_are_not_planned_beside_what_is_fetched(
    tmp_path: Path,
) -> None:
    planned = partial(FarFeatures(tmp_path, 48).planned, size=20)
    alone, two = GridShape(), GridShape.of(2, 1)
    # Three are read at once: as the first ends, half of the others' rows are in their places.
    full = planned(3, alone, in_place=True) + 48 // 3
    # Of four, the last one's place is untouched until they are there.
    assert planned(4, alone, in_place=True) == full - 2 * 48 // 4
    assert planned(6, alone, in_place=True) == full - 48 // 6
    # Pages that peers map are there from the start; others are not.
    full = planned(6, two, in_place=True)
    assert planned(8, two, in_place=True) == full
    assert planned(6, two, in_place=False) == full - 48 // 3
    assert planned(8, two, in_place=False) == full - 2 * 48 // 4


def test_the_last_reader_is_planned_beside_all_rows(tmp_path: Path) -> None:
    """Rows of its split that are not in their places yet are not subtracted from it."""
    planned = partial(FarFeatures(tmp_path, 960, row_groups=(0,)).planned, 2, GridShape())
    # Two are read at once, and each has fetched half of what arrives.
    assert planned(size=64) - planned(size=56) == 64 - 56


def test_what_an_upload_holds_of_a_part_is_planned(tmp_path: Path) -> None:
    job, storage = load_manifest(Path(SmallJob.make(tmp_path).manifest)), open_storage(None)
    program = read_model(storage, job.spec.model.uri)
    graph = plan_graph(job, list_inputs(storage, job), program, GridShape(), in_place=True)
    (name,), (result,) = graph.types, program.results.values()

    def more(mib: int) -> float:
        nodes = mib * MIB // (4 * program.widths[result])
        given = replace(graph, size=replace(graph.size, nodes={name: nodes}))
        here, there = (
            planned_memory(given, planned_for(program, given), None, uploads=uploads)["publish"]
            for uploads in (False, True)
        )
        return round((there - here) / MIB)

    client = 20
    assert more(8) == client + 8
    assert more(100) == client + 24
    # Of several parts one is read back while another is on its way.
    assert more(200) == client + 2 * 24


def test_parts_that_are_written_at_once_are_planned(tmp_path: Path) -> None:
    job, storage = load_manifest(Path(SmallJob.make(tmp_path).manifest)), open_storage(None)
    program = read_model(storage, job.spec.model.uri)
    graph = plan_graph(job, list_inputs(storage, job), program, GridShape(), in_place=True)
    (name,), (result,) = graph.types, program.results.values()

    def planned(mib: int, threads: int, **store: bool) -> int:
        nodes = mib * MIB // (4 * program.widths[result])
        given = replace(graph, size=replace(graph.size, nodes={name: nodes}))
        stages = planned_memory(given, planned_for(program, given), None, threads=threads, **store)
        return round(stages["publish"] / MIB)

    # From two threads on, what their reading leaves is the same; a part has 128 MiB at most.
    assert planned(1024, 3) - planned(1024, 2) == 18
    assert planned(1024, 9) - planned(1024, 2) == 2 * 18
    assert planned(256, 9) == planned(256, 2)
    # The second thread's buffer for reading stays, too.
    assert planned(256, 2) - planned(256, 1) == 18 + 18
    assert planned(128, 2) - planned(128, 1) == 18
    assert planned(1024, 9, uploads=True) == planned(1024, 2, uploads=True)
