"""The nodes of a type, the two directions of their ids, and inputs whose rows name two of them.

Ids that are not dense already are in :mod:`embertide.graph.idmap`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from embertide.grid import RowRanges
from embertide.kernels.hashing import Words
from embertide.kernels.ids import Ids
from embertide.kernels.memory import empty
from embertide.kernels.pages import Pages
from embertide.spec.edges import EdgeInput
from embertide.spec.nodes import NodeInput

Dense = npt.NDArray[np.signedinteger[Any]]
"""Ids 0..N-1, int32 or int64."""
T = TypeVar("T")
Mask = npt.NDArray[np.bool_]


class NodeIds(Protocol):
    """N nodes and the two directions of their ids."""

    @property
    def count(self) -> int:
        """N, the number of nodes."""

    @property
    def collective(self) -> bool:
        """Whether all but :attr:`count` is collective: every rank must call."""

    def find(self, ids: Ids, pages: Pages | None = None) -> Dense:
        """[k] dense ids; -1 for an unknown id. Collective where :attr:`collective`.

        Args:
            pages: where those may be put that are not ``ids`` itself.
        """

    def find_all(
        self, batches: Iterable[tuple[T, Sequence[Ids]]]
    ) -> Iterator[tuple[T, list[Dense]]]:
        """What :meth:`find` gives for each array of each batch, beside the batch's label.

        Ranks may have different numbers of batches. Collective where :attr:`collective`: every
        rank must go on to the end.
        """

    def original(self, ranges: RowRanges) -> tuple[Ids, Words]:
        """[rows] ids in files of our sub-range's rows, and one stable 64-bit key each.

        Collective where :attr:`collective`.
        """

    def digest(self) -> Words:
        """[2] of the ids that this rank has. The sum of all ranks', beside :attr:`count`, says
        which ids there are, and so which dense id each has; it is the same on every grid."""


@dataclass(frozen=True)
class DenseIds:
    """Ids that are dense already."""

    count: int
    rank: int
    collective: bool = False

    def find(self, ids: Ids, pages: Pages | None = None) -> Dense:  # noqa: ARG002
        """The ids themselves; -1 outside 0..N-1."""
        assert isinstance(ids, np.ndarray)
        if len(ids) == 0 or (ids.min() >= 0 and ids.max() < self.count):
            return ids
        return np.where((ids >= 0) & (ids < self.count), ids, -1)

    def find_all(
        self, batches: Iterable[tuple[T, Sequence[Ids]]]
    ) -> Iterator[tuple[T, list[Dense]]]:
        """:meth:`find` for each array."""
        for label, arrays in batches:
            yield label, [self.find(ids) for ids in arrays]

    def original(self, ranges: RowRanges) -> tuple[Ids, Words]:
        """([rows] int64 ids, [rows] the same as uint64 keys) of our sub-range."""
        first, last = ranges.worker(self.rank)
        ids = torch.arange(first, last, out=empty((last - first,), torch.int64)).numpy()
        return ids, ids.view(np.uint64)

    def digest(self) -> Words:
        """Nothing: their number says which ids there are."""
        return np.zeros(2, np.uint64)


@dataclass(frozen=True)
class Ends:
    """An edge type and the nodes that its edges lead from and to; K features of each edge.

    Attributes:
        categories: columns of the features that hold whole numbers below the one beside each.
        only: [N] bool of either end: edges into or out of these nodes alone are kept; None: all.
    """

    edge: EdgeInput
    sources: Nodes
    destinations: Nodes
    features: int = 0
    categories: Sequence[tuple[int, int]] = ()
    only: tuple[Mask, Mask] | None = None

    @property
    def counts(self) -> tuple[int, int]:
        """Nodes of either end."""
        return self.sources.ids.count, self.destinations.ids.count

    @property
    def collective(self) -> bool:
        """Whether ids are looked up together: every rank must call."""
        return self.sources.ids.collective or self.destinations.ids.collective


class Nodes(Protocol):
    """A node type, as edges need it."""

    @property
    def node(self) -> NodeInput:
        """What the manifest says of it."""

    @property
    def ids(self) -> NodeIds:
        """Its ids."""


def described(nodes: Nodes) -> str:
    """For messages: which nodes of a type there are."""
    node, count = nodes.node, nodes.ids.count
    named = f"{count:,} nodes of type {node.name!r}"
    if node.ids == "dense":
        return f"{named}, 0 to {count - 1}"
    more = " and its features" if node.table and node.features else ""
    return f"{named}, those of {node.listed_in}{more}"
