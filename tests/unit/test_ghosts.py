"""Ghosts have the shapes and types that torch's tensors have, and count their bytes while they are
referred to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from embertide.kernels.ghost_store import GhostStore
from embertide.kernels.ghosts import Ledger, ghost
from embertide.kernels.memory import as_type, copy_of, empty_as
from embertide.kernels.nodewise import add_times_, head_dot
from embertide.kernels.scratch import Scratch
from embertide.kernels.segments import Reduce, Segments
from tests.support.measured import Measured

Of = Callable[[Any, Any], Any]
OPERATIONS: dict[str, Of] = {
    "sum": lambda x, y: x + y,
    "compare": lambda x, _: x[:, 0] != 0,
    "times a column": lambda x, y: x * y[:, :1],
    "columns": lambda x, _: x[:, 1:3],
    "rows": lambda x, _: x[2:5],
    "rows that count": lambda x, y: x[y[:, 0] == y[:, 0]],
    "beside": lambda x, y: torch.cat([x, y], 1),
    "below": lambda x, y: torch.cat([x, y]),
    "stacked": lambda x, y: torch.stack([x, y]),
    "heads": lambda x, _: x.reshape(x.shape[0], 2, -1).mean(1),
    "flat": lambda x, _: x.reshape(x.shape[0], 2, -1).flatten(1),
    "row norms": lambda x, _: torch.nn.functional.normalize(x, dim=1),
    "layer norm": lambda x, _: torch.nn.functional.layer_norm(x, x.shape[1:]),
    "product": lambda x, _: torch.nn.functional.linear(x, torch.zeros(7, 4)),
    "outer": lambda x, y: torch.einsum("nf,ng->fg", x, y),
    "wide": lambda x, _: x.double(),
    "narrow": lambda x, _: as_type(x, torch.bfloat16),
    "copy": lambda x, _: copy_of(x),
    "empty": lambda x, _: empty_as(x, x.shape[0], 3),
    "in place": lambda x, y: add_times_(x, y, 0.5),
    "head dots": lambda x, _: head_dot(x, torch.zeros(2, 2)),
    "largest": lambda x, _: x.amax(0),
    "spread": lambda x, _: x.amax(0).expand_as(x),
    "pieces": lambda x, _: x.split([1, 3], 1)[1],
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_ghost_has_the_shape_and_the_type_of_a_tensor(name: str) -> None:
    made = OPERATIONS[name](torch.ones(6, 4), torch.ones(6, 4))
    ledger = Ledger()
    found = OPERATIONS[name](ghost(ledger, (6, 4)), ghost(ledger, (6, 4)))
    assert (tuple(found.shape), found.dtype) == (tuple(made.shape), made.dtype)


def test_bytes_count_as_long_as_anything_refers_to_them() -> None:
    ledger = Ledger()
    x = ghost(ledger, (10, 4))
    some = x[:5]
    assert ledger.alive == 160
    del x
    assert ledger.alive == 160
    y = some + 1
    del some
    assert (ledger.alive, ledger.peak) == (80, 240)
    assert y.add_(1) is y
    assert ledger.alive == 80


def test_a_store_of_ghosts_counts_what_a_disk_moves(tmp_path: Path) -> None:
    """Panels of 4 of 10 columns, read across them, and blocks that a mover goes over."""
    rows, ghosts, disk = 3 * 1024, GhostStore(Ledger()), Scratch(tmp_path)
    for store in (ghosts, disk):
        file, whole = store.empty(rows, 10, 4), store.empty(rows, 10)
        for first in (0, 4, 8):
            file.write_columns(first, store.room(rows, min(4, 10 - first)))
        for first, last in ((0, 4), (2, 6), (8, 10), (0, 10)):
            file.read_columns(first, last)
            whole.read_columns(first, last)
        with store.mover() as mover:
            spans = [(0, 1024), (1024, 2048), (2048, 3072)]
            parts = mover.ahead(partial(file.read_rows, *span) for span in spans)
            for (first, _), part in zip(spans, parts, strict=True):
                mover.write(partial(whole.write_rows, first), part)
        file.close()
        assert store.of(whole.data) is whole
    counts = [(at.read, at.written, at.held, at.most, at.count) for at in (ghosts, disk)]
    assert counts[0] == counts[1]


@pytest.mark.parametrize(("staged", "most"), [(False, 3 + 2), (True, 3 + 2 + 3)])
def test_a_mover_of_ghosts_has_the_next_part_and_the_last_one(staged: bool, most: int) -> None:
    """A part of three columns makes two; a disk reads the next one when the last is written."""
    ledger = Ledger()
    store = GhostStore(ledger, staged)
    made, file = store.empty(100, 8, 2), store.empty(100, 12, 3)
    with store.mover() as mover:
        reads = (partial(file.read_columns, at, at + 3) for at in (0, 3, 6, 9))
        for part in mover.ahead(reads, after_writes=True):
            result = part[:, :2] * 1.0
            mover.write(partial(made.write_columns, 0), result)
            del part, result
    assert ledger.alive == 0
    # While one is computed.
    assert ledger.peak == 400 * (most + (2 if staged else 3))


def test_rows_may_be_a_fraction() -> None:
    ledger = Ledger()
    x = ghost(ledger, (10 / 3, 3))
    assert (x * 2).shape == (10 / 3, 3)
    assert ledger.peak == pytest.approx(2 * 40)


@pytest.mark.parametrize("reduce", get_args(Reduce))
def test_what_a_reduction_takes_is_what_is_measured(reduce: Reduce) -> None:
    """The result, counts, and what parts are merged by; those that a softmax ends with, too."""
    rows, ledger = 1 << 12, Ledger()
    with Measured() as measured:
        reduced(torch.empty(0), rows, reduce)
    reduced(ghost(ledger, (0,)), rows, reduce)
    # Truth values of rows without messages take a byte each.
    assert measured.peak == pytest.approx(ledger.peak, abs=rows)


def reduced(like: torch.Tensor, rows: int, reduce: Reduce) -> torch.Tensor:
    segments = Segments(reduce, like, rows, 6, 3)
    out = segments.finish()
    return torch.cat([out, segments.log_sums()], 1) if reduce == "softmax" else out
