"""Published versions, streamed back in the order they were written, or as one table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from embertide.errors import InputError
from embertide.io.readers.splits import map_objects
from embertide.io.storage.protocol import Storage
from embertide.io.versions.catalog import latest, open_version
from embertide.io.versions.embeddings import Embeddings
from embertide.io.versions.formats import format_of
from embertide.io.versions.formats.protocol import StoredPart
from embertide.io.versions.manifest import TypeEntry, read_manifest, types_in
from embertide.io.versions.parts import PartDigest
from embertide.io.versions.rows import Batch, Ids
from embertide.io.versions.stored import readable
from embertide.spec.version_names import version_uri


def iter_embeddings(
    storage: Storage,
    output_uri: str,
    version: str | None = None,
    node_type: str | None = None,
    result: str | None = None,
) -> Iterator[Batch]:
    """All rows of a version (default: the current one), in batches of about 8 MiB.

    Args:
        node_type: which rows, in a version of several node types.
        result: which rows, in a version of several results.

    Raises:
        InputError: no such type or result, or none given where there are several; lists them.
        ObjectMissing: no such version; lists those there are.
        OutputError: a part is missing or damaged.
    """
    version = version if version is not None else latest(storage, output_uri).version
    manifest, _ = read_manifest(storage, output_uri, version)
    uri = version_uri(output_uri, version)
    chosen = choose_result(uri, manifest, node_type, result)
    for part in chosen.digests:
        yield from read_part(storage, uri, part, chosen.dim)


def choose_result(
    uri: str, manifest: dict[str, Any], node_type: str | None, result: str | None
) -> TypeEntry:
    """The entry of a result; without a node type or a name that of the only one.

    Args:
        uri: of the version, for messages.

    Raises:
        InputError: no such type or result, or none given where there are several; lists them.
    """
    of_type = _of_type(uri, types_in(manifest), node_type)
    names = [entry.result for entry in of_type]
    if len(of_type) == 1 and result is None:
        return of_type[0]
    if names == [""]:
        raise InputError(
            f"{uri} has one result, which has no name there; leave the result {result!r} out"
        )
    there = ", ".join(names)
    if result is None:
        raise InputError(
            f"{uri} has several results; choose one of {there} (result=, or --result of a command)"
        )
    if result not in names:
        raise InputError(f"{uri} has no result {result!r}; it has {there}")
    return of_type[names.index(result)]


def _of_type(uri: str, entries: list[TypeEntry], node_type: str | None) -> list[TypeEntry]:
    """The entries of a node type; without a name those of the only one."""
    there = [entry for entry in entries if entry.name == (node_type or "")]
    if there:
        return there
    if not entries[0].name:
        raise InputError(
            f"{uri} has one node type, which has no name there; leave {node_type!r} out"
        )
    names = ", ".join(dict.fromkeys(entry.name for entry in entries))
    if node_type is None:
        raise InputError(
            f"{uri} has several node types; choose one of {names} (node_type=, or --node-type of a"
            " command)"
        )
    raise InputError(f"{uri} has no node type {node_type!r}; it has {names}")


def read_version(
    storage: Storage,
    output_uri: str,
    version: str | None = None,
    node_type: str | None = None,
    result: str | None = None,
) -> Embeddings:
    """All rows of a version (default: the current one) as one table, in the published dtype.

    Args:
        node_type: which rows, in a version of several node types.
        result: which rows, in a version of several results.

    Raises:
        InputError: no such type or result, or none given where there are several; lists them.
        ObjectMissing: no such version; lists those there are.
        OutputError: a part is missing or damaged.
    """
    info, manifest = open_version(storage, output_uri, version)

    def table_of(part: PartDigest) -> Any:
        return part_table(storage, info.uri, part)

    chosen = choose_result(info.uri, manifest, node_type, result)
    table = pa.concat_tables(map_objects(chosen.digests, table_of))
    return Embeddings(info, table)


def part_table(storage: Storage, folder_uri: str, part: PartDigest) -> Any:
    """All rows of a part as an arrow table.

    Raises:
        OutputError: an object of the part is missing or damaged; names it.
    """
    stored = stored_part(storage, folder_uri, part)
    with readable(stored.uri):
        table = format_of(stored).table(stored)
        if table.num_rows != part.rows:
            raise EOFError(f"it has {table.num_rows} rows, {part.rows} were written")
    return table


def read_part(storage: Storage, folder_uri: str, part: PartDigest, width: int) -> Iterator[Batch]:
    """The rows of a part in batches of about 8 MiB.

    Args:
        folder_uri: the version's objects are below it.
        width: D, the length of an embedding.

    Raises:
        OutputError: an object of the part is missing or damaged; names it.
    """
    stored = stored_part(storage, folder_uri, part)
    yield from format_of(stored).batches(stored, width)


def read_ids(storage: Storage, folder_uri: str, part: PartDigest) -> Ids:
    """All ids of a part.

    Raises:
        OutputError: an object of the part is missing or damaged; names it.
    """
    stored = stored_part(storage, folder_uri, part)
    return format_of(stored).ids(stored)


def last_id(storage: Storage, folder_uri: str, part: PartDigest) -> Ids:
    """The id of a part's last row, as an array of one; the part has rows.

    Raises:
        OutputError: an object of the part is missing or damaged; names it.
    """
    stored = stored_part(storage, folder_uri, part)
    return format_of(stored).last_id(stored)


def stored_part(storage: Storage, folder_uri: str, part: PartDigest) -> StoredPart:
    """Where a part of the version in a folder is."""
    ids_uri = None if part.ids_name is None else f"{folder_uri}/{part.ids_name}"
    return StoredPart(storage, f"{folder_uri}/{part.name}", part.size, ids_uri, part.ids_size)
