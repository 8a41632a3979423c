"""What a page is drawn from: a run's report and manifest, and what follows from the two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from embertide.facts.telemetry.report import RankMemory, RunReport, Span, WorkerReport
from embertide.spec.result_names import label_of, manifest_results

BEFORE_LAYERS = "layer graphs"
"""What ``infer`` does before its first layer."""
OUTPUT = "output rows"
"""What it does after its last one."""


@dataclass(frozen=True)
class Phase:
    """A step of the run over all workers: a stage, or within ``infer`` a layer.

    ``each`` has a span of every worker that has one; one worker's parts are joined.
    """

    name: str
    stage: str
    each: tuple[Span, ...]

    def mean(self, of: Callable[[Span], float]) -> float:
        """A quantity of the spans, on average."""
        return sum(map(of, self.each)) / len(self.each)


@dataclass(frozen=True)
class Run:
    """A run to be drawn."""

    report: RunReport
    manifest: dict[str, Any]

    @property
    def workers(self) -> list[WorkerReport]:
        """All, in rank order."""
        return self.report.workers

    @property
    def alone(self) -> bool:
        """Whether one worker did all."""
        return self.report.grid.workers == 1

    @cached_property
    def seconds(self) -> float:
        """From the first worker's begin to the last one's end."""
        ends = [span.end for worker in self.workers for span in worker.spans]
        return max([*ends, 1e-9])

    @cached_property
    def waited(self) -> float:
        """Seconds that a worker waited for others, on average."""
        return sum(worker.wait_seconds for worker in self.workers) / max(1, len(self.workers))

    @property
    def references(self) -> dict[str, dict[str, Any]]:
        """Label of a result -> how it compares with the model's reference, where it has one.

        The only one of the only node type is "".
        """
        results = manifest_results(self.manifest)
        return {
            label_of(key): of["reference"] for key, of in results.items() if of.get("reference")
        }

    @property
    def sent(self) -> int:
        """Bytes of all workers."""
        return sum(item.bytes_sent for item in self.report.traffic)

    @property
    def read_in_place(self) -> int:
        """Bytes of all workers, read in each other's memory."""
        return sum(item.bytes_read_in_place for item in self.report.traffic)

    @property
    def planned_sent(self) -> int:
        """The same as planned; 0 where nothing was."""
        workers = self.report.grid.workers
        return sum(item.bytes_per_worker for item in self.report.planned_traffic) * workers

    @property
    def fullest(self) -> RankMemory | None:
        """The worker whose work took most memory."""
        return max(self.report.memory, key=lambda item: item.used_bytes, default=None)

    @cached_property
    def phases(self) -> list[Phase]:
        """Stages in the order they began, ``infer`` in its parts; what lies within others not."""
        found: list[Phase] = []
        for name in self.report.stages:
            if name == "infer":
                found += self._layers()
            elif name != "sample":
                found.append(Phase(name, name, self._joined(name, -1)))
        return [phase for phase in found if phase.each]

    def _layers(self) -> list[Phase]:
        numbers = {span.layer for worker in self.workers for span in worker.spans}
        parts = [Phase(BEFORE_LAYERS, "infer", tuple(map(_before_layers, self.workers)))]
        for number in sorted(numbers - {-1}):
            parts.append(Phase(self.layer_name(number), "infer", self._joined("infer", number)))
        return parts

    def layer_name(self, number: int) -> str:
        """What a layer is called; the one after the last is what becomes the output."""
        facts = self.report.facts
        last = facts is not None and number == facts.graph_layers
        return OUTPUT if last else f"layer {number + 1}"

    def _joined(self, stage: str, layer: int) -> tuple[Span, ...]:
        every = [
            [span for span in worker.spans if (span.stage, span.layer) == (stage, layer)]
            for worker in self.workers
        ]
        return tuple(_join(spans) for spans in every if spans)


def _join(spans: list[Span]) -> Span:
    """One that takes as long as all together, from where the first began."""
    first = spans[0]
    return Span(
        first.stage,
        first.layer,
        first.start,
        first.start + sum(span.seconds for span in spans),
        sum(span.wait_seconds for span in spans),
        sum(span.compute_seconds for span in spans),
    )


def _before_layers(worker: WorkerReport) -> Span:
    """What remains of a worker's ``infer`` without its layers."""
    parts = [span for span in worker.spans if span.stage == "infer"]
    whole = [span for span in parts if span.layer < 0]
    layers = [span for span in parts if span.layer >= 0]

    def rest(of: Callable[[Span], float]) -> float:
        return max(0.0, sum(map(of, whole)) - sum(map(of, layers)))

    start = min((span.start for span in whole), default=0.0)
    seconds = rest(lambda span: span.seconds)
    return Span(
        "infer",
        -1,
        start,
        start + seconds,
        min(seconds, rest(lambda span: span.wait_seconds)),
        rest(lambda span: span.compute_seconds),
    )
