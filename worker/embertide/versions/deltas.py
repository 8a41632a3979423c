"""The deltas of published versions: which version each is against, and what is in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from embertide.errors import InputError
from embertide.storage.protocol import Storage
from embertide.versions.manifest import TypeEntry
from embertide.versions.parts import Ids, PartDigest
from embertide.versions.reading import Batch, read_ids, read_part


@dataclass(frozen=True, kw_only=True)
class Delta:
    """The changes of a result since the version before.

    Attributes:
        uri: of the version that it leads to.
        base: the version that it is against.
        tolerance: Euclidean distance that a row of its readers may be off, at most.
        dim: D, the length of a row.
    """

    uri: str
    base: str
    tolerance: float
    dim: int
    upserts: list[PartDigest]
    deletes: list[PartDigest]

    @property
    def upsert_rows(self) -> int:
        """Rows to replace or add."""
        return sum(part.rows for part in self.upserts)

    def upserted(self, storage: Storage) -> Iterator[Batch]:
        """The rows to replace or add, in batches of about 8 MiB.

        Raises:
            OutputError: a part is missing or damaged; names it.
        """
        for part in self.upserts:
            yield from read_part(storage, self.uri, part, self.dim)

    def deleted(self, storage: Storage) -> Iterator[Ids]:
        """The ids to remove.

        Raises:
            OutputError: a part is missing or damaged; names it.
        """
        for part in self.deletes:
            yield read_ids(storage, f"{self.uri}/{part.name}")


def delta_of(uri: str, entry: TypeEntry) -> Delta:
    """The delta of a version's result.

    Args:
        uri: of the version.

    Raises:
        InputError: it has none; says why.
    """
    found = entry.delta
    if found is None or "why" in found:
        why = "the job has no spec.output.delta" if found is None else found["why"]
        raise InputError(f"{uri} has no delta: {why}")
    return Delta(
        uri=uri,
        base=found["base"],
        tolerance=found["tolerance"],
        dim=entry.dim,
        upserts=_parts(found["upsert"]),
        deletes=_parts(found["delete"]),
    )


def _parts(found: dict[str, Any]) -> list[PartDigest]:
    return [PartDigest(**part) for part in found["parts"]]
