"""The ids whose neighbours are compared: the same every time, drawn by their keys.

Neighbours are searched within the sample, so that their search takes a second whatever the graph's
size is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from embertide.kernels.hashing import Words, hash_integers
from embertide.kernels.row_pairs import Values

SAMPLE_ROWS = 20_000
SAMPLE_BYTES = 16 << 20
"""The most bytes of one version's vectors; wide ones make the sample smaller."""
NEIGHBOURS = 10
_QUERIES = 500
"""Rows of the sample whose neighbours are searched among all of it, the first ones by the draw: the
mean of so many has a standard error of about 1%."""
_BLOCK = 64
_GROUP = 32
_ROWS = 1024
"""Rows that are multiplied in float64 at a time."""
_SALT = np.uint64(0x5A17ED5A17ED5A17)


def draws(keys: Words) -> Words:
    """[n] a random word for each of [n, w] keys, always the same."""
    return hash_integers((keys[:, 0] ^ _SALT).view(np.int64))


def limit(total: int, width: int) -> int:
    """Ids whose draw is at most this belong to the sample.

    Args:
        total: rows of the larger one of two versions.
        width: D of the wider one.
    """
    return min(2**64 - 1, 2**64 * sample_rows(width) // max(1, total))


def sample_rows(width: int) -> int:
    """About how many ids the sample of vectors of so many values has."""
    return min(SAMPLE_ROWS, SAMPLE_BYTES // (4 * width))


@dataclass(frozen=True)
class Pairs:
    """The sample's rows that both versions have.

    Attributes:
        draws: [s].
        new, old: [s, D] and [s, D'].
    """

    draws: Words
    new: Values
    old: Values

    @classmethod
    def join(cls, parts: list[Pairs]) -> Pairs:
        """All of them, in the order of their draws."""
        drawn = np.concatenate([part.draws for part in parts])
        order = np.argsort(drawn, kind="stable")
        new = np.concatenate([part.new for part in parts])[order]
        old = np.concatenate([part.old for part in parts])[order]
        return cls(drawn[order], new, old)

    @classmethod
    def none(cls, width: int, previous_width: int) -> Pairs:
        """No rows of these widths."""
        shapes = (0, width), (0, previous_width)
        return cls(np.empty(0, np.uint64), *(np.empty(shape, np.float32) for shape in shapes))

    def __len__(self) -> int:
        return len(self.draws)

    def overlap(self) -> float | None:
        """Share of the nearest neighbours by cosine that rows have in both versions, on average.

        None for fewer than three rows, which have no choice of neighbours.
        """
        near = min(NEIGHBOURS, len(self) - 2)
        if near < 1:
            return None
        now, before = (_neighbours(rows, near) for rows in (self.new, self.old))
        return float((now[:, :, None] == before[:, None, :]).sum()) / now.size

    def residual(self) -> float | None:
        """Share of ``old`` that no rotation and scaling of ``new`` explains; None of zero vectors.

        By orthogonal Procrustes: with the singular values s of ``new.T @ old`` it is
        1 - sum(s)^2 / (|new|^2 |old|^2).
        """
        products = np.zeros((self.new.shape[1], self.old.shape[1]))
        new_scale = old_scale = 0.0
        for first in range(0, len(self), _ROWS):
            rows = slice(first, first + _ROWS)
            new, old = self.new[rows].astype(np.float64), self.old[rows].astype(np.float64)
            products += new.T @ old
            new_scale, old_scale = (
                new_scale + np.square(new).sum(),
                old_scale + np.square(old).sum(),
            )
        scale = float(new_scale * old_scale)
        if not scale > 0 or not np.isfinite(scale):
            return None
        singular = np.linalg.svd(products, compute_uv=False)
        return max(0.0, 1.0 - float(singular.sum()) ** 2 / scale)


def _neighbours(values: Values, near: int) -> npt.NDArray[np.intp]:
    """[queries, near] the nearest rows by cosine of the first rows."""
    count, queries = len(values), min(_QUERIES, len(values))
    # Whole groups of rows; those that are added are never near.
    rows = np.pad(_unit_rows(values), ((0, -count % _GROUP), (0, 0)))
    found = []
    for first in range(0, queries, _BLOCK):
        last = min(first + _BLOCK, queries)
        scores = rows[first:last] @ rows.T
        scores[:, count:] = -np.inf
        scores[np.arange(last - first), np.arange(first, last)] = -np.inf
        found.append(_best(scores, near))
    return np.concatenate(found)


def _unit_rows(values: Values) -> Values:
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    unit: Values = np.divide(values, norms, out=np.zeros_like(values), where=norms > 0)
    return unit


def _best(scores: Values, near: int) -> npt.NDArray[np.intp]:
    """[n, near] the places of the largest of [n, k * _GROUP] scores, in no order."""
    rows, count = scores.shape
    if count < 2 * _GROUP * near:
        return _largest(scores, near)
    # The largest scores are among those of the groups with the largest maxima. A group has every
    # so many-th score, so that maxima of many groups are taken at a time.
    groups = scores.reshape(rows, _GROUP, -1)
    chosen = _largest(groups.max(axis=1), near)
    inside = np.take_along_axis(groups, chosen[:, None, :], axis=2).reshape(rows, -1)
    places = _largest(inside, near)
    return places // near * groups.shape[2] + np.take_along_axis(chosen, places % near, axis=1)


def _largest(scores: Values, count: int) -> npt.NDArray[np.intp]:
    """[n, count] the places of the largest scores of each row."""
    return np.argpartition(scores, -count, axis=1)[:, -count:]
