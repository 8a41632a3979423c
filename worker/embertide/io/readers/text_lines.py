"""Text in blocks of whole lines, from any byte range, plain or compressed.

A split owns the lines that *begin* in its byte range. So an object can be split anywhere without
reading it, and still every line is read exactly once.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import pyarrow as pa

from embertide.errors import InputError
from embertide.io.readers.dialect import LONGEST_LINE_BYTES, UTF8
from embertide.io.readers.recognise import refuse_other_object
from embertide.io.storage.protocol import ObjectInfo, Span, Storage

_CODECS = {".gz": "gzip", ".zst": "zstd"}
BLOCK_BYTES = 4 << 20
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
TO_THE_END = 1 << 62
"""A stop beyond every object's end, where its length is not known (see :func:`is_stream`)."""
_SCAN_BYTES = 1 << 20
_COMPRESSED_BYTES = 256 << 10
_GZIP_WINDOW = 31
"""As zlib takes it: the largest window, in gzip's format."""
_BEYOND_BYTES = 4096
"""Read past the end of a range to find the end of its last line."""
FIRST_LINE: Span = (0, _BEYOND_BYTES)
"""What of an object is read for its first line, if that is not longer."""


class Bytes(Protocol):
    """What lines are read from."""

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes; none at the end only."""

    def seek(self, offset: int) -> int:
        """Go to a byte (plain objects only)."""


def codec_of(uri: str) -> str | None:
    """The compression that the name tells: ``.gz``, ``.zst`` or none."""
    return next((codec for end, codec in _CODECS.items() if uri.endswith(end)), None)


def is_stream(uri: str, encoding: str) -> bool:
    """Whether an object can only be read from its beginning: compressed, or in another encoding."""
    return codec_of(uri) is not None or encoding != UTF8


@contextmanager
def text_file(
    storage: Storage, info: ObjectInfo, encoding: str, spans: Sequence[Span] = ()
) -> Iterator[Any]:
    """The object's (decompressed) bytes as UTF-8; InputError when they are not what is stated.

    Args:
        encoding: of the object's text.
        spans: what of a plain object will be read; none: all.
    """
    plain = not is_stream(info.uri, encoding)
    with storage.open(info.uri, info, spans if plain else ()) as raw:
        if plain:
            yield raw
            return
        try:
            yield _decoded(raw, codec_of(info.uri), encoding)
        except (pa.ArrowException, OSError, zlib.error) as error:
            codec = codec_of(info.uri)
            refuse_other_object(storage, info, f"{codec}, as its name says", codec or "")
            raise InputError(
                f"{info.uri} cannot be decompressed as {codec} ({error}): it is"
                " truncated or damaged, or its name ends in a suffix it should not have"
            ) from error
        except UnicodeError as error:
            raise InputError(
                f"{info.uri} is not {encoding} (dialect.encoding; {error}); correct the encoding,"
                " or convert the file"
            ) from error


def _decoded(raw: Any, codec: str | None, encoding: str) -> Any:
    if codec == "gzip":
        raw = _Gzip(raw)
        if encoding == UTF8:
            return raw
    file = pa.PythonFile(raw, mode="r")
    if codec == "zstd":
        file = pa.CompressedInputStream(file, codec)
    return file if encoding == UTF8 else pa.transcoding_input_stream(file, encoding, UTF8)


class _Gzip(io.RawIOBase):
    """What gzip members hold, one after the other; zeros after one are padding, as of tapes.

    Arrow refuses padding, and Python's own module is slower.
    """

    def __init__(self, file: Any) -> None:
        self._file, self._held = file, b""
        self._member: Any = None
        self._begun = False

    def readable(self) -> bool:
        """As arrow asks."""
        return True

    def read(self, size: int = -1) -> bytes:
        """At most ``size`` bytes; none at the end only.

        Raises:
            OSError: it ends early.
            zlib.error: it is damaged.
        """
        parts: list[bytes] = []
        while size > 0:
            data = self._held or self._file.read(_COMPRESSED_BYTES)
            if self._member is None:
                if self._begun and not data:
                    break
                if self._begun and not (data := data.lstrip(b"\0")):
                    self._held = b""
                    continue
                self._member, self._begun = zlib.decompressobj(_GZIP_WINDOW), True
            found = self._member.decompress(data, size)
            if not data and not found and not self._member.eof:
                raise OSError("it ends early")
            parts.append(found)
            size -= len(found)
            if self._member.eof:
                self._held, self._member = self._member.unused_data, None
            else:
                self._held = self._member.unconsumed_tail
        return b"".join(parts)


def span_of_lines(start: int, stop: int) -> Span:
    """What :func:`line_blocks` reads of an object, if the last line is not long."""
    return max(0, start - 1), stop + _BEYOND_BYTES


def line_blocks(
    file: Bytes, uri: str, start: int, stop: int, block_bytes: int
) -> Iterator[tuple[int, bytes]]:
    """The lines that begin in ``[start, stop)`` as (offset, whole lines).

    ``start`` must be 0 in an object that :func:`is_stream`.

    Raises:
        InputError: a line is over 64 MiB long, a sign of another format.
    """
    held, offset = _from_first_line(file, uri, start)
    while offset < stop:
        ahead = stop - offset - len(held)
        chunk = file.read(min(block_bytes, max(ahead, 0) + _BEYOND_BYTES))
        held += chunk
        end = held.find(b"\n", stop - 1 - offset) + 1 if offset + len(held) >= stop else 0
        if end or not chunk:
            if held:
                yield offset, held[:end] if end else held
            return
        cut = held.rfind(b"\n") + 1
        _refuse_endless(uri, offset, len(held) - cut)
        if cut:
            yield offset, held[:cut]
            held, offset = held[cut:], offset + cut


def _from_first_line(file: Bytes, uri: str, start: int) -> tuple[bytes, int]:
    """Bytes read from where the first line at or after ``start`` begins, and that offset."""
    if start == 0:
        return b"", 0
    # One byte earlier, so that a line that begins exactly at start is recognised as such.
    position = start - 1
    file.seek(position)
    while chunk := file.read(_BEYOND_BYTES):
        end = chunk.find(b"\n") + 1
        if end:
            return chunk[end:], position + end
        position += len(chunk)
        _refuse_endless(uri, start, position - start)
    return b"", position


def _refuse_endless(uri: str, offset: int, length: int) -> None:
    if length > LONGEST_LINE_BYTES:
        raise InputError(
            f"{uri} has no line break in the {LONGEST_LINE_BYTES >> 20} MiB after byte {offset}: "
            "it is not csv or tsv with \\n line breaks; correct format in the manifest, or convert"
        )


def first_lines(file: Bytes, uri: str) -> Iterator[bytes]:
    """Lines from the beginning on, with their line ends; reads little more than is taken."""
    for _, block in line_blocks(file, uri, 0, TO_THE_END, _BEYOND_BYTES):
        yield from _LINE.findall(block)


def count_lines_before(file: Bytes, offset: int) -> int:
    """Line ends in the first ``offset`` bytes: read for error messages only."""
    lines = 0
    while offset and (chunk := file.read(min(_SCAN_BYTES, offset))):
        lines += chunk.count(b"\n")
        offset -= len(chunk)
    return lines
