"""What the fork server leaves out of torch, and that it can be had all the same."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.distributed

PROGRAM = """
import sys
import embertide.launch.preload
import torch
assert "torch._meta_registrations" not in sys.modules, "it is imported"
assert not hasattr(torch, "_meta_registrations"), "something else is in its place"
import torch._meta_registrations
assert torch._meta_registrations.__file__
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode():
    assert torch.linalg.cross(torch.empty(2, 3), torch.empty(2, 3)).shape == (2, 3)
"""


def test_what_is_left_out_is_imported_later() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
