"""Pages of large tensors: kept for the next tensor of about the size, and given back."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from embertide.kernels import memory, native, pages

MIB = 1 << 20

pytestmark = pytest.mark.skipif(native.lib is None, reason="torch has its own memory")


def resident() -> int:
    """MiB of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE // MIB


def test_pages_are_used_again_by_a_tensor_of_about_the_size() -> None:
    memory.release_idle()
    first = memory.empty((40 * MIB // 4,))
    address = first.data_ptr()
    del first
    assert memory.empty((39 * MIB // 4,)).data_ptr() == address


def test_pages_in_use_are_nobody_elses() -> None:
    first = memory.empty((10 * MIB // 4,)).fill_(1)
    second = memory.empty((10 * MIB // 4,)).fill_(2)
    assert first.data_ptr() != second.data_ptr()
    assert first.max() == 1


@pytest.mark.parametrize("sizes", [(100,), (16, 50, 34), (30, 90)])
def test_a_larger_tensor_takes_pages_of_smaller_ones(sizes: tuple[int, ...]) -> None:
    memory.release_idle()
    before = resident()
    smaller = [memory.empty((size * MIB // 4,)).fill_(1) for size in sizes]
    del smaller
    larger = memory.empty((160 * MIB // 4,))
    assert int(larger.sum()) == sum(sizes) * MIB // 4, "what was never touched is zero"
    larger.fill_(2)
    assert resident() < before + 175


def test_a_smaller_tensor_leaves_the_rest_of_the_pages_to_others() -> None:
    memory.release_idle()
    before = resident()
    memory.empty((100 * MIB // 4,)).fill_(1)
    tensors = [memory.empty((30 * MIB // 4,)).fill_(number) for number in (2, 3, 4)]
    assert resident() < before + 115
    assert [int(one.min()) for one in tensors] == [2, 3, 4]
    assert [int(one.max()) for one in tensors] == [2, 3, 4]
    del tensors
    memory.release_idle()
    assert resident() < before + 60


def test_idle_pages_are_released() -> None:
    memory.release_idle()
    before = resident()
    memory.empty((100 * MIB // 4,)).fill_(1)
    memory.release_idle()
    assert resident() < before + 60


def test_only_some_idle_pages_are_released() -> None:
    memory.release_idle()
    before = resident()
    tensors = [memory.empty((50 * MIB // 4,)).fill_(number) for number in (1, 2)]
    del tensors
    memory.release_idle(69 * MIB)
    assert 28 <= resident() - before < 40
    assert int(memory.empty((30 * MIB // 4,)).fill_(5).max()) == 5
    assert resident() - before < 40, "what was left is used first"
    memory.release_idle()
    assert resident() < before + 10


def test_small_arrays_share_pages_and_leave_them_together() -> None:
    memory.release_idle()
    before = resident()
    shared = pages.Pages()
    arrays = [shared.take(MIB // 4, np.int32) for _ in range(60)]
    for number, array in enumerate(arrays):
        array[:] = number
    assert [(int(array.min()), int(array.max())) for array in arrays] == [
        (number, number) for number in range(60)
    ]
    assert all(array.ctypes.data % 64 == 0 for array in arrays)
    del arrays, array, shared
    memory.empty((60 * MIB // 4,)).fill_(1)
    assert resident() < before + 75


@pytest.mark.parametrize("count", [0, 1, 3 * MIB, 9 * MIB])
def test_an_array_of_any_size_can_be_taken(count: int) -> None:
    taken = pages.Pages().take(count, np.int64)
    taken[:] = 7
    assert taken.shape == (count,)
    assert taken.sum() == 7 * count
