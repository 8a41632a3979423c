"""The rows that differ from those of an earlier run: by digests of what they are made of.

=======  =====================================================================
module   what it does
=======  =====================================================================
digests  digests of our rows: ids, features, in-edges
kept     keeps them with a version's layers, and compares a later run's with them
=======  =====================================================================
"""

from embertide.stages.changes.digests import PRIMITIVE, OwnNodes, RowDigests, digest_rows
from embertide.stages.changes.kept import find_changes, keep_digests

__all__ = [
    "PRIMITIVE",
    "OwnNodes",
    "RowDigests",
    "digest_rows",
    "find_changes",
    "keep_digests",
]
