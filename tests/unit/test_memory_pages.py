"""Pages of large tensors: kept for the next tensor of about the size, and given back."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from embertide.kernels import memory, native

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


@pytest.mark.parametrize("other", [10, 200])
def test_another_size_gives_idle_pages_back(other: int) -> None:
    memory.release_idle()
    before = resident()
    memory.empty((100 * MIB // 4,)).fill_(1)
    assert resident() >= before + 95
    kept = memory.empty((other * MIB // 4,))
    assert resident() < before + 60
    del kept


def test_idle_pages_are_released() -> None:
    memory.release_idle()
    before = resident()
    memory.empty((100 * MIB // 4,)).fill_(1)
    memory.release_idle()
    assert resident() < before + 60
