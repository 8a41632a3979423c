"""Feature preparation that redistributes first, then computes (Deal, section 3.5, Fig. 21)."""

from __future__ import annotations

import torch

from benchmarks.engine import Engine
from embertide.grid import RowRanges


def redistribute_then_compute(
    engine: Engine,
    ranges: RowRanges,
    ids: torch.Tensor,
    rows: torch.Tensor,
    weight: torch.Tensor,
    batch_rows: int,
) -> torch.Tensor:
    """[N/P, D'/M]: loaded rows go to their owners as tiles, then through the first product.

    Collective: every rank must call.

    Args:
        ids: [n] the nodes whose rows we loaded, in no order.
        rows: [n, D].
        weight: [D', D].
    """
    tile = engine.land(ranges, ids, rows, None, batch_rows)
    return engine.gemm(ranges, tile, weight)
