"""Whether as much was read as the job demands, once all edges are read and nothing is computed."""

from __future__ import annotations

from collections.abc import Mapping

from embertide.context import RunContext
from embertide.planning.inputs import Inputs
from embertide.planning.sizes import (
    TEXT_FORMATS,
    ReadRows,
    check_least,
    check_shrink,
    last_rows,
    planned_rows,
)
from embertide.primitives.shuffle import Edges
from embertide.spec.relations import Relation
from embertide.telemetry.progress import Progress


def check_read(ctx: RunContext, inputs: Inputs, edges: Mapping[Relation, Edges]) -> ReadRows:
    """Count the edges that metadata does not tell, and refuse too few; returns what was read.

    Collective: every rank must call, and all do the same.

    Raises:
        InputTooSmall: on rank 0; there are fewer edges than minEdges or maxShrink allow.
    """
    planned = planned_rows(ctx.job, inputs)
    texts = [
        edge.relation
        for edge in ctx.job.spec.input.edges
        if edge.format in TEXT_FORMATS and edge.relation in edges
    ]
    if not texts:
        return planned
    gathered = ctx.exchange.all_objects([edges[relation].rows for relation in texts])
    counts = dict(zip(map(str, texts), map(sum, zip(*gathered, strict=True)), strict=True))
    rows = ReadRows({**planned.edges, **counts}, planned.nodes)
    if ctx.grid.rank == 0:
        check_least(ctx.job, rows)
        if ctx.job.spec.input.max_shrink is not None:
            last = last_rows(ctx.storage, ctx.job)
            check_shrink(
                ctx.job, rows, last, lambda text: ctx.report(Progress("ingest", message=text))
            )
    return rows
