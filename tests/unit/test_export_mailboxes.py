"""Reduce functions of DGL's users, which read ``nodes.mailbox``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from embertide.errors import ModelError
from embertide.models.dgl_interop import load_dgl, why_no_dgl
from embertide.tracing.export import export_module
from embertide.tracing.prove.agreement import TOLERANCE
from tests.support.models import shake

pytestmark = pytest.mark.skipif(why_no_dgl() != "", reason=f"DGL's modules: {why_no_dgl()}")


def attention(nodes: Any) -> Any:
    """DGL's tutorial of GAT."""
    alpha = F.softmax(nodes.mailbox["e"], dim=1)
    return torch.sum(alpha * nodes.mailbox["z"], dim=1)


def extremes(nodes: Any) -> Any:
    """Results that are not zero where nothing arrives."""
    z = nodes.mailbox["z"]
    return z.max(1)[0] - torch.min(z[:, :, :2].relu(), dim=1).values.sum(1, keepdim=True) + 1.0


def differences(nodes: Any) -> Any:
    """What a node has beside what it gets, and how much it gets."""
    z, own = nodes.mailbox["z"], nodes.data["z"]
    apart = (z - own.unsqueeze(1)).pow(2) + (z - z.mean(1, keepdim=True)).abs()
    wide = torch.cat([apart, nodes.mailbox["e"]], dim=-1)[..., :3]
    spread = (wide / z.size(1)).sum(dim=1)
    return spread / z.size(1) + np.log(z.shape[1] + 1) * own


def scored(nodes: Any) -> Any:
    """A matrix, a constant for each column, and a maximum that all messages are held against."""
    z = nodes.mailbox["z"]
    top = z.amax(1, keepdim=True)
    return ((z - top).exp() @ torch.eye(3) * torch.tensor([[[1.0, 2.0, 3.0]]])).mean(1)


class Mailboxes(nn.Module):
    """Messages with scores, reduced by a function."""

    def __init__(self, reduce: Callable[[Any], Any]) -> None:
        super().__init__()
        self.fc, self.attn = nn.Linear(5, 3), nn.Linear(6, 1)
        self.reduce = reduce

    def score(self, edges: Any) -> dict[str, Any]:
        both = torch.cat([edges.src["z"], edges.dst["z"]], dim=1)
        return {"e": F.leaky_relu(self.attn(both))}

    def forward(self, g, h):
        with g.local_scope():
            g.ndata["z"] = self.fc(h)
            g.apply_edges(self.score)
            g.update_all(
                lambda edges: {"z": edges.src["z"], "e": edges.data["e"]},
                lambda nodes: {"h": self.reduce(nodes)},
            )
            return g.ndata["h"]


@pytest.mark.parametrize("reduce", [attention, extremes, differences, scored])
def test_reduce_functions(reduce: Callable[[Any], Any]) -> None:
    load_dgl()
    done = export_module(shake(Mailboxes(reduce)), width=5)
    assert done.proof.largest_error <= TOLERANCE


MISTAKES: dict[str, Callable[[Any], Any]] = {
    "picked out of a mailbox by number": lambda nodes: nodes.mailbox["z"][:, 0],
    "cumsum of a mailbox is not known here; known are sum": lambda n: n.mailbox["z"].cumsum(1),
    "returns 'h' with a row for each message": lambda nodes: nodes.mailbox["z"],
    r"meets their mailboxes; .*unsqueeze\(1\)": lambda n: (n.mailbox["z"] * n.data["z"]).sum(1),
    "sum of a mailbox needs a dimension": lambda nodes: nodes.mailbox["z"].sum(),
    "dimension 0 of a mailbox": lambda nodes: nodes.mailbox["z"].mean(0),
    "cbrt of an in-degree": lambda n: n.mailbox["z"].mean(1) * np.cbrt(n.mailbox["z"].size(1)),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_what_a_mailbox_may_not_do(message: str) -> None:
    load_dgl()
    with pytest.raises(ModelError, match=rf"test_export_mailboxes\.py:\d+: .*{message}"):
        export_module(Mailboxes(MISTAKES[message]), width=5)
