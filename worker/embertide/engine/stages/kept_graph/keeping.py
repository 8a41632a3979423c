"""Writes our rows of a relation's graph, and seals those of all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import numpy as np
import numpy.typing as npt
import torch

from embertide.engine.stages.kept_graph.form import (
    BUCKETS,
    FEATURES,
    LENGTHS,
    PRIMITIVE,
    SOURCES,
    WEIGHTS,
    ReadEdges,
    Words32,
    kept_words,
    words_of,
)
from embertide.engine.stages.kept_graph.restoring import SealedGraph
from embertide.errors import EmbertideError
from embertide.graph.exchange import Exchange
from embertide.graph.shuffle import histogram_size
from embertide.grid import RowRanges
from embertide.io.versions.layers.places import block_path
from embertide.io.versions.layers.seals import Block, KeptEdges, KeptTensor, Seal, block_of
from embertide.io.versions.layers.store import LayerStore
from embertide.kernels.csr import Csr

_WRITERS = 2
Part = tuple[str, Words32, int]
"""A tensor's name, our rows of it, and the first of these among all."""
TOO_LONG = "a node of {relation} has 2^31 in-edges or more"


def write_graph(
    exchange: Exchange,
    store: LayerStore,
    name: str,
    relation: str,
    csr: Csr,
    ranges: RowRanges,
    read: ReadEdges,
) -> tuple[Seal, str]:
    """Write our rows of a graph, without a copy of its edges; the record of all ranks', and why it
    may not be sealed: "" where it may.

    Collective: every rank must call, and all get the same answer.

    Args:
        name: of the record.
        csr: our rows.
        ranges: of the destination type.
        read: what is known of the edges that it was built from.
    """
    rank = exchange.grid.rank
    sizes = exchange.all_objects((csr.nnz, read.rows, read.loops))
    edges, at = sum(nnz for nnz, *_ in sizes), sum(nnz for nnz, *_ in sizes[:rank])
    merged = [loops for *_, loops in sizes if loops is not None]
    buckets = _buckets(exchange, csr, ranges, read)
    parts, blocks, why = list[Part](), list[list[Block]](), ""
    indptr = csr.indptr.numpy()
    lengths = np.subtract(indptr[1:], indptr[:-1], dtype=np.int32, casting="unsafe")
    if int(lengths.sum(dtype=np.int64)) != csr.nnz or (lengths < 0).any():
        why = TOO_LONG.format(relation=relation)
    else:
        own = buckets if rank == 0 else buckets[:0]
        parts = list(_parts(csr, lengths, ranges.worker(rank)[0], at, own))
        try:
            blocks = _write(store, name, rank, parts)
        except EmbertideError as error:
            why = str(error)
    gathered = exchange.all_objects((why, [[asdict(block) for block in of] for of in blocks]))
    why = next((theirs for theirs, _ in gathered if theirs), "")
    counts = {LENGTHS: ranges.nodes, BUCKETS: len(buckets)}
    tensors = tuple(
        replace(
            kept_words(of, counts.get(of, edges), words.shape[1]),
            blocks=tuple(block_of(block) for _, theirs in gathered for block in theirs[number]),
        )
        for number, (of, words, _) in enumerate(parts)
        if not why
    )
    dropped = None if read.dropped is None else asdict(read.dropped)
    loops = [sum(n for n, _ in merged), min(first for _, first in merged)] if merged else None
    facts = KeptEdges(relation, sum(rows for _, rows, _ in sizes), dropped, loops)
    return _record(store, name, facts, tensors), str(why)


def refer_to(store: LayerStore, name: str, sealed: SealedGraph) -> Seal:
    """The record of a graph that an earlier run has kept, whose blocks are not written again."""
    earlier = sealed.store.key
    tensors = tuple(
        replace(tensor, blocks=tuple(_of_key(block, earlier, store.key) for block in tensor.blocks))
        for tensor in sealed.seal.tensors
    )
    assert sealed.seal.edges is not None
    return _record(store, name, sealed.seal.edges, tensors)


def _of_key(block: Block, earlier: str, key: str) -> Block:
    lies_in = block.key or earlier
    return replace(block, key="" if lies_in == key else lies_in)


def _buckets(
    exchange: Exchange, csr: Csr, ranges: RowRanges, read: ReadEdges
) -> npt.NDArray[np.int64]:
    """[B, 2] the edges of all ranks that were read into each bucket, and those of the graph before
    it. Collective: every rank must call."""
    first, last = ranges.worker(exchange.grid.rank)
    shift, count = histogram_size(ranges.nodes)
    starts = np.arange(count + 1, dtype=np.int64) << shift
    ends = csr.indptr.numpy()[np.clip(starts, first, last) - first]
    both = torch.from_numpy(np.stack([read.histogram, np.diff(ends)]))
    total = exchange.channel("world", PRIMITIVE).all_reduce(both).numpy()
    before = np.concatenate([[0], np.cumsum(total[1])[:-1]])
    return np.stack([total[0], before], axis=1).astype(np.int64)


def _parts(
    csr: Csr,
    lengths: npt.NDArray[np.int32],
    first: int,
    at: int,
    buckets: npt.NDArray[np.int64],
) -> Iterator[Part]:
    """The tensors of our rows.

    Args:
        lengths: in-edges of our rows.
        first: dense id of our first row.
        at: edges of the rows before.
        buckets: all of them on one rank, none on the others.
    """
    yield LENGTHS, words_of(lengths), first
    yield BUCKETS, words_of(buckets, width=2), 0
    yield SOURCES, words_of(csr.cols.numpy()), at
    if csr.weights is not None:
        yield WEIGHTS, words_of(csr.weights.numpy()), at
    if csr.features is not None:
        yield FEATURES, words_of(csr.features.numpy(), width=csr.features.shape[1]), at


def _write(store: LayerStore, name: str, rank: int, parts: list[Part]) -> list[list[Block]]:
    """The blocks of each tensor, written by a few threads."""
    with ThreadPoolExecutor(_WRITERS, "graph") as pool:
        writing = [
            [
                pool.submit(store.write, *part)
                for part in store.blocks(name, number, rank, words, at, 0)
            ]
            for number, (_, words, at) in enumerate(parts)
        ]
        return [[block.result() for block in of] for of in writing]


def _record(
    store: LayerStore, name: str, edges: KeptEdges, tensors: tuple[KeptTensor, ...]
) -> Seal:
    return Seal(
        key=store.key, name=name, version=store.version, layer=0, layers=0, feature=1,
        tensors=tensors, edges=edges,
    )  # fmt: skip


def seal_graph(store: LayerStore, seal: Seal) -> str:
    """Rank 0 makes a graph complete; returns why it cannot. Another attempt's is as good."""
    try:
        if not store.seal(seal):
            # Others may refer to what earlier runs have written under the key.
            ours = f"{block_path(store.version, seal.name, 0, 0, 0).rpartition('/')[0]}/"
            every = (block for tensor in seal.tensors for block in tensor.blocks)
            store.remove([b for b in every if not b.key and b.path.startswith(ours)])
    except EmbertideError as error:
        return str(error)
    return ""
