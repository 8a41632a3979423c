"""Of what was kept the pages are read that have rows that are needed, and these are checked."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embertide.engine.stages.infer import stale
from embertide.graph.exchange import Exchange
from embertide.io.versions.layers import reading, seals
from embertide.program.steps import Aggregate, Program
from tests.support.ranks import on_grid
from tests.support.refreshed import Answer, Day, Days
from tests.support.world import NODES, Graph

pytestmark = pytest.mark.distributed

NEAR, FAR = 10, 80
"""A node whose features change, and one that is far from it along the edges."""


class SpoiltDays(Days):
    """After the first day a row of each tensor between two layers is not what was written."""

    def _refresh(self, *args: Any) -> None:
        super()._refresh(*args)
        *_, before, _ = args
        if before is None and self.exchange.grid.rank == 0:
            spoil(Path(self.uri.removeprefix("file://")), FAR)
        self.exchange.barrier()


def spoil(folder: Path, row: int) -> None:
    """Change a byte of a row in every tensor of all layers but the last."""
    for path in folder.rglob("*.seal.json"):
        key, name = path.parent.name, path.name.removesuffix(".seal.json")
        seal = seals.from_bytes(path.as_uri(), path.read_bytes(), key, name)
        for of, block, _ in seal.stored() if 0 < seal.layer < seal.layers else ():
            if block.first <= row < block.last:
                at = path.parents[1] / of / block.path
                data = bytearray(at.read_bytes())
                data[(row - block.first) * 4 * (block.right - block.left)] ^= 1
                at.write_bytes(data)


def night_after_night(
    exchange: Exchange, days: list[Day], uri: str, **given: float
) -> list[Answer]:
    """Two rows a page, and no row is computed that need not be."""
    seals.PAGE_BYTES, reading.LOCAL_GAP_BYTES, stale.AUDITED_ROWS = 40, 0, 0
    steps = tuple(
        Aggregate(out=out, layer=layer, x=x, norm="in", loops="single")
        for layer, (x, out) in enumerate((("x", "a"), ("a", "b"), ("b", "c")))
    )
    program = Program(
        steps=steps, params={}, widths=dict.fromkeys("xabc", 5), layers=3, results={"": "c"}
    )
    # What is kept is not read to be judged.
    inference = {"rows": "float32"}
    return SpoiltDays(exchange, program, False, uri, inference, **given).run(days)


@pytest.mark.parametrize("grid", [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("given", [{}, {"tolerance": 1e-4, "max_error": 0.5}])
def test_a_page_that_is_not_what_was_written_is_found_when_it_is_needed(
    given: dict[str, float], grid: tuple[int, int], tmp_path: Path
) -> None:
    line, ids = Graph(np.arange(NODES - 1), np.arange(1, NODES)), np.arange(NODES)
    days = [Day(line, ids, moved) for moved in ((), (NEAR,), (NEAR, FAR))]
    uri = tmp_path.as_uri()
    every = on_grid(*grid, partial(night_after_night, **given), days, uri, one_host=True)
    for _, untouched, needed in every:
        assert untouched.why == ""
        assert 0 < untouched.edges < 0.2 * untouched.all_edges
        assert needed.why.endswith("does not match its checksum")
        for answer in (untouched, needed):
            assert answer.beyond == 0
            rows, tolerance = answer.rows, given.get("tolerance", 0.0)
            assert rows is not None
            assert np.allclose(rows, answer.whole, rtol=10 * tolerance, atol=10 * tolerance)
