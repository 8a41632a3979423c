"""About how long a run takes on one machine: a few rates, honest to a factor of two.

What a run does is counted from the program and the graph; how fast a core does it is one constant
a kind of work. They were measured with `benchmarks/end_to_end.py` (two cores, local files,
float32, 21 M edges). Other machines, stores and busy hours differ, so only a range is shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from embertide.footprint import FLOAT_BYTES, GraphSize
from embertide.program.steps.base import Step
from embertide.program.steps.program import Program

_START_SECONDS = 4.0
"""Imports, listing the inputs, starting workers: where no one measured them on this machine."""
_START_LOW, _START_HIGH = 0.7, 1.5
"""Range of a start, as shares of a measured one: other work on the machine changes it."""
_INGESTED_EDGES = 9e6
"""Read, sent to their owners and sorted."""
_SUMMED_VALUES = 3.5e9
_MULTIPLIED_FLOPS = 6e10
_READ_BYTES = 2.5e8
_WRITTEN_BYTES = 2.5e8
"""Written, read back and verified."""
KEPT_BYTES = 4e8
"""Kept layers, written by all workers of a machine while they compute."""
_EXCHANGED_BYTES = 1e9
"""Exchanged by all workers, which share the machine's memory."""
_LOW, _HIGH = 0.5, 2.0


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of a run, summed over its workers.

    Attributes:
        values: numbers added up along edges; attention counts more for each.
        flops: of the matrix products.
    """

    edges: float
    values: float
    flops: float
    read_bytes: float
    written_bytes: float
    exchanged_bytes: float


def work_of(
    program: Program,
    size: GraphSize,
    fanout: list[int] | None,
    *,
    written_bytes: float,
    exchanged_bytes: float,
    steps: Sequence[Step] | None = None,
) -> Work:
    """Count a run's work.

    Args:
        steps: those of the program whose values and flops are counted; None: all.
        fanout: in-edges that each layer samples of a node; None: all of them.
    """
    values = flops = 0.0
    for step in program.steps if steps is None else steps:
        if step.edges is not None:
            most = None if fanout is None else fanout[step.layer]
            edges = size.of_relation(step.edges.relation, most).edges
            values += edges * step.values_per_edge(program.widths)
        nodes = size.nodes[program.types[step.out]]
        flops += nodes * step.flops_per_node(program.widths)
    read = sum(size.nodes[name] * program.widths[x] for name, x in program.inputs.items())
    return Work(
        edges=sum(size.edges.values()),
        values=values,
        flops=flops,
        read_bytes=float(FLOAT_BYTES) * read,
        written_bytes=written_bytes,
        exchanged_bytes=exchanged_bytes,
    )


def start_range(measured: float | None) -> tuple[float, float]:
    """From and to: the seconds until workers begin, in whole seconds.

    Args:
        measured: what a process took on this machine to import what a worker imports.
    """
    if measured is None:
        return _whole(_START_SECONDS * _LOW, _START_SECONDS * _HIGH)
    return _whole(measured * _START_LOW, measured * _START_HIGH)


def seconds_range(work: Work, cores: int) -> tuple[float, float]:
    """From and to, after the start: what the rates give, halved and doubled, in whole seconds."""
    seconds = likely_seconds(work, cores)
    return _whole(seconds * _LOW, seconds * _HIGH)


def likely_seconds(work: Work, cores: int) -> float:
    """What the rates give."""
    by_cores = (
        work.edges / _INGESTED_EDGES
        + work.values / _SUMMED_VALUES
        + work.flops / _MULTIPLIED_FLOPS
        + work.read_bytes / _READ_BYTES
        + work.written_bytes / _WRITTEN_BYTES
    )
    return by_cores / cores + work.exchanged_bytes / _EXCHANGED_BYTES


def _whole(low: float, high: float) -> tuple[float, float]:
    return float(math.floor(low)), float(math.ceil(high))


def basis(cores: int, measured_start: float | None) -> str:
    """The assumptions of `start_range` and `seconds_range`, for people."""
    start = (
        f"{_START_SECONDS:.0f} s to start on a machine that does nothing else"
        if measured_start is None
        else f"that starting takes about as long as it took here just now ({measured_start:.1f} s)"
    )
    return (
        f"assumes {start}; of each of {cores} cores"
        f" {_INGESTED_EDGES / 1e6:.0f} M edges/s ingested, {_SUMMED_VALUES / 1e9:.1f} G values/s"
        f" summed along edges, {_MULTIPLIED_FLOPS / 1e9:.0f} GFLOP/s multiplied,"
        f" {_READ_BYTES / 1e6:.0f} MB/s read and {_WRITTEN_BYTES / 1e6:.0f} MB/s written; of all"
        f" together {_EXCHANGED_BYTES / 1e9:.0f} GB/s exchanged; then half to double of that."
        " Measured on two cores with local files; a distant store takes longer"
    )
