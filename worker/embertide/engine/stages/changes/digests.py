"""Digests of what each row of the layers is made of: its id, its features and its in-edges.

They are kept beside the layers of a version, so that a later run finds the rows that changed
without the graph of then. Edges count as the model sees them: the dense ids of the sources in
order, the weights and the features. Where nodes have other dense ids than they had, those of then
are digested to compare, and those of now to keep. A digest has 128 bits: that one row which changed
is taken for unchanged has a probability of about 2^-128.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from embertide.graph.exchange import Channel, Exchange
from embertide.grid import RowRanges
from embertide.io.versions.layers.seals import kept_words
from embertide.io.versions.layers.store import LayerStore
from embertide.io.versions.layers.writing import EarlierRows, Writer, plan_patch
from embertide.kernels.csr import Csr
from embertide.kernels.hashing import Words, hash_bytes, hash_integers, hash_strings
from embertide.kernels.ids import Ids
from embertide.kernels.owners import split_by_owner
from embertide.kernels.store import Store
from embertide.layouts import Loaded
from embertide.spec.relations import ends_of

PRIMITIVE = "refresh"
"""Under which the transfers are counted."""
DIGEST_WORDS = 4
"""int32 of a digest as it is kept."""
IDS, FEATURES, EDGES, OUT = "ids", "features", "in-edges", "out"
"""What is digested of a node type or a relation."""
_EDGES = 1 << 18
"""Edges that are put together at a time."""
Rows32 = npt.NDArray[np.int32]


def tensor_name(kind: str, name: str) -> str:
    """The name of digests among those that are kept."""
    return f"{kind} {name}"


@dataclass(frozen=True)
class OwnNodes:
    """Our nodes of a type.

    Attributes:
        ranges: which worker owns which nodes, by the job's grid.
        names: [n] their ids in the files.
    """

    ranges: RowRanges
    names: Ids


@dataclass(frozen=True, kw_only=True)
class RowDigests:
    """Digests of our rows, by the program's names; each is made when it is asked for.

    Attributes:
        exchange: all ranks make the same ones, in the same order.
        nodes: node type -> our nodes.
        loaded: node type -> the features that we read.
        sub_ranges: relation -> the in-edges of our rows, with what the program reads of them.
        counted: relations whose out-degrees the program reads.
        scratch: where features are, if they are not in memory.
    """

    exchange: Exchange
    nodes: Mapping[str, OwnNodes]
    loaded: Mapping[str, Loaded]
    sub_ranges: Mapping[str, Csr]
    counted: frozenset[str]
    scratch: Store | None = None
    _made: dict[tuple[str, str], Rows32] = field(default_factory=dict)

    def kinds(self) -> Iterator[tuple[str, str]]:
        """Everything that is digested: what, and of which node type or relation."""
        yield from ((IDS, of_type) for of_type in self.nodes)
        yield from ((FEATURES, of_type) for of_type in self.loaded)
        yield from ((EDGES, relation) for relation in self.sub_ranges)
        yield from ((OUT, relation) for relation in self.sub_ranges if relation in self.counted)

    def width(self, kind: str) -> int:
        """int32 of each row."""
        return 2 if kind == OUT else DIGEST_WORDS

    def rows_of(self, kind: str, name: str) -> str:
        """The node type whose rows are digested."""
        if kind in (IDS, FEATURES):
            return name
        source, destination = ends_of(name)
        return destination if kind == EDGES else source

    def make(self, kind: str, name: str, places: torch.Tensor | None = None) -> Rows32:
        """[n, width] of our rows. Collective: every rank must call.

        Args:
            places: [N] int64, other dense ids of the sources of in-edges; None: their own.
        """
        if places is not None:
            return _narrow(_of_edges(self.sub_ranges[name], places))
        if (kind, name) not in self._made:
            self._made[kind, name] = _narrow(self._values(kind, name))
        return self._made[kind, name]

    def _values(self, kind: str, name: str) -> npt.NDArray[Any]:
        channel = self.exchange.channel("world", PRIMITIVE)
        if kind == IDS:
            return digest_ids(self.nodes[name].names)
        if kind == FEATURES:
            loaded = self.loaded[name]
            words = np.concatenate(list(map(digest_values, self._parts(loaded.data))))
            return _of_features(channel, self.nodes[name].ranges, loaded, words)
        if kind == EDGES:
            return _of_edges(self.sub_ranges[name])
        source, _ = ends_of(name)
        ranges = self.nodes[source].ranges
        return _out_edges(channel, ranges, self.sub_ranges[name]).reshape(-1, 1)

    def _parts(self, data: torch.Tensor) -> Iterator[torch.Tensor]:
        """All rows of features, some at a time where they are not in memory."""
        if self.scratch is None:
            yield data
            return
        file = self.scratch.of(data)
        for first, last in file.blocks(file.width):
            yield file.host_rows(first, last)


def _narrow(values: npt.NDArray[Any]) -> Rows32:
    return np.ascontiguousarray(values).view(np.int32)


def digest_ids(names: Ids) -> Words:
    """[n, 2] digests of ids in files; of whole numbers no two are equal."""
    if isinstance(names, np.ndarray):
        words = np.zeros((len(names), 2), np.uint64)
        words[:, 0] = hash_integers(names.astype(np.int64))
        return words
    return hash_strings(names)


def _of_features(channel: Channel, ranges: RowRanges, loaded: Loaded, words: Words) -> Words:
    """[n, 2] of the features of our nodes.

    Sends 24 bytes for each row. Collective: every rank must call.

    Args:
        words: of the rows where they were loaded.
    """
    if loaded.placed:
        return words
    order, counts, rows = split_by_owner(loaded.ids, ranges.workers)
    digests = torch.from_numpy(words.view(np.int64))[order]
    sent = torch.cat([rows.to(torch.int64).unsqueeze(1), digests], 1)
    received = torch.cat(channel.all_to_all(sent.split(counts)))
    first, last = ranges.worker(channel.grid.rank)
    out = np.zeros((last - first, 2), np.uint64)
    out[received[:, 0].numpy()] = received[:, 1:].contiguous().numpy().view(np.uint64)
    return out


def digest_values(rows: torch.Tensor) -> Words:
    """[n, 2] digests of rows of features."""
    data = np.ascontiguousarray(rows.numpy())
    offsets = np.arange(len(data) + 1, dtype=np.int64) * data[:1].nbytes
    return hash_bytes(offsets, data.reshape(-1).view(np.uint8))


def _of_edges(csr: Csr, places: torch.Tensor | None = None) -> Words:
    """[n, 2] of the in-edges of our rows.

    Args:
        places: [N] int64, what stands for each source; None: its dense id.
    """
    words, indptr = np.empty((csr.rows, 2), np.uint64), csr.indptr.numpy()
    first = 0
    while first < csr.rows:
        limit = indptr[first] + _EDGES
        last = max(first + 1, int(np.searchsorted(indptr, limit, "right")) - 1)
        some = slice(int(indptr[first]), int(indptr[last]))
        edges = _joined(csr, some, places)
        offsets = (indptr[first : last + 1] - indptr[first]) * edges.shape[1]
        hash_bytes(offsets.astype(np.int64), edges.reshape(-1), words[first:last])
        first = last
    return words


def _joined(csr: Csr, some: slice, places: torch.Tensor | None) -> npt.NDArray[np.uint8]:
    """[n, bytes] some edges: the source, the weight, the features."""
    cols = csr.cols[some]
    if places is not None:
        cols = places[cols.long()].to(cols.dtype)
    parts = [cols.numpy().reshape(-1, 1).view(np.uint8)]
    if csr.weights is not None:
        parts.append(csr.weights[some].numpy().reshape(-1, 1).view(np.uint8))
    if csr.features is not None:
        parts.append(np.ascontiguousarray(csr.features[some].numpy()).view(np.uint8))
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _out_edges(channel: Channel, ranges: RowRanges, csr: Csr) -> npt.NDArray[np.int64]:
    """[n] out-edges of our nodes, of all ranks' edges. Collective: every rank must call."""
    counts = torch.bincount(csr.cols.long(), minlength=ranges.nodes)
    sizes = [b - a for a, b in zip(ranges.workers, ranges.workers[1:], strict=False)]
    return torch.stack(channel.all_to_all(counts.split(sizes))).sum(0).numpy()


def keep_digests(
    exchange: Exchange,
    store: LayerStore,
    name: str,
    digests: RowDigests,
    made_of: Mapping[str, str] | None = None,
    earlier: Mapping[str, EarlierRows] | None = None,
) -> str:
    """Write our digests, and seal those of all ranks; why they are not kept, "" where they are.

    Collective: every rank must call, and all get the same answer.

    Args:
        name: of the record.
        made_of: name of digests -> a digest of the objects that they are made of.
        earlier: name of digests -> what an earlier run has kept of them, where that is known.
    """
    with Writer(store, exchange.grid.rank, exchange.all_objects) as writer:
        record = writer.begin(name)
        for kind, of in digests.kinds():
            own, ranges = tensor_name(kind, of), digests.nodes[digests.rows_of(kind, of)].ranges
            first, _ = ranges.worker(exchange.grid.rank)
            tensor = kept_words(
                own, ranges.nodes, digests.width(kind), (made_of or {}).get(own, "")
            )
            before = (earlier or {}).get(own)
            stays = before is not None and not before.moved.any() and plan_patch(tensor, before)
            record.put(tensor, None if stays else digests.make(kind, of), first, earlier=before)
        return record.keep()
