"""k non-zeros of each row, without replacement, by a counter-based generator."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from embertide.kernels import native
from embertide.kernels.csr import Csr, id_type
from embertide.kernels.hashing import Words, random_words

_ROWS = 1 << 15


def sample_rows(csr: Csr, keys: Words, fanout: int, seed: int, layer: int) -> Csr:
    """Keep ``fanout`` non-zeros of every row that has more, each subset equally likely.

    Args:
        csr: each row's non-zeros in an order that does not depend on the grid.
        keys: [rows] a stable 64-bit key of each row's node.
    """
    if csr.features is not None:
        return _sample_with_features(csr, csr.features, keys, fanout, seed, layer)
    if native.lib is None:
        return _sample_plain(csr, keys, fanout, seed, layer)
    indptr = torch.empty_like(csr.indptr)
    native.lib.sample_ends(csr.indptr, fanout, indptr)
    cols = csr.cols.new_empty(int(indptr[-1]))
    weights = None if csr.weights is None else csr.weights.new_empty(len(cols))
    native.lib.sample_rows(
        csr.indptr,
        csr.cols,
        csr.weights,
        keys,
        fanout,
        seed % 2**64,
        layer,
        indptr,
        cols,
        weights,
    )
    return Csr(csr.first, indptr, cols, weights)


def _sample_with_features(
    csr: Csr, features: torch.Tensor, keys: Words, fanout: int, seed: int, layer: int
) -> Csr:
    """The same choice, of positions in the place of columns."""
    positions = torch.arange(csr.nnz, dtype=id_type(csr.nnz + 1))
    chosen = sample_rows(Csr(csr.first, csr.indptr, positions), keys, fanout, seed, layer)
    at = chosen.cols
    weights = None if csr.weights is None else csr.weights[at]
    return Csr(csr.first, chosen.indptr, csr.cols[at], weights, features[at])


def _sample_plain(csr: Csr, keys: Words, fanout: int, seed: int, layer: int) -> Csr:
    """What the kernel ``sample_rows`` does, in numpy."""
    degree = csr.indptr.diff().numpy()
    counts = np.minimum(degree, fanout)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    chosen = np.empty(int(indptr[-1]), np.int64)
    starts = csr.indptr.numpy()[:-1]
    few = np.flatnonzero(degree <= fanout)
    chosen[_spread(indptr[few], counts[few])] = _spread(starts[few], counts[few])
    many = np.flatnonzero(degree > fanout)
    for at in range(0, len(many), _ROWS):
        rows = many[at : at + _ROWS]
        picks = np.sort(floyd(degree[rows], fanout, keys[rows], seed, layer), axis=1)
        chosen[indptr[rows, None] + np.arange(fanout)] = starts[rows, None] + picks
    index = torch.from_numpy(chosen)
    weights = None if csr.weights is None else csr.weights[index]
    return Csr(csr.first, torch.from_numpy(indptr.astype(np.int64)), csr.cols[index], weights)


def _spread(starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """start, start + 1, ... for each run."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()))


def floyd(
    degree: npt.NDArray[np.int64], fanout: int, keys: Words, seed: int, layer: int
) -> npt.NDArray[np.int64]:
    """[rows, fanout] distinct positions below each row's degree, by Floyd's algorithm.

    It needs ``fanout`` random numbers a row, whatever the degree is.
    """
    picks = np.empty((len(degree), fanout), np.int64)
    for step in range(fanout):
        top = degree - fanout + step
        draw = random_words(seed, layer, keys, step) >> np.uint64(32)
        pick = ((draw * (top + 1).astype(np.uint64)) >> np.uint64(32)).astype(np.int64)
        taken = (picks[:, :step] == pick[:, None]).any(axis=1)
        picks[:, step] = np.where(taken, top, pick)
    return picks
