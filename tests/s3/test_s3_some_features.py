"""The features of some nodes in a store: the ranges that have them are asked for."""

from __future__ import annotations

import io

import numpy as np
import pytest

from embertide.engine.stages.features import read_some_features
from embertide.io.storage.protocol import Storage
from tests.support.some_features import ROW, VALUES, read_later

pytestmark = pytest.mark.s3


def test_a_store_is_asked_for_the_ranges_alone(storage: Storage, root: str) -> None:
    wide = np.repeat(VALUES, 20, axis=0)
    held = io.BytesIO()
    np.save(held, wide)
    storage.write(f"{root}/x.npy", held.getvalue())
    ctx, nodes = read_later(storage, f"{root}/x.npy", "npy", count=len(wide), target=16 << 20)
    before = ctx.storage.stats.copy()
    rows = read_some_features(ctx, nodes, np.array([1, 60_000, 60_010]))
    assert np.array_equal(rows.numpy(), wide[[1, 60_000, 60_010]])
    read = ctx.storage.stats.bytes_read - before.bytes_read
    # And the header once for each split that has a row.
    assert read < 3 * (1 << 16) + 20 * ROW < wide.nbytes / 100
