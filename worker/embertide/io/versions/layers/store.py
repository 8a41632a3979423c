"""Where the records of one key lie, in any store: blocks, and the seals that make them complete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from embertide.errors import EmbertideError, ObjectMissing
from embertide.io.storage.protocol import Storage
from embertide.io.versions.layers.places import key_uri, layers_uri, seal_uri
from embertide.io.versions.layers.seals import (
    Block,
    Damaged,
    Seal,
    checksums_of,
    from_bytes,
    to_bytes,
)

Array = npt.NDArray[Any]
Part = Array | Callable[[], Array]
"""What an object of a block has, or what makes it: so only those under way take memory."""


class Values(Protocol):
    """[n, d] values of which some rows are taken at a time: an array, or what reads a disk.

    Any thread may take some.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """n and d."""

    @property
    def itemsize(self) -> int:
        """Bytes of a value."""

    def __getitem__(self, rows: Any, /) -> Any:
        """The array of a slice of the rows, or of [k] of them."""


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

    def write(self, part: Part, block: Block) -> Block:
        """Write a block; returns it with its checksums.

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
        return replace(block, checksums=checksums_of(data))

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
            return from_bytes(uri, self.storage.read(uri), self.key, name)
        except ObjectMissing:
            return None
        except EmbertideError as error:
            raise Damaged(str(error)) from error

    def drop(self, name: str) -> None:
        """Let a layer be incomplete again; its blocks go when the key is swept."""
        self.storage.delete([seal_uri(self.output_uri, self.key, name)])
