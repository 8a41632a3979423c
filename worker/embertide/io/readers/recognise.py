"""What an object is by its first bytes, where it is not what the manifest says: for errors.

Names lie: a pointer of Git LFS has the name of the data, an upload failed and left a web page.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from embertide.errors import InputError
from embertide.io.storage.protocol import ObjectInfo, Storage

FIRST_BYTES = 512
PICKLE = "a pickle, which is never loaded"
_FORMAT = "correct format or name"
_PLAIN = "decompress it, or compress csv and tsv as .gz or .zst, and name it so"
_UNPACK = "unpack it, and name the file in it that is meant"
_CONVERT = "write the data as parquet, csv or npy"
_POINTER = "a pointer of {}, in place of the data that it stands for"


@dataclass(frozen=True)
class _Kind:
    """``start`` is a regular expression that no text in a csv begins with."""

    start: bytes
    name: str
    cure: str = _FORMAT


_KINDS = (
    _Kind(
        rb"version https://git-lfs\.github\.com/spec/", _POINTER.format("Git LFS"), "git lfs pull"
    ),
    _Kind(rb"[./]*(git)?/?annex/objects/", _POINTER.format("git-annex"), "git annex get"),
    _Kind(rb"outs:\n- md5:", _POINTER.format("DVC"), "dvc pull"),
    _Kind(rb"PARE..\0\0", "encrypted parquet", "write a copy without encryption"),
    _Kind(rb"PAR1\x15", "parquet"),
    _Kind(rb"\x93NUMPY", "npy"),
    _Kind(rb"PK\x03\x04", "a zip archive", _UNPACK),
    _Kind(rb"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    _Kind(rb"Rar!\x1a\x07", "a rar archive", _UNPACK),
    _Kind(rb".{257}ustar", "a tar archive", _UNPACK),
    _Kind(rb"\x1f\x8b", "gzip"),
    _Kind(rb"\x28\xb5\x2f\xfd", "zstd"),
    _Kind(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", "compressed by bzip2", _PLAIN),
    _Kind(rb"\xfd7zXZ\0", "compressed by xz", _PLAIN),
    _Kind(rb"\x5d\0\0", "compressed by lzma", _PLAIN),
    _Kind(rb"[\x02\x04]\x22\x4d\x18|\x02\x21\x4c\x18", "compressed by lz4", _PLAIN),
    _Kind(rb"\xff\x06\0\0sNaPpY", "compressed by snappy", _PLAIN),
    _Kind(rb"\x89LZO", "compressed by lzop", _PLAIN),
    _Kind(rb"\x1f\x9d", "compressed by compress", _PLAIN),
    _Kind(rb"ORC[\0-\x08\x0e-\x1f\x80-\xff]", "ORC", _CONVERT),
    _Kind(rb"Obj\x01", "Avro", _CONVERT),
    _Kind(rb"ARROW1\0\0", "Arrow IPC (feather)", _CONVERT),
    _Kind(rb"\x89HDF\r\n", "HDF5", _CONVERT),
    _Kind(rb"SQLite format 3\0", "SQLite", _CONVERT),
    _Kind(rb"\xd0\xcf\x11\xe0", "an old Excel file", _CONVERT),
    _Kind(rb"\x80[\x02-\x05]", PICKLE, _CONVERT),
    _Kind(
        rb"\s*<(!DOCTYPE|!doctype|html|\?xml)", "a web page or XML", "download or write it again"
    ),
)


def other_kind(first: bytes, wanted: str, *but: str) -> str:
    """What an object is that begins as one of another kind, and what to do; "" if it does not.

    Args:
        first: its first bytes, ``FIRST_BYTES`` of them where it has so many.
        wanted: what it should be.
        but: names of kinds that are right, or are explained elsewhere.
    """
    first = first[:FIRST_BYTES]
    kind = next((kind for kind in _KINDS if re.match(kind.start, first, re.DOTALL)), None)
    if kind is None or kind.name in but:
        return ""
    return f"is {kind.name}, not {wanted}; {kind.cure}"


def refuse_other(uri: str, first: bytes, wanted: str, *but: str) -> None:
    """Refuse an object of :func:`other_kind`.

    Raises:
        InputError: it is recognised; says as what, and what to do.
    """
    other = other_kind(first, wanted, *but)
    if other:
        raise InputError(f"{uri} {other}")


def refuse_other_object(storage: Storage, info: ObjectInfo, wanted: str, *but: str) -> None:
    """:func:`refuse_other` of an object that could not be read; reads its first bytes again."""
    if not info.size:
        return
    with storage.open(info.uri, info, [(0, min(FIRST_BYTES, info.size))]) as file:
        refuse_other(info.uri, file.read(FIRST_BYTES), wanted, *but)
