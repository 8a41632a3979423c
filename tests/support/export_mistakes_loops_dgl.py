"""Modules that change a graph of DGL's as no program can say, each with one mistake.

Its line ends in a comment. Read as a user's file is: by its path.
"""

from torch import nn

from embertide.models.dgl_interop import load_dgl

dgl = load_dgl()


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = dgl.nn.SAGEConv(5, 3, "mean")


class Reversed(Base):
    def forward(self, g, x):
        return self.conv(dgl.reverse(g), x)  # Reversed


class Twice(Base):
    def forward(self, g, x):
        g = dgl.add_self_loop(dgl.remove_self_loop(g))
        return self.conv(g.add_self_loop(), x)  # Twice


class Late(Base):
    def forward(self, g, x):
        g.ndata["h"] = x
        g.apply_edges(dgl.function.u_add_v("h", "h", "a"))
        return self.conv(g.remove_self_loop(), x)  # Late


class Named(Base):
    def forward(self, g, x):
        g = dgl.add_self_loop(g, edge_feat_names=["w"])  # Named
        return self.conv(g, x)
