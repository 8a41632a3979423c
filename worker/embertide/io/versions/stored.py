"""Objects of a published version in its store, and the message where one is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from embertide.errors import InputError, ObjectMissing, OutputError
from embertide.io.storage.protocol import ObjectInfo, Storage


def find_object(storage: Storage, uri: str) -> ObjectInfo:
    """The object's size and tag.

    Raises:
        ObjectMissing: there is none.
    """
    info = storage.stat(uri)
    if info is None:
        raise ObjectMissing(f"no object {uri}")
    return info


_DAMAGE = (
    pa.ArrowException,
    OSError,
    EOFError,
    ValueError,
    LookupError,
    ArithmeticError,
    MemoryError,
)
"""What reading an object raises that is not what was written."""


@contextmanager
def readable(uri: str) -> Iterator[None]:
    """Name the object of a version that is damaged; other objects' damage passes as it is."""
    try:
        yield
    except (*_DAMAGE, InputError, ObjectMissing) as error:
        raise OutputError(
            f"{uri} of a published version is missing or damaged ({error}); go back to another"
            " version with embertide rollback, or run the job again"
        ) from error
