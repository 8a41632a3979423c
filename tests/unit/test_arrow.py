"""Numbers between numpy and arrow: the same memory, and pandas is left alone."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from embertide.kernels.arrow import to_arrow, to_numpy


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "u8", "f2", "f4", "f8"])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_numbers_there_and_back_over_the_same_memory(dtype: str, count: int) -> None:
    values = np.arange(count).astype(dtype)
    array = to_arrow(values)
    assert array.type == pa.from_numpy_dtype(values.dtype)
    assert array.to_pylist() == values.tolist()
    for some, expected in [(array, values), (array[1:], values[1:])]:
        found = to_numpy(some)
        assert found.dtype == values.dtype
        assert found.tolist() == expected.tolist()
        assert not len(found) or np.shares_memory(found, values)


def test_columns_of_a_matrix_and_booleans_are_copied() -> None:
    matrix = np.arange(6).reshape(3, 2)
    assert to_arrow(matrix[:, 1]).to_pylist() == [1, 3, 5]
    held = to_arrow(np.array([True, False, True]))
    assert to_numpy(held).tolist() == [True, False, True]


def test_nulls_become_nan() -> None:
    found = to_numpy(pa.array([1.5, None], pa.float32()))
    assert found[0] == 1.5
    assert np.isnan(found[1])


def test_no_pandas() -> None:
    code = (
        "import sys, numpy, embertide.kernels.arrow as a\n"
        "a.to_numpy(a.to_arrow(numpy.arange(3)))\n"
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
