"""Linear attention over all nodes: sums of outer products that each row is multiplied with."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.support.pyg import pyg

WIDTH, HIDDEN, OUT = 5, 8, 4
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


class Attending(nn.Module):
    """A convolution, and attention of each node to all."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, OUT) for _ in range(3))
        self.conv, self.attention = pyg.SAGEConv(WIDTH, OUT), attention

    def forward(self, x, edge_index):
        return self.conv(x, edge_index) + self.attention(self.q(x), self.k(x), self.v(x))


def plain(q, k, v):
    """Of one head, with a normaliser (Katharopoulos et al., 2020)."""
    q, k = F.elu(q) + 1, F.elu(k) + 1
    return q @ (k.T @ v) / (q @ k.sum(0)).unsqueeze(-1)


def averaged(q, k, v):
    """By the number of nodes, in both products."""
    q, k = q.sigmoid(), k.sigmoid()
    q = q * torch.ones(1, OUT).to(q)
    return q @ (k.t() @ v / len(k)) / (q @ k.sum(dim=0, keepdim=True).T / k.shape[0])


def heads_first(q, k, v):
    """[H, N, F], as Performer has them."""
    q, k, v = (one.view(-1, 2, 2).transpose(0, 1) for one in (q.sigmoid(), k.sigmoid(), v))
    out = q @ (k.transpose(-2, -1) @ v) / (q @ k.sum(dim=-2).unsqueeze(-1))
    return out.transpose(0, 1).reshape(-1, OUT)


def heads_last(q, k, v):
    """[N, F, H], as Polynormer has them."""
    q, k, v = (one.view(-1, 2, 2) for one in (q.sigmoid(), k.sigmoid(), v))
    out = torch.einsum("ndh, dmh -> nmh", q, torch.einsum("ndh, nmh -> dmh", k, v))
    total = torch.einsum("ndh, dh -> nh", q, torch.einsum("ndh -> dh", k))
    return (out / (total.unsqueeze(1) + 1e-6)).reshape(-1, OUT)


def difformer(qs, ks, vs):
    """DIFFormer's full_attention_conv with kernel='simple'."""
    qs, ks, vs = (one.view(-1, 2, 2) for one in (qs, ks, vs))
    qs, ks = qs / torch.norm(qs, p=2), ks / torch.norm(ks, p=2)
    nodes = qs.shape[0]
    kvs = torch.einsum("lhm,lhd->hmd", ks, vs)
    attention_num = torch.einsum("nhm,hmd->nhd", qs, kvs)
    all_ones = torch.ones([vs.shape[0]]).to(vs)
    vs_sum = torch.einsum("l,lhd->hd", all_ones, vs)
    attention_num += vs_sum.unsqueeze(0).repeat(vs.shape[0], 1, 1)
    ks_sum = torch.einsum("lhm,l->hm", ks, all_ones)
    attention_normalizer = torch.einsum("nhm,hm->nh", qs, ks_sum)
    attention_normalizer = torch.unsqueeze(attention_normalizer, len(attention_normalizer.shape))
    attention_normalizer += torch.ones_like(attention_normalizer) * nodes
    return (attention_num / attention_normalizer).flatten(1)


def efficient(q, k, v):
    """A softmax of each, and none of pairs (Shen et al., 2021)."""
    return q.softmax(dim=-1) @ (k.softmax(dim=0).T @ v)


class GPS(nn.Module):
    """A convolution beside attention over all nodes."""

    def __init__(self, attention: str = "performer") -> None:
        super().__init__()
        mlp = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN))
        self.lin = nn.Linear(WIDTH, HIDDEN)
        self.conv = pyg.GPSConv(HIDDEN, pyg.GINConv(mlp), heads=2, attn_type=attention)

    def forward(self, x, edge_index, batch=None):
        return self.conv(self.lin(x), edge_index, batch)


ATTENTION: dict[str, Callable[[], nn.Module]] = {
    **{
        f"attention {one.__name__}": lambda one=one: Attending(one)
        for one in (plain, averaged, heads_first, heads_last, difformer, efficient)
    },
    "gps performer": GPS,
    "by the number of nodes": lambda: Attending(lambda q, _k, v: q.sum(0) / len(q) + v / len(v)),
}
