"""Ways in which a case runs, and what its ranks find wrong with each; light, as ranks import it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from mmap import PAGESIZE
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from embertide.context import RunContext
from embertide.engine.pipeline.prepare import target_of
from embertide.engine.planning.edge_memory import (
    logged_bytes,
    spilled_graph,
)
from embertide.engine.planning.graph import PlannedGraph, PlannedRelation
from embertide.engine.planning.layer_memory import spilled_costs
from embertide.engine.planning.matching import narrow
from embertide.engine.stages.infer import Chosen, Keeping
from embertide.facts.telemetry.chosen import ChosenFacts
from embertide.facts.telemetry.kept import KeptFacts
from embertide.facts.telemetry.self_check import SelfCheck
from embertide.footprint import GraphSize
from embertide.graph import edge_log
from embertide.graph.exchange import Exchange
from embertide.grid import RowRanges
from embertide.io.readers.splits import Shares
from embertide.io.storage.opening import open_storage
from embertide.io.versions.layers.places import SEAL
from embertide.io.versions.layers.store import LayerStore
from embertide.io.versions.layers.sweeping import objects_of
from embertide.kernels import host_store, scratch, spilled_sort
from embertide.kernels.host_store import HostStore
from embertide.kernels.lanes import Lane, lanes_of
from embertide.kernels.scratch import Scratch
from embertide.kernels.spilled_csr import SpilledCsr
from embertide.program.plans import spill
from embertide.program.selfcheck.checker import Checker
from embertide.program.steps import Program, message
from embertide.program.steps.execution import Execution
from embertide.program.steps.propagate import Propagate
from embertide.spec.edges import EdgeInput
from tests.support.exact import TOLERANCE
from tests.support.late_lanes import LateLanes
from tests.support.plans import as_given, order_steps
from tests.support.refreshed import days_of, refresh_cases
from tests.support.tasks import use_small_buffers
from tests.support.typed_world import COUNTS, EDGE_FEATURES, TypedRank, make_edges, reads_features
from tests.support.world import GRAPHS, GROUP_BYTES, NODES, Case, Rank, make_features, make_job

Rows = dict[str, np.ndarray]
"""Node type -> [our rows, D']; "" where there is one type."""
SCRATCH = "scratch"
"""Folder of what is on disk."""
EVERY_ROW = 1000
"""More than any type has: all rows are computed a second time."""
WHY_NO_ROOM = r"what they are made of takes [0-9.]+ KiB in memory, and tensors are on disk,.*"
SETS = ((5,), (2,), (3, 60, 85, 96), tuple(range(0, NODES, 7)))
"""An ordinary node, a hub, some with no in-edges among them, many."""


@dataclass(frozen=True, kw_only=True)
class Mode:
    """How cases run, and so what they are compared with.

    Attributes:
        start: from where a run starts: from features (``whole``); after each layer that another run
            has kept (``resume``); for some nodes alone (``targets``); from what the day before has
            kept (``refresh``).
        rows: type of the rows that are kept and sent; bfloat16 is compared within its roundings.
        fanout: edges that each layer samples of a node; 0: all. Samples have no reference.
        kept_on: the grid that keeps the layers, where it is another one.
        one_host: workers read each other's rows in place, whatever their number.
        storage: where tensors of nodes are: on ``disk`` the graph is there too, in a second run;
            ``host`` memory is that beside a GPU.
        graph: of ``targets`` the graph is on disk, too.
        panel: columns of a tensor that are in memory, or on the device, at a time.
        parts_bytes: that rows that are computed alone may take there.
        late: lanes whose copies to and from a device are as late as they may be.
        values: the most that a tensor may have on the device.
        summed: the most columns of a repeated sum that the device has memory for another sum of.
        placed: one worker puts features in order at once, if they are in memory.
        edges: name of an edge type -> what the job states of it beside what it has.
    """

    name: str
    start: Literal["whole", "resume", "targets", "refresh"] = "whole"
    rows: str = "float32"
    fanout: int = 0
    kept_on: tuple[int, int] | None = None
    one_host: bool = False
    storage: Literal["memory", "disk", "host"] = "memory"
    graph: bool = False
    panel: int = 3
    parts_bytes: int = 1 << 20
    late: Collection[Lane] = ("to device", "to host")
    values: int | None = None
    summed: int | None = None
    placed: bool = False
    edges: dict[str, Any] | None = None

    @property
    def inference(self) -> dict[str, Any]:
        """What it sets in the job's ``inference``."""
        sampled = {"fanout": [self.fanout] * 20, "seed": 7} if self.fanout else {}
        return {"rows": self.rows, **sampled}


@dataclass
class Answer:
    """What a rank has to say of a case.

    Attributes:
        rows: ours, of a run of all rows.
        others: ours by how they came about, which ought to have the same bits.
        wrong: what is not as it should be.
        facts: numbers that tests want to be large, or small, over all cases.
        why: why all rows were computed, "" where they were not.
        moved: bytes from and to the disk with the graph there, and the same two by the plan.
        expected: the plan has expected numbers, of the rows that groups touch.
        warned: sentences for the run's user.
    """

    rows: Rows = field(default_factory=dict)
    others: dict[str, Rows] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    facts: dict[str, float] = field(default_factory=dict)
    why: str = ""
    moved: tuple[float, ...] = ()
    expected: bool = False
    warned: list[str] = field(default_factory=list)


def placed(ctx: RunContext, storage: str, mode: Mode, folder: str) -> RunContext:
    """With tensors of nodes elsewhere than in memory."""
    if storage == "memory":
        return replace(ctx, scratch=None, parts_bytes=0, spills_graph=False)
    files: Scratch | HostStore = Scratch(Path(folder.removeprefix("file://")) / SCRATCH)
    if storage == "host":
        device = ctx.exchange.device
        late = LateLanes(mode.late, mode.values)
        files = HostStore(late if device.type == "cpu" else lanes_of(device))
    return replace(
        ctx, scratch=files, panel=mode.panel, parts_bytes=mode.parts_bytes, spills_graph=False
    )


class Worker:
    """A rank of either world, whose results are by node type. Collective: every rank must call."""

    def __init__(self, exchange: Exchange, case: Case, mode: Mode, folder: str) -> None:
        self.exchange, self.typed = exchange, case.kind == "types"
        self._rank: Rank | TypedRank
        if self.typed:
            assert not mode.fanout
            self._rank = TypedRank(exchange, mode.rows, mode.edges)
        else:
            job = make_job(weighted=case.weighted, **mode.inference)
            self._rank = Rank(exchange, GRAPHS[case.kind, case.weighted], job)
            self._rank.placed = mode.placed
        self._mode, self._folder = mode, folder
        self._in_memory = self.ctx

    @property
    def ctx(self) -> RunContext:
        """Of the runs that follow."""
        return self._rank.ctx

    def place(self, storage: str) -> None:
        """Where tensors of nodes are from now on: in files, or a store, of their own."""
        self._rank.ctx = placed(self._in_memory, storage, self._mode, self._folder)

    def narrow(self, program: Program) -> None:
        """The graph has the relations alone that a program reads, as in a job that runs it: rows
        are cut by these. Collective: every rank must call."""
        if isinstance(self._rank, TypedRank):
            self._rank.graph = self._rank.build(program)

    def build_on_disk(self, program: Program) -> tuple[Callable[[], None], list[SpilledCsr]]:
        """Build the graph there, in many parts; what undoes it, and its parts by relation."""
        rank = self._rank
        rank.ctx = replace(rank.ctx, spills_graph=True)
        if isinstance(rank, TypedRank):
            typed, rank.graph = rank.graph, rank.build(program)
            csrs = list(rank.graph.sub_ranges.values())

            def undo() -> None:
                rank.graph = typed

        else:
            in_memory, rank.sub_range = rank.sub_range, rank.build()
            csrs = [rank.sub_range]

            def undo() -> None:
                rank.sub_range = in_memory

        assert all(isinstance(csr, SpilledCsr) for csr in csrs)
        return undo, csrs  # type: ignore[return-value]

    def planned(self, program: Program) -> tuple[float, float]:
        """Bytes that one of several equal workers is planned to read and to write.

        Without features, which are there; edges of one relation are in memory until sorted.
        """
        target, job = target_of(self.ctx), self.ctx.job
        plan = as_given(program, target)
        if self.typed:
            nodes, counts = dict(COUNTS), {of: len(own.src) for of, own in make_edges().items()}
            features = sum(4 * COUNTS[of] * program.widths[x] for of, x in program.inputs.items())
            edges = {
                str(relation): (edge, counts[edge.name])
                for edge in narrow(job, program).spec.input.edges
                for relation in edge.relations
                if str(relation) in program.relations
            }
        else:
            assert isinstance(self._rank, Rank)
            nodes, features = {"": self._rank.graph.nodes}, 4 * NODES * program.input_width
            edges = {"": (job.spec.input.edges[0], len(self._rank.graph.src))}
        size = GraphSize(
            nodes=nodes,
            edges={name: count for name, (_, count) in edges.items()},
            grid=plan.grid if self.typed else target.grid,
            group_bytes=GROUP_BYTES,
            depth=2,
            in_place=target.in_place and self.typed,
        )
        relations = {
            name: PlannedRelation(
                relation=edge.relation,
                edge=edge,
                shares=Shares([]),
                edges=count,
                exact=True,
                features=self._features(edge, program),
            )
            for name, (edge, count) in edges.items()
        }
        graph = spilled_graph(
            PlannedGraph(types={}, relations=relations, size=size, several=self.typed),
            plan,
            None if job.spec.inference.fanout == "full" else job.spec.inference.fanout,
        )
        placed = [""] if isinstance(self._rank, Rank) and self._rank.placed else []
        costs = spilled_costs(plan, size, placed=placed, graph=graph)
        logged = 0.0
        if graph and not self.typed:
            logged = logged_bytes(relations[""], size.of_relation("")) * edges[""][1]
        return costs.read - logged, costs.written - logged - features / target.grid.workers

    def _features(self, edge: EdgeInput, program: Program) -> int:
        """How many each edge has in a graph that is built on disk for a program."""
        if isinstance(self._rank, Rank):
            given = self._rank.graph.features
            return 0 if given is None else given.shape[1]
        return EDGE_FEATURES * (edge.name == "buys" and reads_features(program))

    def run(
        self,
        program: Program,
        checked: int | None = None,
        keeping: Keeping | None = None,
        chosen: Chosen | None = None,
    ) -> tuple[Rows, SelfCheck | None]:
        """Our rows; with what computing so many of each layer again gives."""
        if isinstance(self._rank, TypedRank):
            return self._rank.checked(program, checked, keeping, chosen)
        features = make_features(program.input_width)
        rows, found = self._rank.checked(program, features, checked, keeping=keeping, chosen=chosen)
        return {"": rows}, found

    def ranges(self, of_type: str) -> RowRanges:
        """The rows of each rank."""
        if isinstance(self._rank, TypedRank):
            return self._rank.graph.located[of_type].ranges
        return self._rank.ranges


def run_cases(
    exchange: Exchange, cases: dict[str, Case], mode: Mode, folder: str, keeps: bool = True
) -> dict[str, Answer]:
    """Each case in a mode. Collective: every rank must call.

    Args:
        folder: where layers are kept, as a URI.
        keeps: of ``resume``, layers are kept first.
    """
    if mode.start == "refresh":
        return _refreshed(exchange, cases, mode, folder)
    if mode.storage != "memory":
        _use_small_blocks(4096 if mode.values is None else 1024)
    elif mode.start == "whole":
        use_small_buffers()
    workers: dict[tuple[str, bool], Worker] = {}
    answers = {}
    for name, case in cases.items():
        key = case.kind, case.weighted
        if key not in workers:
            workers[key] = Worker(exchange, case, mode, folder)
        if mode.start == "targets":
            workers[key].place(mode.storage)
            answers[name] = _chosen(workers[key], case, mode)
        elif mode.start == "resume":
            answers[name] = _resumed(workers[key], case, mode, _store(folder, name), keeps)
        elif mode.storage != "memory":
            answers[name] = _elsewhere(workers[key], case, mode)
        else:
            answers[name] = _whole(workers[key], case, mode)
    return answers


def _whole(worker: Worker, case: Case, mode: Mode) -> Answer:
    """All rows, each computed a second time."""
    ordered = order_steps(case.program, worker.exchange.grid.world)
    rows, checked = worker.run(ordered, EVERY_ROW)
    assert checked is not None
    answer = Answer(rows, wrong=list(_faults(checked, mode)))
    largest = max(checked.largest_errors.values(), default=0.0)
    # Right rows are off by more than float32 rows may be, so that the type counts.
    if mode.rows == "bfloat16" and not worker.typed and not largest > 1e-4:
        answer.wrong.append(f"the self-check saw no rounded row, but errors of {largest}")
    return answer


def _faults(checked: SelfCheck, mode: Mode) -> Iterator[str]:
    yield from (f"the self-check has {fault}" for fault in checked.faults[:1])
    if not checked.checked and (mode.fanout or not checked.skipped):
        yield "the self-check has seen no row"


def _use_small_blocks(size: int) -> None:
    """Few of each: the disk is waited for; and pieces of the log are full, as planned. Runs of
    edges begin and end within parts."""
    message.CHUNK_VALUES = 300
    spill.BLOCK_BYTES = scratch.CHUNK_BYTES = host_store.CHUNK_BYTES = size
    spilled_sort.READ_EDGES, edge_log.PIECE_EDGES = 10, 1


def _elsewhere(worker: Worker, case: Case, mode: Mode) -> Answer:
    """All rows, with tensors in memory and elsewhere, each of which is computed a second time."""
    program = order_steps(case.program, worker.exchange.grid.world)
    worker.place("memory")
    worker.narrow(program)
    answer = Answer(_copied(worker.run(program)[0]))
    worker.place(mode.storage)
    files, facts = worker.ctx.scratch, worker.ctx.graph_facts
    facts.kept = KeptFacts()
    assert files is not None
    with _full_after_a_sum(mode.summed):
        rows, checked = worker.run(program, EVERY_ROW)
    assert checked is not None
    moved, left = (files.read, files.written), files.count
    answer.others[f"in {mode.storage}"] = _copied(rows)
    answer.warned = facts.kept.problems
    answer.wrong += _faults(checked, mode)
    sums = {found.makes for found in checked.checked if ", sum " in found.makes}
    repeated = sum(step.times - 1 for step in program.steps if isinstance(step, Propagate))
    # All sums but the last of repeated ones are checked while they are there.
    if len(sums) != repeated:
        answer.wrong.append(f"the self-check has seen {sums} of {repeated} sums")
    if left > 1 and not worker.typed:
        answer.wrong.append("files stay beside the result")
    if worker.exchange.grid.world == 1 and not worker.typed and not answer.warned:
        planned = worker.planned(program)
        if moved != planned:
            answer.wrong.append(f"{moved} bytes moved of {planned} planned")
    if mode.storage == "disk":
        _with_the_graph(worker, program, mode, answer)
    return answer


def _with_the_graph(worker: Worker, program: Program, mode: Mode, answer: Answer) -> None:
    """All rows with the graph on disk, too. Collective."""
    files = worker.ctx.scratch
    assert isinstance(files, Scratch)
    read, written, held = files.read, files.written, files.held
    undo, csrs = _graph_on_disk(worker, program)
    kept = [4 * (1 + csr.weighted) * part.nnz for csr in csrs for part in csr.spilled]
    # Features have files of their own.
    features = [(csr.features.width, csr) for csr in csrs if csr.features is not None]
    kept += [4 * width * part.nnz for width, csr in features for part in csr.spilled]
    if files.held - held != sum(-(-size // PAGESIZE) * PAGESIZE for size in kept):
        answer.wrong.append("edges that are not sorted are on disk")
    answer.facts["parts"] = max(len(csr.spilled) for csr in csrs)
    del csrs
    answer.others["with the graph on disk"] = _copied(worker.run(program)[0])
    moved = files.read - read, files.written - written
    at, in_place = worker.exchange.grid, target_of(worker.ctx).in_place or not worker.typed
    if at.world == 1 or worker.typed:
        answer.moved, answer.expected = (*moved, *worker.planned(program)), not in_place
    _, checked = worker.run(program, EVERY_ROW)
    assert checked is not None
    answer.wrong += _faults(checked, mode)
    undo()


def _graph_on_disk(worker: Worker, program: Program) -> tuple[Callable[[], None], list[SpilledCsr]]:
    """Build the graph there; see :meth:`Worker.build_on_disk`. Collective."""
    spilled_sort.PART_EDGES = 12 if worker.typed else 32
    return worker.build_on_disk(program)


def _copied(rows: Rows) -> Rows:
    """What stays when the files go."""
    return {of_type: values.copy() for of_type, values in rows.items()}


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


def keep_cases(
    exchange: Exchange, cases: dict[str, Case], mode: Mode, folder: str
) -> dict[str, Rows]:
    """Our rows of each case, all of whose layers are kept. Collective: every rank must call."""
    found = {}
    for name, case in cases.items():
        worker, store = Worker(exchange, case, mode, folder), _store(folder, name)
        ordered = order_steps(case.program, exchange.grid.world)
        facts = worker.ctx.graph_facts.kept = KeptFacts()
        found[name], _ = worker.run(ordered, keeping=Keeping(store, range(99)))
        assert facts.kept == list(range(1, case.program.layers)), (name, facts.kept)
    return found


def _store(folder: str, case: str) -> LayerStore:
    """The kept layers of a case."""
    key = hashlib.sha256(case.encode()).hexdigest()[:32]
    return LayerStore(open_storage(None), folder, key, "20261126T180000Z-3fa9c1")


def _resumed(worker: Worker, case: Case, mode: Mode, store: LayerStore, keeps: bool) -> Answer:
    """All rows, then those of runs that go on after each kept layer, from the last to none."""
    ordered, last = order_steps(case.program, worker.exchange.grid.world), case.program.layers - 1
    answer = Answer(_copied(worker.run(ordered)[0]))
    worker.place(mode.storage)
    if keeps:
        facts = worker.ctx.graph_facts.kept = KeptFacts()
        kept, _ = worker.run(ordered, keeping=Keeping(store, range(99)))
        answer.others["while layers are kept"] = _copied(kept)
        if facts.kept != list(range(1, last + 1)):
            answer.wrong.append(f"layers {facts.kept} were kept")
    for layer in range(last, -1, -1):
        facts = worker.ctx.graph_facts.kept = KeptFacts()
        rows, checked = worker.run(ordered, EVERY_ROW, keeping=Keeping(store, ()))
        answer.others[f"after layer {layer}"] = _copied(rows)
        answer.wrong += [] if checked is None else _faults(checked, mode)
        if facts.resumed != layer:
            answer.wrong.append(f"went on after layer {facts.resumed}, not {layer}")
            break
        if worker.exchange.grid.rank == 0:
            _drop(store, layer)
        worker.exchange.barrier()
    worker.place("memory")
    return answer


def _drop(store: LayerStore, layer: int) -> None:
    """Remove the seal of a layer."""
    for info in objects_of(store.storage, store.output_uri, store.key):
        if info.uri.endswith(SEAL):
            name = info.uri.rpartition("/")[2].removesuffix(SEAL)
            seal = store.sealed(name)
            if seal is not None and seal.layer == layer:
                store.drop(name)


def _chosen(worker: Worker, case: Case, mode: Mode) -> Answer:
    """All rows, and some sets of them alone; all are computed a second time."""
    program, rank = case.program, worker.exchange.grid.rank
    worker.place(mode.storage)
    undo = _graph_on_disk(worker, program) if mode.graph else None
    whole = _copied(worker.run(program)[0])
    why = "" if mode.storage == "memory" or mode.parts_bytes else WHY_NO_ROOM
    answer = Answer(whole, facts={"edges": 0, "all edges": 0})
    # Some steps may round in another way among other rows, and workers of several hosts add up
    # in another order.
    alone = worker.exchange.grid.world == 1
    exact = (alone or target_of(worker.ctx).in_place) and not worker.typed
    allowed = 0.0 if exact and all(step.exact_alone for step in program.steps) else TOLERANCE
    for key, name in program.results.items():
        of_type = program.types[name]
        for asked in (tuple(range(1, COUNTS[of_type], 9)),) if worker.typed else SETS:
            wanted = torch.zeros(COUNTS[of_type] if worker.typed else NODES, dtype=torch.bool)
            wanted[list(asked)] = True
            facts = worker.ctx.graph_facts.chosen = ChosenFacts()
            only = program.only({key: name}) if worker.typed else program
            rows, checked = worker.run(only, EVERY_ROW, chosen={of_type: wanted})
            assert checked is not None
            first = worker.ranges(of_type).worker(rank)[0]
            expected = whole[key][wanted[first : first + len(whole[key])].numpy()]
            largest = max(1e-9, float(np.abs(whole[key]).max(initial=0.0)))
            answer.wrong += [
                f"{of_type} {asked}: {text}"
                for text in _differences(rows[key], expected, allowed * largest)
            ]
            if beyond := sum(found.beyond for found in checked.checked):
                answer.wrong.append(f"{beyond} rows are beyond the self-check's bound")
            if alone and not worker.typed and not checked.rows:
                answer.wrong.append("the self-check has seen no row")
            if not re.fullmatch(why, facts.why) or not 0 <= facts.edges <= facts.all_edges:
                answer.wrong.append(str(facts))
            answer.facts["edges"] += facts.edges
            answer.facts["all edges"] += facts.all_edges
    if undo is not None:
        undo[0]()
    return answer


def _differences(rows: np.ndarray, expected: np.ndarray, allowed: float) -> Iterator[str]:
    if rows.shape != expected.shape:
        yield f"shape {rows.shape}, not {expected.shape}"
    elif not (error := np.abs(rows - expected).max(initial=0.0)) <= allowed:
        yield f"off by {error}"


def _refreshed(
    exchange: Exchange, cases: dict[str, Case], mode: Mode, folder: str
) -> dict[str, Answer]:
    """Four days, each whole and then over the rows that the day before has kept."""
    given = {
        name: (case.program, case.weighted, days_of(case.graph)) for name, case in cases.items()
    }
    if mode.storage != "memory":
        _use_small_blocks(4096)
    answers = {}
    place = partial(placed, storage=mode.storage, mode=mode, folder=folder)
    for name, days in refresh_cases(exchange, given, folder, mode.inference, place).items():
        answer = answers[name] = Answer(facts={"alone": days[0].rows is not None}, why=days[1].why)
        for number, day in enumerate(days):
            if day.rows is None:
                assert day.why
                continue
            same = np.array_equal(day.rows, day.whole)
            if not same or day.why or day.beyond or not day.checked:
                found = f"same bits: {same}, {day.why}, {day.beyond} beyond, {day.checked} checked"
                answer.wrong.append(f"day {number}: {found}")
        if answer.facts["alone"]:
            answer.facts["share of the edges"] = days[3].edges / days[3].all_edges
    return answers
