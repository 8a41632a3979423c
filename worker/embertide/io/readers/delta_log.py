"""The transaction log of a Delta table, copied to this machine, where its library reads it.

The log comes by the storage that reads everything else of a job, so that endpoint, credentials,
certificates and retries are those of ``spec.storage`` and none are handed to another client. A
version needs the newest checkpoint at or before it and the commits after that; older ones are not
copied.
"""

from __future__ import annotations

import json
import re
import shutil
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path

from embertide.errors import ObjectMissing
from embertide.io.readers.splits import map_objects
from embertide.io.storage.protocol import ObjectInfo, Storage
from embertide.spec.tables import AsOf

LOG = "_delta_log/"
# Only plain names: they become paths here.
_SIDECAR = re.compile(rf"{LOG}_sidecars/[0-9A-Za-z._-]+\.parquet")
_COMMIT = re.compile(r"([0-9]{20})\.json")
_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint(\.([0-9]{10})\.([0-9]{10}))?\.parquet")
_OTHER_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint\.[0-9a-f-]{36}\.(json|parquet)")
_DELETION_VECTOR = re.compile(r"([0-9A-Za-z]+/)?deletion_vector_[0-9a-f-]{36}\.bin")


class DeltaLog:
    """The log among the objects of a table's folder.

    Args:
        uri: of the table.
        objects: all in the folder, by path in it, hidden ones too.
    """

    def __init__(self, storage: Storage, uri: str, objects: dict[str, ObjectInfo]) -> None:
        self._storage, self._uri, self._objects = storage, uri, objects
        self._commits: dict[int, ObjectInfo] = {}
        self._checkpoints: dict[int, list[ObjectInfo]] = {}
        self._complete: set[int] = set()
        for path, info in objects.items():
            if path.startswith(LOG):
                self._note(path.removeprefix(LOG), info)

    def _note(self, name: str, info: ObjectInfo) -> None:
        if match := _COMMIT.fullmatch(name):
            self._commits[int(match[1])] = info
        elif match := _CHECKPOINT.fullmatch(name):
            parts = self._checkpoints.setdefault(int(match[1]), [])
            parts.append(info)
            if match[4] is None or len(parts) >= int(match[4]):
                self._complete.add(int(match[1]))
        elif match := _OTHER_CHECKPOINT.fullmatch(name):
            self._checkpoints.setdefault(int(match[1]), []).append(info)

    @property
    def newest(self) -> int:
        """The newest version; -1 where there is no log."""
        return max((*self._commits, *self._complete), default=-1)

    @property
    def oldest(self) -> int:
        """The oldest version that can be read: the first, or the one of the oldest checkpoint."""
        return 0 if 0 in self._commits else min(self._checkpoints, default=self.newest)

    def version(self, as_of: AsOf | None) -> int:
        """The version that the manifest asks for.

        Raises:
            ObjectMissing: there is no such version; says which there are.
        """
        if as_of is None:
            return self.newest
        if as_of.version is not None:
            if not self.oldest <= as_of.version <= self.newest:
                raise ObjectMissing(
                    f"Delta table {self._uri} has no version {as_of.version} (asOf.version); its"
                    f" log has versions {self.oldest} to {self.newest}"
                )
            return as_of.version
        return self._version_at(as_of)

    def _version_at(self, as_of: AsOf) -> int:
        """The newest version that was committed at or before a time."""
        versions = sorted(version for version in self._commits if version >= self.oldest)
        if versions and self._own_time(versions[-1]) is None:
            # Files that were copied have the times of the copy, in any order.
            times = accumulate((self._commits[version].modified for version in versions), max)
            at = bisect_right(list(times), as_of.moment.timestamp())
        else:
            at = bisect_right(versions, as_of.moment.timestamp(), key=self.committed)
        if at == 0:
            first = datetime.fromtimestamp(self.committed(versions[0]), UTC) if versions else None
            began = f"; its oldest commit is of {first:%Y-%m-%dT%H:%M:%SZ}" if first else ""
            raise ObjectMissing(
                f"Delta table {self._uri} has no version of {as_of.timestamp} (asOf.timestamp)"
                f"{began}"
            )
        return versions[at - 1]

    def committed(self, version: int) -> float:
        """When a version was committed, in seconds since the epoch.

        The commit has that time where the table has in-commit timestamps; otherwise it is the time
        of the commit's file, as for other readers of Delta.
        """
        if version not in self._commits:
            return self._checkpoints[version][0].modified
        own = self._own_time(version)
        return self._commits[version].modified if own is None else own

    def _own_time(self, version: int) -> float | None:
        """The time that a commit has in itself, in its first action; None where it has none."""
        first = self._storage.read(self._commits[version].uri).partition(b"\n")[0]
        try:
            action = json.loads(first)
        except ValueError:
            return None  # The library says what is wrong with it.
        info = action.get("commitInfo") if isinstance(action, dict) else None
        own = info.get("inCommitTimestamp") if isinstance(info, dict) else None
        return own / 1000 if isinstance(own, int) else None

    def copy(self, version: int, folder: Path) -> None:
        """Copy what a version needs of the log into a folder, which becomes a table without data.

        Raises:
            InputError: an object changed since it was listed.
            StorageError: the store refuses or does not answer.
        """
        first = max((c for c in self._complete if c <= version), default=0)
        numbered = {
            info.uri
            for number, infos in (*self._checkpoints.items(), *_each(self._commits.items()))
            if first <= number <= version
            for info in infos
        }
        wanted = [
            (path, info)
            for path, info in self._objects.items()
            if info.uri in numbered or _SIDECAR.fullmatch(path)
        ]
        self._copy(wanted, folder)

    def copy_deletion_vectors(self, folder: Path) -> None:
        """Copy the files with deletion vectors to where the copied log expects them."""
        items = self._objects.items()
        self._copy([item for item in items if _DELETION_VECTOR.fullmatch(item[0])], folder)

    def _copy(self, wanted: Sequence[tuple[str, ObjectInfo]], folder: Path) -> None:
        def copy(item: tuple[str, ObjectInfo]) -> None:
            path, info = item
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with self._storage.open(info.uri, info) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)

        map_objects(wanted, copy)


def _each(commits: Iterable[tuple[int, ObjectInfo]]) -> Iterable[tuple[int, list[ObjectInfo]]]:
    return ((number, [info]) for number, info in commits)
