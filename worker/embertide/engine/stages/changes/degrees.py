"""Degrees that norms multiply neighbours' rows by, kept with the rows of a version's layers.

Where a new node's row is computed over rows that were kept, its neighbours have the degrees that
they had then. Kept are those that a program reads at the sources of edges, or of out-edges; the
in-degree of a row that is computed follows from its own edges.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch

from embertide.engine.stages.changes.digests import PRIMITIVE, read_words
from embertide.graph.exchange import Channel, Exchange
from embertide.graph.graph import looped
from embertide.graph.views import EdgeView
from embertide.grid import RowRanges
from embertide.io.versions.layers.reading import Kept
from embertide.io.versions.layers.seals import Damaged, kept_words
from embertide.io.versions.layers.store import LayerStore
from embertide.io.versions.layers.writing import Writer
from embertide.kernels.counting import row_lengths, row_sums
from embertide.kernels.csr import Csr
from embertide.program.plans.flow import DegreeKind

_EDGES = 1 << 18
"""Edges that get their self-loops at a time."""


def count_degrees(
    exchange: Exchange,
    ranges: Mapping[str, RowRanges],
    sub_ranges: Mapping[str, Csr],
    kinds: list[DegreeKind],
) -> dict[DegreeKind, torch.Tensor]:
    """Kind -> [n] float32 degrees of our nodes, as layer graphs have them.

    Sums of the weights of out-edges are left out: no rows are kept where a program reads these.
    Collective: every rank must call.

    Args:
        ranges: node type -> which worker owns which nodes.
        sub_ranges: relation -> the in-edges of our rows.
    """
    channel, degrees = exchange.channel("world", PRIMITIVE), dict[DegreeKind, torch.Tensor]()
    for kind in kinds:
        parts = _with_loops(sub_ranges[kind.relation], kind)
        if kind.end == "in":
            degrees[kind] = torch.cat([torch.empty(0), *map(_in_degree, parts)])
        elif not kind.weighted:
            degrees[kind] = _out_degree(channel, ranges[kind.node_type], parts)
    return degrees


def _with_loops(csr: Csr, kind: DegreeKind) -> Iterator[Csr]:
    """Rows of a graph with the self-loops of a kind, some edges at a time."""
    view = EdgeView(0, kind.loops, kind.loop_weight, kind.weighted, kind.relation)
    csr = csr.without_features() if kind.weighted else csr.without_features().without_weights()
    first = 0
    while first < csr.rows:
        limit = int(csr.indptr[first]) + _EDGES
        end = int(torch.searchsorted(csr.indptr, limit, right=True)) - 1
        last = min(csr.rows, max(first + 1, end))
        part = csr.slice(first, last)
        yield part if kind.loops == "keep" else looped(part, view)
        first = last


def _in_degree(csr: Csr) -> torch.Tensor:
    """[rows] float32, of edges or of their weights."""
    if csr.weights is None:
        return row_lengths(csr.indptr)
    return row_sums(csr.indptr, csr.weights)


def _out_degree(channel: Channel, ranges: RowRanges, parts: Iterator[Csr]) -> torch.Tensor:
    """[n] float32 edges out of our nodes, of all ranks. Collective: every rank must call."""
    counts = torch.zeros(ranges.nodes, dtype=torch.int64)
    for part in parts:
        counts += torch.bincount(part.cols, minlength=ranges.nodes)
    sizes = [b - a for a, b in pairwise(ranges.workers)]
    return torch.stack(channel.all_to_all(counts.split(sizes))).sum(0).float()


def degrees_name(record: str) -> str:
    """The name of the record of degrees, beside that of the digests of rows."""
    return hashlib.sha256(f"degrees {record}".encode()).hexdigest()[:32]


def keep_degrees(
    exchange: Exchange,
    store: LayerStore,
    record: str,
    degrees: Mapping[DegreeKind, torch.Tensor],
    ranges: Mapping[str, RowRanges],
) -> str:
    """Write the degrees of our nodes; why they are not kept, "" where they are.

    Collective: every rank must call, and all get the same answer.

    Args:
        record: the name of the digests.
        ranges: node type -> which worker owns which nodes, by the job's grid.
    """
    if not degrees:
        return ""
    with Writer(store, exchange.grid.rank, exchange.all_objects) as writer:
        kept = writer.begin(degrees_name(record))
        for kind, values in degrees.items():
            own = ranges[kind.node_type]
            first, _ = own.worker(exchange.grid.rank)
            # Float32 as words, since digests are words.
            words = values.numpy().reshape(-1, 1).view(np.int32)
            kept.put(kept_words(kind.name, own.nodes, 1), words, first)
        return kept.keep()


def read_degrees(
    store: LayerStore,
    record: str,
    kinds: Sequence[DegreeKind],
    before: Mapping[str, torch.Tensor],
) -> dict[DegreeKind, torch.Tensor]:
    """Kind -> [N] float32 degrees that nodes had when they were kept; 0 of those that are new.

    Args:
        record: the name of the digests.
        before: node type -> [N] int64, the dense id that each node had then; -1: it is new.

    Raises:
        Damaged: they are not there, or are not what was written.
    """
    if not kinds:
        return {}
    seal, degrees = store.sealed(degrees_name(record)), dict[DegreeKind, torch.Tensor]()
    if seal is None:
        raise Damaged(f"{store.uri}: it has no degrees")
    kept = Kept(store, seal)
    for kind in kinds:
        places = before[kind.node_type]
        known = places >= 0
        values = read_words(kept, kind.name, places[known].numpy(), 1)
        degrees[kind] = torch.zeros(len(places))
        degrees[kind][known] = torch.from_numpy(values.view(np.float32)[:, 0])
    return degrees
