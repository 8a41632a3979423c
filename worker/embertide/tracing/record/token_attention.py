"""torch's MultiheadAttention over tokens that each node has; the nodes are its batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from embertide.tracing.record.decomposed import attend_within
from embertide.tracing.record.traced import Traced
from embertide.tracing.record.turned import NODES_SECOND, PLACES, displayed
from embertide.tracing.record.user_code import here, refuse


def multihead(
    m: nn.MultiheadAttention,
    query: Any,
    key: Any,
    value: Any,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What the module gives of [N, tokens, columns], or [tokens, N, columns] without batch_first.

    Returns:
        The tokens' new values, and the shares of each query's tokens, averaged over heads.

    Raises:
        ModelError: the tokens are the nodes themselves, or a mask differs by node otherwise than
            by ``key_padding_mask``.
    """
    del is_causal  # The mask is given beside it.
    tokens = [_tokens(m, x) for x in (query, key, value)]
    q, k, v = _projected(m, *tokens)
    heads = m.num_heads
    if m.bias_k is not None and m.bias_v is not None:
        k, v = (torch.cat([x, _every(x, b)], 1) for x, b in ((k, m.bias_k), (v, m.bias_v)))
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (q, k, v))
    if m.add_zero_attn:
        k, v = (torch.cat([x, torch.zeros_like(x[:, :, :1])], 2) for x in (k, v))
    added = k.shape[2] - tokens[1].shape[1]
    masks = [] if attn_mask is None else [_of_pairs(attn_mask, added)]
    if key_padding_mask is not None:
        padding = _with_more(key_padding_mask, added)
        masks.append(padding.unsqueeze(1).unsqueeze(1))
    out, shares = attend_within(q, k, v, masks, whole=need_weights)
    out = linear(out.transpose(1, 2).flatten(2), m.out_proj.weight, m.out_proj.bias)
    if not m.batch_first:
        out = out.transpose(0, 1)
    if not need_weights:
        return out, None
    return out, shares.mean(1) if average_attn_weights else shares


def _tokens(m: nn.MultiheadAttention, x: Any) -> Any:
    """[N, tokens, columns]."""
    if isinstance(x, Traced) and x.dim() == 3:
        rows, letters = displayed(x)
        if letters == (PLACES[:3] if m.batch_first else NODES_SECOND):
            return rows
    raise refuse(
        here(),
        "MultiheadAttention over the nodes looks at every pair of rows, which needs the whole graph"
        " at once; attention over edges is known (TransformerConv, GATConv), linear attention over"
        " all nodes, q @ (k.T @ v), and tokens that each node has, with the nodes as batch: [N,"
        " tokens, columns] with batch_first=True",
    )


def _projected(m: nn.MultiheadAttention, query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
    weights: Any = (
        m.in_proj_weight.chunk(3)
        if m.in_proj_weight is not None
        else (m.q_proj_weight, m.k_proj_weight, m.v_proj_weight)
    )
    biases: Any = (None, None, None) if m.in_proj_bias is None else m.in_proj_bias.chunk(3)
    q, k, v = (linear(*each) for each in zip((query, key, value), weights, biases, strict=True))
    return q, k, v


def _every(x: Any, row: Tensor) -> Any:
    """[N, 1, columns] of a parameter [1, 1, columns]."""
    return torch.zeros_like(x[:, :1]) + row


def _with_more(mask: Any, added: int) -> Any:
    """A mask [..., tokens] that leaves out none of the tokens that the module adds."""
    return mask if not added else torch.cat([mask, torch.zeros_like(mask[..., :added])], -1)


def _of_pairs(mask: Any, added: int) -> Any:
    if isinstance(mask, Traced) or mask.dim() != 2:
        raise refuse(
            here(),
            "MultiheadAttention is known with an attn_mask [tokens, tokens] of its own, the same"
            " for every node; what differs by node is its key_padding_mask",
        )
    zeros = mask.new_zeros(len(mask), added)
    return torch.cat([mask, zeros], 1).unsqueeze(0).unsqueeze(0)
