"""Which objects an input consists of: those directly under its uri, or all below it.

A copy of last month's edges in a subfolder would double the graph without a word, and leaving
subfolders out would lose half of a partitioned table just as quietly. So the manifest says it.
A folder with a table's own metadata is refused: its files are not all current.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from embertide.errors import InputError, ObjectMissing
from embertide.io.readers.table_formats import refuse_listed
from embertide.io.storage.protocol import Listing, ObjectInfo, Storage
from embertide.spec.schemes import is_local

FOLDER_MARKER = "_$folder$"
"""The end of a name that Hadoop gives to the empty object of a folder."""
_SUFFIXES = {
    "parquet": (".parquet", ".parq", ".pq"),
    "csv": (".csv", ".csv.gz", ".csv.zst"),
    "tsv": (".tsv", ".tsv.gz", ".tsv.zst"),
    "npy": (".npy", ".npz", ".pt", ".pth"),
}
"""What names of objects of a format usually end in."""
_SHOWN = 5


def list_objects(
    storage: Storage, uri: str, recursive: bool, field: str, include: str | None = None
) -> list[ObjectInfo]:
    """The objects under ``uri``, in order of their URIs.

    Hidden ones (``.x``, ``_x``) and empty ones that stand for a folder do not count.

    Args:
        recursive: whether those in subfolders belong to it.
        field: of the manifest that says so, for errors.
        include: a pattern of the names that belong to it; None: all.

    Raises:
        ObjectMissing: there are none.
        InputError: some lie in subfolders and ``recursive`` is False, they are a table's, or a name
            is not UTF-8.
    """
    listing = _scan(storage, uri)
    refuse_listed(uri, listing)
    found = _without_markers(listing.objects)
    if not found:
        left_out = [*listing.hidden, *(info.uri for info in listing.objects)]
        raise ObjectMissing(
            f"{uri} has no objects but hidden ones (names that begin with '_' or '.', and empty"
            f" objects of folders, do not count), such as {left_out[0]}; check the uri"
        )
    found = _included(uri, found, include, field)
    for info in found:
        _refuse_bytes(info.uri)
    if recursive:
        return found
    folder = listed_folder(uri)
    nested = [i.uri for i in found if i.uri != folder and i.uri.rpartition("/")[0] != folder]
    if nested:
        raise InputError(
            f"{nested[0]} lies in a subfolder of {uri} ({len(nested)} of {len(found)} objects do); "
            f"set recursive: true ({field}) to read them too, else move them or narrow the uri"
        )
    return found


def _scan(storage: Storage, uri: str) -> Listing:
    """What is under a uri; an empty object of that name beside a folder's objects is its marker."""
    listing = storage.scan(uri)
    if [info.size for info in listing.objects if info.uri == uri] == [0]:
        try:
            return storage.scan(f"{uri.rstrip('/')}/")
        except ObjectMissing:
            pass
    return listing


def _without_markers(objects: list[ObjectInfo]) -> list[ObjectInfo]:
    """The objects but for empty ones that some tools write for each folder."""
    if all(info.size for info in objects):
        return objects
    folders = {f"{place}" for info in objects for place in PurePosixPath(info.uri).parents}
    return [
        info
        for info in objects
        if info.size or not (_is_folder_marker(info.uri) or str(PurePosixPath(info.uri)) in folders)
    ]


def _is_folder_marker(uri: str) -> bool:
    return uri.endswith(FOLDER_MARKER)


def _included(
    uri: str, objects: list[ObjectInfo], include: str | None, field: str
) -> list[ObjectInfo]:
    if include is None:
        return objects
    found = [info for info in objects if is_included(info, include)]
    if not found:
        raise ObjectMissing(
            f"{uri} has no objects whose names match {include!r} ({_include_field(field)}), but"
            f" {_listed(objects)}; correct the pattern"
        )
    return found


def is_included(info: ObjectInfo, include: str) -> bool:
    """Whether an object has a name that fits the pattern of an input."""
    return fnmatchcase(_name(info), include)


def _name(info: ObjectInfo) -> str:
    return info.uri.rpartition("/")[2]


def _include_field(field: str) -> str:
    return f"{field.rpartition('.')[0]}.include"


def _listed(objects: Sequence[ObjectInfo]) -> str:
    """The names of the first few objects."""
    more = f" and {len(objects) - _SHOWN} more" if len(objects) > _SHOWN else ""
    return ", ".join(map(_name, objects[:_SHOWN])) + more


@contextmanager
def naming_others(
    objects: Sequence[ObjectInfo], info: ObjectInfo, form: str, field: str
) -> Iterator[None]:
    """While an object is looked at: name all that seem to be no data, where it is one of them.

    Args:
        form: the format that all objects should have.
        field: of the manifest that has ``recursive``, beside ``include``.

    Raises:
        InputError: as the body's, with the names and how to leave them out.
    """
    try:
        yield
    except InputError as error:
        if form not in _SUFFIXES:
            raise  # The metadata of a table lists what is its data.
        suffixes = _SUFFIXES[form]
        others = [other for other in objects if not _name(other).lower().endswith(suffixes)]
        if len(others) == len(objects) or info not in others:
            raise
        raise InputError(
            f"{error}. {len(others)} of the {len(objects)} objects here do not end in"
            f" {suffixes[0]}: {_listed(others)}. If they are no data, write include: "
            f"'*{suffixes[0]}' ({_include_field(field)})"
        ) from error


def _refuse_bytes(uri: str) -> None:
    """Refuse the name of a file that is not UTF-8: no manifest or report could name it."""
    if uri.isascii():
        return
    try:
        uri.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{uri!a} has a name that is not UTF-8 (its bytes are shown as \\udcXX); rename it"
        ) from None


def listed_folder(uri: str) -> str:
    """As the stores begin the URIs of what they list: paths are normalised, S3 keys are not."""
    scheme, _, path = uri.partition("://")
    plain = str(PurePosixPath(path)) if is_local(uri) else path
    return f"{scheme}://{plain.rstrip('/')}"
