"""Bytes that are written into an object, counted and hashed as they are written."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO

from xxhash import xxh3_128

_ASIDE_BYTES = 256 << 10
"""From this size on it pays to hash on another thread."""


class HashedSink:
    """Counts and hashes all bytes that pass; a file that arrow can write to.

    Large pieces are hashed by a thread while they are written.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream: BinaryIO | None = stream
        self._hash, self._checksum = hashlib.sha256(), xxh3_128()
        self._aside = ThreadPoolExecutor(1, "hash")
        self.size = 0
        self.closed = False

    @property
    def sha256(self) -> str:
        """The SHA-256 of everything written, in hex."""
        return self._hash.hexdigest()

    @property
    def checksum(self) -> str:
        """XXH3 with 128 bits of everything written, in hex."""
        return self._checksum.hexdigest()

    def write(self, data: Any) -> int:
        """Pass on bytes or any C-contiguous buffer; returns its length in bytes."""
        view = memoryview(data).cast("B")
        if len(view) < _ASIDE_BYTES:
            self._pass_on(view)
            self._update(view)
        else:
            hashed = self._aside.submit(self._update, view)
            try:
                self._pass_on(view)
            finally:
                # The caller may change what was written once we return.
                hashed.result()
        self.size += len(view)
        return len(view)

    def _update(self, view: memoryview) -> None:
        self._hash.update(view)
        self._checksum.update(view)

    def _pass_on(self, view: memoryview) -> None:
        if self._stream is not None:
            self._stream.write(view)

    def detach(self) -> None:
        """Ignore all that follows: arrow writes a footer even when a writer is dropped."""
        self._stream = None
        self._aside.shutdown()

    def tell(self) -> int:
        """Bytes written so far."""
        return self.size

    def flush(self) -> None:
        """Nothing to do: the object appears when its stream is complete."""

    def close(self) -> None:
        """Arrow is done; the stream stays open for its owner."""
        self.closed = True
