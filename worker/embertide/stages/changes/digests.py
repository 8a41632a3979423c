"""Digests of what each row of the layers is made of: its id, its features and its in-edges.

They are kept beside the layers of a version, so that a later run finds the rows that changed
without the graph of then. Edges count as the model sees them: the ids of the sources in order,
the weights and the features. A digest has 128 bits: that one row which changed is taken for
unchanged has a probability of about 2^-128.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from embertide.grid import RowRanges
from embertide.kernels.csr import Csr
from embertide.kernels.hashing import Words, hash_bytes, hash_integers, hash_strings
from embertide.kernels.ids import Ids
from embertide.kernels.owners import split_by_owner
from embertide.layouts import Loaded
from embertide.plans.dirty import ends_of
from embertide.primitives.exchange import Channel, Exchange

PRIMITIVE = "refresh"
"""Under which the transfers are counted."""
DIGEST_WORDS = 4
"""int32 of a digest as it is kept."""
_EDGES = 1 << 18
"""Edges whose sources are put together at a time, in memory that is used again."""


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
class RowDigests:
    """Digests of our rows, by the program's names.

    Attributes:
        ids: node type -> [n, 2], of our nodes.
        features: node type -> [n, 2], of those that have features.
        edges: relation -> [n, 2], of the in-edges of our rows of its destination type.
        out: relation -> [n] int64 out-edges of our nodes of its source type.
    """

    ids: dict[str, Words]
    features: dict[str, Words]
    edges: dict[str, Words]
    out: dict[str, npt.NDArray[np.int64]]


def digest_rows(
    exchange: Exchange,
    nodes: Mapping[str, OwnNodes],
    loaded: Mapping[str, Loaded],
    sub_ranges: Mapping[str, Csr],
    counted: frozenset[str],
) -> RowDigests:
    """Digest our rows. Collective: every rank must call.

    Every rank takes 16 bytes for each node of a type, one type after another, while it digests.

    Args:
        loaded: node type -> the features that we read.
        sub_ranges: relation -> the in-edges of our rows, with what the program reads of them.
        counted: relations whose out-degrees the program reads.
    """
    channel = exchange.channel("world", PRIMITIVE)
    ids = {name: _of_ids(own.names) for name, own in nodes.items()}
    features = {
        name: _of_features(channel, nodes[name].ranges, rows) for name, rows in loaded.items()
    }
    edges, out = dict[str, Words](), dict[str, npt.NDArray[np.int64]]()
    for name, csr in sub_ranges.items():
        source, _ = ends_of(name)
        every = torch.cat(channel.all_gather(torch.from_numpy(ids[source].view(np.int64))))
        edges[name] = _of_edges(csr, every.numpy().view(np.uint64))
        if name in counted:
            out[name] = _out_edges(channel, nodes[source].ranges, csr)
    return RowDigests(ids, features, edges, out)


def _of_ids(names: Ids) -> Words:
    """[n, 2]; of whole numbers no two are equal."""
    if isinstance(names, np.ndarray):
        words = np.zeros((len(names), 2), np.uint64)
        words[:, 0] = hash_integers(names.astype(np.int64))
        return words
    return hash_strings(names)


def _of_features(channel: Channel, ranges: RowRanges, loaded: Loaded) -> Words:
    """[n, 2] of the features of our nodes, digested where they were loaded.

    Sends 24 bytes for each row. Collective: every rank must call.
    """
    data = np.ascontiguousarray(loaded.data.numpy())
    offsets = np.arange(len(data) + 1, dtype=np.int64) * data[:1].nbytes
    words = hash_bytes(offsets, data.reshape(-1).view(np.uint8))
    if loaded.placed:
        return words
    order, counts, rows = split_by_owner(loaded.ids, ranges.workers)
    digests = torch.from_numpy(words.view(np.int64))[order]
    sent = torch.cat([rows.to(torch.int64).unsqueeze(1), digests], 1)
    received = torch.cat(channel.all_to_all(sent.split(counts)))
    first, last = ranges.worker(channel.grid.rank)
    found = np.zeros((last - first, 2), np.uint64)
    found[received[:, 0].numpy()] = received[:, 1:].contiguous().numpy().view(np.uint64)
    return found


def _of_edges(csr: Csr, ids: Words) -> Words:
    """[n, 2] of the in-edges of our rows.

    Args:
        ids: [N, 2] digests of the ids of all sources.
    """
    words, indptr = np.empty((csr.rows, 2), np.uint64), csr.indptr.numpy()
    table = torch.from_numpy(ids.view(np.int64))
    longest = int(csr.indptr.diff().max()) if csr.rows else 0
    sources = torch.empty(max(min(_EDGES, csr.nnz), longest), 2, dtype=torch.int64)
    first = 0
    while first < csr.rows:
        limit = indptr[first] + _EDGES
        last = max(first + 1, int(np.searchsorted(indptr, limit, "right")) - 1)
        some = slice(int(indptr[first]), int(indptr[last]))
        torch.index_select(table, 0, csr.cols[some], out=sources[: some.stop - some.start])
        edges = _joined(sources[: some.stop - some.start], csr, some)
        offsets = (indptr[first : last + 1] - indptr[first]) * edges.shape[1]
        hash_bytes(offsets.astype(np.int64), edges.reshape(-1), words[first:last])
        first = last
    return words


def _joined(sources: torch.Tensor, csr: Csr, some: slice) -> npt.NDArray[np.uint8]:
    """[n, bytes] some edges: the digest of the source, the weight, the features."""
    parts = [sources.numpy().view(np.uint8)]
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
