"""Our rows of a range of keys beside those of the previous version, while its parts are streamed.

Nothing of the previous version stays but counts and the sample: its parts are read once, by several
threads, and each batch is compared with the rows of ours that have the same ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from embertide.compare.base_rows import Previous
from embertide.compare.rows import KeyedRows, Values, as_published, norms_of
from embertide.compare.sample import Pairs, draws, limit
from embertide.compare.share import Moves
from embertide.compare.travel import Travel, add_earlier_paths
from embertide.kernels.hashing import Words
from embertide.readers.pool import map_splits
from embertide.versions.keyed import may_have, rows_within, taken
from embertide.versions.keys import KeyRange
from embertide.versions.parts import PartDigest
from embertide.versions.rows import Batch

_WINDOW_VALUES = 1 << 18
"""Values that are compared at a time: 1 MiB, so that what is computed of them stays in cache."""


@dataclass(frozen=True, kw_only=True)
class Ours:
    """Our rows of a range of keys.

    Attributes:
        norms: float32 [n] of the rows.
        dtype: that our values are published in.
        total: rows of all workers.
        travel: gets what a delta has to have; None where there is none.
    """

    rows: KeyedRows
    norms: Values
    dtype: str
    total: int
    travel: Travel | None = None


def compare(ours: Ours, previous: Previous, keys: KeyRange, threads: int) -> Moves:
    """Read what the previous version has within the range, and compare it with ours.

    Args:
        keys: the range that our rows are in; ranges of several calls must not overlap.

    Raises:
        OutputError: a part of the previous version is missing or damaged; names it.
        StorageError: the store refused or failed.
    """
    parts = [part for part in previous.parts if may_have(part, keys)]
    total = _none(ours, previous)
    for moves in map_splits(parts, partial(_compare_part, ours, previous, keys), threads):
        total.add(moves)
    if ours.travel is not None:
        add_earlier_paths(ours.travel, ours.rows, previous, keys, threads)
    return total


def _none(ours: Ours, previous: Previous) -> Moves:
    return Moves([Pairs.none(ours.rows.width, previous.dim)])


def _compare_part(ours: Ours, previous: Previous, keys: KeyRange, part: PartDigest) -> Moves:
    moves = _none(ours, previous)
    batches = rows_within(previous.storage, previous.uri, part, previous.dim, previous.kind, keys)
    step = max(1, _WINDOW_VALUES // previous.dim)
    for words, (ids, values) in batches:
        for at in range(0, len(words), step):
            window = slice(at, at + step)
            batch = (ids[window], values[window])
            _compare_rows(ours, previous, words[window], batch, moves)
    return moves


def _compare_rows(ours: Ours, previous: Previous, words: Words, batch: Batch, moves: Moves) -> None:
    ids, old = batch
    places = np.empty(len(words), np.int64)
    ours.rows.table.find_words(np.ascontiguousarray(words), 0, places)
    if previous.dtype != ours.dtype:
        old = as_published(old, ours.dtype)
    old_norms = norms_of(old)
    moves.previous += len(words)
    moves.previous_zeros += int((old_norms == 0).sum())
    known = places >= 0
    if ours.travel is not None and not known.all():
        ours.travel.gone.append(taken(ids, ~known))
    places = places[known]
    if not len(places):
        return
    if not known.all():
        words, old, old_norms = words[known], old[known], old_norms[known]
    new = _take(ours.rows, places)
    moves.matched += len(places)
    if ours.rows.width == previous.dim:
        squares = _squares(new, old)
        same = _same(new, old, squares)
        moves.unchanged += int(same.sum())
        if ours.travel is not None:
            ours.travel.note(places, squares, same)
        if previous.same_space:
            moves.distances.add(_distances(squares, ours.norms[places], old_norms))
    _draw(ours, previous, words, new, old, moves)


def _take(rows: KeyedRows, places: npt.NDArray[np.int64]) -> Values:
    """The rows at ascending places, which are close to each other."""
    first, last = int(places[0]), int(places[-1]) + 1
    window = rows.read(first, last)
    return window if last - first == len(places) else window[places - first]


def _squares(new: Values, old: Values) -> npt.NDArray[np.float64]:
    """Squared lengths [n] of the differences."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        differences = new - old
        squares: Values = np.einsum("ij,ij->i", differences, differences)
    return squares.astype(np.float64)


def _same(new: Values, old: Values, squares: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """[n] which rows have the same bits."""
    # A square may be too small for float32, -0.0 equals 0.0, and NaN equals nothing.
    (alike,) = np.nonzero(~(squares > 0))
    same = np.zeros(len(new), bool)
    same[alike] = (_bits(new[alike]) == _bits(old[alike])).all(axis=1)
    return same


def _bits(values: Values) -> npt.NDArray[np.uint32]:
    return np.ascontiguousarray(values).view(np.uint32)


def _distances(
    squares: npt.NDArray[np.float64], norms: Values, old_norms: Values
) -> npt.NDArray[np.float64]:
    """1 - cosine [n], without the cancellation that 1 - cosine has for rows that hardly moved.

    |a - b|^2 - (|a| - |b|)^2 is 2 |a| |b| (1 - cosine). A zero vector is at 0 from another one and
    at 1 from everything else.
    """
    a, b = norms.astype(np.float64), old_norms.astype(np.float64)
    products = 2 * a * b
    distances = np.where(a == b, 0.0, 1.0)
    with np.errstate(invalid="ignore"):
        np.divide(squares - np.square(a - b), products, out=distances, where=products > 0)
    return np.maximum(distances, 0.0)


def _draw(
    ours: Ours, previous: Previous, words: Words, new: Values, old: Values, moves: Moves
) -> None:
    """Keep the rows of the sample."""
    drawn = draws(words)
    most = limit(max(ours.total, previous.rows), max(ours.rows.width, previous.dim))
    (chosen,) = np.nonzero(drawn <= np.uint64(most))
    if len(chosen):
        moves.pairs.append(Pairs(drawn[chosen], new[chosen], old[chosen]))
