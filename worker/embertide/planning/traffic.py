"""Bytes that every worker will send, by the formulas of ``docs/traffic.md``."""

from __future__ import annotations

from embertide.models import program as steps
from embertide.models.program import EdgeStep, Program, Step
from embertide.planning.footprint import FLOAT_BYTES, ID_BYTES, LOCATION_BYTES, Size
from embertide.telemetry.report import PlannedTraffic

_NUMBER_BYTES = 8
"""Of the row number that a product of loaded rows travels with: int64."""


def planned_traffic(program: Program, size: Size) -> list[PlannedTraffic]:
    """Bytes one worker sends, per primitive and layer; see ``docs/traffic.md``."""
    world, p, m = size.workers, size.graph, size.feature
    found: list[PlannedTraffic] = []

    def add(axis: str, primitive: str, layer: int, sent: float, messages: float) -> None:
        if sent:
            found.append(PlannedTraffic(axis, primitive, layer, int(sent), int(messages)))

    others = (world - 1) / world
    add("world", "shuffle", -1, ID_BYTES * size.edges / world * others, world - 1)
    csr = 4 * size.edges + ID_BYTES * size.nodes
    add("feature", "csr", -1, csr / world * (m - 1), m - 1)
    add("world", "features", -1, LOCATION_BYTES * size.nodes / world * others, world - 1)
    add("graph", "ids", -1, _requests(size), p - 1)
    for step in program.steps:
        convert = size.tensor(program.widths[step.out]) * (m - 1) / m
        if isinstance(step, steps.Linear) and step.x == program.input:
            landed = FLOAT_BYTES * size.nodes / world * program.widths[step.out] * others
            numbers = _NUMBER_BYTES * size.nodes * m / world
            add("world", "features", step.layer, landed + numbers, world - 1)
        elif isinstance(step, steps.Linear):
            given = size.tensor(program.widths[step.x]) * (m - 1) / m
            add("feature", "gemm", step.layer, given, m - 1)
        elif isinstance(step, EdgeStep):
            sent = FLOAT_BYTES * size.unique() * program.widths[step.x] / m
            groups = max(1, round(sent / size.group_bytes))
            axis = "world" if step.x == program.input else "graph"
            add("feature", "gemm", step.layer, convert, m - 1)
            for score in _scores(step, program, size):
                add(*score)
            add(axis, "spmm" if axis == "graph" else "features", step.layer, sent, groups * (p - 1))
    return found


def _requests(size: Size) -> float:
    """Bytes that say which rows of the other partitions are needed: a list of them, or bits."""
    index = 4 if size.nodes < 2**31 else 8
    bits = size.nodes / 8 * (size.graph - 1) / size.graph
    return min(index * size.unique(), bits)


def _scores(step: Step, program: Program, size: Size) -> list[tuple[str, str, int, float, float]]:
    """(axis, primitive, layer, bytes, messages) of the attention scores before a sum."""
    p, m, world = size.graph, size.feature, size.workers
    rest = size.nodes / p - size.nodes / world
    if isinstance(step, steps.Attend):
        heads = FLOAT_BYTES * size.heads(step.heads)
        return [
            ("feature", "scalars", step.layer, 2 * heads * rest, 2 * (m - 1)),
            ("graph", "scalars", step.layer, heads * size.unique(), p - 1),
        ]
    if isinstance(step, steps.PairAttend):
        pairs = FLOAT_BYTES * size.unique(world) * program.widths[step.key]
        groups = max(1, round(pairs / size.group_bytes))
        shares = FLOAT_BYTES * size.heads(step.heads) * (size.edges / p - size.edges / world)
        return [
            ("world", "sddmm", step.layer, pairs, groups * (world - 1)),
            ("feature", "sddmm", step.layer, shares, m - 1),
        ]
    return []
