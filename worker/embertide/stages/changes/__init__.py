"""The rows that differ from those of an earlier run: by digests of what they are made of.

=========  =====================================================================
module     what it does
=========  =====================================================================
digests    digests of our rows: ids, features, in-edges
comparing  compares them with those that an earlier run has kept
kept       keeps them with a version's layers
=========  =====================================================================
"""

from embertide.stages.changes.comparing import (
    Compared,
    EarlierDigests,
    find_changes,
    tensor_name,
)
from embertide.stages.changes.digests import PRIMITIVE, OwnNodes, RowDigests
from embertide.stages.changes.kept import keep_digests

__all__ = [
    "PRIMITIVE",
    "Compared",
    "EarlierDigests",
    "OwnNodes",
    "RowDigests",
    "find_changes",
    "keep_digests",
    "tensor_name",
]
