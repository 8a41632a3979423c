"""JumpingKnowledge by an LSTM over the layers' results, which is known as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from embertide.tracing.record.own_forward import forward_of
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.traced import Traced, plain
from embertide.tracing.record.user_code import here, refuse


def jump(recording: Recording, m: Any, xs: Sequence[Any]) -> Any:
    """PyG's and DGL's mode ``lstm``: an LSTM in both directions gives each layer its share."""
    if m.lstm.num_layers > 1 or not all(isinstance(x, Traced) and x.dim() == 2 for x in xs):
        raise refuse(
            here(),
            "JumpingKnowledge with mode='lstm' is known of tensors [N, columns] and with an LSTM of"
            " one layer; use mode='cat' or 'max'",
        )
    value = forward_of(m, plain(list(xs)))
    return recording.tape.wrap(recording.tape.add("jumping", (m, tuple(xs)), {}, value))
