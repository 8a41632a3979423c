"""Scores of pairs of nodes: read in with the edges, computed from the results, written beside them.

Each worker has the pairs of its splits, in the order of the input, and keeps it: a pair's rows come
from wherever they are, a bounded number of pairs at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from embertide.context import RunContext
from embertide.errors import OutputError
from embertide.graph.directory import fetch_rows
from embertide.graph.node_ids import Dense, Ends, described
from embertide.grid import RowRanges
from embertide.io.readers.edges import EdgeBatch, read_edges
from embertide.io.readers.splits import Split
from embertide.io.readers.unknown_nodes import UnknownEnds, settle
from embertide.io.versions.parts import PartDigest
from embertide.io.versions.score_parts import batches_of, write_scores
from embertide.kernels.ids import Ids
from embertide.program.steps.decoder import BATCH_VALUES, Decoder
from embertide.spec.pairs import PairInput


@dataclass(frozen=True)
class Pairs:
    """Our share of the pairs.

    Attributes:
        sources, destinations: [n] ids in the files.
        dense: [n] dense ids of either end.
    """

    given: PairInput
    sources: Ids
    destinations: Ids
    dense: tuple[Dense, Dense]

    def __len__(self) -> int:
        return len(self.dense[0])


def read_pairs(ctx: RunContext, given: PairInput, ends: Ends, splits: list[Split]) -> Pairs:
    """Read our share of the pairs. Collective: every rank must call.

    Raises:
        InputError: pairs of which an end is no node of its type: how many, and a few by row.
    """
    kinds = ends.sources.node.ids, ends.destinations.node.ids
    batches = [
        batch
        for split in splits
        for batch in read_edges(ctx.storage, ends.edge, kinds, split, counts=ends.counts)
    ]
    sources, destinations = (
        _joined([getattr(batch, end) for batch in batches], kind)
        for end, kind in zip(("source", "destination"), kinds, strict=True)
    )
    dense = _dense(ends.sources.ids, sources), _dense(ends.destinations.ids, destinations)
    _refuse_unknown(ctx, ends, batches, dense)
    return Pairs(given, sources, destinations, dense)


def _joined(parts: list[Any], kind: str) -> Ids:
    if kind == "string":
        large = [part.cast(pa.large_string()) for part in parts]
        return pa.concat_arrays(large) if large else pa.array([], pa.large_string())
    return np.concatenate([np.empty(0, np.int64), *parts])


def _dense(ids: Any, given: Ids) -> Dense:
    """[n] dense ids; -1 of what is no node. Collective: every rank must call."""
    found: Dense = ids.find(given)
    return found


def _refuse_unknown(
    ctx: RunContext, ends: Ends, batches: list[EdgeBatch], dense: tuple[Dense, Dense]
) -> None:
    """Raise on every rank where any has such a pair. Collective: every rank must call."""
    unknown, first = UnknownEnds(), 0
    for batch in batches:
        rows = slice(first, first + len(batch))
        missing = [side[rows] < 0 for side in dense]
        unknown.known_of(batch, *(mask if mask.any() else None for mask in missing))
        first += len(batch)
    nodes = [described(of_type) for of_type in (ends.sources, ends.destinations)]
    all_objects, rank = ctx.exchange.all_objects, ctx.grid.rank
    settle(all_objects, rank, ends.edge, unknown, first, nodes, ends.counts, "pair")


@dataclass(frozen=True)
class End:
    """The rows of one end's node type: of our sub-range [N/(P*M), D], and who owns which."""

    ranges: RowRanges
    rows: torch.Tensor


def write_pair_scores(
    ctx: RunContext, uri: str, pairs: Pairs, decoder: Decoder, ends: tuple[End, End]
) -> list[PartDigest]:
    """Compute and write the scores of our pairs; the digests of all ranks' parts, in rank order.

    Collective: every rank must call.

    Args:
        uri: of the version.

    Raises:
        OutputError: a score is NaN or infinite, or the part could not be written.
    """
    given = pairs.given.edges
    nodes = ctx.job.spec.input
    kinds = nodes.node(given.source_type).ids, nodes.node(given.destination_type).ids
    scores = list(_scores(ctx, pairs, decoder, ends))
    _refuse_non_finite(ctx, pairs, scores)
    batches = batches_of(pairs.sources, pairs.destinations, scores)
    part = write_scores(ctx.storage, uri, ctx.grid.rank, kinds, decoder.width, batches)
    gathered = ctx.exchange.all_objects(part.__dict__)
    return [PartDigest(**entry) for entry in gathered]


def _scores(
    ctx: RunContext, pairs: Pairs, decoder: Decoder, ends: tuple[End, End]
) -> Iterator[npt.NDArray[np.float32]]:
    """[k, width] of one batch of pairs after the other. Collective: every rank must call."""
    channel = ctx.exchange.channel("world", "scores")
    step = max(1, BATCH_VALUES // (decoder.values + decoder.source + decoder.destination))
    counts = ctx.exchange.all_objects(len(pairs))
    for first in range(0, max(counts), step):
        batch = slice(first, first + step)
        rows = [
            fetch_rows(channel, end.ranges, end.rows, dense[batch])
            for end, dense in zip(ends, pairs.dense, strict=True)
        ]
        if len(rows[0]):
            with torch.inference_mode():
                yield decoder.score(*rows).numpy()


def _refuse_non_finite(
    ctx: RunContext, pairs: Pairs, scores: list[npt.NDArray[np.float32]]
) -> None:
    """Raise on every rank where any has such a score. Collective: every rank must call."""
    bad = np.flatnonzero(
        np.concatenate([np.empty(0, bool), *(~np.isfinite(some).all(axis=1) for some in scores)])
    )
    first = [] if not len(bad) else [_pair(pairs, int(bad[0]))]
    gathered = ctx.exchange.all_objects((len(bad), first))
    examples = list(chain.from_iterable(some for _, some in gathered))
    if examples:
        raise OutputError(
            f"{sum(count for count, _ in gathered)} scores of {pairs.given.location} are NaN or"
            f" infinite, the first of the pair {examples[0]}; nothing was published. Check the"
            " decoder's weights"
        )


def _pair(pairs: Pairs, row: int) -> str:
    names = (ids[row] for ids in (pairs.sources, pairs.destinations))
    plain = (name.as_py() if hasattr(name, "as_py") else int(name) for name in names)
    return ", ".join(map(repr, plain))
