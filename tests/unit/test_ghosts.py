"""Ghosts have the shapes and types that torch's tensors have, and count their bytes while they are
referred to."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from embertide.kernels.ghosts import Ledger, ghost, let_go, seen
from embertide.kernels.memory import as_type, copy_of, empty_as
from embertide.kernels.nodewise import add_times_, head_dot
from embertide.kernels.segments import Reduce, Segments

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


def test_a_tensor_that_is_counted_by_its_name_counts_once_it_has_none() -> None:
    named = 40.0
    ledger = Ledger(lambda: named)
    x = seen(ledger, (10, 1), torch.float32)
    view = x[:]
    assert (ledger.alive, ledger.peak) == (0, 40)
    named = 0.0
    let_go(x)
    del x
    assert ledger.alive == 40
    del view
    assert (ledger.alive, ledger.peak) == (0, 40)


def test_rows_may_be_a_fraction() -> None:
    ledger = Ledger()
    x = ghost(ledger, (10 / 3, 3))
    assert (x * 2).shape == (10 / 3, 3)
    assert ledger.peak == pytest.approx(2 * 40)


class Measured(TorchDispatchMode):
    """Bytes of the tensors that are alive, and the most that ever were."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive = self.peak = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self._note(tensor.untyped_storage())
        return made

    def _note(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata not in self._sizes:
            self._sizes[storage._cdata] = storage.nbytes()
            self.alive += storage.nbytes()
            self.peak = max(self.peak, self.alive)
            weakref.finalize(storage, self._gone, storage._cdata)

    def _gone(self, at: int) -> None:
        self.alive -= self._sizes.pop(at)


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
