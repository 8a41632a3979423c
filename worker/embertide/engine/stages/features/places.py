"""Which features of a type are read later, for some nodes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from embertide.context import RunContext
from embertide.engine.planning.inputs import NodeSplits
from embertide.io.readers.feature_places import Piece, find_places
from embertide.io.readers.feature_schema import FeatureSchema
from embertide.spec.nodes import NodeInput


@dataclass(frozen=True)
class FeaturePlaces:
    """Where the features of each node are.

    Attributes:
        pieces: of all rows, a row for each node.
        categories: columns that hold whole numbers below the one beside each.
    """

    pieces: Sequence[Piece]
    schema: FeatureSchema
    categories: Sequence[tuple[int, int]]


def find_feature_places(
    ctx: RunContext, node: NodeInput, splits: NodeSplits
) -> FeaturePlaces | None:
    """Where the features of a node type are; None: all have to be read.

    That is where ids are not dense, or metadata does not say which rows have which; and where the
    numbers of rows and nodes differ, or an id may be no node's, which is refused as all are read.

    Raises:
        InputError: an object is unreadable.
        InputChanged: it changed since it was listed.
    """
    count, schema = splits.count(node), splits.schema
    if node.ids != "dense" or node.features is None or schema is None:
        return None
    beside = splits.tables or splits.new_rows
    if beside or ctx.grid.world > 1 or ctx.scratch is not None or splits.feature_rows != count:
        return None
    pieces = find_places(ctx.storage, node.features, splits.features)
    if pieces is None or any(piece.low < 0 or piece.high >= count for piece in pieces):
        return None
    return FeaturePlaces(pieces, schema, splits.categories)
