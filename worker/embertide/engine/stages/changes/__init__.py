"""The rows that differ from those of an earlier run: by digests of what they are made of.

=========  =====================================================================
module     what it does
=========  =====================================================================
digests    digests of our rows: ids, features, in-edges
comparing  compares them with those that an earlier run has kept
kept       keeps them with a version's layers
lookups    what was kept of some nodes alone
degrees    degrees that norms multiply neighbours' rows by, kept beside them
=========  =====================================================================
"""

from embertide.engine.stages.changes.comparing import (
    Compared,
    EarlierDigests,
    find_changes,
    tensor_name,
)
from embertide.engine.stages.changes.degrees import count_degrees, keep_degrees, read_degrees
from embertide.engine.stages.changes.digests import PRIMITIVE, OwnNodes, RowDigests, digest_ids
from embertide.engine.stages.changes.kept import keep_digests
from embertide.engine.stages.changes.lookups import count_newer, find_before, kept_ids, kept_tensor

__all__ = [
    "PRIMITIVE",
    "Compared",
    "EarlierDigests",
    "OwnNodes",
    "RowDigests",
    "count_degrees",
    "count_newer",
    "digest_ids",
    "find_before",
    "find_changes",
    "keep_degrees",
    "keep_digests",
    "kept_ids",
    "kept_tensor",
    "read_degrees",
    "tensor_name",
]
