"""Column statistics: no cancellation, and nothing that depends on how rows are cut."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from embertide.kernels import moments
from embertide.kernels.nodewise import center_


@settings(max_examples=20)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=4), st.integers(1, 200))
def test_parts_give_what_the_whole_gives(sizes: list[int], chunk: int) -> None:
    """A small spread around a large mean, which a sum of squares in float64 would lose."""
    g = torch.Generator().manual_seed(sum(sizes))
    x = 3e9 * (1 + 1e-9 * torch.randn(sum(sizes), 3, generator=g, dtype=torch.float64))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(moments, "CHUNK_VALUES", chunk)
        parts = [moments.of_rows(part) for part in x.split(sizes)]
    found = moments.join(3, x.device, parts)
    assert found.count == len(x)
    if len(x):
        assert_near(found.mean, x.mean(0), 1e-14)
        assert_near(found.variance, x.var(0, correction=0), 1e-6)
        assert_near(found.over_all().mean, x.mean(), 1e-14)
        assert_near(found.over_all().variance, x.var(correction=0), 1e-6)


def test_the_order_of_additions_is_the_same_with_any_number_of_threads() -> None:
    x = torch.randn(20_000, 24, generator=torch.Generator().manual_seed(1))
    found = []
    usual = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(moments.of_rows(x))
    finally:
        torch.set_num_threads(usual)
    for other in found[1:]:
        assert torch.equal(other.mean, found[0].mean)
        assert torch.equal(other.squares, found[0].squares)


def test_what_is_centred_keeps_the_digits_that_it_has() -> None:
    """Floats near 10,000 are 0.001 apart; none of that may be lost by the norm itself."""
    x = 10_000 + torch.arange(64, dtype=torch.float32).reshape(-1, 1) / 1024
    found = moments.of_rows(x)
    wide = x.double()
    expected = (wide - wide.mean(0)) / wide.std(0, correction=0)
    factor = found.variance.rsqrt()
    error = center_(x.clone(), found.mean, factor, None) - expected
    assert float(error.abs().max()) < 1e-6
    naive = x * factor.float() - (found.mean * factor).float() - expected
    assert float(naive.abs().max()) > 1e-3


def assert_near(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    scale = float(expected.abs().max())
    assert float((found - expected).abs().max()) <= tolerance * scale
