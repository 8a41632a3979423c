"""Memory planned against memory used, by stage and by worker."""

from __future__ import annotations

from embertide.facts.report.charts import Scale, axis, bar, canvas, mark, row
from embertide.facts.report.figures import figure, legend, section
from embertide.facts.report.markup import Child, Html, table, tag
from embertide.facts.report.numbers import round_size, share, size
from embertide.facts.report.run import Run
from embertide.facts.report.timeline import name_of
from embertide.facts.telemetry.report import RankMemory

_HEIGHT = 22
_SHOWN = 32
"""Workers that have a bar of their own: the fullest."""


def memory(run: Run) -> Html | None:
    """The section; None where no worker's memory is known."""
    fullest = run.fullest
    if fullest is None:
        return None
    return section(
        "memory", "Memory", _lead(run, fullest), _on_disk(run), _by_stage(run), _by_worker(run)
    )


def _lead(run: Run, fullest: RankMemory) -> str:
    whose = "It" if run.alone else f"The fullest worker, {fullest.rank},"
    used, planned = fullest.used_bytes, fullest.planned_bytes
    end = "more than planned, so `embertide plan` asks for too little here."
    if used <= planned:
        end = f"{share(used, planned)} of the planned {size(planned)}."
    return (
        f"{whose} took {size(used)} beyond the {size(fullest.baseline_bytes)} of its imports: {end}"
    )


def _on_disk(run: Run) -> Html | None:
    """How the plan compares with the limit, and what moved to disk; None without a limit."""
    if not run.report.budget:
        return None
    written = max((of.scratch_bytes_written for of in run.workers), default=0)
    read = max((of.scratch_bytes_read for of in run.workers), default=0)
    most = max((of.scratch_peak_bytes for of in run.workers), default=0)
    whose = "" if run.alone else " by the worker with the most"
    moved = f" Really {size(written)} were written and {size(read)} read{whose}; scratch files had"
    moved += f" {size(most)} at most."
    return tag("p", f"Budget: {run.report.budget}.{moved if most else ''}")


def _stages(run: Run) -> list[str]:
    """Those that were measured or planned, in the order they ran."""
    measured = [name for item in run.report.memory for name in item.stage_bytes]
    names = dict.fromkeys([*run.report.stages, *run.report.planned_memory, *measured])
    known = {*measured, *run.report.planned_memory}
    return [name for name in names if name in known and name != "start"]


def _peaks(run: Run, stage: str) -> list[int]:
    """The peaks of the workers that have one, beyond their imports."""
    found = (item.stage_bytes.get(stage) for item in run.report.memory)
    return [max(0, peak) for peak in found if peak is not None] or [0]


def _by_stage(run: Run) -> Html:
    planned, stages = run.report.planned_memory, _stages(run)
    largest = max([*planned.values(), *(max(_peaks(run, stage)) for stage in stages), 1])
    scale = Scale(float(largest), round_size, 1024.0)
    rows = [_stage_row(run, stage, scale) for stage in stages]
    held = [("held", "peak")]
    if not run.alone:
        held = [("held", "peak of the least full worker"), ("held-more", "up to the fullest")]
    return figure(
        "Peak of each stage, beyond the imports",
        [*rows, axis(scale, "")],
        _stage_table(run, stages),
        legend=legend(*held, ("plan", "planned")),
        note="Measured as anonymous pages, about fifty times a second. The plan is for the fullest"
        " worker.",
    )


def _stage_row(run: Run, stage: str, scale: Scale) -> Html:
    peaks, planned = _peaks(run, stage), run.report.planned_memory.get(stage)
    least, most = min(peaks), max(peaks)
    between = size(most) if run.alone else f"{size(least)} to {size(most)}"
    says = f"{stage}: {between}"
    marks = [bar(scale, 0, least, "held", says), bar(scale, least, most, "held-more", says)]
    value = size(most)
    if planned is not None:
        says += f", {size(planned)} planned"
        marks.append(mark(scale, planned, f"{size(planned)} planned for {stage}"))
        value += f", {share(most, planned)} of plan"
    return row(tag("b", stage), canvas(marks, says, _HEIGHT, scale), value)


def _stage_table(run: Run, stages: list[str]) -> Html:
    rows: list[list[Child]] = []
    for stage in stages:
        peaks, planned = _peaks(run, stage), run.report.planned_memory.get(stage)
        cells = [size(min(peaks)), size(sum(peaks) / len(peaks)), size(max(peaks))]
        of_plan = ["-", "-"] if planned is None else [size(planned), share(max(peaks), planned)]
        rows.append([stage, *cells, *of_plan])
    columns = ["Stage", "Least", "Mean", "Most", "Planned", "Most, of plan"]
    return table("Peaks of workers in each stage, beyond the imports", columns, rows)


def _by_worker(run: Run) -> Html:
    """The whole process: what its imports take, and the work on top."""
    ranks = sorted(run.report.memory, key=lambda item: -item.peak_bytes)[:_SHOWN]
    ranks.sort(key=lambda item: item.rank)
    ends = [item.baseline_bytes + max(item.planned_bytes, item.used_bytes) for item in ranks]
    scale = Scale(float(max(ends)), round_size, 1024.0)
    rows = [_worker_row(run, item, scale) for item in ranks]
    left_out = len(run.report.memory) - len(ranks)
    return figure(
        "The whole worker process",
        [*rows, axis(scale, "")],
        _worker_table(run),
        legend=legend(("base", "after its imports"), ("held", "the work"), ("plan", "planned")),
        note=f"The {len(ranks)} fullest; {left_out} others took less." if left_out else None,
    )


def _worker_row(run: Run, item: RankMemory, scale: Scale) -> Html:
    base, peak, planned = item.baseline_bytes, item.peak_bytes, item.planned_bytes
    says = f"worker {item.rank}: {size(base)} imports, {size(item.used_bytes)} work"
    marks = [
        bar(scale, 0, base, "base", f"{size(base)} after its imports"),
        bar(scale, base, peak, "held", f"{size(item.used_bytes)} for the work"),
    ]
    value = size(peak)
    if planned:
        says += f", {size(planned)} planned"
        marks.append(mark(scale, base + planned, f"{size(planned)} planned for the work"))
        value += f", {share(item.used_bytes, planned)} of plan"
    return row(name_of(run, item.rank), canvas(marks, says, _HEIGHT, scale), value)


def _worker_table(run: Run) -> Html:
    rows: list[list[Child]] = [
        [
            f"worker {item.rank}",
            size(item.baseline_bytes),
            size(item.used_bytes),
            size(item.planned_bytes),
            share(item.used_bytes, item.planned_bytes),
            size(item.peak_bytes),
        ]
        for item in run.report.memory
    ]
    columns = ["Worker", "Imports", "Work, peak", "Work, planned", "Of plan", "Whole process"]
    return table("Memory of each worker", columns, rows)
