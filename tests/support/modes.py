"""Ways in which a case runs, and what its ranks find wrong with each; light, as ranks import it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from embertide.grid import RowRanges
from embertide.kernels.scratch import Scratch
from embertide.pipeline.prepare import target_of
from embertide.primitives.exchange import Exchange
from embertide.stages.infer import Chosen, Keeping
from embertide.steps import Program
from embertide.storage.opening import open_storage
from embertide.telemetry.chosen import ChosenFacts
from embertide.telemetry.kept import KeptFacts
from embertide.telemetry.self_check import SelfCheck
from embertide.versions.layers.store import LayerStore
from tests.support.exact import TOLERANCE
from tests.support.kept_layers import drop
from tests.support.plans import order_steps
from tests.support.refreshed import days_of, refresh_cases
from tests.support.tasks import use_small_buffers
from tests.support.typed_world import COUNTS, TypedRank
from tests.support.world import GRAPHS, NODES, Case, Rank, make_features, make_job

Rows = dict[str, np.ndarray]
"""Node type -> [our rows, D']; "" where there is one type."""
EVERY_ROW = 1000
"""More than any type has: all rows are computed a second time."""
WHY_ON_DISK = "tensors of nodes are on disk, since they exceed the memory of a worker"
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
        panel: columns of a tensor that are in memory at a time, all others on disk; 0: in memory.
    """

    name: str
    start: Literal["whole", "resume", "targets", "refresh"] = "whole"
    rows: str = "float32"
    fanout: int = 0
    kept_on: tuple[int, int] | None = None
    one_host: bool = False
    panel: int = 0

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
    """

    rows: Rows = field(default_factory=dict)
    others: dict[str, Rows] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    facts: dict[str, float] = field(default_factory=dict)
    why: str = ""


class Worker:
    """A rank of either world, whose results are by node type. Collective: every rank must call."""

    def __init__(self, exchange: Exchange, case: Case, mode: Mode, folder: str) -> None:
        self.exchange, self.typed = exchange, case.kind == "types"
        self._rank: Rank | TypedRank
        if self.typed:
            assert not mode.fanout
            self._rank = TypedRank(exchange, mode.rows)
        else:
            job = make_job(weighted=case.weighted, **mode.inference)
            self._rank = Rank(exchange, GRAPHS[case.kind, case.weighted], job)
        if mode.panel:
            files = Scratch(Path(folder.removeprefix("file://")))
            self._rank.ctx = replace(self._rank.ctx, scratch=files, panel=mode.panel)
        self.ctx = self._rank.ctx

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
    if mode.start == "whole":
        use_small_buffers()
    workers: dict[tuple[str, bool], Worker] = {}
    answers = {}
    for name, case in cases.items():
        key = case.kind, case.weighted
        if key not in workers:
            workers[key] = Worker(exchange, case, mode, folder)
        if mode.start == "whole":
            answers[name] = _whole(workers[key], case, mode)
        elif mode.start == "targets":
            answers[name] = _chosen(workers[key], case, WHY_ON_DISK if mode.panel else "")
        else:
            answers[name] = _resumed(workers[key], case, _store(folder, name), keeps)
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


def _resumed(worker: Worker, case: Case, store: LayerStore, keeps: bool) -> Answer:
    """All rows, then those of runs that go on after each kept layer, from the last to none."""
    ordered, last = order_steps(case.program, worker.exchange.grid.world), case.program.layers - 1
    answer = Answer(worker.run(ordered)[0])
    if keeps:
        facts = worker.ctx.graph_facts.kept = KeptFacts()
        kept, _ = worker.run(ordered, keeping=Keeping(store, range(99)))
        answer.others["while layers are kept"] = kept
        if facts.kept != list(range(1, last + 1)):
            answer.wrong.append(f"layers {facts.kept} were kept")
    for layer in range(last, -1, -1):
        facts = worker.ctx.graph_facts.kept = KeptFacts()
        answer.others[f"after layer {layer}"], _ = worker.run(ordered, keeping=Keeping(store, ()))
        if facts.resumed != layer:
            answer.wrong.append(f"went on after layer {facts.resumed}, not {layer}")
            break
        if worker.exchange.grid.rank == 0:
            drop(store, layer)
        worker.exchange.barrier()
    return answer


def _chosen(worker: Worker, case: Case, why: str) -> Answer:
    """All rows, and some sets of them alone; all are computed a second time.

    Args:
        why: the reason that is to be given for computing all rows.
    """
    program, rank = case.program, worker.exchange.grid.rank
    whole, _ = worker.run(program)
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
            if facts.why != why or not 0 <= facts.edges <= facts.all_edges:
                answer.wrong.append(str(facts))
            answer.facts["edges"] += facts.edges
            answer.facts["all edges"] += facts.all_edges
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
    answers = {}
    for name, days in refresh_cases(exchange, given, folder, mode.inference).items():
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
