"""JumpingKnowledge by an LSTM over the layers' results, spelled out: a row at a time, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import linear

from embertide.tracing.record.traced import Traced
from embertide.tracing.record.user_code import here, refuse


def jump(m: Any, xs: Sequence[Any]) -> Any:
    """PyG's and DGL's mode ``lstm``: an LSTM in both directions gives each layer its share."""
    if m.lstm.num_layers > 1 or not all(isinstance(x, Traced) and x.dim() == 2 for x in xs):
        raise refuse(
            here(),
            "JumpingKnowledge with mode='lstm' is known of tensors [N, columns] and with an LSTM of"
            " one layer; use mode='cat' or 'max'",
        )
    ahead = _states(m.lstm, xs, "")
    back = _states(m.lstm, xs[::-1], "_reverse")[::-1]
    scores = [m.att(torch.cat(both, dim=1)) for both in zip(ahead, back, strict=True)]
    shares = torch.softmax(torch.cat(scores, dim=1), dim=1)
    total: Any = 0
    for at, x in enumerate(xs):
        total = total + x * shares[:, at : at + 1]
    return total


def _states(lstm: Any, xs: Sequence[Any], direction: str) -> list[Any]:
    """[N, hidden] behind each of the tensors (torch.nn.LSTM)."""
    of_x, of_h = (getattr(lstm, f"weight_{one}_l0{direction}") for one in ("ih", "hh"))
    biases = [getattr(lstm, f"bias_{one}_l0{direction}") for one in ("ih", "hh")]
    found: list[Any] = []
    cell: Any = None
    for x in xs:
        gates = linear(x, of_x, biases[0] + biases[1])
        if found:
            gates = gates + linear(found[-1], of_h)
        enter, keep, value, leave = gates.chunk(4, dim=1)
        new = enter.sigmoid() * value.tanh()
        cell = new if cell is None else keep.sigmoid() * cell + new
        found.append(leave.sigmoid() * cell.tanh())
    return found
