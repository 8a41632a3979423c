"""S3 objects as files: ranges are fetched ahead, and parts uploaded, while the caller computes.

One connection is slow and every request has its latency, so both directions keep a few requests
in flight, in the threads of the storage, and never hold more than their bytes in memory.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any, BinaryIO, Protocol, cast

import numpy as np

from embertide.errors import EmbertideError
from embertide.io.storage.protocol import BLOCK_BYTES, Span

PART_BYTES = 8 << 20
"""Size of an upload's first parts; S3 asks for at least 5 MiB."""

_BLOCKS_AHEAD = 3
_HELD_BLOCKS = 6
_UPLOADS_IN_FLIGHT = 2
_PARTS_PER_SIZE = 500
"""Part sizes double after this many, so that 10,000 parts hold more than S3's 5 TiB."""


class RangedFile(io.RawIOBase):
    """A seekable file that reads ranges of ``block_bytes``; holds at most six of them.

    A long read fetches its ranges side by side, and lets go of each as it is done with it. Reading
    on from one block into the next starts fetching ahead, further the longer it goes on; several
    places may be read in turn.

    Args:
        fetch: (start, length) -> bytes of the object; called in threads of ``pool``.
        size: of the object, in bytes.
        spans: what will be read, ascending: blocks begin and end with them, and nothing outside of
            them is fetched ahead. Other bytes can be read all the same.
    """

    def __init__(
        self,
        fetch: Callable[[int, int], bytes],
        size: int,
        pool: Executor,
        block_bytes: int = BLOCK_BYTES,
        spans: Sequence[Span] = (),
    ) -> None:
        super().__init__()
        self._fetch, self._size, self._pool, self._block_bytes = fetch, size, pool, block_bytes
        self._position = 0
        self._cuts = [min(cut, size) for cut in chain.from_iterable(spans or [(0, size)])]
        self._blocks: OrderedDict[int, Future[bytes]] = OrderedDict()

    def readable(self) -> bool:
        """True: this file is for reading."""
        return True

    def seekable(self) -> bool:
        """True: any position can be read."""
        return True

    def tell(self) -> int:
        """The position, in bytes from the start."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position; nothing is fetched yet."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"negative seek position {base + offset}")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` as far as the object goes; returns the bytes read."""
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self._size - self._position))
        stop = self._position + count
        done = 0
        while done < count:
            first = self._bounds(self._position)[0]
            block = memoryview(self._block(first, stop))
            chunk = block[self._position - first : stop - first]
            view[done : done + len(chunk)] = chunk
            self._position += len(chunk)
            done += len(chunk)
            if len(chunk) == self._block_bytes:
                # It is not read again: the reader that asked for all of it has it.
                del self._blocks[first]
        return count

    def read_buffer(self, size: int) -> memoryview:
        """At most ``size`` bytes, which exist once: arrow takes them instead of :meth:`read`'s."""
        # Not a bytearray, which would be written twice.
        room: Any = np.empty(max(0, min(size, self._size - self._position)), np.uint8)
        found = memoryview(room)
        self.readinto(found)
        return found

    def readall(self) -> bytes:
        """All bytes from the position on, fetched concurrently."""
        rest = bytearray(max(0, self._size - self._position))
        return bytes(memoryview(rest)[: self.readinto(rest)])

    def _bounds(self, position: int) -> Span:
        """The first byte of the block with a byte, and the one after its last."""
        cut = bisect_right(self._cuts, position)
        begin = self._cuts[cut - 1] if cut else 0
        end = self._cuts[cut] if cut < len(self._cuts) else self._size
        first = position - (position - begin) % self._block_bytes
        return first, min(first + self._block_bytes, end)

    def _block(self, first: int, stop: int) -> bytes:
        """The bytes of the block that begins with one; those before ``stop`` are needed next."""
        run, before = 0, first
        while run < _BLOCKS_AHEAD and before > 0:
            before = self._bounds(before - 1)[0]
            if before not in self._blocks:
                break
            run += 1
        start = first
        for ahead in range(_BLOCKS_AHEAD + 1):
            if ahead and start >= stop and (ahead > run or not self._is_expected(start)):
                break
            start = self._have(start)
            if start >= self._size:
                break
        while len(self._blocks) > _HELD_BLOCKS:
            self._blocks.popitem(last=False)[1].cancel()
        return self._blocks[first].result()

    def _have(self, first: int) -> int:
        """Ask for the block that begins with a byte unless we have; returns where it ends."""
        first, last = self._bounds(first)
        if first not in self._blocks:
            self._blocks[first] = self._pool.submit(self._fetch, first, last - first)
        self._blocks.move_to_end(first)
        return last

    def _is_expected(self, position: int) -> bool:
        """Whether a byte is within a span."""
        return bisect_right(self._cuts, position) % 2 == 1

    def close(self) -> None:
        """Cancel what is fetched ahead."""
        for future in self._blocks.values():
            future.cancel()
        self._blocks.clear()
        super().close()


class Upload(Protocol):
    """How the bytes of one object are sent: one put, or a multipart upload."""

    def put(self, data: bytes | bytearray) -> None:
        """The whole object in one request."""

    def begin(self) -> None:
        """Start a multipart upload."""

    def put_part(self, number: int, data: bytes | bytearray) -> Any:
        """Upload part ``number``, from 1; returns what ``finish`` needs. Called in threads."""

    def finish(self, parts: list[Any]) -> None:
        """Complete the multipart upload, which makes the object visible."""

    def cancel(self) -> None:
        """Abort the multipart upload, which removes its parts."""


class MultipartSink(io.RawIOBase):
    """Divides a stream into parts and uploads them while the next one fills.

    Holds at most three parts: two in flight, and one that fills or waits for them. Parts grow
    for very large objects, since S3 takes at most 10,000 of them.
    """

    def __init__(self, upload: Upload, pool: Executor, part_bytes: int = PART_BYTES) -> None:
        super().__init__()
        self._upload, self._pool, self._part_bytes = upload, pool, part_bytes
        self._held = bytearray()
        self._size = 0
        self._sent: deque[Future[Any]] = deque()
        self._parts: list[Any] = []
        self._number = 0

    def writable(self) -> bool:
        """True: this file is for writing."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self._size

    def write(self, data: Any) -> int:
        """Write all of ``data``; raises the errors of earlier parts."""
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            room = self._next_part_bytes() - len(self._held)
            self._held += view[done : done + room]
            done += min(room, len(view) - done)
            if len(self._held) >= self._next_part_bytes():
                self._send()
        self._size += done
        return done

    def _next_part_bytes(self) -> int:
        return int(self._part_bytes) << (self._number // _PARTS_PER_SIZE)

    def _send(self) -> None:
        if self._number == 0:
            self._upload.begin()
        while len(self._sent) >= _UPLOADS_IN_FLIGHT:
            self._parts.append(self._sent.popleft().result())
        self._number += 1
        self._sent.append(self._pool.submit(self._upload.put_part, self._number, self._held))
        self._held = bytearray()

    def commit(self) -> None:
        """Send the rest and make the object visible."""
        if self._number == 0:
            self._upload.put(self._held)
            return
        if self._held:
            self._send()
        while self._sent:
            self._parts.append(self._sent.popleft().result())
        self._upload.finish(self._parts)

    def abort(self) -> None:
        """Cancel the upload; the object is as it was before."""
        for future in self._sent:
            future.cancel()
        # A part that arrives after the upload was cancelled would stay, and be paid for.
        for future in self._sent:
            if not future.cancelled():
                future.exception()
        if self._number:
            with suppress(EmbertideError):
                self._upload.cancel()


@contextmanager
def committing(make: Callable[[], MultipartSink]) -> Iterator[BinaryIO]:
    """A sink that is committed when the block ends cleanly and aborted on any exception."""
    sink = make()
    try:
        yield cast(BinaryIO, sink)
        sink.commit()
    except BaseException:
        sink.abort()
        raise
