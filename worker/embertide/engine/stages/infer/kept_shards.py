"""Our shards of what an earlier run has kept, where its nodes may have had other dense ids."""

from __future__ import annotations

import torch

from embertide.engine.stages.infer.base import Refreshing
from embertide.engine.stages.infer.moved import Beside
from embertide.engine.stages.infer.restoring import as_array, place_of
from embertide.footprint import FLOAT_BYTES
from embertide.io.versions.layers.seals import Damaged, KeptTensor, Patch
from embertide.io.versions.layers.store import Range
from embertide.kernels.memory import empty
from embertide.layouts import ROW_TYPES, Shard
from embertide.program.steps.execution import Execution


def kept_shard(whole: Execution, refreshing: Refreshing, tensor: KeptTensor) -> Shard:
    """Our shard of the rows that were kept; of new nodes they mean nothing.

    Raises:
        Damaged: they are not what was written, or of another form.
    """
    name, store = tensor.name, refreshing.store
    kind, width = whole.tensors.type_of(name), whole.program.widths[name]
    if (tensor.width, ROW_TYPES.get(tensor.dtype)) != (width, kind):
        raise Damaged(f"{store.uri}: {name} has another width or type")
    (first, last), columns = place_of(whole, name, tensor.layout)
    before = refreshing.before[whole.program.types[name]][first:last]
    known = before >= 0
    old = before[known]
    low, high = _bounds(old)
    if high > tensor.rows:
        raise Damaged(f"{store.uri}: {name} has {tensor.rows} rows")
    rows = empty((high - low, columns[1] - columns[0]), kind)
    store.read(tensor, (low, high), columns, as_array(rows))
    if len(old) == last - first == high - low and bool((old.diff() == 1).all()):
        return Shard(tensor.layout, rows, width)
    out = empty((last - first, rows.shape[1]), kind)
    out[known] = rows[old - low]
    return Shard(tensor.layout, out, width)


def kept_exact(whole: Execution, refreshing: Refreshing, tensor: KeptTensor) -> Beside:
    """The exact rows that were kept beside our shard.

    Raises:
        Damaged: they are not what was written.
    """
    kind = whole.tensors.type_of(tensor.name)
    _, columns = place_of(whole, tensor.name, tensor.layout)
    return _beside(whole, refreshing, tensor, tensor.exact, columns, kind)


def kept_distances(whole: Execution, refreshing: Refreshing, tensor: KeptTensor) -> Beside:
    """[k, 1] float32, how far rows of our shard may be from what their layer makes; see
    :attr:`KeptTensor.bounds`.

    Raises:
        Damaged: they are not what was written.
    """
    kind = whole.tensors.type_of(tensor.name)
    _, (left, _) = place_of(whole, tensor.name, tensor.layout)
    columns = left, left + FLOAT_BYTES // kind.itemsize
    kept = _beside(whole, refreshing, tensor, tensor.bounds, columns, kind)
    return Beside(kept.rows, kept.values.contiguous().view(torch.float32))


def _beside(
    whole: Execution,
    refreshing: Refreshing,
    tensor: KeptTensor,
    blocks: Patch,
    columns: Range,
    kind: torch.dtype,
) -> Beside:
    (first, last), _ = place_of(whole, tensor.name, tensor.layout)
    before = refreshing.before[whole.program.types[tensor.name]][first:last]
    known = (before >= 0).nonzero().squeeze(1)
    old = before[known]
    like = as_array(torch.empty(0, dtype=kind)).dtype
    ids, values = refreshing.store.read_beside(blocks, _bounds(old), columns, like)
    rows = torch.from_numpy(ids)
    at = torch.searchsorted(old, rows).clamp(max=max(0, len(old) - 1))
    # Others were of nodes that are gone.
    there = old[at] == rows if len(old) else torch.zeros(len(rows), dtype=torch.bool)
    return Beside(known[at[there]], torch.from_numpy(values).view(kind)[there])


def _bounds(old: torch.Tensor) -> tuple[int, int]:
    """The range of some dense ids."""
    return (int(old.min()), int(old.max()) + 1) if len(old) else (0, 0)
