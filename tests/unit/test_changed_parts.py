"""Of features of which some parts have changed, the rows of these alone are digested."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from embertide.engine.planning.row_inputs import RowInputs
from embertide.engine.stages.changes import (
    EarlierDigests,
    OwnNodes,
    RowDigests,
    find_changes,
    keep_digests,
)
from embertide.engine.stages.changes.digests import read_words
from embertide.facts.telemetry.recorder import CountingRecorder
from embertide.graph.exchange import Exchange
from embertide.grid import Grid, RowRanges
from embertide.io.storage.opening import open_storage
from embertide.io.versions.layers.reading import Kept
from embertide.io.versions.layers.store import LayerStore
from embertide.layouts import Loaded, ReadRows
from embertide.spec.grid import GridShape

NAME, ROWS = "c" * 32, 60
READ = [ReadRows("a", 0, 20, 20), ReadRows("b", 20, 40, 40), ReadRows("c", 40, 60, 0)]
"""The order in which the parts were read is not that of dense ids."""
MADE_OF = {"features ": RowInputs("job", {part.part: [] for part in READ})}
OTHER = "20261127T180000Z-3fa9c1"


def digests_of(features: torch.Tensor, *, placed: bool) -> RowDigests:
    """Of one rank's nodes, with features by dense id."""
    exchange = Exchange(Grid(GridShape.of(1, 1), 0), torch.device("cpu"), CountingRecorder())
    ids = torch.cat([torch.arange(20) + 20, torch.arange(20) + 40, torch.arange(20)])
    own = Loaded(ids[:0] if placed else ids, features if placed else features[ids], placed)
    return RowDigests(
        exchange=exchange,
        nodes={"": OwnNodes(RowRanges((0, ROWS), 1), np.arange(ROWS))},
        loaded={"": own},
        sub_ranges={},
        counted=frozenset(),
        read={"": READ},
    )


def store_of(folder: Path, key: str) -> LayerStore:
    return LayerStore(open_storage(None), folder.as_uri(), key * 32, OTHER, on_one_machine=True)


def keep(store: LayerStore, digests: RowDigests, **more: object) -> Kept:
    assert not keep_digests(digests.exchange, store, NAME, digests, MADE_OF, **more)  # type: ignore[arg-type]
    seal = store.sealed(NAME)
    assert seal is not None
    return Kept(store, seal)


@pytest.mark.parametrize("placed", [True, False])
def test_rows_of_other_parts_are_not_looked_at(placed: bool, tmp_path: Path) -> None:
    features = torch.randn(ROWS, 3)
    first = digests_of(features.clone(), placed=placed)
    kept = keep(store_of(tmp_path, "a"), first)
    assert kept.tensor("features ").parts == ("a", "b", "c")
    # A row of each part: that of "b" is as if it had not changed.
    features[[3, 25, 44]] += 1
    now = digests_of(features, placed=placed)
    earlier = EarlierDigests(kept, ["ids "], {"features ": ["c", "a"]})
    compared = find_changes(now.exchange, now, earlier)
    assert compared.changes.features[""].nonzero().flatten().tolist() == [3, 25]
    assert compared.before[""].tolist() == list(range(ROWS))
    again = keep(store_of(tmp_path, "b"), now, earlier=compared.kept)
    (patch,) = again.tensor("features ").patches
    assert sum(block.rows for block in patch) == 2
    expected = first.make("features", "").copy()
    whole = digests_of(features, placed=placed).make("features", "")
    expected[[3, 25]] = whole[[3, 25]]
    assert np.array_equal(read_words(again, "features ", (0, ROWS), 4), expected)


def test_where_the_rows_of_a_part_are_not_known_all_are_compared(tmp_path: Path) -> None:
    features = torch.randn(ROWS, 3)
    kept = keep(store_of(tmp_path, "a"), digests_of(features.clone(), placed=True))
    features[[3, 44]] += 1
    now = digests_of(features, placed=True)
    for read in ([replace(of, start=None) for of in now.read[""]], now.read[""][:1]):
        other = replace(now, read={"": read}, _made={})
        earlier = EarlierDigests(kept, ["ids "], {"features ": ["c"]})
        changes = find_changes(now.exchange, other, earlier).changes
        assert changes.features[""].nonzero().flatten().tolist() == [3, 44]
