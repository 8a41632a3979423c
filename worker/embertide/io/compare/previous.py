"""Our rows of a range of keys beside those of the previous version, while its parts are streamed.

Nothing of the previous version stays but counts and the sample: its parts are read once, by several
threads, and each batch is compared with the rows of ours that have the same ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from embertide.io.compare.base_rows import Previous
from embertide.io.compare.rows import KeyedRows, as_published
from embertide.io.compare.sample import Pairs, draws, limit
from embertide.io.compare.share import Moves
from embertide.io.compare.travel import Travel, add_earlier_paths
from embertide.io.readers.pool import map_splits
from embertide.io.versions.keyed import may_have, rows_within, taken
from embertide.io.versions.keys import KeyRange
from embertide.io.versions.parts import PartDigest
from embertide.io.versions.rows import Batch
from embertide.kernels.hashing import Words
from embertide.kernels.row_pairs import RowMoves, Values, compare_rows, zero_rows

Places = npt.NDArray[np.int64]
_WINDOW_VALUES = 1 << 19
"""Values that are compared at a time: 2 MiB, which bounds what is computed of them."""


@dataclass(frozen=True, kw_only=True)
class Ours:
    """Our rows of a range of keys.

    Attributes:
        dtype: that our values are published in.
        total: rows of all workers.
        travel: gets what a delta has to have; None where there is none.
    """

    rows: KeyedRows
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
    known = places >= 0
    moves.previous += len(words)
    moves.matched += int(np.count_nonzero(known))
    if ours.travel is not None and not known.all():
        ours.travel.gone.append(taken(ids, ~known))
    if not known.any():
        moves.previous_zeros += int(np.count_nonzero(zero_rows(old)))
        return
    new, within = _take(ours.rows, places, known)
    if ours.rows.width == previous.dim:
        _count(ours, previous, places, compare_rows(new, within, old), moves)
    else:
        moves.previous_zeros += int(np.count_nonzero(zero_rows(old)))
    _draw(ours, previous, words, (new, within), old, moves)


def _take(rows: KeyedRows, places: Places, known: npt.NDArray[np.bool_]) -> tuple[Values, Places]:
    """Rows of ours that are close to each other, and the place of each earlier row among them.

    Args:
        places: [k] of the earlier rows among all of ours; -1 for none.
        known: [k] which have a place; at least one has.
    """
    first, last = int(places[known].min()), int(places.max()) + 1
    return rows.read(first, last), np.where(known, places - first, -1)


def _count(
    ours: Ours, previous: Previous, places: Places, compared: RowMoves, moves: Moves
) -> None:
    """Count what became of the rows, which are as wide as ours."""
    same, changed = compared.same, compared.changed
    unchanged = int(np.count_nonzero(same))
    moves.unchanged += unchanged
    moves.previous_zeros += compared.earlier_zeros
    if ours.travel is not None:
        both = same | changed
        ours.travel.note(places[both], compared.squares[both], same[both])
    if previous.same_space:
        moves.distances.add(compared.distances[changed])
        moves.distances.add_zeros(unchanged)


def _draw(
    ours: Ours,
    previous: Previous,
    words: Words,
    new: tuple[Values, Places],
    old: Values,
    moves: Moves,
) -> None:
    """Keep the rows of the sample that both versions have."""
    drawn, (values, places) = draws(words), new
    most = limit(max(ours.total, previous.rows), max(ours.rows.width, previous.dim))
    (chosen,) = np.nonzero((drawn <= np.uint64(most)) & (places >= 0))
    if len(chosen):
        moves.pairs.append(Pairs(drawn[chosen], values[places[chosen]], old[chosen]))
