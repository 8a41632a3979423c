"""A value of an activation has the same bits wherever it stands, and however many there are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
import torch
from torch.nn import functional

from embertide.kernels import nodewise
from embertide.kernels.nodewise import activate_

KINDS = ("silu", "tanh", "sigmoid", "softplus", "gelu", "gelu_tanh", "relu", "leaky_relu")
COUNT = 5000


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def values(count: int = COUNT) -> torch.Tensor:
    """Of every size, with infinities and what is no number."""
    g = torch.Generator().manual_seed(1)
    every = torch.randn(count, generator=g) * torch.logspace(-6, 2, count)
    every[:3] = torch.tensor([float("inf"), float("-inf"), float("nan")])
    return every[torch.randperm(count, generator=g)]


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.int32)


@cache
def alone_bits(kind: str) -> torch.Tensor:
    """Each value alone, the first of a vector of zeros."""
    every = values()
    rows = torch.zeros(len(every), 64)
    rows[:, 0] = every
    for row in rows:
        activate_(row.unsqueeze(0), kind, 0.01)
    return bits(rows[:, 0].clone())


@pytest.mark.parametrize("kind", KINDS)
def test_values_have_their_bits_at_all_positions_and_counts(kind: str, threads: int) -> None:
    every = values()
    alone = alone_bits(kind)
    for first in range(40):
        for count in (1, 2, 7, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 129, 200):
            part = slice(first, first + count)
            x = every[part].clone().reshape(-1, 1)
            assert torch.equal(bits(activate_(x, kind, 0.01).flatten()), alone[part])
            # In place, not at the beginning of its memory.
            whole = every.clone()
            activate_(whole[part].unsqueeze(0), kind, 0.01)
            assert torch.equal(bits(whole[part]), alone[part])
            assert torch.equal(bits(whole[part.stop :]), bits(every[part.stop :]))
            assert torch.equal(bits(whole[:first]), bits(every[:first]))


@pytest.mark.tier(2)
@pytest.mark.parametrize("kind", KINDS)
def test_values_have_their_bits_in_the_parts_of_all_threads(kind: str, threads: int) -> None:
    every = values()
    alone = alone_bits(kind)
    some, shared = nodewise._THREAD_VALUES, threads * nodewise._SHARED_VALUES
    for count in (
        some - 1,
        some + 1,
        3 * some + 1,
        shared - 5,
        shared + 77,
        3 * shared + some + 13,
    ):
        for first in (0, 3):
            order = (torch.arange(count) + first) % COUNT
            x = torch.cat([torch.zeros(first), every[order]])[first:].view(1, -1)
            assert torch.equal(bits(activate_(x, kind, 0.01)[0]), alone[order])


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_wider_rows_are_changed_in_place(kind: str) -> None:
    every = values(960).view(60, 16)
    rows, part = every.clone(), slice(3, 10)
    activate_(rows[:, part], kind, 0.01)
    whole = activate_(every.clone(), kind, 0.01)
    assert torch.equal(bits(rows[:, part]), bits(whole[:, part]))
    assert torch.equal(bits(rows[:, :3]), bits(every[:, :3]))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "relu" not in kind])
def test_values_are_those_of_torch(kind: str) -> None:
    every = values()
    name, more = kind.partition("_")[::2]
    function = getattr(functional, name)
    answer = activate_(every.clone().view(100, 50), kind, 0.0).flatten()
    exact = function(every, **({"approximate": "tanh"} if more else {}))
    assert torch.allclose(answer, exact, rtol=1e-5, atol=1e-6, equal_nan=True)
