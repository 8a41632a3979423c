"""Computing against waiting: what a worker does with its time in each stage and layer."""

from __future__ import annotations

from embertide.facts.report.charts import Scale, axis, bar, canvas, row
from embertide.facts.report.figures import figure, legend, section
from embertide.facts.report.markup import Child, Html, table, tag
from embertide.facts.report.numbers import duration, round_duration, share
from embertide.facts.report.run import Phase, Run
from embertide.facts.telemetry.report import Span

_HEIGHT = 22
_LEAST_SHARE = 0.001
"""The share of a run below which a phase has no bar."""


def phases(run: Run) -> Html | None:
    """The section; None where no worker's times are known."""
    found = run.phases
    if not found:
        return None
    scale = Scale(max(phase.mean(_seconds) for phase in found), round_duration)
    seen = [phase for phase in found if phase.mean(_seconds) > _LEAST_SHARE * run.seconds]
    rows = [_row(phase, scale, alone=run.alone) for phase in seen]
    drawn = figure(
        "Time in each stage and layer"
        if run.alone
        else "Mean time of a worker in each stage and layer",
        [*rows, axis(scale, "")],
        _table(found),
        legend=None if run.alone else _LEGEND,
        note=None if run.alone else _NOTE,
    )
    return section("layers", "Computing and waiting", _lead(run), drawn)


_LEGEND = legend(
    ("compute", "computing, reading and writing"),
    ("overlap", "computing while data travelled"),
    ("wait", "waiting for other workers"),
)
_NOTE = (
    "Data that travels while a worker computes costs it nothing; what it still has to wait for"
    " does. Waiting for a worker that is late counts as well."
)


def _seconds(span: Span) -> float:
    return span.seconds


def _waiting(span: Span) -> float:
    return min(span.seconds, span.wait_seconds)


def _overlapped(span: Span) -> float:
    return min(max(0.0, span.seconds - _waiting(span)), span.compute_seconds)


def _computing(span: Span) -> float:
    return max(0.0, span.seconds - _waiting(span) - _overlapped(span))


def _row(phase: Phase, scale: Scale, *, alone: bool) -> Html:
    parts = [
        ("compute", "computing, reading and writing", phase.mean(_computing)),
        ("overlap", "computing while data travelled", phase.mean(_overlapped)),
        ("wait", "waiting for other workers", phase.mean(_waiting)),
    ]
    marks, at = [], 0.0
    for kind, words, seconds in parts:
        if seconds > 0:
            says = f"{phase.name}: {duration(seconds)} {words}"
            marks.append(bar(scale, at, at + seconds, kind, says))
        at += seconds
    total = phase.mean(_seconds)
    says = f"{phase.name}: {duration(total)}, " + ", ".join(
        f"{duration(seconds)} {words}" for _, words, seconds in parts if seconds > 0
    )
    value = duration(total)
    if not alone:
        value += f", {share(phase.mean(_waiting), total)} waiting"
    within = tag("small", f" in {phase.stage}") if phase.stage != phase.name else None
    label = tag("span", tag("b", phase.name), within)
    return row(label, canvas(marks, says, _HEIGHT, scale), value)


def _lead(run: Run) -> str:
    if run.alone:
        return "One worker waits for no other: all of its time is its own work."
    worst = max(run.phases, key=lambda phase: phase.mean(_waiting))
    ranks = sorted(run.workers, key=lambda worker: worker.wait_seconds)
    least, most = ranks[0], ranks[-1]
    return (
        f"A worker waited {duration(run.waited)} of {duration(run.seconds)}, most of all in"
        f" {worst.name} ({duration(worst.mean(_waiting))}). Worker {most.rank} waited longest"
        f" ({share(most.wait_seconds, run.seconds)} of its time), worker {least.rank} least"
        f" ({share(least.wait_seconds, run.seconds)})."
    )


def _table(found: list[Phase]) -> Html:
    rows: list[list[Child]] = [
        [
            phase.name,
            duration(phase.mean(_seconds)),
            duration(max(map(_seconds, phase.each))),
            duration(phase.mean(_computing)),
            duration(phase.mean(_overlapped)),
            duration(phase.mean(_waiting)),
            f"{duration(min(map(_waiting, phase.each)))} to"
            f" {duration(max(map(_waiting, phase.each)))}",
        ]
        for phase in found
    ]
    columns = ["Step", "Mean", "Slowest", "Computing", "Overlapped", "Waiting", "Waiting, range"]
    return table("Time in each stage and layer, mean of all workers", columns, rows)
