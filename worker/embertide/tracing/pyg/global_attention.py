"""PyG's linear attention over all nodes, spelled out with a row for each node in dimension 0.

PyG puts the nodes of each graph into a matrix ([B, N, columns]); here all are of one graph.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from embertide.tracing.record.one_graph import OneGraph
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.user_code import here, refuse


def sgformer(_recording: Recording, m: Any, x: Any, mask: Any = None) -> Any:
    """SGFormerAttention."""
    _check(mask)
    q, k, v = (lin(x).view(-1, m.heads, m.head_channels) for lin in (m.q, m.k, m.v))
    q, k = (torch.where(rows == 0, 1e-6, rows) for rows in (q, k))
    q, k = (rows / torch.linalg.norm(rows, dim=-1, keepdim=True) for rows in (q, k))
    nodes = torch.ones_like(x[:, :1]).sum(0)
    total = _attended(q, k, v) + v * nodes
    return (total / (_weights(q, k) + nodes)).mean(dim=1)


def performer(_recording: Recording, m: Any, x: Any, mask: Any = None) -> Any:
    """PerformerAttention, and its PerformerProjection."""
    _check(mask)
    q, k, v = (lin(x).view(-1, m.heads, m.head_channels) for lin in (m.q, m.k, m.v))
    matrix, kernel = m.fast_attn.projection_matrix, m.fast_attn.kernel
    q, k = (kernel(functional.linear(rows, matrix)) + 0.001 for rows in (q, k))
    out = _attended(q, k, v) / _weights(q, k)
    return m.dropout(m.attn_out(out.flatten(1)))


def polynormer(_recording: Recording, m: Any, x: Any, mask: Any = None) -> Any:
    """PolynormerAttention, whose heads come last."""
    _check(mask)
    shape = (-1, m.head_channels, m.heads)
    k = m.k(x).sigmoid().view(shape).transpose(1, 2)
    q = k if m.qk_shared else m.q(x).sigmoid().view(shape).transpose(1, 2)
    v = m.v(x).view(shape).transpose(1, 2)
    out = _attended(q, k, v) / (_weights(q, k) + 1e-6)
    out = m.lns(out.transpose(1, 2).reshape(-1, m.head_channels * m.heads))
    return m.dropout(functional.relu(m.lin_out(out * (m.h_lins(x) + m.beta))))


def _check(mask: Any) -> None:
    """Refuse a mask that leaves nodes out."""
    if mask is not None and not isinstance(mask, OneGraph):
        raise refuse(
            here(), "attention over all nodes is known of all of them, without a mask of some"
        )


def _attended(q: Any, k: Any, v: Any) -> Any:
    """[N, H, G] of [N, H, F], [N, H, F] and [N, H, G]: q @ (k.T @ v) of each head."""
    return torch.einsum("nhf,hfg->nhg", q, torch.einsum("nhf,nhg->hfg", k, v))


def _weights(q: Any, k: Any) -> Any:
    """[N, H, 1] what the values are weighed by, added up."""
    return (q * k.sum(0)).sum(-1, keepdim=True)
