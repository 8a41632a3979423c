"""Reads what a record has sealed, whole or some rows of it: every page by its own checksum.

Blocks are cut from each worker's rows, so they differ by grid; what is read is any rows and columns
of the whole tensor, whichever ranks wrote them, with the rows of its patches in their places. Of a
block only the pages are read that have a row that is asked for, and those of a small gap between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view
from xxhash import xxh3_64_intdigest

from embertide.errors import EmbertideError
from embertide.io.storage.protocol import GAP_BYTES, Span
from embertide.io.versions.layers import seals
from embertide.io.versions.layers.places import key_uri
from embertide.io.versions.layers.seals import (
    ITEM_BYTES,
    POSITION_BYTES,
    Beside,
    Block,
    Damaged,
    KeptTensor,
    PatchBlock,
    Seal,
)
from embertide.io.versions.layers.store import Array, LayerStore
from embertide.spec.schemes import is_local

LOCAL_GAP_BYTES = 16 << 10
"""As :data:`GAP_BYTES`, of a file."""
_READERS = 4
Positions = npt.NDArray[np.int64]
Range = tuple[int, int]
Read = Callable[[], None]
_Block = TypeVar("_Block", bound=Block)


@dataclass(frozen=True)
class Kept:
    """A sealed record.

    All methods raise :class:`Damaged` where what is read is not what was written, or cannot be.
    """

    store: LayerStore
    seal: Seal

    def has(self, name: str) -> int | None:
        """How many rows of a tensor there are; None where it was not kept."""
        return next((of.rows for of in self.seal.tensors if of.name == name), None)

    def tensor(self, name: str) -> KeptTensor:
        """A tensor of the record."""
        for tensor in self.seal.tensors:
            if tensor.name == name:
                return tensor
        raise Damaged(f"{self.store.uri}: {name} was not kept")

    def get(self, name: str, rows: Range | Positions, out: Array, left: int = 0) -> None:
        """Fill [k, d] with rows of a tensor, and its columns from ``left`` on.

        Takes memory for a few blocks beside them.

        Args:
            rows: a range of dense ids as they were when the tensor was kept; or [k] of them in any
                order, each of which may occur several times.
            out: of the tensor's type.
        """
        tensor = self.tensor(name)
        if out.itemsize != ITEM_BYTES[tensor.dtype]:
            raise Damaged(f"{self.store.uri}: {name} is of {tensor.dtype}")
        columns = left, left + out.shape[1]
        if isinstance(rows, tuple):
            steps = self._range(tensor, rows, columns, out)
        else:
            steps = self._rows(tensor, rows, columns, out)
            if is_local(self.store.output_uri):
                # Pages here and there of a file are read sooner than threads begin.
                for read in chain.from_iterable(steps):
                    read()
                return
        with ThreadPoolExecutor(_READERS, "kept") as pool:
            for reads in steps:
                for _ in pool.map(lambda read: read(), reads):
                    pass

    def beside(
        self, name: str, kind: Beside, rows: Range, columns: Range, dtype: npt.DTypeLike
    ) -> tuple[Positions, Array]:
        """[k] ascending dense ids and [k, d] values of what is kept beside a tensor, in a range."""
        tensor, item_bytes = self.tensor(name), np.dtype(dtype).itemsize
        blocks = tensor.exact if kind == "exact" else tensor.bounds
        ids, values = [np.empty(0, np.int64)], [np.empty((0, columns[1] - columns[0]), dtype)]
        for block in (block for block in blocks if overlaps(block, rows, columns)):
            if (block.left, block.right) != columns:
                raise Damaged(f"{self.store.uri}: {block.path} has other columns than {columns}")
            positions, part = self._patch(block, np.dtype(dtype), item_bytes)
            some = within(positions, rows)
            ids.append(positions[some])
            values.append(part[some])
        every = np.concatenate(ids)
        order = np.argsort(every, kind="stable")
        return every[order], np.concatenate(values)[order]

    # -- a range -------------------------------------------------------------------------

    def _range(
        self, tensor: KeptTensor, rows: Range, columns: Range, out: Array
    ) -> Iterator[Iterable[Read]]:
        """What fills a range; the patches after the blocks, the oldest first."""
        wanted = [block for block in tensor.blocks if overlaps(block, rows, columns)]
        cells = sum(_cells(block, rows, columns) for block in wanted)
        if cells != out.size:
            raise Damaged(
                f"{self.store.uri}: the blocks of {tensor.name} have {cells} of the {out.size}"
                f" values of rows {rows[0]} to {rows[1]}, columns {columns[0]} to {columns[1]}"
            )
        yield (partial(self._copy, block, rows, columns, out) for block in wanted)
        for patch in tensor.patches:
            some = (block for block in patch if overlaps(block, rows, columns))
            yield (partial(self._put, block, rows, columns, out) for block in some)

    def _copy(self, block: Block, rows: Range, columns: Range, out: Array) -> None:
        """Copy what a block has of a range to its place."""
        top, bottom = max(rows[0], block.first), min(rows[1], block.last)
        left, right = max(columns[0], block.left), min(columns[1], block.right)
        target = out[top - rows[0] : bottom - rows[0], left - columns[0] : right - columns[0]]
        if target.nbytes == block.size(out.itemsize) and target.flags.c_contiguous:
            self._bytes(block, out.itemsize, (0, target.nbytes), target.reshape(-1).view(np.uint8))
            return
        row_bytes = (block.right - block.left) * out.itemsize
        span = (top - block.first) * row_bytes, (bottom - block.first) * row_bytes
        values = np.frombuffer(self._bytes(block, out.itemsize, span), out.dtype)
        target[:] = values.reshape(bottom - top, -1)[:, left - block.left : right - block.left]

    def _put(self, block: PatchBlock, rows: Range, columns: Range, out: Array) -> None:
        """Put the rows of a patch in place of those before, within a range."""
        positions, values = self._patch(block, out.dtype, out.itemsize)
        left, right = max(columns[0], block.left), min(columns[1], block.right)
        some = within(positions, rows)
        out[positions[some] - rows[0], left - columns[0] : right - columns[0]] = values[
            some, left - block.left : right - block.left
        ]

    def _patch(
        self, block: PatchBlock, dtype: np.dtype[Any], item_bytes: int
    ) -> tuple[Positions, Array]:
        data = self._bytes(block, item_bytes, (0, block.size(item_bytes)))
        cut = block.rows * POSITION_BYTES
        positions = np.frombuffer(data[:cut], np.int64)
        return positions, np.frombuffer(data[cut:], dtype).reshape(block.rows, -1)

    # -- some rows -----------------------------------------------------------------------

    def _rows(
        self, tensor: KeptTensor, rows: Positions, columns: Range, out: Array
    ) -> Iterator[Iterable[Read]]:
        """What fills some rows, as :meth:`_range`."""
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < tensor.rows:
            raise Damaged(f"{self.store.uri}: {tensor.name} has {tensor.rows} rows,"
                          f" {int(rows.max())} is asked for")  # fmt: skip
        order = np.argsort(rows, kind="stable")
        wanted = rows[order]
        cells, reads = 0, list[Read]()
        for block, some in _with_rows(tensor.blocks, wanted, columns):
            at = wanted[some] - block.first
            cells += len(at) * (min(columns[1], block.right) - max(columns[0], block.left))
            reads.append(partial(self._take, block, at, 0, order[some], columns, out))
        if cells != out.size:
            raise Damaged(f"{self.store.uri}: the blocks of {tensor.name} have {cells} of the"
                          f" {out.size} values of {len(rows)} rows")  # fmt: skip
        yield reads
        for patch in tensor.patches:
            yield from self._patched(patch, wanted, order, columns, out)

    def _patched(
        self,
        patch: seals.Patch,
        wanted: Positions,
        order: Positions,
        columns: Range,
        out: Array,
    ) -> Iterator[Iterable[Read]]:
        """What puts rows of a patch in place of those before: their dense ids, then the rows."""
        found = list[Read]()

        def find(block: PatchBlock, some: slice) -> None:
            ids = positions(self.store, block, out.itemsize)
            at = np.minimum(np.searchsorted(ids, wanted[some]), len(ids) - 1)
            there = ids[at] == wanted[some]
            where = order[some][there]
            if len(where):
                base = ids.nbytes
                found.append(partial(self._take, block, at[there], base, where, columns, out))

        yield (partial(find, *item) for item in _with_rows(patch, wanted, columns))
        yield found

    def _take(
        self,
        block: Block,
        at: Positions,
        base: int,
        where: Positions,
        columns: Range,
        out: Array,
    ) -> None:
        """Take rows of a block.

        Args:
            at: [k] their places in the block, ascending.
            base: bytes of the object before its values.
            where: [k] the rows of ``out``.
        """
        page, row_bytes = seals.PAGE_BYTES, (block.right - block.left) * out.itemsize
        gap = LOCAL_GAP_BYTES if is_local(self.store.output_uri) else GAP_BYTES
        places = base + at * row_bytes
        first, last = places // page, (places + row_bytes - 1) // page
        cuts = np.flatnonzero((first[1:] - last[:-1] - 1) * page > gap) + 1
        starts = page * first[np.append(0, cuts)]
        stops = np.minimum(page * (last[np.append(cuts - 1, -1)] + 1), block.size(out.itemsize))
        spans = list(zip(starts.tolist(), stops.tolist(), strict=True))
        data = np.frombuffer(read_pages(self.store, block, out.itemsize, spans), out.dtype)
        # Where each run of pages is among what was read.
        moved = np.cumsum(stops - starts) - stops
        runs = np.diff(np.concatenate([[0], cuts, [len(at)]]))
        left, right = max(columns[0], block.left), min(columns[1], block.right)
        begins = (places + np.repeat(moved, runs)) // out.itemsize + left - block.left
        rows = sliding_window_view(data, right - left)[begins]
        out[where, left - columns[0] : right - columns[0]] = rows

    def _bytes(
        self, block: Block, item_bytes: int, span: Range, out: Array | None = None
    ) -> memoryview:
        """Some bytes of a block's object; to ``out`` where they are all of them."""
        page, size = seals.PAGE_BYTES, block.size(item_bytes)
        first, last = span[0] // page * page, min(size, -(-span[1] // page) * page)
        data = read_pages(self.store, block, item_bytes, [(first, last)], out)
        return data[span[0] - first : span[1] - first]


def positions(store: LayerStore, block: PatchBlock, item_bytes: int) -> Positions:
    """[k] the dense ids of a patch's rows.

    Raises:
        Damaged: they are not what was written, or cannot be read.
    """
    end, page = block.rows * POSITION_BYTES, seals.PAGE_BYTES
    spans = [(0, min(block.size(item_bytes), -(-end // page) * page))]
    return np.frombuffer(read_pages(store, block, item_bytes, spans)[:end], np.int64)


def read_pages(
    store: LayerStore,
    block: Block,
    item_bytes: int,
    spans: Sequence[Span],
    out: Array | None = None,
) -> memoryview:
    """Pages of a block's object, one after another, each of which is what was written.

    Args:
        spans: their bytes, ascending.
        out: where they go; None: a new place.

    Raises:
        Damaged: a page is not what was written, or cannot be read.
    """
    page, size = seals.PAGE_BYTES, block.size(item_bytes)
    uri = f"{key_uri(store.output_uri, block.key or store.key)}/{block.path}"
    count = sum(stop - start for start, stop in spans)
    data = (np.empty(count, np.uint8) if out is None else out).data
    try:
        there = store.storage.read_into(uri, data, spans)
    except EmbertideError as error:
        raise Damaged(str(error)) from error
    if there != size:
        raise Damaged(f"{uri} has {there} bytes, {size} were written")
    known, at = seals.from_text(block.checksums), 0
    for start, stop in spans:
        pages = (data[at + of : at + min(of + page, stop - start)]
                 for of in range(0, stop - start, page))  # fmt: skip
        if [*map(xxh3_64_intdigest, pages)] != known[start // page : -(-stop // page)].tolist():
            raise Damaged(f"{uri} does not match its checksum")
        at += stop - start
    return data


def _with_rows(
    blocks: Iterable[_Block], wanted: Positions, columns: Range
) -> Iterator[tuple[_Block, slice]]:
    """The blocks that may have some of the columns of ascending rows, and which rows these are."""
    some = [of for of in blocks if max(columns[0], of.left) < min(columns[1], of.right)]
    starts = np.searchsorted(wanted, np.array([block.first for block in some], np.int64))
    stops = np.searchsorted(wanted, np.array([block.last for block in some], np.int64))
    for block, start, stop in zip(some, starts.tolist(), stops.tolist(), strict=True):
        if start < stop:
            yield block, slice(start, stop)


def overlaps(block: Block, rows: Range, columns: Range) -> bool:
    """Whether a block may have some of a range of rows and columns."""
    return (
        max(rows[0], block.first) < min(rows[1], block.last)
        and max(columns[0], block.left) < min(columns[1], block.right)
    )  # fmt: skip


def within(positions: Positions, rows: Range) -> slice:
    """Those of ascending dense ids that are in a range."""
    first, last = np.searchsorted(positions, rows)
    return slice(int(first), int(last))


def _cells(block: Block, rows: Range, columns: Range) -> int:
    """Values that a block has of a range."""
    height = min(rows[1], block.last) - max(rows[0], block.first)
    width = min(columns[1], block.right) - max(columns[0], block.left)
    return max(0, height) * max(0, width)
