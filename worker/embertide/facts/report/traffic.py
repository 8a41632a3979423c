"""What moved between workers: by axis, primitive, layer and relation, beside the plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from embertide.facts.report.charts import Scale, axis, bar, canvas, mark, row
from embertide.facts.report.figures import figure, legend, more, section
from embertide.facts.report.markup import Child, Html, definitions, join, table, tag
from embertide.facts.report.numbers import (
    count,
    duration,
    round_duration,
    round_size,
    share,
    short_count,
    size,
)
from embertide.facts.report.run import Run
from embertide.facts.telemetry.report import WAIT_BUCKETS, Traffic

AXES = {
    "graph": "Graph axis",
    "feature": "Feature axis",
    "world": "All workers",
}
_WITHIN = {
    "graph": "the P workers that hold the same columns",
    "feature": "the M workers that hold the same rows",
    "world": "everyone with everyone",
}
PRIMITIVES = {
    "model": "the model's files, from worker 0, which reads them",
    "histogram": "how many edges each range of rows has, from which the ranges are cut",
    "shuffle": "edges, to the worker that owns their destination",
    "csr": "rows of the graph, to the workers of the same partition",
    "idmap": "ids of the inputs, to the workers that number them",
    "ids": "which rows each worker needs of which other",
    "degrees": "degrees of those rows",
    "features": "feature rows, from the workers that read them",
    "gemm": "columns of a tensor, for a product over whole rows",
    "spmm": "rows of neighbours, for a sum over in-edges",
    "sddmm": "rows for attention scores of pairs, and the scores",
    "scalars": "attention scores of nodes",
    "statistics": "sums over all nodes, for norms",
    "check": "some rows of each layer, to where they are computed a second time",
    "scores": "rows of both nodes of the pairs that get scores",
}
_HEIGHT = 22
_THIN = 14


@dataclass(frozen=True)
class Group:
    """All transfers of one primitive on one axis; ``planned`` bytes of all workers, None: none."""

    axis: str
    primitive: str
    layers: tuple[Traffic, ...]
    planned: int | None

    def total(self, of: Callable[[Traffic], float]) -> float:
        """A quantity of all layers."""
        return sum(map(of, self.layers))

    @property
    def sent(self) -> int:
        """Bytes of all layers and workers."""
        return sum(item.bytes_sent for item in self.layers)


def groups(run: Run) -> list[Group]:
    """By axis, then as they begin."""
    workers, found = run.report.grid.workers, []
    names = {(item.axis, item.primitive) for item in run.report.traffic}
    order = (list(AXES), list(PRIMITIVES))
    for of_axis, primitive in sorted(names, key=lambda name: _place(name, order)):
        key = (of_axis, primitive)
        planned = [
            item.bytes_per_worker
            for item in run.report.planned_traffic
            if (item.axis, item.primitive) == key
        ]
        layers = [item for item in run.report.traffic if (item.axis, item.primitive) == key]
        sum_planned = sum(planned) * workers if planned else None
        found.append(Group(of_axis, primitive, tuple(layers), sum_planned))
    return found


def _place(name: tuple[str, str], order: tuple[list[str], list[str]]) -> list[tuple[int, str]]:
    """Where a name stands among those that are known; others after them."""
    return [
        (known.index(word) if word in known else len(known), word)
        for word, known in zip(name, order, strict=True)
    ]


def traffic(run: Run) -> Html | None:
    """The section; None where one worker moved nothing."""
    if run.alone or not run.report.traffic:
        return None
    found = groups(run)
    return section(
        "communication",
        "Communication",
        _lead(run, found),
        _bytes(run, found),
        _seconds(run, found),
        _lengths(run),
        more("What is moved, and between whom", _words(found)),
    )


def _lead(run: Run, found: list[Group]) -> str:
    most = max(found, key=lambda group: group.sent)
    slowest = max(found, key=lambda group: group.total(_wait))
    overlapped = sum(item.compute_seconds for item in run.report.traffic)
    workers = run.report.grid.workers
    read = (
        f" {size(run.read_in_place)} more were read in the memory of workers of the same host,"
        " where nothing moves."
        if run.read_in_place
        else ""
    )
    return (
        f"{size(run.sent)} moved, {share(run.sent, run.planned_sent)} of the planned"
        f" {size(run.planned_sent)}; {share(most.sent, run.sent)} of it for {most.primitive} on the"
        f" {most.axis} axis.{read}"
        f" Most waiting was for {slowest.primitive} on the {slowest.axis} axis."
        f" A worker computed {duration(overlapped / workers)} while data travelled."
    )


def _wait(item: Traffic) -> float:
    return item.wait_seconds


def _overlapped(item: Traffic) -> float:
    return item.compute_seconds


def _layer(run: Run, item: Traffic) -> str:
    """The layer, and the relation where one is known."""
    layer = "before the layers" if item.layer < 0 else run.layer_name(item.layer)
    return f"{layer}, {item.relation}" if item.relation else layer


def _bytes(run: Run, found: list[Group]) -> Html:
    largest = max(max(group.sent, group.planned or 0) for group in found)
    scale = Scale(float(largest), round_size, 1024.0)
    rows: list[Html] = []
    for of_axis in dict.fromkeys(group.axis for group in found):
        rows.append(_heading(of_axis))
        for group in found:
            if group.axis == of_axis:
                rows += _byte_rows(run, group, scale)
    return figure(
        "Bytes sent by all workers, against the plan",
        [*rows, axis(scale, "")],
        _table(run, found),
        legend=legend(("sent", "sent"), ("sent-part", "of it in one layer"), ("plan", "planned")),
        note="What has no stroke has no plan.",
    )


def _heading(of_axis: str) -> Html:
    name = tag("b", AXES.get(of_axis, of_axis))
    return tag("p", name, tag("small", f" {_WITHIN.get(of_axis, '')}"), class_="rows-title")


def _byte_rows(run: Run, group: Group, scale: Scale) -> list[Html]:
    """The group's sum beside its plan, then its layers where it has several."""
    says = f"{group.primitive}: {size(group.sent)} sent"
    marks = [bar(scale, 0, group.sent, "sent", says)]
    value = size(group.sent)
    if group.planned is not None:
        says += f", {size(group.planned)} planned"
        marks.append(mark(scale, group.planned, f"{size(group.planned)} planned"))
        value += f", {share(group.sent, group.planned)} of plan"
    rows = [row(tag("b", group.primitive), canvas(marks, says, _HEIGHT, scale), value)]
    if len(group.layers) == 1:
        return rows
    for item in group.layers:
        says = f"{group.primitive}, {_layer(run, item)}: {size(item.bytes_sent)}"
        part = bar(scale, 0, item.bytes_sent, "sent-part", says, y=3, height=8)
        plot = canvas([part], says, _THIN, scale)
        rows.append(row(_layer(run, item), plot, size(item.bytes_sent), "sub"))
    return rows


def _seconds(run: Run, found: list[Group]) -> Html:
    """Waiting and computing beside transfers, of a worker on average."""
    workers = run.report.grid.workers
    largest = max(max(group.total(_wait), group.total(_overlapped)) for group in found) / workers
    scale = Scale(largest, round_duration)
    rows: list[Html] = []
    for of_axis in dict.fromkeys(group.axis for group in found):
        rows.append(_heading(of_axis))
        for group in found:
            if group.axis == of_axis:
                rows.append(_second_row(group, scale, workers))
    return figure(
        "Waited for, and computed while it travelled: mean of a worker",
        [*rows, axis(scale, "waiting · computing")],
        None,
        legend=legend(("wait", "waiting for it"), ("overlap", "computing while it travelled")),
        note="The table above has both in numbers, layer by layer. Where all workers meet, between"
        " stages, they wait for no group; the timeline counts that too.",
    )


def _second_row(group: Group, scale: Scale, workers: int) -> Html:
    waited, overlapped = group.total(_wait) / workers, group.total(_overlapped) / workers
    label = f"{duration(waited)} waiting, {duration(overlapped)} computing while it travelled"
    marks = [
        bar(scale, 0, waited, "wait", f"{duration(waited)} waiting", y=2, height=9),
        bar(scale, 0, overlapped, "overlap", f"{duration(overlapped)} computing", y=12, height=9),
    ]
    plot = canvas(marks, f"{group.primitive}: {label}", 23, scale)
    return row(tag("b", group.primitive), plot, f"{duration(waited)} · {duration(overlapped)}")


def _lengths(run: Run) -> Html:
    """How many waits were how long, for each axis: few long ones are another matter than many."""
    bounds = [*(f"up to {duration(end)}" for end in WAIT_BUCKETS), f"over {_longest()}"]
    counted: dict[str, list[int]] = {}
    for item in run.report.traffic:
        so_far = counted.setdefault(item.axis, [0] * len(bounds))
        counted[item.axis] = [a + b for a, b in zip(so_far, item.waits, strict=False)] or so_far
    scale = Scale(float(max(max(counts) for counts in counted.values())), short_count)
    rows: list[Html] = []
    for of_axis, counts in counted.items():
        rows.append(_heading(of_axis))
        for words, number in zip(bounds, counts, strict=False):
            says = f"{count(number)} waits of {words}"
            plot = canvas([bar(scale, 0, number, "waits", says, y=2, height=9)], says, 13, scale)
            rows.append(row(words, plot, count(number), "sub"))
    return more("How long single waits were", figure("Waits by their length", rows, None))


def _longest() -> str:
    return duration(WAIT_BUCKETS[-1])


def _table(run: Run, found: list[Group]) -> Html:
    rows: list[list[Child]] = []
    for group in found:
        for item in group.layers:
            rows.append(
                [
                    f"{group.axis} {group.primitive}",
                    _layer(run, item),
                    size(item.bytes_sent),
                    size(item.bytes_read_in_place),
                    count(item.messages),
                    count(item.groups),
                    size(item.largest_group_bytes),
                    duration(item.wait_seconds),
                    duration(item.compute_seconds),
                ]
            )
    columns = [
        "Axis, primitive", "Layer", "Sent", "Read in place", "Messages", "Groups",
        "Largest group", "Waiting", "Overlapped",
    ]  # fmt: skip
    return table("Transfers, sums over all workers", columns, rows, words=2)


def _words(found: list[Group]) -> Html:
    names = dict.fromkeys(group.primitive for group in found)
    axes = {f"{name} axis": _WITHIN[name] for name in _WITHIN}
    entries: dict[str, Child] = {
        **axes,
        **{name: PRIMITIVES[name] for name in names if name in PRIMITIVES},
    }
    return tag("div", join([definitions(entries)]), class_="facts")
