"""Whether the work was shared evenly: the grid of workers as maps, one for each quantity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from embertide.facts.report.figures import more, section
from embertide.facts.report.markup import Child, Html, table, tag
from embertide.facts.report.numbers import against_mean, count, duration, share, short_count, size
from embertide.facts.report.run import Run
from embertide.facts.telemetry.report import WorkerReport

_FULL = 0.5
"""Deviation from the mean, as a share of it, that has the full colour."""
_DEEPEST = 0.6
"""Opacity of the full colour, on which text must be legible."""
_TWO_LINES, _ONE_LINE = 3, 6
"""Most columns of a map whose cells have room for value and deviation, and for the deviation."""
_TALL_ROWS, _LOW_ROWS = 8, 24
_LABELS = 34
"""Pixels left of a map, for the partitions' names."""


@dataclass(frozen=True)
class Quantity:
    """What a map shows: of each worker, in rank order.

    ``words`` writes a value in a map's cell, ``exact`` in the table.
    """

    name: str
    values: tuple[float, ...]
    words: Callable[[float], str]
    exact: Callable[[float], str]

    @property
    def mean(self) -> float:
        """The mean over all workers."""
        return sum(self.values) / len(self.values)

    @property
    def imbalance(self) -> float:
        """The largest as a multiple of the mean; 1 where all are nothing."""
        return max(self.values) / self.mean if self.mean else 1.0


def balance(run: Run) -> Html | None:
    """The section; None where there is no worker to share with."""
    if run.alone or not run.workers:
        return None
    found = quantities(run)
    return section(
        "balance",
        "Balance",
        _lead(found),
        tag("p", *_scale(), class_="map-scale"),
        tag("div", *(_map(run, quantity) for quantity in found), class_="maps"),
        more("The numbers", _table(run, found)),
    )


def quantities(run: Run) -> list[Quantity]:
    """What is compared between workers."""

    def each(of: Callable[[WorkerReport], float]) -> tuple[float, ...]:
        return tuple(map(of, run.workers))

    peaks = {item.rank: float(item.used_bytes) for item in run.report.memory}
    return [
        Quantity("Nodes", each(lambda worker: worker.nodes), short_count, count),
        Quantity("Edges", each(lambda worker: worker.edges), short_count, count),
        Quantity("Busy in infer", each(_busy), duration, duration),
        Quantity("Waiting", each(lambda worker: worker.wait_seconds), duration, duration),
        Quantity("Bytes sent", each(lambda worker: worker.bytes_sent), size, size),
        Quantity("Peak memory", each(lambda worker: peaks.get(worker.rank, 0.0)), size, size),
    ]


def _busy(worker: WorkerReport) -> float:
    """Seconds of ``infer`` that were not waiting."""
    spans = [span for span in worker.spans if span.stage == "infer" and span.layer < 0]
    return max(0.0, sum(span.seconds - span.wait_seconds for span in spans))


def _lead(found: list[Quantity]) -> str:
    by_name = {quantity.name: quantity for quantity in found}
    edges, busy = by_name["Edges"].imbalance, by_name["Busy in infer"].imbalance
    return (
        f"The most edges of a worker are {edges:.2f} × the mean; the longest that one was busy in"
        f" infer is {busy:.2f} × the mean. Rows of a map are graph partitions, columns feature"
        " slices."
    )


def _scale() -> list[Child]:
    """What the colours mean."""
    steps = [-1.0, -0.5, 0.0, 0.5, 1.0]
    cells = [
        tag("rect", x=f"{20 * at}%", y=0, width="20%", height=12, class_="cell")
        for at in range(len(steps))
    ]
    cells += [_tint(f"{20 * at}%", 0, "20%", 12, step * _FULL) for at, step in enumerate(steps)]
    ramp = tag("svg", *cells, class_="ramp", width=150, height=12, aria_hidden="true")
    half = round(100 * _FULL)
    return [f"{half} % below the mean ", ramp, f" {half} % above it"]


def _tint(x: str, y: float, width: str, height: float, deviation: float) -> Html:
    """The colour over a cell: by side of the mean, and by how far."""
    kind = "above" if deviation > 0 else "below"
    depth = min(1.0, abs(deviation) / _FULL)
    return tag(
        "rect",
        x=x,
        y=y,
        width=width,
        height=height,
        class_=kind,
        fill_opacity=f"{_DEEPEST * depth:.3f}",
    )


def _map(run: Run, quantity: Quantity) -> Html:
    grid = run.report.grid
    tall = 40 if grid.graph <= _TALL_ROWS else 22 if grid.graph <= _LOW_ROWS else 10
    cells = [_cell(quantity, rank, grid.feature, tall) for rank in range(grid.workers)]
    says = (
        f"{quantity.name} of each worker: from {quantity.words(min(quantity.values))} to"
        f" {quantity.words(max(quantity.values))}, mean {quantity.words(quantity.mean)}"
    )
    plot = tag(
        "svg", tag("title", says), *cells, class_="chart map", role="img", width="100%",
        height=tall * grid.graph, aria_label=says,
    )  # fmt: skip
    worst = f"largest {quantity.imbalance:.2f} × the mean of {quantity.words(quantity.mean)}"
    return tag(
        "figure",
        tag("figcaption", tag("h3", quantity.name), tag("p", worst, class_="note")),
        tag("div", _side(grid.graph, tall), plot, class_="map-rows"),
        _foot(grid.feature),
        class_="map-figure",
    )


def _cell(quantity: Quantity, rank: int, columns: int, tall: float) -> Html:
    p, m = divmod(rank, columns)
    value, mean = quantity.values[rank], quantity.mean
    x, wide, y = f"{100 * m / columns:.3f}%", f"{100 / columns:.3f}%", p * tall
    deviation = against_mean(value, mean)
    says = f"worker {rank} (p {p}, m {m}): {quantity.words(value)}, {deviation} of the mean"
    middle = f"{100 * (m + 0.5) / columns:.3f}%"
    words: list[Html] = []
    if columns <= _TWO_LINES and tall >= 40:
        words = [
            tag("text", quantity.words(value), x=middle, y=y + 17, class_="cell-value"),
            tag("text", deviation, x=middle, y=y + 32, class_="cell-deviation"),
        ]
    elif columns <= _ONE_LINE and tall >= 22:
        words = [tag("text", deviation, x=middle, y=y + tall / 2 + 4, class_="cell-value")]
    return tag(
        "g",
        tag("title", says),
        tag("rect", x=x, y=y, width=wide, height=tall, class_="cell"),
        _tint(x, y, wide, tall, value / mean - 1.0 if mean else 0.0),
        *words,
    )


def _side(partitions: int, tall: float) -> Html:
    """Names of the rows, as many as there is room for."""
    every = 1 if tall >= 14 else 4
    names = [
        tag("text", f"p {p}", x=0, y=p * tall + tall / 2 + 4, class_="tick")
        for p in range(0, partitions, every)
    ]
    return tag("svg", *names, width=_LABELS, height=tall * partitions, aria_hidden="true")


def _foot(slices: int) -> Html:
    """Names of the columns, as many as there is room for."""
    every = max(1, slices // _ONE_LINE)
    names = [
        tag(
            "text", f"m {m}", x=f"{100 * (m + 0.5) / slices:.3f}%", y=12, text_anchor="middle",
            class_="tick",
        )
        for m in range(0, slices, every)
    ]  # fmt: skip
    axis = tag("svg", *names, width="100%", height=16, aria_hidden="true")
    return tag("div", tag("span"), axis, class_="map-rows")


def _table(run: Run, found: list[Quantity]) -> Html:
    rows: list[list[Child]] = []
    for worker in run.workers:
        p, m = divmod(worker.rank, run.report.grid.feature)
        values = [quantity.exact(quantity.values[worker.rank]) for quantity in found]
        waiting = share(worker.wait_seconds, run.seconds)
        rows.append(
            [f"worker {worker.rank}", f"{p}, {m}", *values, size(worker.bytes_received), waiting]
        )
    columns = ["Worker", "p, m", *(quantity.name for quantity in found), "Bytes received"]
    caption = f"What each of {count(len(run.workers))} workers held, sent and did"
    return table(caption, [*columns, "Waiting, share"], rows, words=2)
