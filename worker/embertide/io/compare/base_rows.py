"""The rows of the version to compare with."""

from __future__ import annotations

from dataclasses import dataclass, field

from embertide.io.storage.protocol import Storage
from embertide.io.versions.parts import PartDigest


@dataclass(frozen=True, kw_only=True)
class Previous:
    """One result of the version to compare with.

    Attributes:
        uri: of the version.
        kind: of its ids, and of ours: ``dense``, ``int64`` or ``string``.
        dim: D', the length of its embeddings.
        rows: of all its parts.
        dtype: its values' type in its parts.
        same_space: whether both versions' vectors come from the same model.
        paths: parts with the lengths of its rows' paths (``travel.py``).
    """

    storage: Storage
    uri: str
    kind: str
    dim: int
    rows: int
    dtype: str
    parts: list[PartDigest]
    same_space: bool
    paths: list[PartDigest] = field(default_factory=list)
