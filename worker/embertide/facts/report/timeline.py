"""When each worker did what: one bar for each stage, on the clock that all workers share."""

from __future__ import annotations

from embertide.facts.report.charts import Scale, axis, bar, canvas, row
from embertide.facts.report.figures import figure, legend, section
from embertide.facts.report.markup import Child, Html, table, tag
from embertide.facts.report.numbers import duration, round_duration, share
from embertide.facts.report.run import Run
from embertide.facts.telemetry.report import Span, WorkerReport

STAGES = ("features", "ingest", "csr", "infer", "publish")
_SHOWN = 32
"""Workers that have a bar of their own."""
_NAMED_ANYWHERE, _NAMED, _NUMBERED = 0.22, 0.09, 0.04
"""The share of the width that a bar must have for its name to be written into it on any screen, on
a wide one, and for a number."""
_HEIGHT = 28


def timeline(run: Run) -> Html | None:
    """The section; None where no worker's times are known."""
    if not run.workers:
        return None
    scale = Scale(run.seconds, round_duration)
    shown = shown_workers(run.workers, _SHOWN)
    rows = [_row(run, worker, scale) for worker in shown]
    drawn = figure(
        "Stages of each worker",
        [*rows, axis(scale, "")],
        _table(run),
        legend=_legend(run),
        note=_note(run, len(shown)),
    )
    return section("timeline", "Timeline", _lead(run), drawn)


def _note(run: Run, shown: int) -> str | None:
    if run.alone:
        return None
    note = (
        "Times are since the first worker began; workers' clocks are aligned where all of them"
        " meet. The hatched strip below a stage is how much of it was spent waiting, not when."
    )
    if shown == len(run.workers):
        return note
    return (
        f"{shown} of {len(run.workers)} workers: those that waited least, for whom others waited,"
        f" and those that waited most. {note}"
    )


def shown_workers(workers: list[WorkerReport], most: int) -> list[WorkerReport]:
    """All, or where there are more than ``most`` those that waited least and most; by rank."""
    if len(workers) <= most:
        return workers
    by_wait = sorted(workers, key=lambda worker: worker.wait_seconds)
    chosen = [*by_wait[: most // 2], *by_wait[-(most - most // 2) :]]
    return sorted(chosen, key=lambda worker: worker.rank)


def name_of(run: Run, rank: int) -> Html:
    """A worker and where it stands on the grid."""
    p, m = divmod(rank, run.report.grid.feature)
    name = tag("b", f"worker {rank}")
    place = None if run.alone else tag("small", f" p {p}, m {m}")
    return tag("span", name, place)


def _row(run: Run, worker: WorkerReport, scale: Scale) -> Html:
    stages = [span for span in worker.spans if span.layer < 0]
    layers = [span for span in worker.spans if span.layer >= 0]
    marks = [mark for span in stages for mark in _stage(span, scale)]
    marks += [mark for span in layers for mark in _layer(run, span, scale)]
    says = f"Worker {worker.rank}: " + ", ".join(
        f"{span.stage} {duration(span.start)} to {duration(span.end)}" for span in stages
    )
    end = max((span.end for span in worker.spans), default=0.0)
    value = duration(end)
    if not run.alone:
        value = f"{value}, {share(worker.wait_seconds, run.seconds)} waiting"
    return row(name_of(run, worker.rank), canvas(marks, says, _HEIGHT, scale), value)


def _stage(span: Span, scale: Scale) -> list[Html]:
    """Its bar with its name, and how much of it was waiting."""
    says = (
        f"{span.stage}: {duration(span.seconds)}, from {duration(span.start)} to"
        f" {duration(span.end)}"
    )
    if span.stage == "sample":
        return [bar(scale, span.start, span.end, "sample", says, y=14, height=5)]
    found = [bar(scale, span.start, span.end, stage_kind(span.stage), says, y=1, height=18)]
    if span.stage != "infer":
        found += _names(span, scale, span.stage, "")
    if span.wait_seconds > 0:
        waited = f"{duration(span.wait_seconds)} of {span.stage} waiting for other workers"
        end = span.start + min(span.wait_seconds, span.seconds)
        found.append(bar(scale, span.start, end, "wait", waited, y=21, height=6))
    return found


def _names(span: Span, scale: Scale, wide: str, narrow: str) -> list[Html]:
    """What is written into a bar on a wide screen, and on a narrow one, where there is room."""
    part = span.seconds / scale.largest if scale.largest else 0.0
    if part >= _NAMED_ANYWHERE:
        return [_name(span, scale, wide, "in-bar")]
    shown = [(wide, "in-bar wide-only", _NAMED), (narrow, "in-bar narrow-only", _NUMBERED)]
    return [_name(span, scale, words, kind) for words, kind, least in shown if part >= least]


def _name(span: Span, scale: Scale, words: str, kind: str) -> Html:
    place = scale.at((span.start + span.end) / 2)
    return tag(
        "text", words, x=place, y=14, text_anchor="middle",
        class_=f"{kind} on-{stage_kind(span.stage)}", aria_hidden="true",
    )  # fmt: skip


def _layer(run: Run, span: Span, scale: Scale) -> list[Html]:
    """Where a layer begins and ends within its stage, and its name."""
    name = run.layer_name(span.layer)
    says = f"{name}: {duration(span.seconds)} from {duration(span.start)}"
    lines = [
        tag(
            "line", tag("title", says), x1=scale.at(at), x2=scale.at(at), y1=1, y2=19, class_="part"
        )
        for at in (span.start, span.end)
    ]
    return [*lines, *_names(span, scale, name, str(span.layer + 1))]


def stage_kind(name: str) -> str:
    """The class of a stage's marks, by which it has its colour."""
    return f"s-{name}" if name in STAGES else "s-other"


def _legend(run: Run) -> Html:
    names = [name for name in run.report.stages if name != "sample"]
    entries = [(stage_kind(name), name) for name in names]
    if "sample" in run.report.stages:
        entries.append(("sample", "sampling, within infer"))
    if not run.alone:
        entries.append(("wait", "of it waiting for other workers"))
    return legend(*entries)


def _lead(run: Run) -> str:
    stages = {name: s for name, s in run.report.stages.items() if name != "sample"}
    slow = sorted(stages, key=lambda name: -stages[name])[:2]
    parts = " and ".join(
        f"{name} {duration(stages[name])} ({share(stages[name], run.seconds)})" for name in slow
    )
    return f"What took longest: {parts}."


def _table(run: Run) -> Html:
    rows: list[list[Child]] = [
        [
            f"worker {worker.rank}",
            _named(span, run),
            duration(span.start),
            duration(span.end),
            duration(span.seconds),
            duration(span.wait_seconds),
        ]
        for worker in shown_workers(run.workers, _SHOWN)
        for span in worker.spans
    ]
    columns = ["Worker", "Stage", "Begins", "Ends", "Takes", "Waiting"]
    return table("Stages and layers of each worker", columns, rows, words=2)


def _named(span: Span, run: Run) -> str:
    return span.stage if span.layer < 0 else f"{span.stage}, {run.layer_name(span.layer)}"
