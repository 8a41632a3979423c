"""JumpingKnowledge by an LSTM over the layers' results, spelled out: a row at a time, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from embertide.tracing.record.recurrent import lstm_of, over
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
    ahead, back = (
        [h for h, _ in over(lstm_of(m.lstm, direction), ordered)]
        for direction, ordered in (("", xs), ("_reverse", xs[::-1]))
    )
    scores = [m.att(torch.cat(both, dim=1)) for both in zip(ahead, back[::-1], strict=True)]
    shares = torch.softmax(torch.cat(scores, dim=1), dim=1)
    total: Any = 0
    for at, x in enumerate(xs):
        total = total + x * shares[:, at : at + 1]
    return total
