"""Seconds and memory per stage on one worker, and the metrics that follow from them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import psutil

from embertide.facts.telemetry.graph_facts import GraphFacts
from embertide.facts.telemetry.memory import MemoryWatch
from embertide.facts.telemetry.progress import OnProgress, Progress
from embertide.facts.telemetry.recorder import CountingRecorder, Moved
from embertide.facts.telemetry.report import PlannedTraffic, RankMemory, Span
from embertide.facts.telemetry.snapshot import Snapshot
from embertide.facts.telemetry.transfers import TransferStats, Work


@dataclass
class Clock:
    """Seconds and memory per stage on this worker.

    Attributes:
        on_progress: called when a stage begins.
        recorder: whose waits are counted to the stages.
        seconds: of the stages that are over.
        under_way: stages that are not, the innermost last -> when they began (perf_counter).
        began: when the run began (perf_counter).
        spans: stages and layers that are over, their times since ``began``.
        on_stage: called when a stage begins and ends; a short one would fall between two snapshots.
    """

    memory: MemoryWatch
    on_progress: OnProgress
    recorder: CountingRecorder = field(default_factory=CountingRecorder)
    seconds: dict[str, float] = field(default_factory=dict)
    under_way: dict[str, float] = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)
    spans: list[Span] = field(default_factory=list)
    on_stage: Callable[[], None] = lambda: None
    _in_layer: bool = False

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage and report that it begins; parts that follow one another are one span."""
        self.on_progress(Progress(name))
        self.memory.stage = name
        start = self.under_way[name] = time.perf_counter()
        self.on_stage()
        with self._span(name):
            yield
        self._join()
        del self.under_way[name]
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        self.on_stage()

    @contextmanager
    def layer(self, number: int) -> Iterator[None]:
        """Time a part of a layer, within the stage ``infer``; parts that follow are one span.

        Within another one the time is the outer one's.
        """
        if self._in_layer:
            yield
            return
        self._in_layer = True
        try:
            with self._span("infer", number):
                yield
        finally:
            self._in_layer = False
        self._join()

    def _join(self) -> None:
        """Make one span of the last two, where both are of the same stage and layer."""
        if len(self.spans) < 2:
            return
        before, last = self.spans[-2:]
        if (before.stage, before.layer) == (last.stage, last.layer):
            added = {name: getattr(before, name) + getattr(last, name) for name in Moved._fields}
            self.spans[-2:] = [replace(last, start=before.start, **added)]

    @contextmanager
    def _span(self, stage: str, layer: int = -1) -> Iterator[None]:
        """Note when the body began and ended, and what it waited and moved meanwhile."""
        start, before = self.elapsed, self.recorder.moved()
        yield
        moved = self.recorder.moved().since(before)
        self.spans.append(Span(stage, layer, start, self.elapsed, **moved._asdict()))

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self.began

    def rank_memory(self, rank: int, planned_bytes: int) -> RankMemory:
        """Planned and used memory."""
        watch = self.memory
        stages, container = dict(watch.peaks), watch.container_peak
        return RankMemory(rank, watch.baseline, watch.peak, planned_bytes, stages, container)

    def snapshot(
        self,
        rank: int,
        planned_bytes: int,
        graph: GraphFacts,
        recorder: CountingRecorder,
        planned_traffic: list[PlannedTraffic],
        work: Work,
        storage: TransferStats,
    ) -> Snapshot:
        """All of this worker's metrics right now; any thread may call."""
        now = time.perf_counter()
        under_way, seconds = dict(self.under_way), dict(self.seconds)
        for name, began in under_way.items():
            seconds[name] = seconds.get(name, 0.0) + now - began
        return Snapshot(
            rank=rank,
            stage=list(under_way)[-1] if under_way else "",
            stages=seconds,
            memory=self.rank_memory(rank, planned_bytes),
            resident_bytes=int(psutil.Process().memory_info().rss),
            nodes=graph.nodes,
            edges=graph.edges,
            traffic=recorder.traffic(),
            planned_traffic=planned_traffic,
            rows_done=dict(work.rows),
            edges_done=dict(work.edges),
            storage=storage.copy(),
            began=time.time() - (now - self.began),
            spans=list(self.spans),
            under_way={name: at - self.began for name, at in under_way.items()},
            resumed_layer=graph.kept.resumed,
        )
