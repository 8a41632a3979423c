"""Tensors on disk that change their layout: features that are put in order, tiles and rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from embertide.engine.stages.infer.disk_tensors import DiskTensors, blocks, write_block
from embertide.kernels.store import StoredTensor
from embertide.layouts import Layout
from embertide.program.plans.panels import (
    Panel,
    count_columns,
    panels,
    sorted_by_panels,
    stored_columns,
)
from embertide.program.plans.spill import Change, change_rows


def change(disk: DiskTensors, wanted: Change) -> None:
    """Store a tensor in another layout; what no operation reads any more is closed.

    Collective: every rank must call.
    """
    if wanted.origin == "loaded":
        if sorted_by_panels(disk.plan, wanted):
            _store_by_panels(disk, wanted)
        out = _landed(disk, wanted.name, wanted.to, wanted.layer)
    else:
        out = _converted(disk, wanted)
    if wanted.ends:
        disk.drop(wanted.name, wanted.origin)
    disk.add(wanted.name, wanted.to, out)


def _store_by_panels(disk: DiskTensors, wanted: Change) -> None:
    """Features panel by panel, in the order in which they were loaded."""
    loaded = disk.files[wanted.name, "loaded"]
    out = disk.copied(loaded, stored_columns(disk.plan, wanted.name, wanted.to))
    disk.drop(wanted.name, "loaded")
    disk.files[wanted.name, "loaded"] = out


def _landed(disk: DiskTensors, name: str, to: Layout, layer: int) -> StoredTensor:
    """Features in the order of their nodes, some columns at a time.

    Collective: every rank must call.
    """
    out = disk.new(name, to)

    def land(every: Sequence[Panel], stored: list[Panel]) -> None:
        _land_panels(disk, name, to, layer, out, every, stored)

    disk.widths.run(list(_columns(disk, name, to)), disk.plan.program.widths[name], land)
    return out


def _land_panels(
    disk: DiskTensors,
    name: str,
    to: Layout,
    layer: int,
    out: StoredTensor,
    every: Sequence[Panel],
    stored: list[Panel],
) -> None:
    """Some panels of features in the order of their nodes.

    Collective: every rank must call.
    """
    reads = (partial(disk.columns, name, "loaded", panel.each) for panel in every)
    with disk.scratch.mover() as mover:
        parts = mover.ahead(reads, after_writes=True)
        for panel in every:
            part = disk.of_widths({name: count_columns(panel.each)})
            tensors = part.tensors.part(part.program, [], loaded={name: next(parts)})
            landed = tensors.land(
                name, None, layout=to, width=part.program.widths[name], layer=layer
            )
            del tensors
            mover.write(partial(out.write_columns, panel.own.start), landed.data)
            stored.append(panel)
            del landed


def _columns(disk: DiskTensors, name: str, to: Layout) -> Iterator[Panel]:
    """Parts of features, of which whole rows are one slice."""
    plan, width = disk.plan, disk.plan.program.widths[name]
    if to == "tile":
        yield from panels(plan, width, disk.execution.grid.m)
        return
    step = stored_columns(plan, name, to)
    for first in range(0, width, step):
        columns = slice(first, min(first + step, width))
        yield Panel(columns, columns, (columns,))


def _converted(disk: DiskTensors, wanted: Change) -> StoredTensor:
    """A tile as rows, or rows as a tile, some rows at a time. Collective: every rank must call."""
    name, execution = wanted.name, disk.execution
    origin: Layout = "tile" if wanted.to == "rows" else "rows"
    out, node_type = disk.new(name, wanted.to), disk.plan.program.types[name]
    channel = execution.channel(wanted.layer, "feature", wanted.primitive)
    rows, ranges = change_rows(disk.plan, name), execution.ranges[node_type]
    every = list(blocks(ranges, execution.grid, rows))
    with disk.scratch.mover() as mover:
        parts = mover.ahead(partial(disk.block, name, origin, block) for block in every)
        for block, shard in zip(every, parts, strict=True):
            tensors = execution.tensors.part(
                disk.plan.program, [(name, shard)], ranges={node_type: block.ranges}
            )
            changed = tensors.converted(name, wanted.to, channel)
            mover.write(partial(write_block, out, block), changed)
    return out
