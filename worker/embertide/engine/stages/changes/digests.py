"""Digests of what each row of the layers is made of: its id, its features and its in-edges.

They are kept beside the layers of a version, so that a later run finds the rows that changed
without the graph of then. Edges count as the model sees them: the dense ids of the sources in
order, the weights and the features. Where nodes have other dense ids than they had, those of then
are digested to compare, and those of now to keep. A digest has 128 bits: that one row which changed
is taken for unchanged has a probability of about 2^-128.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from embertide.engine.planning.row_inputs import RowInputs
from embertide.errors import StorageError
from embertide.graph.exchange import Channel, Exchange
from embertide.grid import RowRanges
from embertide.io.versions.layers.reading import Kept, Range
from embertide.io.versions.layers.seals import Damaged, kept_words
from embertide.io.versions.layers.store import LayerStore, Values
from embertide.io.versions.layers.writing import EarlierRows, Writer, plan_patch
from embertide.kernels.csr import Csr
from embertide.kernels.hashing import Words, hash_bytes, hash_integers, hash_strings
from embertide.kernels.ids import Ids
from embertide.kernels.owners import split_by_owner
from embertide.kernels.store import Store
from embertide.layouts import Loaded, ReadRows
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


@dataclass(frozen=True)
class SomeDigests:
    """Digests of some of our rows.

    Attributes:
        rows: [k] which rows, from 0, ascending.
        values: [k, width].
    """

    rows: npt.NDArray[np.int64]
    values: Rows32


@dataclass(frozen=True)
class KeptDigests:
    """Digests of our rows as they were kept, but for some; what stands for an array of them.

    Attributes:
        first, last: our rows.
    """

    kept: Kept
    name: str
    first: int
    last: int
    some: SomeDigests

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and words."""
        return self.last - self.first, self.some.values.shape[1]

    @property
    def itemsize(self) -> int:
        """Bytes of a word."""
        return self.some.values.itemsize

    def __getitem__(self, rows: slice | npt.NDArray[np.int64]) -> Rows32:
        """Some rows.

        Raises:
            StorageError: they are not what was written, or cannot be read.
        """
        at = np.arange(*rows.indices(self.shape[0])) if isinstance(rows, slice) else rows
        out = np.empty((len(at), self.shape[1]), np.int32)
        new = np.zeros(len(at), bool)
        if len(self.some.rows):
            found = np.minimum(np.searchsorted(self.some.rows, at), len(self.some.rows) - 1)
            new = self.some.rows[found] == at
            out[new] = self.some.values[found[new]]
        try:
            out[~new] = read_words(self.kept, self.name, at[~new] + self.first, out.shape[1])
        except Damaged as error:
            raise StorageError(str(error)) from error
        return out


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
        read: node type -> the rows of the features that we read of each split.
    """

    exchange: Exchange
    nodes: Mapping[str, OwnNodes]
    loaded: Mapping[str, Loaded]
    sub_ranges: Mapping[str, Csr]
    counted: frozenset[str]
    scratch: Store | None = None
    read: Mapping[str, Sequence[ReadRows]] = field(default_factory=dict)
    _made: dict[tuple[str, str], Values] = field(default_factory=dict)

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
        made = self._made.get((kind, name))
        if not isinstance(made, np.ndarray):
            made = self._made[kind, name] = _narrow(self._values(kind, name))
        return made

    def put(self, kind: str, name: str, values: Values) -> None:
        """Note what stands for digests of our rows that are not made."""
        self._made[kind, name] = values

    def values(self, kind: str, name: str) -> Values:
        """[n, width] of our rows: what was noted, or made. Collective: every rank must call."""
        made = self._made.get((kind, name))
        return self.make(kind, name) if made is None else made

    def of_parts(self, name: str, parts: Collection[str]) -> SomeDigests | None:
        """The digests of those of our nodes whose features come of some parts.

        None where it is not known which nodes these are. Collective: every rank must call.

        Args:
            name: a node type.
            parts: see :attr:`ReadRows.part`.
        """
        read, loaded = self.read.get(name, ()), self.loaded[name]
        ours = [of for of in read if of.part in parts]
        known = all(of.start is not None or not loaded.placed for of in ours)
        found = self.exchange.all_objects((known, len(ours)))
        if not all(good for good, _ in found) or sum(count for _, count in found) != len(parts):
            return None
        ids, words = [torch.empty(0, dtype=torch.int64)], [np.empty((0, 2), np.uint64)]
        for of in ours:
            count = of.last - of.first
            if not loaded.placed:
                first, own = of.first, loaded.ids[of.first : of.last]
            else:
                first = of.start or 0
                own = torch.arange(first, first + count)
            ids.append(own)
            words.append(digest_values(self._rows(loaded.data, first, first + count)))
        channel = self.exchange.channel("world", PRIMITIVE)
        every = torch.cat(ids), np.concatenate(words)
        rows, digests = _to_owners(channel, self.nodes[name].ranges, *every)
        order = np.argsort(rows, kind="stable")
        return SomeDigests(rows[order], _narrow(digests[order]))

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

    def of_rows(self, name: str, rows: npt.NDArray[np.int64]) -> SomeDigests:
        """Digests of the in-edges of those of our nodes that are among some.

        Args:
            rows: dense ids, ascending.
        """
        csr = self.sub_ranges[name]
        ours = rows[(rows >= csr.first) & (rows < csr.first + csr.rows)] - csr.first
        return SomeDigests(ours, _narrow(_of_edges(csr.take(ours))))

    def _rows(self, data: torch.Tensor, first: int, last: int) -> torch.Tensor:
        """Rows of features, wherever they are."""
        return (
            data[first:last]
            if self.scratch is None
            else self.scratch.of(data).host_rows(first, last)
        )

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
    """[n, 2] of the features of our nodes. Collective: every rank must call.

    Args:
        words: of the rows where they were loaded.
    """
    if loaded.placed:
        return words
    rows, digests = _to_owners(channel, ranges, loaded.ids, words)
    first, last = ranges.worker(channel.grid.rank)
    out = np.zeros((last - first, 2), np.uint64)
    out[rows] = digests
    return out


def _to_owners(
    channel: Channel, ranges: RowRanges, ids: torch.Tensor, words: Words
) -> tuple[npt.NDArray[np.int64], Words]:
    """[k] those of our nodes that any rank has digests of, from 0, and [k, 2] the digests.

    Sends 24 bytes for each row. Collective: every rank must call.
    """
    if channel.grid.world == 1:
        return ids.numpy(), words
    order, counts, rows = split_by_owner(ids, ranges.workers)
    digests = torch.from_numpy(words.view(np.int64))[order]
    sent = torch.cat([rows.to(torch.int64).unsqueeze(1), digests], 1)
    received = torch.cat(channel.all_to_all(sent.split(counts)))
    return received[:, 0].numpy(), received[:, 1:].contiguous().numpy().view(np.uint64)


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
    counts = torch.bincount(csr.cols, minlength=ranges.nodes)
    sizes = [b - a for a, b in zip(ranges.workers, ranges.workers[1:], strict=False)]
    return torch.stack(channel.all_to_all(counts.split(sizes))).sum(0).numpy()


def read_words(kept: Kept, name: str, rows: npt.NDArray[np.int64] | Range, width: int) -> Rows32:
    """[k, width] rows of what was kept as words: of some dense ids, as they were then, or a range.

    Raises:
        Damaged: they are not there, or are not what was written.
    """
    tensor = kept.tensor(name)
    last = rows[1] if isinstance(rows, tuple) else 0
    if tensor.dtype != "int32" or tensor.width != width or last > tensor.rows:
        raise Damaged(f"{kept.store.uri}: the rows of {name} are others")
    count = rows[1] - rows[0] if isinstance(rows, tuple) else len(rows)
    out = np.empty((count, width), np.int32)
    kept.get(name, rows, out)
    return out


def keep_digests(
    exchange: Exchange,
    store: LayerStore,
    name: str,
    digests: RowDigests,
    made_of: Mapping[str, RowInputs] | None = None,
    earlier: Mapping[str, EarlierRows] | None = None,
) -> str:
    """Write our digests, and seal those of all ranks; why they are not kept, "" where they are.

    Collective: every rank must call, and all get the same answer.

    Args:
        name: of the record.
        made_of: name of digests -> what they are made of.
        earlier: name of digests -> what an earlier run has kept of them, where that is known.
    """
    with Writer(store, exchange.grid.rank, exchange.all_objects) as writer:
        record = writer.begin(name)
        for kind, of in digests.kinds():
            own, ranges = tensor_name(kind, of), digests.nodes[digests.rows_of(kind, of)].ranges
            first, _ = ranges.worker(exchange.grid.rank)
            tensor = kept_words(own, ranges.nodes, digests.width(kind))
            if inputs := (made_of or {}).get(own):
                tensor = replace(tensor, made_of=inputs.beside, parts=tuple(inputs.parts))
            before = (earlier or {}).get(own)
            stays = before is not None and not before.moved.any() and plan_patch(tensor, before)
            values = None if stays else digests.values(kind, of)
            record.put(tensor, values, first, earlier=before)
        return record.keep()
