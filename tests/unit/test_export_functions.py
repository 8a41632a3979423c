"""Functions of torch around a convolution: many of them in one module, proved together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from embertide.errors import ModelError
from embertide.tracing.export import export_module
from embertide.tracing.prove.agreement import TOLERANCE
from embertide.tracing.record.graphs import GraphTypes
from tests.support.models import shake
from tests.support.pyg import pyg


class Around(nn.Module):
    """What a function makes of a convolution's result and its neighbours' sum."""

    def __init__(self, function: Callable[[Any, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.conv, self.hop = pyg.GCNConv(5, 4), pyg.GraphConv(4, 4)
        self.lin, self.cell = nn.Linear(4, 4), nn.GRUCell(4, 4)
        self.token, self.shares = nn.Parameter(torch.ones(1, 4)), nn.Parameter(torch.ones(4))
        self.function = function

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index).tanh()
        return self.function(self, h, self.hop(h, edge_index).tanh())


def constants(m: Any, h: Tensor, k: Tensor) -> Tensor:
    """Of a tensor's shape, and a parameter as every row."""
    return torch.cat(
        [
            h + torch.zeros_like(h) + torch.full_like(h, 0.3),
            torch.ones_like(h[:, :1]),
            h.new_zeros(h.size(0), 2) + k.new_ones((len(k), 2)),
            m.token.expand_as(h) * h.type(torch.float32),
        ],
        dim=1,
    )


def truths(_m: Any, h: Tensor, k: Tensor) -> Tensor:
    """Truth values as numbers, and instead of numbers."""
    masked = h.masked_fill(h < 0, 0.5) + F.threshold(k, 0.1, -1.0)
    some = (h > 0).any(1, keepdim=True) + (k > 0).all(dim=1, keepdim=True).float()
    return masked * (h > k) + (h > 0).sum(1, keepdim=True) + some + (h == h).to(h.dtype)


def lengths(m: Any, h: Tensor, k: Tensor) -> Tensor:
    """Norms and products of rows."""
    unit = h / (h.norm(p=2, dim=-1, keepdim=True) + 1) + k / (k.norm(p=1, dim=1, keepdim=True) + 1)
    close = F.cosine_similarity(h, k, dim=-1).unsqueeze(-1)
    heads = torch.einsum("nhd,hd->nh", h.view(-1, 2, 2), m.token.view(2, 2))
    moved = torch.einsum("nd,fd->nf", k, m.lin.weight) + torch.addmm(m.shares, h, m.lin.weight)
    wide = (h.unsqueeze(2) * k.unsqueeze(1)).flatten(1)
    return torch.cat(
        [unit * close / (1 + torch.linalg.norm(h, dim=1, keepdim=True)), heads, wide, moved], 1
    )


def shapes(_m: Any, h: Tensor, k: Tensor) -> Tensor:
    """Dimensions turned, columns picked and repeated."""
    turned = h.view(-1, 2, 2).permute(0, 2, 1).reshape(-1, 4) + k.unflatten(1, (2, 2)).swapaxes(
        1, 2
    ).flatten(1)
    first, second = h.view(-1, 2, 2).unbind(1)
    picked = torch.column_stack([h[:, [0, 2]], k.index_select(1, torch.tensor([3, 1]))])
    return torch.hstack(
        [turned, first * second, picked, k.tile(1, 2), h.repeat_interleave(2, dim=1)]
    )


def mixtures(m: Any, h: Tensor, k: Tensor) -> Tensor:
    """Attention over layers (DAGNN), a GRU, sums in proportion."""
    stacked = torch.stack([h, k, h * k], dim=1)
    shares = m.lin(stacked).sum(-1, keepdim=True).sigmoid()
    hops = torch.matmul(shares.transpose(1, 2), stacked).squeeze(1)
    mixed = torch.lerp(h, k, 0.3) + torch.addcmul(h, h, k, value=0.5).clamp_min(-0.2)
    return hops + m.cell(h, k) + mixed + F.glu(torch.cat([h, k], 1), 1) + F.logsigmoid(h)


@pytest.mark.parametrize("function", [constants, truths, lengths, shapes, mixtures])
def test_functions_of_rows(function: Callable[..., Tensor]) -> None:
    done = export_module(shake(Around(function)), width=5)
    assert done.proof.largest_error <= TOLERANCE


MISTAKES: dict[str, Callable[..., Tensor]] = {
    "norm is known with p=1 or 2": lambda _m, h, _k: h / h.norm(p=3, dim=1, keepdim=True),
    "rows are taken one by one": lambda _m, h, _k: h.unbind()[0],
    r"a new tensor \[3, 4\] is known with a row for each node": lambda _m, h, _k: h.new_zeros(3, 4),
    "einsum 'nd,nd->d' is known with the nodes' letter": lambda _m, h, k: (
        h + torch.einsum("nd,nd->d", h, k)
    ),
    "repeat_interleave is known with a number": lambda _m, h, _k: h.repeat_interleave(2, dim=0),
    r"(?s)computes with the number of nodes or edges \(len\(x\)": lambda _m, h, _k: (
        h / (len(h) - 1)
    ),
}


def test_rows_at_the_edges_of_all_relations_are_not_of_the_nodes() -> None:
    class Ends(nn.Module):
        def forward(self, x, edge_index, edge_type):
            row, _col = edge_index
            return x[row]

    types = GraphTypes({"n": 5}, ("n:a:n", "n:b:n"))
    with pytest.raises(ModelError, match=r"py:\d+: a tensor of the edges is returned"):
        export_module(Ends(), graph=types)


@pytest.mark.parametrize("message", MISTAKES)
def test_what_rows_cannot_say(message: str) -> None:
    with pytest.raises(ModelError, match=message):
        export_module(shake(Around(MISTAKES[message])), width=5)
