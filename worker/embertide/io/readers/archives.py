"""npz and what ``torch.save`` writes: where one array of theirs lies, so that it is read as npy is.

Both are zip archives whose members are stored as they are: an array is a range of the object. Of a
file of torch only the names, shapes and places of tensors are unpickled: no class is imported, and
nothing of the file is called.
"""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from embertide.errors import InputError
from embertide.io.storage.protocol import ObjectInfo, Storage

ZIP = b"PK"
_LOCAL_HEADER_BYTES = 30
_MOST_PICKLE_BYTES = 16 << 20
_SHOWN = 8
_DTYPES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "|i1",
    "ByteStorage": "|u1",
    "BoolStorage": "|b1",
}
_DAMAGED = (
    zipfile.BadZipFile,
    pickle.UnpicklingError,
    zlib.error,
    struct.error,
    *(OSError, EOFError, RuntimeError, NotImplementedError, MemoryError, OverflowError),
    *(AttributeError, IndexError, KeyError, TypeError, ValueError),
)
"""What zipfile and pickle raise of bytes that are no such file."""
_HOW = "save tensors alone, such as torch.save({'x': x, 'edge_index': edge_index}, ...)"


@dataclass(frozen=True)
class Stored:
    """A range of an object: a whole npy, or the values of a tensor.

    Attributes:
        offset, size: bytes.
        shape, strides: of a tensor, in values; None for an npy.
        dtype: as numpy writes it.
    """

    offset: int
    size: int
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] = ()
    dtype: str = ""


def find_array(storage: Storage, info: ObjectInfo, key: str | None) -> Stored:
    """Where an array of an archive lies.

    Args:
        key: its name; with dots between those of dicts in dicts. None: the only one.

    Raises:
        InputError: there is no such array, several without a key, or it cannot be read as it is.
    """
    with storage.open(info.uri, info) as file:
        try:
            archive = zipfile.ZipFile(file)
            members = {item.filename: item for item in archive.infolist()}
            pickled = next((name for name in members if name.endswith("/data.pkl")), None)
            if pickled is not None:
                return _in_torch(file, archive, members, pickled, info.uri, key)
            return _in_npz(file, members, info.uri, key)
        except _DAMAGED as error:
            raise InputError(
                f"{info.uri} is not readable as npz or as a file of torch ({error}): it is"
                " truncated or damaged; write it again"
            ) from error


def _in_npz(file: Any, members: Mapping[str, zipfile.ZipInfo], uri: str, key: str | None) -> Stored:
    arrays = {name[: -len(".npy")]: item for name, item in members.items() if name.endswith(".npy")}
    if {"data", "indices", "indptr"} <= set(arrays):
        raise InputError(
            f"{uri} is a sparse matrix of scipy; write the matrix m as rows by numpy.save(...,"
            " m.toarray()), or as edges by numpy.save(..., numpy.stack(m.nonzero(), axis=1))"
        )
    if not arrays:
        raise InputError(
            f"{uri} is a zip archive, not npy; unpack it, and name the file in it that is meant"
        )
    return _place(file, arrays[_chosen(uri, key, list(arrays))], uri)


def _place(file: Any, item: zipfile.ZipInfo, uri: str) -> Stored:
    """The range of a member."""
    if item.compress_type != zipfile.ZIP_STORED:
        raise InputError(
            f"{uri}: {item.filename} is compressed, and cannot be read in parts; save it with"
            " numpy.savez, not numpy.savez_compressed"
        )
    file.seek(item.header_offset)
    header = file.read(_LOCAL_HEADER_BYTES)
    names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    return Stored(item.header_offset + _LOCAL_HEADER_BYTES + names, item.file_size)


def _chosen(uri: str, key: str | None, names: list[str]) -> str:
    if key is None and len(names) == 1:
        return names[0]
    if key in names:
        return str(key)
    shown = ", ".join(map(repr, names[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")
    what = "holds several arrays: set key to one of" if key is None else f"has no {key!r} (key) of"
    raise InputError(f"{uri} {what} {shown}")


@dataclass(frozen=True)
class _Tensor:
    """A tensor's place in its storage: the type, the member that holds it, and what of it."""

    storage: tuple[str, str]
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Unread:
    """The place of an object whose class is not known; it takes whatever is put into it."""

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Unread:
        """One, whatever the class takes."""
        return super().__new__(cls)

    def __call__(self, *_args: Any, **_kwargs: Any) -> Unread:
        """Itself, where the file calls what it made."""
        return self

    def _pass_over(self, *_args: Any) -> None:
        pass

    __init__ = __setstate__ = __setitem__ = append = extend = add = _pass_over


def _tensor(
    storage: Any, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any
) -> Any:
    numbers = (offset, *shape, *strides)
    if len(shape) != len(strides) or any(type(n) is not int or n < 0 for n in numbers):
        raise pickle.UnpicklingError("a tensor has no shape")
    return _Tensor(storage, offset, tuple(shape), tuple(strides))


def _parameter(tensor: Any, *_: Any) -> Any:
    return tensor


class _Places(pickle.Unpickler):
    """Reads where tensors lie, and nothing else."""

    _KNOWN: ClassVar[Mapping[tuple[str, str], Any]] = {
        ("collections", "OrderedDict"): OrderedDict,
        ("torch._utils", "_rebuild_tensor_v2"): _tensor,
        ("torch._utils", "_rebuild_parameter"): _parameter,
    }

    def find_class(self, module: str, name: str) -> Any:
        """Nothing of another module than this one."""
        if module == "torch" and name.endswith("Storage"):
            return name
        return self._KNOWN.get((module, name), Unread)

    def persistent_load(self, pid: Any) -> Any:
        """The type of a storage, and the member that holds it."""
        _, kind, member, *_ = pid
        return str(kind), str(member)


def _in_torch(
    file: Any,
    archive: zipfile.ZipFile,
    members: Mapping[str, zipfile.ZipInfo],
    pickled: str,
    uri: str,
    key: str | None,
) -> Stored:
    if members[pickled].file_size > _MOST_PICKLE_BYTES:
        raise InputError(f"{uri} holds too many objects; {_HOW}")
    folder = pickled.removesuffix("data.pkl")
    loaded = _Places(io.BytesIO(archive.read(pickled))).load()
    if f"{folder}byteorder" in members and archive.read(f"{folder}byteorder") != b"little":
        raise InputError(f"{uri} was written on a big-endian machine; write it on another")
    tensors = dict(_named(loaded, ""))
    if not tensors:
        raise InputError(f"{uri} holds no tensors in dicts, lists or tuples, but objects; {_HOW}")
    found = tensors[_chosen(uri, key, list(tensors))]
    kind, member = found.storage
    if kind not in _DTYPES:
        raise InputError(
            f"{uri}: a tensor {list(found.shape)} of {kind.removesuffix('Storage')} is no array of"
            " numpy; save it as float32 or int64"
        )
    place = _place(file, members[f"{folder}data/{member}"], uri)
    itemsize = int(_DTYPES[kind][2:])
    return Stored(
        place.offset + found.offset * itemsize,
        place.size - found.offset * itemsize,
        found.shape,
        found.strides,
        _DTYPES[kind],
    )


def _named(value: Any, name: str) -> list[tuple[str, _Tensor]]:
    """The tensors in dicts, lists and tuples, by their keys and indices."""
    if isinstance(value, _Tensor):
        return [(name, value)]
    if isinstance(value, Mapping):
        items: list[tuple[Any, Any]] = list(value.items())
    elif isinstance(value, list | tuple):
        items = list(enumerate(value))
    else:
        return []
    dot = "." if name else ""
    return [found for key, item in items for found in _named(item, f"{name}{dot}{key}")]
