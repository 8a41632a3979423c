"""Whether what was read is whole and enough, once it is read and nothing is computed."""

from __future__ import annotations

from collections.abc import Mapping

from embertide.context import RunContext
from embertide.engine.planning.inputs import Inputs
from embertide.engine.planning.listings import check_listings
from embertide.engine.planning.sizes import (
    ReadRows,
    check_least,
    check_shrink,
    last_rows,
    planned_rows,
    rows_are_counted,
)
from embertide.facts.telemetry.progress import Progress
from embertide.graph.shuffle import Edges
from embertide.io.readers.edges import count_edges, splits_at_once
from embertide.io.readers.pool import map_splits
from embertide.io.readers.splits import assign_splits
from embertide.io.storage.protocol import ObjectInfo
from embertide.spec.edges import EdgeInput
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.relations import Relation


def check_read(ctx: RunContext, inputs: Inputs, edges: Mapping[Relation, Edges]) -> ReadRows:
    """Count the edges that metadata does not tell, and refuse too few; returns what was read.

    Edges that the model does not read are read for their number where the job limits it.

    Collective: every rank must call, and all do the same.

    Raises:
        InputTooSmall: on rank 0; there are fewer edges than minEdges or maxShrink allow.
        InputError: edges that are read for their number alone are unreadable.
    """
    planned = planned_rows(ctx.job, inputs)
    texts = [
        edge
        for edge in ctx.job.spec.input.edges
        if rows_are_counted(edge)
        and (edge.relation in edges or _is_limited(ctx.job, edge))
        and str(edge.relation) not in inputs.absent
    ]
    if not texts:
        return planned
    mine = [
        edges[edge.relation].rows if edge.relation in edges else _count(ctx, edge, inputs)
        for edge in texts
    ]
    names = [str(edge.relation) for edge in texts]
    gathered = zip(*ctx.exchange.all_objects(mine), strict=True)
    counts = dict(zip(names, map(sum, gathered), strict=True))
    rows = ReadRows({**planned.edges, **counts}, planned.nodes)
    if ctx.grid.rank == 0:
        check_least(ctx.job, rows)
        if ctx.job.spec.input.max_shrink is not None:
            last = last_rows(ctx.storage, ctx.job)
            check_shrink(
                ctx.job, rows, last, lambda text: ctx.report(Progress("ingest", message=text))
            )
    return rows


def _is_limited(job: EmbeddingJob, edge: EdgeInput) -> bool:
    """Whether the job says how many edges of a type there have to be."""
    return edge.min_edges is not None or job.spec.input.max_shrink is not None


def _count(ctx: RunContext, edge: EdgeInput, inputs: Inputs) -> int:
    """Rows of our share of edges that the model does not read."""
    splits = inputs.by_edges[str(edge.relation)]
    mine = assign_splits(splits, ctx.grid.world)[ctx.grid.rank]
    at_once = splits_at_once(mine, ctx.threads)
    return sum(map_splits(mine, lambda split: count_edges(ctx.storage, edge, split), at_once))


def check_unchanged(ctx: RunContext, inputs: Inputs) -> list[str]:
    """List the inputs again on rank 0, once all is read; returns warnings about new objects.

    Raises:
        InputChanged: on rank 0; something was written to an input while it was read.
    """
    if ctx.grid.rank > 0:
        return []
    read = {
        item["uri"]: ObjectInfo(item["uri"], item["size"], item["etag"])
        for item in inputs.objects()
        if item["kind"] != "model"  # rank 0 compares its digest with that of the plan
    }
    strict = ctx.job.spec.input.new_objects == "refuse"
    return check_listings(ctx.storage, inputs.listings, read, strict=strict, fitted=inputs.fitted)
