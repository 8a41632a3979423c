"""Attention over a block's non-zeros: scores, softmax over a row, weighted sum of the sources.

Natively all three are one pass over a row's non-zeros with an online softmax, and no array of
their scores exists; :mod:`embertide.kernels.attention_torch` is the same in torch, for CUDA and
where there is no native code. Only the heads that a worker's columns belong to are computed.

Rows of sources, and keys, may be bfloat16; scores, sums and results are float32.
"""

from __future__ import annotations

import torch

from embertide.kernels import attention_torch, gpu, native
from embertide.kernels.block import Block
from embertide.kernels.ghosts import changes_first
from embertide.kernels.heads import PairScore, RowSums


def _native(x: torch.Tensor) -> bool:
    return native.lib is not None and x.device.type == "cpu"


@changes_first
def add_additive(
    sums: RowSums,
    block: Block,
    x: torch.Tensor,
    source: torch.Tensor,
    target: torch.Tensor,
    *,
    slope: float,
    weighted: bool,
) -> None:
    """Continue the softmax of leaky_relu(source_j + target_i) and its weighted sums of x_j.

    Args:
        x: [s, columns] what the block's indices point into.
        source: [s, H] scores of the same rows, of the columns' heads only.
        target: [outputs, H].
        slope: of the leaky ReLU.
        weighted: multiply by the stored weights after the softmax.
    """
    if _native(x):
        _attend(sums, block, x, weighted, "additive", source, target, slope=slope)
    elif gpu.usable(x.device):
        # Imported where there is a GPU, and installed where torch is built for one.
        from embertide.kernels.gpu import attention

        weights = block.weights if weighted else None
        attention.add_additive(sums, block, x, source, target, slope=slope, weights=weights)
    else:
        scores = attention_torch.additive_scores(source, target, slope)
        attention_torch.add_softmax(sums, block, x.float(), scores, weighted=weighted)
    sums.fresh = False


@changes_first
def add_pairs(
    sums: RowSums,
    block: Block,
    x: torch.Tensor,
    key: torch.Tensor,
    query: torch.Tensor,
    score: PairScore,
    *,
    weighted: bool,
) -> None:
    """As :func:`add_additive` with scores of keys and queries, for tensors with all columns.

    Args:
        key: [s, H*F] of the same rows as ``x``, and of its type.
        query: [outputs, H*F].
    """
    if _native(x):
        _attend(sums, block, x, weighted, score.kind, key, query, score=score)
    else:
        scores = attention_torch.pair_scores(key.float(), query, score)
        limit = max(1, attention_torch.PAIR_VALUES // key.shape[1])
        attention_torch.add_softmax(sums, block, x.float(), scores, weighted=weighted, limit=limit)
    sums.fresh = False


@changes_first
def add_shares(
    sums: RowSums, block: Block, x: torch.Tensor, shares: torch.Tensor, *, weighted: bool
) -> None:
    """Add the sums of x_j weighted by shares that are there already.

    Args:
        shares: [positions, H] of the columns' heads; a non-zero's row is its position in the CSR.
    """
    if _native(x):
        _attend(sums, block, x, weighted, "shares", shares, None)
    else:
        attention_torch.add_shares(sums, block, x.float(), shares, weighted=weighted)
    sums.fresh = False


def _attend(
    sums: RowSums,
    block: Block,
    x: torch.Tensor,
    weighted: bool,
    scoring: str,
    source: torch.Tensor,
    target: torch.Tensor | None,
    *,
    slope: float = 1.0,
    score: PairScore | None = None,
) -> None:
    heads = sums.heads
    native.lib.attend(
        out=sums.out,
        top=sums.top,
        total=sums.total,
        rows=block.rows,
        indptr=block.indptr,
        indices=block.indices,
        edges=block.edges,
        weights=block.weights if weighted else None,
        x=x,
        fresh=sums.fresh,
        heads=heads.count,
        per_head=heads.per_head,
        offset=heads.offset,
        scoring=scoring,
        source=source,
        target=target,
        vector=None if score is None else score.vector,
        slope=slope if score is None else score.slope,
        scale=1.0 if score is None else score.factor,
    )


@changes_first
def set_pair_scores(
    out: torch.Tensor, block: Block, key: torch.Tensor, query: torch.Tensor, score: PairScore
) -> None:
    """Scores of the block's non-zeros, at their positions in the CSR.

    Args:
        out: [positions, H], contiguous.
        key: [s, H*F] what the block's indices point into.
        query: [outputs, H*F].
    """
    if _native(key):
        native.lib.pair_scores(
            out=out,
            rows=block.rows,
            indptr=block.indptr,
            indices=block.indices,
            edges=block.edges,
            key=key,
            query=query,
            vector=score.vector,
            slope=score.slope,
            scale=score.factor,
        )
    else:
        attention_torch.set_pair_scores(out, block, key.float(), query, score)


@changes_first
def row_softmax_(
    scores: torch.Tensor, indptr: torch.Tensor, logs: torch.Tensor | None = None
) -> torch.Tensor:
    """Softmax of scores [nnz, H] over each row's run of non-zeros, in place.

    Args:
        indptr: [rows + 1] on the CPU.
        logs: [rows, H] where the logarithms of the sums of exp(score) go, if they are wanted.
    """
    if _native(scores):
        native.lib.row_softmax(scores, indptr, logs)
        return scores
    return attention_torch.row_softmax_(scores, indptr, logs)
