"""What all native kernels share: arrays of both libraries, threads, forks, and doing without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

from embertide.kernels import native
from tests.support.patience import WAIT_SECONDS

needs_native = pytest.mark.skipif(native.lib is None, reason=native.describe())


def test_kernels_are_compiled_where_there_is_a_compiler():
    if shutil.which(os.environ.get("CXX", "c++")) and os.environ.get("EMBERTIDE_NATIVE") != "0":
        assert native.lib is not None, "make setup could not compile the kernels"


@needs_native
def test_rows_of_torch_and_numpy_are_gathered():
    source, index = torch.randn(1000, 33), torch.randint(1000, (9000,))
    out = torch.empty(9000, 33)
    native.lib.gather_rows(out, source, index)
    assert torch.equal(out, source[index])
    of_numpy = np.empty((9000, 33), np.float32)
    native.lib.gather_rows(of_numpy, source.numpy(), index.numpy())
    assert np.array_equal(of_numpy, out.numpy())


@needs_native
def test_arrays_without_rows_are_taken():
    empty, none = np.empty((0, 33), np.float32), np.empty(0, np.int64)
    native.lib.gather_rows(empty, torch.from_numpy(empty), none)


@needs_native
def test_a_wrong_array_is_refused():
    with pytest.raises(TypeError):
        native.lib.gather_rows(torch.empty(2, 3).double(), torch.empty(2, 3), torch.zeros(2).long())
    with pytest.raises(ValueError, match="outside the rows"):
        native.lib.gather_rows(torch.empty(1, 3), torch.empty(2, 3), torch.tensor([2]))


@needs_native
def test_a_forked_child_has_threads_of_its_own():
    program = """
import os, numpy as np
from embertide.kernels import native
def work():
    native.lib.set_threads(3)
    source = np.random.rand(50000, 8).astype(np.float32)
    index = np.random.randint(50000, size=90000)
    out = np.empty((90000, 8), np.float32)
    native.lib.gather_rows(out, source, index)
    assert np.array_equal(out, source[index])
work()
child = os.fork()
work()
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], check=True, timeout=WAIT_SECONDS
    )


def test_kernels_can_be_left_out():
    program = "from embertide.kernels import native; print(native.lib, native.describe())"
    environment = os.environ | {"EMBERTIDE_NATIVE": "0", "LD_PRELOAD": ""}
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "None torch (EMBERTIDE_NATIVE=0)"
