"""Which objects an input consists of: those directly under its uri, or all below it.

A copy of last month's edges in a subfolder would double the graph without a word, and leaving
subfolders out would lose half of a partitioned table just as quietly. So the manifest says it.
A folder with a table's own metadata is refused: its files are not all current.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from embertide.errors import InputError, ObjectMissing
from embertide.readers.table_formats import refuse_listed
from embertide.storage.protocol import ObjectInfo, Storage


def list_objects(storage: Storage, uri: str, recursive: bool, field: str) -> list[ObjectInfo]:
    """The objects under ``uri``, in order of their URIs; hidden ones (``.x``, ``_x``) do not count.

    Args:
        recursive: whether those in subfolders belong to it.
        field: of the manifest that says so, for errors.

    Raises:
        ObjectMissing: there are none.
        InputError: some lie in subfolders and ``recursive`` is False, they are a table's, or a name
            is not UTF-8.
    """
    listing = storage.scan(uri)
    refuse_listed(uri, listing)
    found = listing.objects
    if not found:
        raise ObjectMissing(
            f"{uri} has no objects but hidden ones (names that begin with '_' or '.' do not"
            f" count), such as {listing.hidden[0]}; check the uri"
        )
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
    plain = str(PurePosixPath(path)) if scheme == "file" else path
    return f"{scheme}://{plain.rstrip('/')}"
