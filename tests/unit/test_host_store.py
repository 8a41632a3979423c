"""Tensors in host memory, by a device that is as late with its copies as it may be."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch

from embertide.kernels import host_store
from embertide.kernels.host_store import HostStore, HostTensor
from tests.support.late_lanes import LateLanes

ROWS, WIDTH = 50, 11


@pytest.fixture
def lanes(monkeypatch: pytest.MonkeyPatch) -> LateLanes:
    monkeypatch.setattr(host_store, "CHUNK_BYTES", 4 * 16 * 4)
    return LateLanes(("to device", "to host"))


@pytest.fixture
def store(lanes: LateLanes) -> HostStore:
    return HostStore(lanes)


def values(rows: int = ROWS, width: int = WIDTH) -> torch.Tensor:
    return torch.arange(float(rows * width)).view(rows, width)


def written(store: HostStore, panel: int | None) -> HostTensor:
    """A tensor that has :func:`values`."""
    tensor = store.empty(ROWS, WIDTH, panel)
    tensor.write_rows(0, values())
    return tensor


@pytest.mark.parametrize("panel", [None, 4, 1])
def test_columns_and_rows_are_those_that_were_written(store: HostStore, panel: int | None) -> None:
    tensor = written(store, panel)
    for first, last in [(0, WIDTH), (0, 4), (4, 8), (8, 11), (2, 9), (5, 6)]:
        assert torch.equal(tensor.read_columns(first, last), values()[:, first:last])
    for first, last in [(0, ROWS), (0, 1), (17, 40), (20, 20)]:
        assert torch.equal(tensor.read_rows(first, last), values()[first:last])
    assert torch.equal(tensor.data.flatten(1)[:, :WIDTH], values())


@pytest.mark.parametrize(("first", "width"), [(0, 4), (4, 4), (8, 3), (4, 2), (6, 2), (8, 1)])
def test_columns_of_a_panel_are_set_and_no_others(store: HostStore, first: int, width: int) -> None:
    tensor, expected = written(store, 4), values()
    expected[:, first : first + width] = -values(ROWS, width)
    tensor.write_columns(first, -values(ROWS, width))
    assert torch.equal(tensor.read_rows(0, ROWS), expected)


def test_columns_of_several_panels_are_refused(store: HostStore) -> None:
    with pytest.raises(ValueError, match="columns 2 to 6 are in several panels of 4 columns"):
        store.empty(ROWS, WIDTH, 4).write_columns(2, values(ROWS, 4))


def test_the_next_part_comes_while_one_is_used(store: HostStore, lanes: LateLanes) -> None:
    tensor = written(store, 4)
    reads = [partial(tensor.read_columns, *span) for span in [(0, 4), (4, 8), (8, 11)]]
    parts, begun = [], []
    with store.mover() as mover:
        for part in mover.ahead(reads):
            parts.append(part)
            begun.append(lanes.begun["to device"])
    assert begun == [2, 3, 3]
    assert torch.equal(torch.cat(parts, 1), values())


def test_a_result_goes_while_the_next_is_computed_and_is_there_at_the_end(
    store: HostStore, lanes: LateLanes
) -> None:
    tensor = store.empty(ROWS, WIDTH, 4)
    with store.mover() as mover:
        for first in (0, 4, 8):
            mover.write(partial(tensor.write_columns, first), values()[:, first : first + 4])
        assert lanes.most["to host"] == 1
        assert torch.equal(tensor.data[:, 0], values()[:, :4])
        assert math.isnan(tensor.data[0, 2, 0]), "the last one was not waited for"
    assert torch.equal(tensor.data.flatten(1)[:, :WIDTH], values())


def test_what_goes_is_there_after_an_error(store: HostStore) -> None:
    tensor = store.empty(ROWS, WIDTH)

    def layer() -> None:
        with store.mover() as mover:
            mover.write(partial(tensor.write_rows, 0), values())
            raise RuntimeError("in a layer")

    with pytest.raises(RuntimeError, match="in a layer"):
        layer()
    assert torch.equal(tensor.data, values())


def test_memory_and_copies_are_counted(store: HostStore) -> None:
    first = written(store, 4)
    second = written(store, None)
    assert store.held == 4 * ROWS * (12 + 11), "the last panel is as wide as the others"
    second.read_rows(0, 10)
    assert (store.written, store.read) == (store.held, 4 * 10 * 11)
    first.close()
    first.close()
    assert (store.count, store.held, store.most) == (1, 4 * ROWS * 11, 4 * ROWS * 23)
    assert store.of(second.data) is second
