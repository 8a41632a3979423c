"""Our shards of a layer that an earlier attempt has kept, read by range.

The grid may be another one: a shard is the rows and columns of ours, whichever workers wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from embertide.context import RunContext
from embertide.errors import EmbertideError
from embertide.graph.objects import broadcast_object
from embertide.grid import ColumnSlices
from embertide.io.versions.layers.seals import Damaged, KeptTensor, Seal
from embertide.io.versions.layers.store import LayerStore, Range
from embertide.kernels.memory import empty
from embertide.layouts import ROW_TYPES, Layout, Shard
from embertide.program.steps.execution import Execution

NOT_USED = "a kept layer is not used, and is computed again: {why}"
_AS_NUMBERS = {torch.float32: torch.float32, torch.bfloat16: torch.int16}
"""numpy has no bfloat16; its bits are as good."""


@dataclass(frozen=True)
class Restored:
    """Our shards of a kept layer's tensors, by name, and those whose rows are multiplied already
    by the factors of the sum that reads them."""

    shards: dict[str, Shard]
    scaled: list[str]


def as_array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """A tensor on the CPU as numpy has it, in the same memory."""
    return tensor.view(_AS_NUMBERS[tensor.dtype]).numpy()


def place_of(execution: Execution, name: str, layout: Layout) -> tuple[Range, Range]:
    """The rows and columns of a tensor that we have in a layout."""
    grid, ranges = execution.grid, execution.ranges_of(name)
    width = execution.program.widths[name]
    if layout == "rows":
        return ranges.worker(grid.rank), (0, width)
    return ranges.partition(grid.p), ColumnSlices(width, grid.feature).bounds(grid.m)


def find_layer(
    ctx: RunContext, store: LayerStore, names: Sequence[str], touched: Callable[[str], str]
) -> Seal | None:
    """The record of the last complete layer, which rank 0 reads; None where there is none.

    Collective: every rank must call.

    Args:
        names: of the layers, in order.
        touched: says what of the inputs was written to since an attempt began, "" for nothing.
    """
    seal = _last_sealed(ctx, store, names, touched) if ctx.grid.rank == 0 else None
    found = None if seal is None else seal.to_json()
    if ctx.grid.world > 1:
        found = broadcast_object(found, ctx.grid.rank)
    return None if found is None else Seal.from_json(found)


def _last_sealed(
    ctx: RunContext, store: LayerStore, names: Sequence[str], touched: Callable[[str], str]
) -> Seal | None:
    """The record of the last complete layer that may be used."""
    try:
        if not store.is_there():
            return None
    except EmbertideError as error:
        ctx.graph_facts.kept.warn(NOT_USED.format(why=error))
        return None
    for name in reversed(names):
        try:
            seal = store.sealed(name)
            if seal is not None and (change := touched(seal.version)):
                raise Damaged(change)
        except Damaged as error:
            _give_up(ctx, store, name, str(error))
            continue
        if seal is not None:
            return seal
    return None


def restore(
    ctx: RunContext, execution: Execution, store: LayerStore, seal: Seal
) -> Restored | None:
    """Read our shards of a layer's tensors; None where any rank cannot.

    Collective: every rank must call, and all get the same answer.
    """
    shards, why = {}, ""
    try:
        for tensor in seal.tensors:
            shards[tensor.name] = _read(execution, store, tensor, seal.feature)
    except Damaged as error:
        why = str(error)
    problems = list(filter(None, ctx.exchange.all_objects(why)))
    if problems:
        if ctx.grid.rank == 0:
            _give_up(ctx, store, seal.name, problems[0])
        return None
    return Restored(shards, [tensor.name for tensor in seal.tensors if tensor.scaled])


def _read(execution: Execution, store: LayerStore, tensor: KeptTensor, feature: int) -> Shard:
    """Our shard of a tensor, on the device."""
    nodes = execution.ranges_of(tensor.name).nodes
    width = execution.program.widths[tensor.name]
    kind = execution.tensors.type_of(tensor.name)
    if (tensor.rows, tensor.width, ROW_TYPES[tensor.dtype]) != (nodes, width, kind):
        raise Damaged(f"{store.uri}: {tensor.name} has another shape or type than this run's")
    layout = _layout(execution, tensor, feature)
    rows, columns = place_of(execution, tensor.name, layout)
    data = empty((rows[1] - rows[0], columns[1] - columns[0]), kind)
    store.read(tensor, rows, columns, as_array(data))
    return Shard(layout, execution.exchange.staging.upload(data), width)


def _layout(execution: Execution, tensor: KeptTensor, feature: int) -> Layout:
    """As a run that computes the layer has it: one that has no slices does not tell."""
    if execution.grid.feature == 1 or feature > 1:
        return tensor.layout
    return "rows" if execution.program.wants_rows(tensor.name) else "tile"


def _give_up(ctx: RunContext, store: LayerStore, name: str, why: str) -> None:
    """Warn, and make the layer incomplete, so that it can be sealed again."""
    ctx.graph_facts.kept.warn(NOT_USED.format(why=why))
    try:
        store.drop(name)
    except EmbertideError as error:
        ctx.graph_facts.kept.warn(f"the record of that layer could not be removed: {error}")


def shape_of(place: tuple[Range, Range]) -> tuple[int, int]:
    """Rows and columns of a place."""
    (first, last), (left, right) = place
    return last - first, right - left


def contiguous(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """A tensor's values as numpy has them, row by row; the same memory where they lie so."""
    return np.ascontiguousarray(as_array(tensor))
