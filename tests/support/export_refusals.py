"""Modules of many kinds that no program can say yet, each as its user would write it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.support.pyg import pyg

# First, as it keeps what PyG warns of while it is imported to itself.
assert pyg

from torch_geometric import utils  # noqa: E402


class Base(nn.Module):
    """A convolution that the others start from."""

    def __init__(self):
        super().__init__()
        self.conv = pyg.SAGEConv(5, 4)


class Sorted(Base):
    def forward(self, x, edge_index):
        return self.conv(x, edge_index).sort(dim=0).values


class TopK(Base):
    def forward(self, x, edge_index):
        return self.conv(x, edge_index).topk(2, dim=-1).values


class Unique(Base):
    def forward(self, x, edge_index):
        return self.conv(x, edge_index).unique(dim=0)


class Masked(Base):
    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return h[h.sum(dim=-1) > 0]


class Listed(Base):
    def forward(self, x, edge_index):
        return torch.tensor(self.conv(x, edge_index).tolist())


class Numpy(Base):
    def forward(self, x, edge_index):
        return torch.from_numpy(self.conv(x, edge_index).numpy())


class OverNodes(Base):
    def forward(self, x, edge_index):
        return self.conv(x, edge_index).log_softmax(dim=0)


class Multiplied(Base):
    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return h + h.prod(dim=0)


class Quantile(Base):
    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return h / h.quantile(0.9)


class Reversed(Base):
    def forward(self, x, edge_index):
        return self.conv(x, edge_index.flip(0))


class Both(Base):
    def forward(self, x, edge_index):
        return self.conv(x, torch.cat([edge_index, edge_index.flip(0)], dim=1))


class Undirected(Base):
    def forward(self, x, edge_index):
        return self.conv(x, utils.to_undirected(edge_index))


class Coalesced(Base):
    def forward(self, x, edge_index):
        return self.conv(x, utils.coalesce(edge_index))


class Dense(Base):
    def forward(self, x, edge_index):
        return utils.to_dense_adj(edge_index)[0] @ self.conv(x, edge_index)


class Squared(Base):
    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return (h @ h.t()) @ h


class Attention(Base):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x, edge_index):
        h = self.conv(x, edge_index).unsqueeze(0)
        return self.attention(h, h, h)[0].squeeze(0)


class Encoder(Base):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)

    def forward(self, x, edge_index):
        return self.layer(self.conv(x, edge_index))


class Picked(Base):
    def forward(self, x, edge_index):
        row, col = edge_index
        return self.conv(x, edge_index[:, x[row, 0] > x[col, 0]])


class Nearest(Base):
    def forward(self, x, edge_index):
        near = torch.cdist(x, x).topk(3, largest=False).indices
        return self.conv(x, near)


class Packed(Base):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(1, 4, batch_first=True)

    def forward(self, x, edge_index):
        tokens, lengths = x.unsqueeze(-1), (x > 0).sum(1).clamp(min=1)
        packed = nn.utils.rnn.pack_padded_sequence(tokens, lengths, batch_first=True)
        return self.gru(packed)[1][-1]


class Made(Base):
    def forward(self, x, edge_index):
        return self.conv(x, torch.stack([x[:, 0], x[:, 1]]).long())


class Gps(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.gps = nn.Linear(5, 4), pyg.GPSConv(4, pyg.GCNConv(4, 4), heads=2)

    def forward(self, x, edge_index):
        return self.gps(self.lin(x), edge_index)


class Recurrent(Base):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 4)

    def forward(self, x, edge_index):
        return self.rnn(self.conv(x, edge_index))[0]


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.SAGEConv(5, 4, aggr="lstm")

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


class TopKPooled(Base):
    def __init__(self):
        super().__init__()
        self.pool = pyg.TopKPooling(4)

    def forward(self, x, edge_index):
        return self.pool(self.conv(x, edge_index), edge_index)[0]


class Directed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.DirGNNConv(pyg.GCNConv(5, 4))

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = pyg.GraphUNet(5, 4, 4, depth=2)

    def forward(self, x, edge_index):
        return self.net(x, edge_index)


class Categories(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.conv = nn.Embedding(10, 4), pyg.SAGEConv(4, 4)

    def forward(self, x, edge_index):
        return self.conv(self.emb(x[:, 0].long()), edge_index)


class OneHot(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.SAGEConv(10, 4)

    def forward(self, x, edge_index):
        return self.conv(F.one_hot(x[:, 0].long(), 10).double(), edge_index)


class Untabled(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.conv = nn.Embedding(50, 4), pyg.SAGEConv(9, 4)

    def forward(self, x, edge_index):
        return self.conv(torch.cat([x, self.emb.weight], dim=-1), edge_index)


class Alone(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.conv = nn.Embedding(50, 4), pyg.SAGEConv(4, 4)

    def forward(self, edge_index):
        return self.conv(self.emb.weight, edge_index)


class Joined(nn.Module):
    """Its width is that of features and of what forward makes of them."""

    def __init__(self):
        super().__init__()
        self.conv = pyg.SAGEConv(12, 4)

    def forward(self, x, edge_index):
        return self.conv(torch.cat([x, x.square()], dim=-1), edge_index)


class WeightMedian(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = pyg.GCNConv(5, 4)

    def forward(self, x, edge_index, edge_weight):
        return self.conv(x, edge_index, edge_weight / edge_weight.median())


class Pair(Base):
    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return {"embedding": h, "loss": 0.5}


class Edges(Base):
    def forward(self, x, edge_index):
        h = self.conv(x, edge_index)
        return (h[edge_index[0]] * h[edge_index[1]]).sum(dim=-1)


class Pairs(Base):
    def forward(self, x, edge_index, edge_label_index):
        h = self.conv(x, edge_index)
        return (h[edge_label_index[0]] * h[edge_label_index[1]]).sum(dim=-1)


class Positions(Base):
    def forward(self, x, edge_index, pe):
        return self.conv(x, edge_index) + pe


class Dicts(Base):
    def forward(self, x, edge_index):
        return {name: self.conv(one, edge_index) for name, one in x.items()}


class Labels(Base):
    def forward(self, x, edge_index, batch):
        return pyg.global_mean_pool(self.conv(x, edge_index), batch)


class Selu(Base):
    """A method that tensors do not have."""

    def forward(self, x, edge_index):
        return self.conv(x, edge_index).selu()


class HookWithin(Base):
    def __init__(self):
        super().__init__()
        self.conv.register_message_forward_hook(lambda _m, _args, out: out * 2)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


class HookByKeyword(Base):
    def __init__(self):
        super().__init__()
        self.register_forward_pre_hook(
            lambda _m, args, kwargs: (args, kwargs | {"x": kwargs["x"] * 2}), with_kwargs=True
        )

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


class HookLogs(Base):
    def __init__(self):
        super().__init__()
        self.conv.register_forward_hook(lambda _m, _args, out: print(out.numpy()))

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


class HookNotRun(Base):
    """On a part that a convolution as it is recorded does without."""

    def __init__(self):
        super().__init__()
        self.conv.aggr_module.register_forward_hook(lambda _m, _args, out: out * 2)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)
