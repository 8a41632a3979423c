"""Writes a record: blocks of each rank's values, what all ranks agree on, and the seal.

Threads write; a thread of the first rank seals, since it waits for the disk. What an earlier run
has kept of a tensor is not written again where few rows have moved: the seal refers to its blocks,
and the rows that moved are a *patch* beside them. A patch that has no more rows than are written
after it is merged with them, so that a tensor has few patches, each smaller than the one before,
and a row is written again about as often as the logarithm of their rows. Once they might have more
than a share of all rows, the tensor is written whole.

The object of a block is its values, row by row; of a patch the dense ids of its rows, [k] int64,
then their values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from embertide.errors import EmbertideError
from embertide.io.versions.layers.places import block_path
from embertide.io.versions.layers.reading import Positions, overlaps, positions, within
from embertide.io.versions.layers.seals import (
    ITEM_BYTES,
    POSITION_BYTES,
    Beside,
    Block,
    Damaged,
    KeptTensor,
    Patch,
    PatchBlock,
    Seal,
    block_of,
)
from embertide.io.versions.layers.store import Array, LayerStore, Part, Values

BLOCK_BYTES = (8 << 20) - (64 << 10)
"""One request each: of a store, an upload in parts begins at 8 MiB and leaves parts when killed."""
MOST_SHARE = 0.25
"""The most rows that the patches of a tensor have, as a share of all."""
STAY = "blocks of a layer that is not kept stay for 24 hours: {why}"
_WRITERS = 2
_NUMBERS = {"": 0, "exact": 400, "bounds": 700}
"""What to add to the number of a tensor, which is that among a record's."""
Agree = Callable[[Any], list[Any]]
"""Plain values of this rank -> those of all; collective."""
RowsBeside = tuple[Beside, Positions, Array]
"""What is kept beside a tensor: the dense ids of some of our rows, ascending, and [k, d] values."""


class Writer:
    """Writes records of a key. Every rank has one; all make the same records in the same order.

    Args:
        warn: hears of blocks that could not be removed.
    """

    def __init__(
        self,
        store: LayerStore,
        rank: int,
        agree: Agree,
        warn: Callable[[str], None] = lambda _why: None,
    ) -> None:
        self.store, self.rank, self.agree, self.warn = store, rank, agree, warn
        self.pool = ThreadPoolExecutor(_WRITERS, "kept")
        self.sealer = ThreadPoolExecutor(1, "seals")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """No record is written any more; those that are being sealed are waited for."""
        self.pool.shutdown(cancel_futures=True)
        self.sealer.shutdown()

    def begin(self, name: str, **fields: Any) -> Record:
        """A record.

        Args:
            fields: of :class:`Seal`; those of a layer where it is one.
        """
        store = self.store
        return Record(self, Seal(key=store.key, name=name, version=store.version, **fields))


class Record:
    """A record on its way to the store.

    Attributes:
        seal: with all blocks, once all ranks have agreed.
        why: why it may not be sealed, "" for nothing.
        written: bytes of the blocks that all ranks have written, once they have agreed.
    """

    def __init__(self, writer: Writer, seal: Seal) -> None:
        self.seal, self.why, self.written = seal, "", 0
        self._writer, self._tensors = writer, list[KeptTensor]()
        self._writing, self._blocks = list[list[Future[Block]]](), list[Block]()

    def put(
        self,
        tensor: KeptTensor,
        values: Values | None,
        first: int = 0,
        left: int = 0,
        earlier: EarlierRows | None = None,
        beside: Iterable[RowsBeside] = (),
    ) -> None:
        """Begin to write our rows and columns of a tensor; all ranks name the same ones in order.

        Args:
            tensor: without blocks.
            values: [n, d] from row ``first`` and column ``left`` on, which nothing may change
                before they are written; None where no row has moved.
            earlier: what an earlier run has kept of the tensor.
        """
        writer, number = self._writer, len(self._tensors)
        plan = None if earlier is None else plan_patch(tensor, earlier)
        self._tensors.append(tensor if plan is None else plan.tensor)
        parts = list[Iterator[tuple[Part, Block]]]()
        cut = partial(_cut, (writer.store.version, self.seal.name, number, writer.rank))
        if values is not None and (earlier is None or plan is None):
            parts.append(cut(values, first, left))
        elif values is not None and earlier is not None and plan is not None:
            try:
                rows = _moved(writer.store, values, (first, left), earlier, plan)
                parts.append(cut(values, first, left, rows))
            except Damaged as error:
                self.why = self.why or str(error)
        for kind, ids, own in beside:
            parts.append(cut(own, 0, left, np.arange(len(ids)), ids, kind))
        blocks = (item for of in parts for item in of)
        submit, write = writer.pool.submit, writer.store.write
        self._writing.append([] if self.why else [submit(write, *item) for item in blocks])

    def wait(self) -> None:
        """Until what was put is written, or has failed."""
        for block in (block for of in self._writing for block in of):
            block.exception()

    def result(self) -> tuple[str, list[list[dict[str, Any]]]]:
        """Why ours may not be sealed, and the blocks of each tensor that were written."""
        self.wait()
        errors = [e for of in self._writing for block in of if (e := block.exception())]
        for error in errors:
            if not isinstance(error, (EmbertideError, Damaged)):
                raise error
        done = [[b.result() for b in of if b.exception() is None] for of in self._writing]
        return self.why or (str(errors[0]) if errors else ""), [
            list(map(asdict, of)) for of in done
        ]

    def agree(self, *, alone: bool = False) -> str:
        """Why the record may not be sealed, "" where it may; the same on all ranks.

        What was written in vain is removed. Collective: every rank must call.

        Args:
            alone: no other rank has the record; then none must call.
        """
        gathered = [self.result()] if alone else self._writer.agree(self.result())
        self.why = next((why for why, _ in gathered if why), "")
        if self.why:
            self._blocks = [block_of(b) for _, theirs in gathered for of in theirs for b in of]
            if self._writer.rank == 0:
                self.discard()
            return self.why
        tensors = list[KeptTensor]()
        for number, tensor in enumerate(self._tensors):
            blocks = tuple(block_of(b) for _, theirs in gathered for b in theirs[number])
            self._blocks += blocks
            self.written += sum(block.size(ITEM_BYTES[tensor.dtype]) for block in blocks)
            tensors.append(tensor.with_blocks(blocks))
        self.seal = replace(self.seal, tensors=tuple(tensors))
        return self.why

    def sealing(self) -> Future[str]:
        """Why it cannot be sealed, "" where it is; a thread of the first rank does it.

        Where another attempt has sealed it, what we have written is removed.
        """
        return self._writer.sealer.submit(self._seal)

    def _seal(self) -> str:
        try:
            if not self._writer.store.seal(self.seal):
                self.discard()
        except EmbertideError as error:
            return str(error)
        return ""

    def keep(self) -> str:
        """Agree and seal; why it is not kept, "" where it is. Collective: every rank must call."""
        why = self.agree()
        if not why and self._writer.rank == 0:
            why = self.sealing().result()
        return next(filter(None, self._writer.agree(why)), "")

    def take_back(self) -> None:
        """What was sealed is not to be believed: remove it. The first rank calls."""
        self._writer.store.drop(self.seal.name)
        self.discard()

    def discard(self) -> None:
        """Remove what was written in vain. The first rank calls."""
        try:
            self._writer.store.remove(self._blocks)
        except EmbertideError as error:
            self._writer.warn(STAY.format(why=error))


# -- patches -----------------------------------------------------------------------------


@dataclass(frozen=True)
class EarlierRows:
    """A tensor that an earlier run has kept, of which this run has other values in some rows.

    Attributes:
        key: of the earlier run.
        moved: [N] bool, the rows with other values; the others have the bits that were kept. Rows
            are where they were.
    """

    key: str
    tensor: KeptTensor
    moved: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PatchPlan:
    """What a run refers to of an earlier tensor, and what it writes.

    Attributes:
        tensor: the earlier blocks, and the patches that stay.
        merged: patches whose rows are written again, with those that have moved.
    """

    tensor: KeptTensor
    merged: tuple[Patch, ...]


def plan_patch(tensor: KeptTensor, earlier: EarlierRows) -> PatchPlan | None:
    """How a tensor is kept beside what an earlier run has kept of it; None: it is written whole.

    The same on all ranks.

    Args:
        tensor: as this run has it, without blocks.
    """
    before, moved = earlier.tensor, int(earlier.moved.sum())
    if (before.rows, before.width, before.dtype) != (tensor.rows, tensor.width, tensor.dtype):
        return None
    stay, merged = list(before.patches), list[Patch]()
    rows = moved
    while moved and stay and rows_of(stay[-1], tensor.width) <= rows:
        merged.append(stay.pop())
        rows += rows_of(merged[-1], tensor.width)
    rows += sum(rows_of(patch, tensor.width) for patch in stay)
    if rows > MOST_SHARE * tensor.rows:
        return None
    refers = replace(
        tensor,
        blocks=tuple(replace(block, key=block.key or earlier.key) for block in before.blocks),
        patches=tuple(_of_key(patch, earlier.key) for patch in stay),
    )
    return PatchPlan(refers, tuple(_of_key(patch, earlier.key) for patch in merged))


def _of_key(patch: Patch, key: str) -> Patch:
    return tuple(replace(block, key=block.key or key) for block in patch)


def rows_of(patch: Patch, width: int) -> int:
    """How many rows a patch has; slices of columns have the same ones."""
    return sum(block.rows * (block.right - block.left) for block in patch) // max(1, width)


def _moved(
    store: LayerStore,
    values: Values,
    place: tuple[int, int],
    earlier: EarlierRows,
    plan: PatchPlan,
) -> Positions:
    """[k] our rows that moved, or are in a patch that is merged, from 0.

    Raises:
        Damaged: a patch that is merged is not what was written, or cannot be read.
    """
    rows, columns = (
        (start, start + length) for start, length in zip(place, values.shape, strict=True)
    )
    moved = earlier.moved[slice(*rows)].copy()
    for block in (block for patch in plan.merged for block in patch):
        if overlaps(block, rows, columns):
            ids = positions(store, block, values.itemsize)
            moved[ids[within(ids, rows)] - rows[0]] = True
    return np.flatnonzero(moved)


def _cut(
    names: tuple[str, str, int, int],
    values: Values,
    first: int,
    left: int,
    rows: Positions | None = None,
    ids: Positions | None = None,
    beside: Beside = "",
) -> Iterator[tuple[Part, Block]]:
    """The blocks of some values, without checksums, and what makes their objects.

    Args:
        names: the version, the record's name, the tensor's number, the rank.
        rows: those of a patch, or beside the tensor; None: all.
        ids: their dense ids; None: from ``first`` on.
    """
    version, name, tensor, rank = names
    path = partial(block_path, version, name, _NUMBERS[beside] + tensor, rank)
    right, row_bytes = left + values.shape[1], values.itemsize * values.shape[1]
    if rows is None:
        most = max(1, BLOCK_BYTES // max(1, row_bytes))
        count = values.shape[0]
        for number, at in enumerate(range(0, count, most)):
            span = slice(at, min(at + most, count))
            ends = first + span.start, first + span.stop
            yield partial(_rows, values, span), Block(path(number), *ends, left, right, "")
        return
    ids, most = (
        rows + first if ids is None else ids,
        max(1, BLOCK_BYTES // (POSITION_BYTES + row_bytes)),
    )
    for number, at in enumerate(range(0, len(rows), most)):
        some, own = rows[at : at + most], ids[at : at + most]
        ends = int(own[0]), int(own[-1]) + 1
        block = PatchBlock(path(number), *ends, left, right, "", "", len(own), beside)
        yield partial(_object, values, some, own), block


def _rows(values: Values, some: slice | Positions) -> Array:
    return np.ascontiguousarray(values[some])


def _object(values: Values, rows: Positions, ids: Positions) -> Array:
    parts = ids, _rows(values, rows)
    return np.concatenate([part.reshape(-1).view(np.uint8) for part in parts])
