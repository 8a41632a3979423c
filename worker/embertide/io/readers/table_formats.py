"""Refuses plain folders of tables whose metadata says which of their files count: Delta and others.

Such a table keeps files that it has replaced or deleted. Read as a plain folder, they would double
edges or bring deleted ones back. The metadata that tells stands below the uri of an input (a
folder of tables), in it (the table), or above it (a partition, a folder of data, a single file).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath

from embertide.errors import AccessDenied, InputError, ObjectMissing
from embertide.io.readers.splits import map_objects
from embertide.io.storage.protocol import NAMES_AT_ONCE, Listing, Storage
from embertide.spec.schemes import is_local

_READ = {"Delta": "delta", "Iceberg": "iceberg"}
"""Formats that are read, and the manifest's word for each."""
_EXPORT = {
    "Hudi": 'spark.read.format("hudi").load(TABLE).drop(the _hoodie columns).write.parquet(FOLDER)',
    "Hive ACID": "INSERT OVERWRITE DIRECTORY FOLDER STORED AS PARQUET SELECT * FROM TABLE",
    "Paimon": "spark.table(TABLE).write.parquet(FOLDER)",
    "DuckLake": "COPY TABLE TO FILE (FORMAT parquet)",
    "Spark streaming": "spark.read.parquet(TABLE).write.parquet(FOLDER)",
}
"""For each other format, what writes the current version of a table to plain files."""

_HIDDEN = {
    "_delta_log/": "Delta",
    ".hoodie/": "Hudi",
    ".hoodie_partition_metadata": "Hudi",
    ".hoodie_partition_metadata.parquet": "Hudi",
    ".hoodie_partition_metadata.orc": "Hudi",
    "_spark_metadata/": "Spark streaming",
    "_orc_acid_version": "Hive ACID",
}
"""Hidden names that only a table of a format has; a folder's with a slash at its end."""
# Seven digits: eight would be a date as well.
_HIVE = re.compile(r"(base_\d{7}|(delete_)?delta_\d{7}_\d{7}(_\d{4})?)(_v\d+)?/")
_ICEBERG = re.compile(r"(version-hint\.text|.+\.metadata\.json(\.gz)?)")
_DUCKLAKE = re.compile(r"ducklake-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-delete)?\.parquet")
_PAIMON = {"snapshot/", "schema/", "manifest/"}
_PAIMON_SCHEMA = "schema-"

_STARTS = sorted(
    {name.rstrip("/") for name in (*_HIDDEN, *_PAIMON, "metadata", "base_", "delta_", "delete_")}
)
"""What the names of metadata begin with, where a folder has too many names to list them all."""


@dataclass(frozen=True)
class TableSeen:
    """A table's format, and the URI of the metadata that shows it."""

    format: str
    metadata: str

    def refuse(self, uri: str) -> None:
        """Refuse the input with that URI.

        Raises:
            InputError: names the format, the metadata, and what to do.
        """
        article = "an" if self.format[0] in "AEIOU" else "a"
        raise InputError(
            f"{uri} belongs to {article} {self.format} table: {self.metadata} is its metadata."
            " Files of such a table may hold rows that it has replaced or deleted, also after a"
            f" compaction or VACUUM, and only that metadata tells which. {self._remedy()}"
        )

    def _remedy(self) -> str:
        form = _READ.get(self.format)
        if form is None:
            return (
                "Write the table's current version to a folder outside of it"
                f" ({_EXPORT[self.format]}) and name that folder"
            )
        metadata = "/metadata/" if self.format == "Iceberg" else "/_delta_log/"
        table = self.metadata.rpartition(metadata)[0]
        return f"Write format: {form} and the table's own folder: {{uri: {table}, format: {form}}}"


def refuse_listed(uri: str, listing: Listing) -> None:
    """Refuse an input in whose folder, or below it, a table's metadata was listed.

    What the names in the URIs themselves show of folders above counts as well. Takes no request.

    Raises:
        InputError: names the format, the metadata, and what to do.
    """
    seen = next(_seen_in(listing), None)
    if seen is not None:
        seen.refuse(uri)


def _seen_in(listing: Listing) -> Iterator[TableSeen]:
    for uri in listing.hidden:
        name = PurePosixPath(uri).name + ("/" if uri.endswith("/") else "")
        if name in _HIDDEN:
            yield TableSeen(_HIDDEN[name], uri)
    folders: dict[str, set[str]] = defaultdict(set)
    for info in listing.objects:
        folder, _, name = info.uri.rpartition("/")
        folders[folder].add(name)
        if _DUCKLAKE.fullmatch(name):
            yield TableSeen("DuckLake", info.uri)
    for folder, names in folders.items():
        yield from _seen_at(folder, names, folders)


def _seen_at(folder: str, names: set[str], folders: dict[str, set[str]]) -> Iterator[TableSeen]:
    """What the path of a folder of data, and the names in it, show."""
    above, _, own = folder.rpartition("/")
    for end in re.finditer("(?<=[^/])/(?=[^/])|$", folder):
        part = folder[: end.start()].rpartition("/")[2]
        if _HIVE.fullmatch(f"{part}/"):
            yield TableSeen("Hive ACID", f"{folder[: end.start()]}/")
    if own == "metadata":
        for name in sorted(filter(_ICEBERG.fullmatch, names)):
            yield TableSeen("Iceberg", f"{folder}/{name}")
    is_paimon = own == "schema" and all(f"{above}/{name[:-1]}" in folders for name in _PAIMON)
    if is_paimon and any(name.startswith(_PAIMON_SCHEMA) for name in names):
        yield TableSeen("Paimon", f"{above}/snapshot/")


class FoldersAbove:
    """Looks for tables' metadata in the folders above inputs, in each folder once.

    A folder that may not be listed is passed over: rights often begin at the inputs.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._seen: dict[str, TableSeen | None] = {}

    def refuse_tables(self, uris: Iterable[str]) -> None:
        """Refuse inputs that lie in a table.

        Takes a request for each folder above them, and a few more for one of more than
        :data:`NAMES_AT_ONCE` names, or with folders named as in a table.

        Raises:
            InputError: names the format, the metadata, and what to do.
            StorageError: the store does not answer.
        """
        above = {uri: folders_above(uri) for uri in uris}
        new = sorted({folder for folders in above.values() for folder in folders} - {*self._seen})
        self._seen |= zip(new, map_objects(new, self._look), strict=True)
        for uri, folders in above.items():
            for seen in filter(None, map(self._seen.__getitem__, folders)):
                seen.refuse(uri)

    def _look(self, folder: str) -> TableSeen | None:
        try:
            return self._look_in(folder, self._names(folder))
        except (AccessDenied, ObjectMissing):
            return None

    def _names(self, folder: str) -> set[str]:
        names = self._storage.names(folder)
        if len(names) < NAMES_AT_ONCE:
            return set(names)
        if is_local(folder):
            return set(self._storage.all_names(folder))
        found = map_objects(_STARTS, partial(self._storage.names, folder))
        return set(chain.from_iterable(found))

    def _look_in(self, folder: str, names: set[str]) -> TableSeen | None:
        for name in sorted(names):
            if name in _HIDDEN:
                return TableSeen(_HIDDEN[name], folder + name)
            if _HIVE.fullmatch(name):
                return TableSeen("Hive ACID", folder + name)
        if "metadata/" in names:
            # A thousand names may end before those that begin with a v.
            inside = f"{folder}metadata/"
            held = self._storage.names(inside)
            held += self._storage.names(inside, "v") if len(held) >= NAMES_AT_ONCE else []
            for name in filter(_ICEBERG.fullmatch, held):
                return TableSeen("Iceberg", inside + name)
        if names >= _PAIMON and self._storage.names(f"{folder}schema/", _PAIMON_SCHEMA):
            return TableSeen("Paimon", f"{folder}snapshot/")
        return None


def folders_above(uri: str) -> list[str]:
    """URIs of the folders that an input is in, with a slash at the end, the nearest first.

    Of a local file, those above the place that links lead to, too.
    """
    scheme, _, path = uri.partition("://")
    if not is_local(uri):
        parts = path.rstrip("/").split("/")
        return [f"{scheme}://{'/'.join(parts[:end])}/" for end in range(len(parts) - 1, 0, -1)]
    plain = Path(path)
    places = [*plain.parents, *plain.resolve().parents]
    return [f"{scheme}://" + f"{place}/".replace("//", "/") for place in dict.fromkeys(places)]
