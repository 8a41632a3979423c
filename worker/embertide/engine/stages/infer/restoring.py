"""Our shards of a layer that an earlier attempt or run has kept, read by range.

The grid may be another one: a shard is the rows and columns of ours, whichever workers wrote them.
Of an earlier run nodes may have had other dense ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy.typing as npt
import torch

from embertide.context import RunContext
from embertide.engine.stages.infer.excerpt import Excerpt
from embertide.engine.stages.infer.loop import Placement
from embertide.engine.stages.infer.moved import Beside
from embertide.errors import EmbertideError
from embertide.footprint import FLOAT_BYTES
from embertide.graph.objects import broadcast_object
from embertide.io.versions.layers import seals
from embertide.io.versions.layers.reading import Kept, Range
from embertide.io.versions.layers.seals import Damaged, KeptTensor, Seal
from embertide.io.versions.layers.store import LayerStore
from embertide.kernels.memory import empty
from embertide.layouts import ROW_TYPES, Layout, Shard
from embertide.program.plans.places import as_array, place_of
from embertide.program.steps.execution import Execution

NOT_USED = "a kept layer is not used, and is computed again: {why}"


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
    ctx: RunContext,
    execution: Execution,
    placement: Placement,
    store: LayerStore,
    seal: Seal,
    excerpt: Excerpt | None = None,
) -> dict[str, Shard] | None:
    """Read our shards of a layer's tensors to where they are placed; None where any rank cannot.

    Collective: every rank must call, and all get the same answer.

    Args:
        excerpt: of its nodes alone, to memory.
    """
    shards, why = dict[str, Shard](), ""
    try:
        kept = Kept(store, seal)
        for tensor in seal.tensors:
            check_form(execution, store, tensor, execution.ranges_of(tensor.name).nodes)
            layout = _layout(execution, tensor, seal.feature)
            if excerpt is None:
                read = partial(_fill, kept, tensor.name)
                shards[tensor.name] = placement.fill(tensor.name, layout, read)
            else:
                shards[tensor.name] = _some(execution, excerpt, kept, tensor.name, layout)
    except Damaged as error:
        why = str(error)
    problems = list(filter(None, ctx.exchange.all_objects(why)))
    if problems:
        if ctx.grid.rank == 0:
            _give_up(ctx, store, seal.name, problems[0])
        placement.let_go()
        return None
    return shards


def check_form(
    whole: Execution, store: LayerStore, tensor: KeptTensor, rows: int | None = None
) -> None:
    """Raise :class:`Damaged` where a tensor has another form or number of rows than here."""
    form = whole.program.widths[tensor.name], whole.tensors.type_of(tensor.name)
    if (tensor.width, ROW_TYPES.get(tensor.dtype)) != form or rows not in (None, tensor.rows):
        raise Damaged(f"{store.uri}: {tensor.name} has another shape or type than this run's")


def _fill(kept: Kept, name: str, rows: slice, columns: slice, out: npt.NDArray[Any]) -> None:
    kept.get(name, (rows.start, rows.stop), out, columns.start)


def _some(whole: Execution, excerpt: Excerpt, kept: Kept, name: str, layout: Layout) -> Shard:
    """Our shard of a tensor, with the nodes of an excerpt: whole where these are all."""
    (first, last), (left, right) = place_of(whole, name, layout)
    rows = first + excerpt.of_ours(whole, whole.program.types[name], layout)
    data = empty((len(rows), right - left), whole.tensors.type_of(name))
    wanted = (first, last) if len(rows) == last - first else rows.numpy()
    kept.get(name, wanted, as_array(data), left)
    return Shard(layout, data, whole.program.widths[name])


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


def kept_exact(
    whole: Execution, kept: Kept, before: Mapping[str, torch.Tensor], tensor: KeptTensor
) -> Beside:
    """The exact rows that were kept beside our shard.

    Raises:
        Damaged: they are not what was written.
    """
    _, columns = place_of(whole, tensor.name, tensor.layout)
    return _beside(whole, kept, before, tensor, "exact", columns)


def kept_distances(
    whole: Execution, kept: Kept, before: Mapping[str, torch.Tensor], tensor: KeptTensor
) -> Beside:
    """[k, 1] float32, how far rows of our shard may be from what their layer makes; see
    :attr:`KeptTensor.bounds`.

    Raises:
        Damaged: they are not what was written.
    """
    kind = whole.tensors.type_of(tensor.name)
    _, (left, _) = place_of(whole, tensor.name, tensor.layout)
    columns = left, left + FLOAT_BYTES // kind.itemsize
    rows = _beside(whole, kept, before, tensor, "bounds", columns)
    return Beside(rows.rows, rows.values.contiguous().view(torch.float32))


def _beside(
    whole: Execution,
    kept: Kept,
    before: Mapping[str, torch.Tensor],
    tensor: KeptTensor,
    of: seals.Beside,
    columns: Range,
) -> Beside:
    (first, last), _ = place_of(whole, tensor.name, tensor.layout)
    then = before[whole.program.types[tensor.name]][first:last]
    known = (then >= 0).nonzero().squeeze(1)
    old, kind = then[known], whole.tensors.type_of(tensor.name)
    like = as_array(torch.empty(0, dtype=kind)).dtype
    ids, values = kept.beside(tensor.name, of, _bounds(old), columns, like)
    rows = torch.from_numpy(ids)
    at = torch.searchsorted(old, rows).clamp(max=max(0, len(old) - 1))
    # Others were of nodes that are gone.
    there = old[at] == rows if len(old) else torch.zeros(len(rows), dtype=torch.bool)
    return Beside(known[at[there]], torch.from_numpy(values).view(kind)[there])


def _bounds(old: torch.Tensor) -> tuple[int, int]:
    """The range of some dense ids."""
    return (int(old.min()), int(old.max()) + 1) if len(old) else (0, 0)
