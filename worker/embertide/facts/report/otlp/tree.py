"""A run as a tree of spans: the run, its workers, their stages, the layers within.

Everything here is made from what was recorded anyway, once the run is over: from its report, or,
where it failed, from the last snapshots of its workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from embertide.facts.report.numbers import without_secrets
from embertide.facts.telemetry.recorder import Moved
from embertide.facts.telemetry.report import LayerFacts, RunReport, Span, WorkerReport
from embertide.facts.telemetry.snapshot import Snapshot
from embertide.spec.grid import GridShape

Value = str | int | float | bool
"""The value of an attribute."""
ROOT, START = "embertide run", "start"
MOST_CHARACTERS = 2000
"""The longest message of an error; a manifest may be wrong in thousands of places."""
_PREFIX = "embertide."


@dataclass
class Node:
    """A span and those within it; times in seconds since the epoch, ``error`` "" where it is ok."""

    name: str
    start: float
    end: float
    attributes: dict[str, Value] = field(default_factory=dict)
    children: list[Node] = field(default_factory=list)
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class TracedRun:
    """What is known of a run before it begins.

    Attributes:
        output: URI that versions are published under.
        began: when the command, or the attempt in a pod, began, in seconds since the epoch.
        key: names the run; spans that several pods send of it belong together by it.
        grid: None where a run failed before there was one.
    """

    job: str
    version: str
    output: str
    began: float
    key: str
    attempt: int = 1
    grid: GridShape | None = None


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a run ended without a version.

    Attributes:
        outcome: ``failed`` or ``stopped``.
        reason: the kind of error, such as ``Input``.
        rank: of the worker that failed; None: no worker's failure, or not known.
        at: when, in seconds since the epoch.
    """

    outcome: str
    reason: str
    message: str
    at: float
    rank: int | None = None


def of_report(run: TracedRun, report: RunReport, ended: float) -> Node:
    """The tree of a run that published; ``ended`` in seconds since the epoch."""
    layers = report.facts.layers if report.facts is not None else []
    workers = [_worker(report.grid, worker, report.began, layers) for worker in report.workers]
    for node, memory in zip(workers, report.memory, strict=True):
        node.attributes[_PREFIX + "peak_memory_bytes"] = memory.peak_bytes
    facts: dict[str, Value] = {
        "outcome": "published",
        "current": report.current,
        "rows": report.rows,
        "dim": report.dim,
        "nodes": report.nodes,
        "edges": report.edges,
    }
    return _root(run, ended, facts, workers)


def of_earlier(run: TracedRun, version: str, ended: float) -> Node:
    """The tree of an attempt that only had to make an earlier attempt's version current."""
    return _root(run, ended, {"outcome": "adopted", "version": version}, [])


def of_failure(run: TracedRun, snapshots: Iterable[Snapshot], failure: Failure) -> Node:
    """The tree of a run that published nothing; ``snapshots`` are the last ones of its workers."""
    grid = run.grid or GridShape()
    workers = [_unfinished(grid, snapshot, failure) for snapshot in snapshots]
    root = _root(run, failure.at, {"outcome": failure.outcome}, workers)
    if failure.rank is not None:
        root.attributes[_PREFIX + "failed_rank"] = failure.rank
    _mark(root, failure)
    return root


def _root(run: TracedRun, ended: float, facts: Mapping[str, Value], workers: list[Node]) -> Node:
    known: dict[str, Value] = {
        "job": run.job,
        "version": run.version,
        "output": without_secrets(run.output),
        "attempt": run.attempt,
    }
    if run.grid is not None:
        known["grid"] = str(run.grid)
    children = list(workers)
    if workers:
        # Listing the inputs, planning, starting and joining the workers.
        children.insert(0, Node(START, run.began, min(node.start for node in workers)))
    return Node(ROOT, run.began, ended, _named({**known, **facts}), children)


def _worker(grid: GridShape, worker: WorkerReport, zero: float, layers: list[LayerFacts]) -> Node:
    """A worker's stages and layers; ``zero`` is the moment that its spans count from."""
    spans = _nested(worker.spans, zero, layers)
    start, end = min(node.start for node in spans), max(node.end for node in spans)
    counts: dict[str, Value] = {"nodes": worker.nodes, "edges": worker.edges}
    moved: dict[str, Value] = {
        name: getattr(worker, name)
        for name in (
            "wait_seconds",
            "compute_seconds",
            "bytes_sent",
            "bytes_received",
            "bytes_read_in_place",
        )
    }
    attributes = _place(grid, worker.rank) | _named({**counts, **moved})
    return Node(f"worker {worker.rank}", start, end, attributes, spans)


def _unfinished(grid: GridShape, snapshot: Snapshot, failure: Failure) -> Node:
    """A worker of a run that failed; the stage that ran ends with the run."""
    zero, stages = snapshot.began, snapshot.under_way
    open_ones = [
        Span(name, -1, start, failure.at - zero, 0.0, 0.0) for name, start in stages.items()
    ]
    spans = _nested([*snapshot.spans, *open_ones], zero, [])
    last = Node("", zero, zero)
    for last in _innermost(spans, set(stages)):
        last.attributes = {_PREFIX + "unfinished": True}
    name, attributes = f"worker {snapshot.rank}", _place(grid, snapshot.rank)
    node = Node(name, zero, failure.at, attributes, spans)
    if failure.rank == snapshot.rank:
        _mark(node, failure)
        if stages:
            _mark(last, failure)
    return node


def _innermost(nodes: Iterable[Node], stages: set[str]) -> list[Node]:
    """Spans of stages that have not ended, the innermost last."""
    found = []
    for node in nodes:
        if node.name in stages:
            found += [node, *_innermost(node.children, stages)]
    return found


def _nested(spans: Iterable[Span], zero: float, layers: list[LayerFacts]) -> list[Node]:
    """Spans of one worker as trees: what lies within a span becomes its child."""
    top: list[Node] = []
    open_ones: list[Node] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end, span.layer)):
        node = _of_span(span, zero, layers)
        while open_ones and open_ones[-1].end < node.end:
            open_ones.pop()
        (open_ones[-1].children if open_ones else top).append(node)
        open_ones.append(node)
    return top


def _of_span(span: Span, zero: float, layers: list[LayerFacts]) -> Node:
    attributes: dict[str, Value] = {name: getattr(span, name) for name in Moved._fields}
    if span.layer >= 0:
        attributes["layer"] = span.layer
    if 0 <= span.layer < len(layers):
        attributes |= {"convolution": layers[span.layer].conv, "columns": layers[span.layer].width}
    name = span.stage if span.layer < 0 else f"layer {span.layer}"
    return Node(name, zero + span.start, zero + span.end, _named(attributes))


def _place(grid: GridShape, rank: int) -> dict[str, Value]:
    partition, part = grid.coordinates(rank)
    return _named({"rank": rank, "graph_rank": partition, "feature_rank": part})


def _named(attributes: Mapping[str, Value]) -> dict[str, Value]:
    return {_PREFIX + name: value for name, value in attributes.items()}


def _mark(node: Node, failure: Failure) -> None:
    """Give a span the error of the run."""
    node.attributes["error.type"] = failure.reason
    node.error = _shown(failure.message)


def _shown(message: str) -> str:
    """A message that leaves the cluster: no user or password in a URI, and not too long."""
    words = (without_secrets(word) if "://" in word else word for word in message.split(" "))
    text = " ".join(words)
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
