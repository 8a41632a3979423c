"""Rows by themselves, and beside the rows that an earlier version has of the same ids.

Sums are float64, in which no square of a float32 is too small or too large. Natively each row is
read once, and nothing but the results is written.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from embertide.kernels import native
from embertide.kernels.hashing import Words, mix

Values = npt.NDArray[np.float32]
Wide = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
_SHIFT = np.uint64(29)
_MATCHED, _SAME, _EARLIER_ZERO = 1, 2, 4
"""Bits of a row's state; those of ``native/row_pairs.hpp``."""


def look_at_rows(values: Values, norms: Values, prints: Words) -> None:
    """Lengths and fingerprints of rows [n, D], in one pass.

    Args:
        norms: [n], gets the lengths: exactly 0 for zero vectors alone, not finite where a row is
            not.
        prints: [n], gets hashes of the rows' bits: equal rows have equal ones, others in practice
            do not. They are the same with and without native kernels.
    """
    factors = mix(np.arange((values.shape[1] + 1) // 2, dtype=np.uint64)) | np.uint64(1)
    if native.lib is not None:
        native.lib.look_at_rows(values, factors, norms, prints)
        return
    with np.errstate(over="ignore"):
        norms[:] = np.sqrt(_squares(_wide(values)))
    prints[:] = _prints_of(values, factors)


@dataclass(frozen=True)
class RowMoves:
    """Rows [k] of an earlier version beside ours.

    Attributes:
        states: uint8 [k].
        squares: float64 [k] squared distances; 0 where all bits are the same.
        distances: float64 [k] of 1 - cosine, without the cancellation that 1 - cosine has for rows
            that hardly moved; 0 where all bits are the same. A zero vector is at 0 from another one
            and at 1 from everything else.
    """

    states: npt.NDArray[np.uint8]
    squares: npt.NDArray[np.float64]
    distances: npt.NDArray[np.float64]

    @property
    def same(self) -> Mask:
        """[k] which rows have the same bits in both versions."""
        same: Mask = (self.states & _SAME) != 0
        return same

    @property
    def changed(self) -> Mask:
        """[k] which rows both versions have, with other bits."""
        changed: Mask = (self.states & (_MATCHED | _SAME)) == _MATCHED
        return changed

    @property
    def earlier_zeros(self) -> int:
        """Zero vectors among the rows of the earlier version."""
        return int(np.count_nonzero(self.states & _EARLIER_ZERO))


def compare_rows(values: Values, places: npt.NDArray[np.int64], earlier: Values) -> RowMoves:
    """Compare rows of an earlier version with ours.

    Args:
        values: [n, D], ours.
        places: [k] which of ours has the id of each row; -1 for none.
        earlier: [k, D].

    Raises:
        ValueError: a place is outside our rows (IndexError without native kernels).
    """
    count = len(earlier)
    moves = RowMoves(np.empty(count, np.uint8), np.empty(count), np.empty(count))
    if native.lib is not None:
        native.lib.compare_rows(
            values, places, earlier, moves.states, moves.squares, moves.distances
        )
    else:
        _compare_rows(values, places, earlier, moves)
    return moves


def count_bins(values: Wide, edges: Wide, counts: npt.NDArray[np.int64]) -> None:
    """Add values [n] to the counts of their bins; those that are not finite are left out.

    Args:
        edges: [b] positive and ascending: where each bin begins, and the one before it ends.
        counts: [b + 1]; the first is of values below all edges, and the last bin has no end.
    """
    if native.lib is not None:
        native.lib.count_bins(values, edges, counts)
        return
    finite = values[np.isfinite(values)]
    counts += np.bincount(np.searchsorted(edges, finite, "right"), minlength=len(counts))


def zero_rows(values: Values) -> Mask:
    """[n] which rows are zero vectors."""
    zeros: Mask = np.logical_not(np.any(values, axis=1))
    return zeros


def _compare_rows(
    values: Values, places: npt.NDArray[np.int64], earlier: Values, moves: RowMoves
) -> None:
    if (places < -1).any():
        raise IndexError("places: outside the rows")
    known = places >= 0
    new, old = values[places[known]], earlier[known]
    same = (_bits(new) == _bits(old)).all(axis=1)
    squares = _squares(_wide(new) - _wide(old))
    distances = _distances(squares, np.sqrt(_squares(_wide(new))), np.sqrt(_squares(_wide(old))))
    moves.states[:] = np.where(zero_rows(earlier), _EARLIER_ZERO, 0)
    moves.states[known] |= np.where(same, _MATCHED | _SAME, _MATCHED).astype(np.uint8)
    moves.squares[:], moves.distances[:] = 0, 0
    moves.squares[known] = np.where(same, 0, squares)
    moves.distances[known] = np.where(same, 0, distances)


def _wide(values: Values) -> Wide:
    return values.astype(np.float64)


def _squares(values: Wide) -> Wide:
    """Squared lengths [n]."""
    with np.errstate(invalid="ignore"):
        squares: Wide = np.einsum("ij,ij->i", values, values)
    return squares


def _bits(values: Values) -> npt.NDArray[np.uint32]:
    return np.ascontiguousarray(values).view(np.uint32)


def _prints_of(values: Values, factors: Words) -> Words:
    bits = _bits(values)
    if bits.shape[1] % 2:
        bits = np.pad(bits, ((0, 0), (0, 1)))
    words = bits.view(np.uint64)
    with np.errstate(over="ignore"):
        return mix((words ^ (words >> _SHIFT)) @ factors)


def _distances(squares: Wide, a: Wide, b: Wide) -> Wide:
    """|a - b|^2 - (|a| - |b|)^2 is 2 |a| |b| (1 - cosine)."""
    products = 2 * a * b
    distances = np.where(a == b, 0.0, 1.0)
    with np.errstate(invalid="ignore"):
        np.divide(squares - np.square(a - b), products, out=distances, where=products > 0)
    return np.maximum(distances, 0.0)
