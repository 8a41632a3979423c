"""A layer on its way to the store, whose blocks threads write."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from typing import Any

from embertide.errors import EmbertideError
from embertide.io.versions.layers.seals import ITEM_BYTES, Block, KeptTensor
from embertide.program.plans.boundaries import Boundary


@dataclass
class Writing:
    """A layer on its way to the store: its tensors, and the blocks of each that are written.

    Attributes:
        tensors: with the blocks of earlier runs that they refer to; those without any are written
            whole, of the others a patch is.
    """

    boundary: Boundary
    name: str
    tensors: list[KeptTensor] = field(default_factory=list)
    blocks: list[list[Future[Block]]] = field(default_factory=list)
    why: str = ""

    def complete(self, parts: list[tuple[Block, ...]]) -> tuple[KeptTensor, ...]:
        """The tensors with the blocks that all ranks have written of each."""
        return tuple(map(KeptTensor.with_blocks, self.tensors, parts))

    def wait(self) -> None:
        """Until all is written, or has failed."""
        for block in (block for of_tensor in self.blocks for block in of_tensor):
            block.exception()

    def result(self) -> tuple[str, list[list[dict[str, Any]]]]:
        """The first error, "" for none, and the blocks of each tensor that were written."""
        self.wait()
        errors = [e for of_tensor in self.blocks for b in of_tensor if (e := b.exception())]
        for error in errors:
            if not isinstance(error, EmbertideError):
                raise error
        written = [
            [asdict(b.result()) for b in of_tensor if b.exception() is None]
            for of_tensor in self.blocks
        ]
        return self.why or (str(errors[0]) if errors else ""), written


def bytes_of(tensors: Sequence[KeptTensor], parts: list[tuple[Block, ...]]) -> int:
    """Bytes of the blocks that were written of each tensor."""
    each = zip(tensors, parts, strict=True)
    return sum(block.size(ITEM_BYTES[of.dtype]) for of, blocks in each for block in blocks)
