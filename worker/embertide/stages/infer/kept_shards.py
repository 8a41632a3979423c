"""Our shards of what an earlier run has kept, where its nodes may have had other dense ids."""

from __future__ import annotations

import torch

from embertide.kernels.memory import empty
from embertide.layouts import ROW_TYPES, Shard
from embertide.stages.infer.restoring import as_array, place_of
from embertide.stages.infer.taking_over import Refreshing
from embertide.stages.infer.unmoved import Unmoved
from embertide.steps.execution import Execution
from embertide.versions.layers.seals import Damaged, KeptTensor


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


def kept_unmoved(whole: Execution, refreshing: Refreshing, tensor: KeptTensor) -> Unmoved:
    """The exact rows of our shard that were kept beside it.

    Raises:
        Damaged: they are not what was written.
    """
    name = tensor.name
    (first, last), columns = place_of(whole, name, tensor.layout)
    kind = whole.tensors.type_of(name)
    before = refreshing.before[whole.program.types[name]][first:last]
    known = (before >= 0).nonzero().squeeze(1)
    old = before[known]
    like = as_array(torch.empty(0, dtype=kind)).dtype
    ids, values = refreshing.store.read_exact(tensor, _bounds(old), columns, like)
    rows = torch.from_numpy(ids)
    at = torch.searchsorted(old, rows).clamp(max=max(0, len(old) - 1))
    # Others were of nodes that are gone.
    there = old[at] == rows if len(old) else torch.zeros(len(rows), dtype=torch.bool)
    return Unmoved(known[at[there]], torch.from_numpy(values).view(kind)[there])


def _bounds(old: torch.Tensor) -> tuple[int, int]:
    """The range of some dense ids."""
    return (int(old.min()), int(old.max()) + 1) if len(old) else (0, 0)
