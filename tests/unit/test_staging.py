"""Copies to and from a device, by a device that is as late with them as it may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch

from embertide.kernels import staging
from embertide.kernels.staging import Staging

CPU = torch.device("cpu")
BUFFER_BYTES = 64


@dataclass
class LateCopies:
    """Copies in order, like a stream, but only what somebody waits for.

    Attributes:
        to_do: copies that were started and not made.
        pins: sizes that were pinned.
        waits: how often somebody waited for a copy that was not made.
    """

    to_do: list[Callable[[], object]] = field(default_factory=list)
    pins: list[int] = field(default_factory=list)
    waits: int = 0
    made: int = 0

    def pinned(self, size: int) -> torch.Tensor:
        self.pins.append(size)
        return torch.full((size,), 255, dtype=torch.uint8)

    def start(self, to: torch.Tensor, source: torch.Tensor) -> LateCopy:
        assert to.is_contiguous()
        assert source.is_contiguous()
        self.to_do.append(lambda: to.copy_(source))
        return LateCopy(self, self.made + len(self.to_do))

    def finish(self, number: int | None = None) -> None:
        """Make all copies up to that of a number."""
        while self.to_do and (number is None or self.made < number):
            self.to_do.pop(0)()
            self.made += 1


@dataclass(frozen=True)
class LateCopy:
    copies: LateCopies
    number: int

    def synchronize(self) -> None:
        self.copies.waits += self.copies.made < self.number
        self.copies.finish(self.number)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> LateCopies:
    monkeypatch.setattr(staging, "_BUFFER_BYTES", BUFFER_BYTES)
    return LateCopies()


def values(*shape: int) -> torch.Tensor:
    return torch.arange(float(torch.Size(shape).numel())).view(shape)


@pytest.mark.parametrize("rows", [0, 1, 2, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_what_is_uploaded_arrives(copies: LateCopies, rows: int, dtype: torch.dtype) -> None:
    given = values(rows, 3).to(dtype)
    expected = given.clone()
    found = Staging(CPU, copies).upload(given)
    given.fill_(0)
    copies.finish()
    assert found.dtype == dtype
    assert torch.equal(found, expected)


def test_columns_and_numbers_are_uploaded(copies: LateCopies) -> None:
    stage, table = Staging(CPU, copies), values(6, 4)
    found = [stage.upload(table[:, 1:3]), stage.upload(torch.tensor(7.0))]
    copies.finish()
    assert torch.equal(found[0], table[:, 1:3])
    assert found[1].item() == 7


def test_buffers_are_pinned_once_and_waited_for_when_they_are_needed_again(
    copies: LateCopies,
) -> None:
    stage = Staging(CPU, copies)
    several = [stage.upload(values(2, 3) + n) for n in range(4)]
    assert copies.waits == 0
    several += [stage.upload(values(2, 3) + n) for n in range(4, 12)]
    copies.finish()
    assert copies.pins == [BUFFER_BYTES] * 4
    assert copies.waits == 8
    assert all(torch.equal(found, values(2, 3) + n) for n, found in enumerate(several))


def test_the_next_rows_are_on_their_way_while_some_are_used(copies: LateCopies) -> None:
    given, under_way = values(7, 5), []
    parts = []
    for part in Staging(CPU, copies).batches(given, 3):
        parts.append(part.clone())
        under_way.append(len(copies.to_do))
    assert torch.equal(torch.cat(parts), given)
    assert [len(part) for part in parts] == [3, 3, 1]
    assert under_way == [1, 1, 0]


def test_rows_that_are_wider_than_a_buffer_get_a_larger_one(copies: LateCopies) -> None:
    given = values(3, BUFFER_BYTES)
    parts = [part.clone() for part in Staging(CPU, copies).batches(given, 1)]
    assert torch.equal(torch.cat(parts), given)


@pytest.mark.parametrize("shape", [(), (0, 3), (1, 3), (50, 3)])
def test_what_is_downloaded_arrives(copies: LateCopies, shape: tuple[int, ...]) -> None:
    assert torch.equal(Staging(CPU, copies).download(values(*shape)), values(*shape))


def test_buffers_from_the_layers_are_used_after_them(copies: LateCopies) -> None:
    stage = Staging(CPU, copies)
    with torch.inference_mode():
        layer = stage.upload(values(4))
        copies.finish()
    found = [part.clone() for part in stage.batches(layer, 1)]
    assert torch.equal(torch.cat(found), values(4))


def test_nothing_is_copied_for_tensors_on_the_cpu() -> None:
    stage, given = Staging(CPU), values(5, 2)
    assert stage.upload(given) is given
    assert stage.download(given) is given
    parts = list(stage.batches(given, 2))
    assert [part.data_ptr() for part in parts] == [given[at].data_ptr() for at in (0, 2, 4)]


def test_nothing_of_the_device_is_looked_at_on_the_way_there(copies: LateCopies) -> None:
    found = Staging(torch.device("meta"), copies).upload(values(30, 2))
    assert (found.device.type, found.shape) == ("meta", (30, 2))
    assert copies.waits == 0


def test_a_tensor_in_host_memory_is_not_staged(copies: LateCopies) -> None:
    stage, rows = Staging(torch.device("meta"), copies), values(50, 11)
    assert stage.download(rows) is rows
    assert [part.data_ptr() for part in stage.batches(rows, 30)] == [
        rows[at].data_ptr() for at in (0, 30)
    ]
    assert stage.indices(torch.tensor([3]), rows).device.type == "cpu"
    assert copies.made == len(copies.to_do) == 0
