"""What all native kernels share: arrays of both libraries, threads, forks, and doing without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from embertide.kernels import native
from tests.support.patience import WAIT_SECONDS

needs_native = pytest.mark.skipif(native.lib is None, reason=native.describe())


def test_kernels_are_compiled_where_there_is_a_compiler():
    if shutil.which(os.environ.get("CXX", "c++")) and os.environ.get("EMBERTIDE_NATIVE") != "0":
        assert native.lib is not None, "make setup could not compile the kernels"


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
