"""Feature preparation that redistributes first, then computes (Deal, section 3.5, Fig. 21)."""

from __future__ import annotations

import torch

from benchmarks.engine import Engine
from embertide.grid import RowRanges
from embertide.kernels.csr import Csr


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


def redistribute_then_sum(
    engine: Engine,
    ranges: RowRanges,
    csr: Csr,
    ids: torch.Tensor,
    rows: torch.Tensor,
    *,
    batch_rows: int,
    group_rows: int,
) -> torch.Tensor:
    """[N/P, D/M]: loaded rows go to their owners as tiles, whose in-neighbours are summed then.

    Collective: every rank must call.

    Args:
        csr: of our partition.
        ids: [n] the nodes whose rows we loaded, in no order.
        rows: [n, D].
        group_rows: slots of a group of the sum.
    """
    tile = engine.land(ranges, ids, rows, None, batch_rows)
    return engine.spmm(engine.tile_sources(ranges, csr, group_rows), tile)
