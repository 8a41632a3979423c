"""The features of some nodes, whose places are known: no other rows are taken.

What is refused of features where all are read is refused of these rows: a null, another width, a
value that is not finite, a category that the model does not know, a node without a row or with
several.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from embertide.context import RunContext
from embertide.engine.stages.features.load import BATCH_BYTES, check_category, refuse_non_finite
from embertide.engine.stages.features.locate import refuse_rows
from embertide.engine.stages.features.nodes import LoadedNodes
from embertide.engine.stages.features.places import FeaturePlaces
from embertide.grid import RowRanges
from embertide.io.readers.columns import Int64s
from embertide.io.readers.feature_places import needed
from embertide.io.readers.features import non_finite, read_features
from embertide.io.readers.pool import map_splits, readers
from embertide.io.readers.splits import Split
from embertide.kernels.memory import empty
from embertide.kernels.reading import Float32s, place_rows
from embertide.spec.features import FeatureInput
from embertide.spec.nodes import NodeInput


def read_some_features(ctx: RunContext, nodes: LoadedNodes, wanted: Int64s) -> torch.Tensor:
    """[k, D] float32, the features of some nodes of a type whose places are known.

    Args:
        nodes: have :attr:`LoadedNodes.places`.
        wanted: [k] their dense ids, ascending.

    Raises:
        InputError: see above; names what is wrong and where.
        InputChanged: an object changed since it was listed.
    """
    features, places = nodes.node.features, nodes.places
    assert features is not None, "places are those of features"
    assert places is not None, "they are read later"
    reading = _Reading(ctx, nodes.node, features, places, wanted)
    splits = needed(places.pieces, wanted)
    found = map_splits(splits, reading.read, readers(splits, ctx.threads)) if splits else []
    bad = [part for part in found if part.bad]
    first = bad[0].first_bad if bad else None
    refuse_non_finite(ctx, features, sum(part.bad for part in bad), first)
    read = [np.empty(0, np.int64), *(at for part in found for at in part.places)]
    counts = np.bincount(np.concatenate(read), minlength=len(wanted))
    for wrong, several in ((counts > 1, True), (counts == 0, False)):
        of_nodes = torch.zeros(nodes.ids.count, dtype=torch.bool)
        of_nodes[torch.from_numpy(wanted[wrong])] = True
        refuse_rows(ctx, nodes, RowRanges((0, len(of_nodes)), 1), of_nodes, several=several)
    return torch.from_numpy(reading.values)


@dataclass
class _Part:
    """What was read of a split: where its rows went, and what is not finite among them."""

    places: list[Int64s] = field(default_factory=list)
    bad: int = 0
    first_bad: int | str | None = None


class _Reading:
    """Reads splits into ``values``; several threads read, a split each."""

    def __init__(
        self,
        ctx: RunContext,
        node: NodeInput,
        features: FeatureInput,
        places: FeaturePlaces,
        wanted: Int64s,
    ) -> None:
        self._ctx, self._node, self._features = ctx, node, features
        self._places, self._wanted = places, wanted
        self.values: Float32s = empty((len(wanted), places.schema.width)).numpy()

    def read(self, split: Split) -> _Part:
        """The wanted rows of a split."""
        part, node, schema = _Part(), self._node, self._places.schema
        for batch in read_features(
            self._ctx.storage,
            self._features,
            node.ids,
            split,
            schema,
            batch_bytes=BATCH_BYTES,
            count=node.count,
            wanted=self._wanted,
        ):
            for column, count in self._places.categories:
                check_category(batch, schema, column, count)
            assert isinstance(batch.ids, np.ndarray)
            places = np.searchsorted(self._wanted, batch.ids)
            if not place_rows(self.values, batch.values, places):
                bad, first = non_finite(batch)
                part.first_bad = part.first_bad if part.bad else first
                part.bad += bad
            part.places.append(places)
            self._ctx.work.add("features", rows=len(batch))
        return part
