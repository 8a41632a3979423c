"""Modules that give several results at once, as people write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from tests.support.pyg import pyg

# First, as it keeps what PyG warns of while it is imported to itself.
assert pyg

WIDTH, HIDDEN, CLASSES = 5, 6, 3


class Layers(nn.Module):
    """Two layers; what it returns is chosen by a function of all that there is."""

    def __init__(self, choose: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.SAGEConv(WIDTH, HIDDEN), pyg.GCNConv(HIDDEN, CLASSES)
        self.choose = choose

    def forward(self, x, edge_index):
        hidden = self.conv1(x, edge_index).relu()
        return self.choose(x, hidden, self.conv2(hidden, edge_index))


class Both(NamedTuple):
    """As torch's own functions return several tensors."""

    values: torch.Tensor
    scores: torch.Tensor


@dataclass
class Output:
    """As libraries of transformers return several tensors."""

    embedding: torch.Tensor
    logits: torch.Tensor


class Heads(nn.Module):
    """Two heads on a trunk, and the attention of the trunk, which has a row for each edge."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = pyg.GATConv(WIDTH, HIDDEN, heads=2, concat=False, add_self_loops=False)
        self.user, self.item = nn.Linear(HIDDEN, 4), nn.Linear(HIDDEN, 1)

    def forward(self, x, edge_index):
        h = self.trunk(x, edge_index).relu()
        return self.user(h), self.item(h), x[edge_index[0]]


@dataclass(frozen=True)
class Case:
    """A module, the names that are given to ``--results``, and those that the results get."""

    make: Callable[[], nn.Module]
    names: tuple[str, ...]
    given: Sequence[str] = ()


CASES = {
    "dict": Case(
        lambda: Layers(lambda _x, h, out: {"hidden": h, "probabilities": out.softmax(-1)}),
        ("hidden", "probabilities"),
    ),
    "one name": Case(lambda: Layers(lambda _x, h, _out: {"hidden": h}), ("hidden",)),
    "chosen of a dict": Case(
        lambda: Layers(lambda _x, h, out: {"hidden": h, "logits": out, "size": len(out)}),
        ("logits", "hidden"),
        ("logits", "hidden"),
    ),
    "tuple": Case(lambda: Layers(lambda _x, h, out: (h, out)), ("out0", "out1")),
    "list": Case(lambda: Layers(lambda _x, h, out: [h, out, None]), ("out0", "out1")),
    "named by the user": Case(
        lambda: Layers(lambda _x, h, out: (h, out)), ("layer1", "layer2"), ("layer1", "layer2")
    ),
    "named tuple": Case(lambda: Layers(lambda _x, h, out: Both(h, out)), ("values", "scores")),
    "dataclass": Case(lambda: Layers(lambda _x, h, out: Output(h, out)), ("embedding", "logits")),
    "features among them": Case(
        lambda: Layers(lambda x, h, out: (x, h + 1, out)), ("a", "b", "c"), "abc"
    ),
    "the same twice": Case(
        lambda: Layers(lambda _x, h, out: (out, h, out)), ("out0", "out1", "out2")
    ),
    "heads": Case(Heads, ("user", "score"), ("user", "score", "-")),
    "one tensor, named": Case(lambda: Layers(lambda _x, _h, out: out), ("logits",), ("logits",)),
}
