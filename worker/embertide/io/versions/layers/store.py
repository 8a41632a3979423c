"""Writes blocks, seals a layer, and reads rows of a sealed one, in any store.

Blocks are cut from each worker's rows, so they differ by grid; what is read is a range of rows and
columns of the whole tensor, whichever rank wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_128_hexdigest

from embertide.errors import EmbertideError, ObjectMissing
from embertide.io.storage.protocol import Storage
from embertide.io.versions.layers.patches import (
    Part,
    PatchPlan,
    Positions,
    blocks_beside,
    overlaps,
    patch_blocks,
    split_patch,
)
from embertide.io.versions.layers.places import block_path, key_uri, layers_uri, seal_uri
from embertide.io.versions.layers.seals import (
    Beside,
    Block,
    Damaged,
    KeptTensor,
    Patch,
    PatchBlock,
    Seal,
    from_bytes,
    to_bytes,
)

BLOCK_BYTES = (8 << 20) - (64 << 10)
"""One request each: of a store, an upload in parts begins at 8 MiB and leaves parts when killed."""
_READERS = 4
_NUMBERS = {"exact": 400, "bounds": 700}
"""What to add to the number of a tensor, which is that among a layer's."""
Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Range = tuple[int, int]


@dataclass(frozen=True)
class LayerStore:
    """The kept layers of one key, as one attempt reads and writes them.

    Attributes:
        version: of the attempt.
        on_one_machine: all that write are on the machine of the one that seals, which waits for the
            disk then, once for all blocks; else each block is waited for as it is written.
    """

    storage: Storage
    output_uri: str
    key: str
    version: str
    on_one_machine: bool = False

    @property
    def uri(self) -> str:
        """The folder of the key."""
        return key_uri(self.output_uri, self.key)

    # -- writing -------------------------------------------------------------------------

    def blocks(
        self, name: str, tensor: int, rank: int, values: Array, first: int, left: int
    ) -> Iterator[tuple[Part, Block]]:
        """The blocks that a worker's rows are cut into, without their checksums.

        Args:
            tensor: its number among those of the layer.
            values: [n, d] rows from ``first`` on, columns from ``left`` on; C-contiguous.
        """
        rows = max(1, BLOCK_BYTES // max(1, values.itemsize * values.shape[1]))
        for number, at in enumerate(range(0, len(values), rows)):
            part = values[at : at + rows]
            path = block_path(self.version, name, tensor, rank, number)
            start, right = first + at, left + values.shape[1]
            yield part, Block(path, start, start + len(part), left, right, "")

    def patch(
        self,
        name: str,
        tensor: int,
        rank: int,
        values: Array,
        place: tuple[int, int],
        moved: npt.NDArray[np.bool_],
        plan: PatchPlan,
    ) -> Iterator[tuple[Part, Block]]:
        """What makes the objects of our part of a patch, and their blocks without checksums.

        Args:
            values: [n, d] our rows and columns.
            place: dense id of the first row, and the first column.
            moved: [n] bool, our rows that are not those of the earlier run.

        Raises:
            Damaged: a patch that is merged is not what was written, or cannot be read.
        """
        range_ = place[0], place[0] + len(values)
        rows = moved.copy()
        for block in (block for patch in plan.merged for block in patch):
            if overlaps(block, range_, (place[1], place[1] + values.shape[1])):
                positions, _ = split_patch(self._data(block, values.itemsize), block, values.dtype)
                rows[positions[_within(positions, range_)] - place[0]] = True
        names = self.version, name, tensor, rank
        return patch_blocks(names, values, np.flatnonzero(rows), place, BLOCK_BYTES)

    def beside(
        self,
        name: str,
        tensor: int,
        rank: int,
        values: Array,
        ids: Positions,
        left: int,
        beside: Beside,
    ) -> Iterator[tuple[Part, Block]]:
        """What makes the objects of what is kept beside a tensor, and their blocks.

        Args:
            values: [k, d] of some rows, of our columns, from ``left`` on.
            ids: [k] the dense ids of the rows, ascending.
            beside: the field of :class:`KeptTensor`.
        """
        names = self.version, name, _NUMBERS[beside] + tensor, rank
        return blocks_beside(names, values, ids, left, BLOCK_BYTES, beside)

    def write(self, part: Part, block: Block) -> Block:
        """Write a block; returns it with its checksum.

        Args:
            part: its values, or what makes the object's bytes from those of a tensor, which nothing
                may change until then.

        Raises:
            StorageError, OutputError: the store refused or failed.
        """
        values = part() if callable(part) else part
        uri, data = f"{self.uri}/{block.path}", values.reshape(-1).view(np.uint8).data
        if self.on_one_machine:
            self.storage.write_soon(uri, data)
        else:
            self.storage.write(uri, bytes(data))
        return replace(block, checksum=xxh3_128_hexdigest(data))

    def seal(self, seal: Seal) -> bool:
        """Make a layer complete; False where it is so already, by another attempt.

        Its blocks outlast a machine that goes down before it has its seal; those of an earlier key
        have their own seals.

        Raises:
            StorageError, OutputError: the store refused or failed.
        """
        if self.on_one_machine:
            blocks = (block for tensor in seal.tensors for block in tensor.every_block())
            self.storage.settle(f"{self.uri}/{block.path}" for block in blocks if not block.key)
        uri = seal_uri(self.output_uri, self.key, seal.name)
        return self.storage.write_if(uri, to_bytes(seal), None)

    def remove(self, blocks: Sequence[Block]) -> None:
        """Remove blocks that this attempt has written, and no seal has."""
        self.storage.delete(f"{self.uri}/{block.path}" for block in blocks)

    # -- reading -------------------------------------------------------------------------

    def is_there(self) -> bool:
        """Whether anything is kept under the key.

        Raises:
            StorageError: the store refuses or does not answer.
        """
        return self.key in self.storage.list_folders(layers_uri(self.output_uri))

    def sealed(self, name: str) -> Seal | None:
        """The record of a complete layer; None where there is none.

        Raises:
            Damaged: the record cannot be read, or is not what was written.
        """
        uri = seal_uri(self.output_uri, self.key, name)
        try:
            if self.storage.stat(uri) is None:
                return None
            return from_bytes(uri, self.storage.read(uri), self.key, name)
        except ObjectMissing:
            return None
        except EmbertideError as error:
            raise Damaged(str(error)) from error

    def drop(self, name: str) -> None:
        """Let a layer be incomplete again; its blocks go when the key is swept."""
        self.storage.delete([seal_uri(self.output_uri, self.key, name)])

    def read(self, tensor: KeptTensor, rows: Range, columns: Range, out: Array) -> None:
        """Fill [n, d] with a range of rows and columns of a tensor.

        Raises:
            Damaged: a block is not what was written, or cannot be read.
        """
        wanted = [block for block in tensor.blocks if overlaps(block, rows, columns)]
        cells = sum(_cells(block, rows, columns) for block in wanted)
        if cells != out.size:
            raise Damaged(
                f"{self.uri}: the blocks of {tensor.name} have {cells} of the {out.size} values of"
                f" rows {rows[0]} to {rows[1]}, columns {columns[0]} to {columns[1]}"
            )
        with ThreadPoolExecutor(_READERS, "layers") as pool:
            for _ in pool.map(lambda block: self._read(block, rows, columns, out), wanted):
                pass
            for patch in tensor.patches:
                some = [block for block in patch if overlaps(block, rows, columns)]
                for _ in pool.map(lambda block: self._put(block, rows, columns, out), some):
                    pass

    def read_beside(
        self, blocks: Patch, rows: Range, columns: Range, dtype: npt.DTypeLike
    ) -> tuple[Positions, Array]:
        """[k] ascending dense ids and [k, d] values of what is kept beside a tensor, in a range.

        Raises:
            Damaged: a block is not what was written, cannot be read, or has other columns.
        """
        width = columns[1] - columns[0]
        ids, values = [np.empty(0, np.int64)], [np.empty((0, width), dtype)]
        for block in (block for block in blocks if overlaps(block, rows, columns)):
            if (block.left, block.right) != columns:
                raise Damaged(f"{self.uri}: {block.path} has other columns than {columns}")
            data = self._data(block, np.dtype(dtype).itemsize)
            positions, part = split_patch(data, block, dtype)
            within = _within(positions, rows)
            ids.append(positions[within])
            values.append(part[within])
        every = np.concatenate(ids)
        order = np.argsort(every, kind="stable")
        return every[order], np.concatenate(values)[order]

    def _read(self, block: Block, rows: Range, columns: Range, out: Array) -> None:
        """Copy what a block has of a range to its place."""
        top, bottom = max(rows[0], block.first), min(rows[1], block.last)
        left, right = max(columns[0], block.left), min(columns[1], block.right)
        target = out[top - rows[0] : bottom - rows[0], left - columns[0] : right - columns[0]]
        if target.nbytes == block.size(out.itemsize) and target.flags.c_contiguous:
            self._data(block, out.itemsize, target.reshape(-1).view(np.uint8))
            return
        data = self._data(block, out.itemsize)
        values = np.frombuffer(data, out.dtype).reshape(block.last - block.first, -1)
        target[:] = values[
            top - block.first : bottom - block.first, left - block.left : right - block.left
        ]

    def _put(self, block: PatchBlock, rows: Range, columns: Range, out: Array) -> None:
        """Put the rows of a patch in place of those before, within a range."""
        positions, values = split_patch(self._data(block, out.itemsize), block, out.dtype)
        left, right = max(columns[0], block.left), min(columns[1], block.right)
        within = _within(positions, rows)
        out[positions[within] - rows[0], left - columns[0] : right - columns[0]] = values[
            within, left - block.left : right - block.left
        ]

    def _data(self, block: Block, item_bytes: int, out: Bytes | None = None) -> memoryview:
        """A block's bytes, which are what was written.

        Args:
            out: where they go, as many as the block has; None: a new place.
        """
        uri = f"{key_uri(self.output_uri, block.key or self.key)}/{block.path}"
        size = block.size(item_bytes)
        data = (np.empty(size, np.uint8) if out is None else out).data
        try:
            there = self.storage.read_into(uri, data)
        except EmbertideError as error:
            raise Damaged(str(error)) from error
        if there != size:
            raise Damaged(f"{uri} has {there} bytes, {size} were written")
        if xxh3_128_hexdigest(data) != block.checksum:
            raise Damaged(f"{uri} does not match its checksum")
        return data


def _within(positions: Positions, rows: Range) -> slice:
    """Those of ascending dense ids that are in a range."""
    first, last = np.searchsorted(positions, rows)
    return slice(int(first), int(last))


def _cells(block: Block, rows: Range, columns: Range) -> int:
    """Values that a block has of a range."""
    height = min(rows[1], block.last) - max(rows[0], block.first)
    width = min(columns[1], block.right) - max(columns[0], block.left)
    return max(0, height) * max(0, width)
