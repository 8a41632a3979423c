"""The rows that differ from those of an earlier run: by digests of what they are made of.

=========  =====================================================================
module     what it does
=========  =====================================================================
digests    digests of our rows: ids, features, in-edges; kept with a version's layers
comparing  compares them with those that an earlier run has kept, all or some
degrees    degrees that norms multiply neighbours' rows by, kept beside them
=========  =====================================================================
"""

from embertide.engine.stages.changes.comparing import (
    Compared,
    EarlierDigests,
    count_newer,
    find_before,
    find_changes,
)
from embertide.engine.stages.changes.degrees import count_degrees, keep_degrees, read_degrees
from embertide.engine.stages.changes.digests import (
    IDS,
    PRIMITIVE,
    OwnNodes,
    RowDigests,
    digest_ids,
    keep_digests,
    tensor_name,
)

__all__ = [
    "IDS",
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
    "read_degrees",
    "tensor_name",
]
