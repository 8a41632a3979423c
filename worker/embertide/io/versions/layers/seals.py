"""The record of a complete layer: its tensors, and their blocks with checksums of their pages."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

_FORM = 2
"""The form of the record; another one counts as damaged, and the layer is computed again."""
PAGE_BYTES = 16 << 10
"""What is read of a block at least, since a checksum covers it; of a block's end less."""
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "int32": 4}
POSITION_BYTES = 8
"""What a row's dense id takes in a patch."""
Beside = Literal["", "exact", "bounds"]


class Damaged(Exception):
    """A kept layer is not what was written, or cannot be read; the message says which object."""


@dataclass(frozen=True)
class Block:
    """Consecutive rows of some columns of a tensor, row by row, as one object.

    Attributes:
        path: below the folder of the key.
        first, last: rows, by dense id; ``last`` is one past the last.
        left, right: columns, likewise.
        checksums: of each page of the object, see :func:`checksums_of`.
        key: in whose folder it lies, where that is not its seal's; "": it is.
    """

    path: str
    first: int
    last: int
    left: int
    right: int
    checksums: str
    key: str = ""

    def size(self, item_bytes: int) -> int:
        """Bytes of the object."""
        return (self.last - self.first) * (self.right - self.left) * item_bytes


@dataclass(frozen=True)
class PatchBlock(Block):
    """Some of the rows from ``first`` to ``last``: their dense ids, ascending, then their values.

    Attributes:
        rows: how many.
        beside: the field of :class:`KeptTensor` that they are of, if they are not of a patch.
    """

    rows: int = 0
    beside: Beside = ""

    def size(self, item_bytes: int) -> int:
        """Bytes of the object."""
        return self.rows * (POSITION_BYTES + (self.right - self.left) * item_bytes)


def checksums_of(data: memoryview) -> str:
    """XXH3 with 64 bits of each page of an object's bytes, as text: 1/1500 of their length."""
    pages = (data[at : at + PAGE_BYTES] for at in range(0, len(data), PAGE_BYTES))
    return b64encode(np.fromiter(map(xxh3_64_intdigest, pages), "<u8").tobytes()).decode()


def from_text(checksums: str) -> npt.NDArray[np.uint64]:
    """[pages] what :func:`checksums_of` has made a text of."""
    return np.frombuffer(b64decode(checksums), "<u8")


Patch = tuple[PatchBlock, ...]
"""Rows that stand in place of those of a tensor's blocks, and of the patches before."""


def block_of(data: dict[str, Any]) -> Block:
    """What ``asdict`` described."""
    return PatchBlock(**data) if "rows" in data else Block(**data)


@dataclass(frozen=True, kw_only=True)
class KeptTensor:
    """A tensor of a kept layer.

    Attributes:
        rows, width: N and D of the whole tensor.
        layout: that in which the workers had it.
        scaled: its rows are multiplied already by the factors of the sum that reads them.
        blocks: all rows and columns.
        patches: rows that later runs have computed again, the oldest first.
        made_of: a digest of what digests of rows are made of, beside the parts of their objects;
            "": it is not known.
        parts: a digest of each part of these objects.
        exact: rows as the run has computed them, where they have not moved by more than its
            tolerance and stay as they were; of tensors of the first layers that are kept.
        bounds: of rows of other layers how far they may be from what their layer makes of the rows
            before, as a float32 each; rows that are not there are as their layer makes them.
    """

    name: str
    rows: int
    width: int
    dtype: str
    layout: Literal["tile", "rows"]
    scaled: bool
    blocks: tuple[Block, ...]
    patches: tuple[Patch, ...] = ()
    made_of: str = ""
    parts: tuple[str, ...] = ()
    exact: Patch = ()
    bounds: Patch = ()

    @property
    def size(self) -> int:
        """Bytes of all values, and of what is kept beside them."""
        item_bytes = ITEM_BYTES[self.dtype]
        beside = sum(block.size(item_bytes) for block in (*self.exact, *self.bounds))
        return self.rows * self.width * item_bytes + beside

    def with_blocks(self, blocks: tuple[Block, ...]) -> KeptTensor:
        """With blocks that were written: all rows; where it has blocks, a patch, or rows after
        theirs."""
        some = [block for block in blocks if isinstance(block, PatchBlock)]
        exact, bounds, patch = (
            tuple(block for block in some if block.beside == beside)
            for beside in ("exact", "bounds", "")
        )
        if not self.blocks:
            whole = tuple(block for block in blocks if not isinstance(block, PatchBlock))
            return replace(self, blocks=whole, exact=exact, bounds=bounds)
        patches = (*self.patches, patch) if patch else self.patches
        more = tuple(block for block in blocks if not isinstance(block, PatchBlock))
        every = (*self.blocks, *more)
        return replace(self, blocks=every, patches=patches, exact=exact, bounds=bounds)

    def every_block(self) -> Iterator[Block]:
        """The blocks, then those of the patches, then those of what is kept beside."""
        yield from self.blocks
        for patch in self.patches:
            yield from patch
        yield from self.exact
        yield from self.bounds

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> KeptTensor:
        """What ``asdict`` described."""
        blocks = tuple(Block(**block) for block in data["blocks"])
        patches = tuple(
            tuple(PatchBlock(**block) for block in patch) for patch in data.get("patches", ())
        )
        beside = {
            name: tuple(PatchBlock(**block) for block in data.get(name, ()))
            for name in ("exact", "bounds")
        }
        parts = tuple(data.get("parts", ()))
        return cls(**{**data, "blocks": blocks, "patches": patches, "parts": parts, **beside})


def kept_words(name: str, rows: int, width: int) -> KeptTensor:
    """A tensor of int32, as digests, degrees and graphs are kept; without blocks."""
    return KeptTensor(
        name=name, rows=rows, width=width, dtype="int32", layout="rows", scaled=False, blocks=(),
    )  # fmt: skip


@dataclass(frozen=True)
class EdgePart:
    """What was read of a part of the edges' objects.

    Attributes:
        part: a digest of the objects of the part, and of what is read of them.
        rows: of the input.
        first, last: the edges among all that are kept as they were read.
    """

    part: str
    rows: int
    first: int
    last: int


@dataclass(frozen=True)
class KeptEdges:
    """What is known of the edges of a relation since they were read, beside their graph.

    Attributes:
        relation: of a graph; the edge type of edges as they were read.
        rows: of the input of their edge type.
        dropped: those that were left out, as plain values; None: none may be.
        loops: how many nodes have one self-loop in place of several of different weight, and the
            first of them, by dense id.
        parts: the parts of the objects that were read, in order.
    """

    relation: str
    rows: int
    dropped: dict[str, Any] | None
    loops: Sequence[int] | None = None
    parts: tuple[EdgePart, ...] = ()

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> KeptEdges:
        """What ``asdict`` described."""
        parts = tuple(EdgePart(**part) for part in data.get("parts", ()))
        return cls(**{**data, "parts": parts})


@dataclass(frozen=True, kw_only=True)
class Seal:
    """A complete layer.

    Attributes:
        key, name: of the layer; a record under another name is not believed.
        version: of the attempt that wrote it.
        layer, layers: how many layers are done, and how many there are; 0 of digests of rows, and
            of a graph.
        feature: slices of columns on the grid that wrote it.
        how: a digest of how its rows were computed; others may have other bits.
        edges: of a graph; None of others.
    """

    key: str
    name: str
    version: str
    layer: int = 0
    layers: int = 0
    feature: int = 1
    how: str = ""
    tensors: tuple[KeptTensor, ...] = ()
    edges: KeptEdges | None = None

    @property
    def size(self) -> int:
        """Bytes of all rows."""
        return sum(tensor.size for tensor in self.tensors)

    def stored(self) -> Iterator[tuple[str, Block, int]]:
        """Key of the folder that each block lies in, the block, and the bytes of its object."""
        for tensor in self.tensors:
            for block in tensor.every_block():
                yield block.key or self.key, block, block.size(ITEM_BYTES[tensor.dtype])

    def to_json(self) -> dict[str, Any]:
        """Plain values; :meth:`from_json` is the way back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Seal:
        """What :meth:`to_json` described."""
        tensors: Sequence[dict[str, Any]] = data["tensors"]
        edges = data.get("edges")
        parts = {
            "tensors": tuple(map(KeptTensor.from_json, tensors)),
            "edges": None if edges is None else KeptEdges.from_json(edges),
        }
        return cls(**{**data, **parts})


def to_bytes(seal: Seal) -> bytes:
    """The object that seals a layer, with a checksum over its record."""
    body = json.dumps(seal.to_json(), separators=(",", ":"))
    checksum = xxh3_128_hexdigest(body.encode())
    return json.dumps({"form": _FORM, "checksum": checksum, "seal": body}).encode()


def from_bytes(uri: str, data: bytes, key: str, name: str) -> Seal:
    """The record of a layer.

    Raises:
        Damaged: it is not what was written, or another layer's.
    """
    try:
        parsed = json.loads(data)
        if parsed["form"] != _FORM:
            raise Damaged(f"{uri} has form {parsed['form']!r}, not {_FORM}")
        if xxh3_128_hexdigest(parsed["seal"].encode()) != parsed["checksum"]:
            raise Damaged(f"{uri} does not match its checksum")
        seal = Seal.from_json(json.loads(parsed["seal"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{uri} is no record of a layer ({error!r})") from error
    if (seal.key, seal.name) != (key, name):
        raise Damaged(f"{uri} is the record of another layer, {seal.key}/{seal.name}")
    return seal
