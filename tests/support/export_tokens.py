"""Modules over tokens that each node has: masks, attention, the last step of a sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.pyg import pyg

# First, as it keeps what PyG warns of while it is imported to itself.
assert pyg

from torch_geometric.utils import scatter  # noqa: E402

WIDTH, OUT, COLUMNS = 5, 4, 8


class Tokens(nn.Module):
    """A token for each column of the features; ``say`` makes one row of them."""

    def __init__(self, say: Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.each = nn.Parameter(torch.randn(WIDTH, COLUMNS))
        self.q, self.k = nn.Linear(COLUMNS, COLUMNS), nn.Linear(COLUMNS, COLUMNS)
        self.conv, self.say = pyg.SAGEConv(COLUMNS, OUT), say

    def forward(self, x, edge_index):
        return self.conv(self.say(self, x.unsqueeze(-1) * self.each, x), edge_index)


class Attending(Tokens):
    """With a module of torch's."""

    def __init__(self, part: nn.Module, say: Callable[..., torch.Tensor]) -> None:
        super().__init__(say)
        self.part = part


def _attention(**options: Any) -> nn.Module:
    return nn.MultiheadAttention(COLUMNS, 2, **{"batch_first": True, **options})


def _encoder(batch_first: bool = True, **options: Any) -> nn.Module:
    return nn.TransformerEncoderLayer(COLUMNS, 2, 12, batch_first=batch_first, **options)


def _weights(m: Any, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    out, shares = m.part(h, h, h)
    return out.mean(1) + shares.amax(1).amax(1, keepdim=True)


def _left_out(x: torch.Tensor) -> torch.Tensor:
    """Tokens that are none, of which a node's first one is not."""
    return torch.cat([torch.zeros_like(x[:, :1], dtype=torch.bool), x[:, 1:] < 0], 1)


def _padded(m: Any, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    left_out = _left_out(x)
    return m.part(h, h, h, key_padding_mask=left_out, need_weights=False)[0].mean(1)


def _causal(m: Any, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    mask = nn.Transformer.generate_square_subsequent_mask(WIDTH)
    return m.part(h, h, h, attn_mask=mask, need_weights=False)[0][:, -1]


def _crossed(m: Any, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    query, key, value = (part.transpose(0, 1) for part in (h, h[..., :3], h[..., 3:]))
    return m.part(query, key, value)[0].mean(0)


def _classed(m: Any, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    tokens = torch.cat([m.each[:1].expand(h.size(0), -1, -1), h], 1)
    return m.part(tokens.transpose(0, 1))[0]


def _encoded(m: Any, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    left_out = _left_out(x)
    kept = m.part(h, src_key_padding_mask=left_out) * (~left_out).unsqueeze(-1)
    return kept.sum(1) / (~left_out).sum(1, keepdim=True).clamp(min=1)


def _masked_mean(m: Any, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    mask = (x > 0).unsqueeze(-1)
    return (h * mask).sum(1) / mask.sum(1).clamp(min=1)


def _masked_attention(m: Any, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    scores = m.q(h) @ m.k(h).transpose(1, 2)
    scores = scores.masked_fill((x < 0)[:, None, :], -1e9)
    return (scores.softmax(-1) @ h).mean(1)


def _causal_by_hand(m: Any, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    later = torch.triu(torch.ones(WIDTH, WIDTH, dtype=torch.bool), 1)
    return ((h @ h.mT).masked_fill(later, float("-inf")).softmax(-1) @ h).mean(1)


def _of_torch(m: Any, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    kept = (x > 0)[:, None, :] | torch.eye(WIDTH, dtype=torch.bool)
    attended = F.scaled_dot_product_attention(h, h, h, attn_mask=kept)
    return attended.mean(1) + F.scaled_dot_product_attention(h, h, h, is_causal=True)[:, -1]


def _truths(m: Any, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Truth values in places of numbers."""
    some, other = x > 0, ~(x < 0.5) ^ (x.long() == 1)
    counts = some.sum(1, keepdim=True) + other.cumsum(1)[:, -1:] + some.long().amax(1)[:, None]
    both = torch.cat([some, other], 1).to(h.dtype)
    either, first = (some + other).sum(1, keepdim=True), h.sum(-1).max(1, keepdim=True)[1]
    counts = counts + either * first + torch.count_nonzero(x.long(), 1).unsqueeze(1)
    return h.sum(1) * counts + both[:, :1] - (some & other).float().mean(1, keepdim=True)


def _longest(m: Any, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    left_out = (x < 0).unsqueeze(-1)
    most = h.masked_fill(left_out, float("-inf")).max(1).values
    return torch.where(torch.isinf(most), 0.0, most)


def _last(m: Any, x: torch.Tensor) -> torch.Tensor:
    return (x > 0).sum(1).clamp(min=1) - 1


def _gathered(m: Any, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    states, _ = m.part(h)
    return states.gather(1, _last(m, x).view(-1, 1, 1).expand(-1, 1, COLUMNS)).squeeze(1)


def _indexed(m: Any, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    states, _ = m.part(h)
    return states[torch.arange(states.size(0)), _last(m, x)]


def _taken_along(m: Any, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.take_along_dim(m.part(h)[0], _last(m, x)[:, None, None], dim=1)[:, 0]


class AtEdges(nn.Module):
    """A mask of nodes is taken to edges."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(WIDTH, OUT)

    def forward(self, x, edge_index):
        (row, col), kept = edge_index, x[:, 0] > 0
        message = x.sum(1, keepdim=True)[row] * kept[row].unsqueeze(-1) * ~kept[col].unsqueeze(-1)
        mine = scatter(message, col, dim=0, dim_size=x.size(0))
        return self.conv(x, edge_index) + mine * kept.unsqueeze(-1)


def _gru() -> nn.Module:
    return nn.GRU(COLUMNS, COLUMNS, batch_first=True)


TOKENS: dict[str, Callable[[], nn.Module]] = {
    "masked mean": lambda: Tokens(_masked_mean),
    "masked attention": lambda: Tokens(_masked_attention),
    "causal attention": lambda: Tokens(_causal_by_hand),
    "attention of torch": lambda: Tokens(_of_torch),
    "truths": lambda: Tokens(_truths),
    "masked max": lambda: Tokens(_longest),
    "mask at edges": AtEdges,
    "multihead": lambda: Attending(
        _attention(), lambda m, h, x: m.part(h, h, h, need_weights=False)[0].mean(1)
    ),
    "multihead weights": lambda: Attending(_attention(), _weights),
    "multihead padded": lambda: Attending(_attention(), _padded),
    "multihead causal": lambda: Attending(_attention(), _causal),
    "multihead crossed": lambda: Attending(
        _attention(batch_first=False, kdim=3, vdim=COLUMNS - 3), _crossed
    ),
    "multihead more": lambda: Attending(_attention(add_bias_kv=True, add_zero_attn=True), _weights),
    "encoder": lambda: Attending(
        nn.TransformerEncoder(_encoder(), 2), lambda m, h, x: m.part(h).mean(1)
    ),
    "encoder padded": lambda: Attending(
        nn.TransformerEncoder(
            _encoder(norm_first=True, activation="gelu"),
            2,
            nn.LayerNorm(COLUMNS),
            enable_nested_tensor=False,
        ),
        _encoded,
    ),
    "encoder of a class": lambda: Attending(_encoder(batch_first=False), _classed),
    "last gathered": lambda: Attending(_gru(), _gathered),
    "last indexed": lambda: Attending(_gru(), _indexed),
    "last along": lambda: Attending(_gru(), _taken_along),
}
