"""A set of node ids that says how many members lie below a node.

An eighth of a byte per node and a seventh of that for ranks, so that a rank can hold the set of
its sources in a graph of a billion nodes. See ``native/node_set.hpp``.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch

from embertide.kernels import native
from embertide.kernels.csr import id_type

LINE_WORDS = 8
LINE_BITS = 448


class NodeSet:
    """The distinct ones of ``cols`` [k], or of several such arrays; node ids below ``nodes``.

    Attributes:
        lines: the native representation; empty without native kernels.
        members: [n] int64 ascending, without native kernels; else empty.
    """

    def __init__(self, cols: torch.Tensor | Iterable[torch.Tensor], nodes: int) -> None:
        self.nodes = nodes
        arrays = [cols] if isinstance(cols, torch.Tensor) else cols
        self.lines = np.empty(0, np.uint64)
        self.members = np.empty(0, np.int64)
        if native.lib is None:
            flags = np.zeros(nodes, bool)
            for some in arrays:
                flags[some.numpy()] = True
            self.members = np.flatnonzero(flags)
            self.count = len(self.members)
            return
        # One bit more than there are nodes, so that the rank of their number can be asked.
        self.lines = np.zeros((nodes // LINE_BITS + 1) * LINE_WORDS, np.uint64)
        for some in arrays:
            native.lib.mark_nodes(self.lines, some)
        self.count = int(native.lib.rank_lines(self.lines))

    def ranks(self, nodes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """[k] members below each node; a node may be one past the last."""
        if native.lib is None:
            return np.searchsorted(self.members, nodes)
        ranks = np.empty(len(nodes), np.int64)
        native.lib.rank_nodes(self.lines, nodes, ranks)
        return ranks

    def between(self, first: int, last: int) -> torch.Tensor:
        """The members of ``first..last`` counted from ``first``, ascending; int32 where ids are."""
        low, high = self.ranks(np.array([first, last])).tolist()
        kind = id_type(self.nodes)
        if native.lib is None:
            return torch.from_numpy(self.members[low:high] - first).to(kind)
        found = torch.empty(high - low, dtype=kind)
        native.lib.list_nodes(self.lines, first, last, first, found)
        return found

    def bitmap(self, first: int, last: int) -> torch.Tensor:
        """[(last - first + 7) // 8] uint8: a bit for each node of ``first..last``, lowest first."""
        bits = torch.empty((last - first + 7) // 8, dtype=torch.uint8)
        if native.lib is None:
            flags = np.zeros(last - first, bool)
            flags[self.between(first, last).numpy()] = True
            return torch.from_numpy(np.packbits(flags, bitorder="little"))
        native.lib.pack_nodes(self.lines, first, last, bits.numpy())
        return bits


def unpack_bitmap(bitmap: torch.Tensor, rows: torch.Tensor) -> None:
    """Fill ``rows`` [k] with the positions of the k bits that are set, ascending.

    Raises:
        ValueError: another number of bits is set.
    """
    if native.lib is not None:
        native.lib.unpack_rows(bitmap, rows)
        return
    found = np.flatnonzero(np.unpackbits(bitmap.numpy(), bitorder="little"))
    rows.copy_(torch.from_numpy(found))
