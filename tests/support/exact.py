"""What exact means: the one place that compares embeddings with the float64 reference."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

TOLERANCE = 1e-5
"""Largest error allowed, as a share of the largest magnitude."""
UNIT = 2.0**-8
"""The most that rounding to bfloat16 changes a value by, as a share of it."""


def relative_error(found: npt.ArrayLike, expected: npt.ArrayLike) -> float:
    """The largest error as a share of the largest magnitude expected; NaN if any value is.

    Both are [N, D'], arrays or tensors.
    """
    computed, reference = np.asarray(found), np.asarray(expected)
    assert computed.shape == reference.shape
    return float(np.abs(computed - reference).max() / np.abs(reference).max())


def assert_exact(found: npt.ArrayLike, expected: npt.ArrayLike) -> None:
    """``found`` [N, D'] is what the float64 reference gives, up to float32's rounding."""
    error = relative_error(found, expected)
    assert error <= TOLERANCE, f"off by {error:.1e} of the largest magnitude expected"
