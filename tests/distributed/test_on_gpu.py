"""Every model gives on a GPU, on every grid, what the float64 reference gives in one process.

All ranks share one GPU and talk over NCCL's sockets.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.modes import Mode
from tests.support.same import cases_of, same

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize(
    ("grid", "panel"),
    [((1, 1), 0), ((2, 1), 0), ((1, 2), 0), ((2, 2), 0), ((3, 1), 0),
     ((1, 1), 4), ((2, 1), 5), ((1, 2), 3), ((2, 2), 3)],
)  # fmt: skip
def test_every_model_is_exact(grid: tuple[int, int], panel: int, tmp_path: Path) -> None:
    """Each row is computed a second time; with a panel, tensors are in host memory."""
    mode = Mode(name="on a GPU", storage="host" if panel else "memory", panel=panel)
    same(cases_of("models"), grid, mode, tmp_path, device="cuda")
