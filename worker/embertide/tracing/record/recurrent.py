"""Recurrent layers over a short sequence that each node has, spelled out step by step.

Nodes are torch's batch. A sequence of nodes has no order that a graph would know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from embertide.tracing.record.constants import uniform
from embertide.tracing.record.traced import Traced
from embertide.tracing.record.turned import NODES_SECOND, displayed
from embertide.tracing.record.user_code import here, refuse

LONGEST = 64
"""Steps of a sequence: each is a few matrix products of the program."""
State = tuple[Any, Any]
"""[N, hidden] h, and an LSTM's c; None is zeros."""


def lstm_cell(
    x: Any, state: Sequence[Any], w_x: Any, w_h: Any, b_x: Any = None, b_h: Any = None
) -> State:
    """torch.nn.LSTMCell: [N, hidden] h and c."""
    h, cell = state
    bias = b_x if b_h is None else b_h if b_x is None else b_x + b_h
    gates = linear(x, w_x, bias)
    gates = gates if h is None else gates + linear(h, w_h)
    enter, keep, value, leave = gates.chunk(4, dim=1)
    new = enter.sigmoid() * value.tanh()
    cell = new if cell is None else keep.sigmoid() * cell + new
    return leave.sigmoid() * cell.tanh(), cell


def gru_cell(
    x: Any, state: Sequence[Any], w_x: Any, w_h: Any, b_x: Any = None, b_h: Any = None
) -> State:
    """torch.nn.GRUCell: [N, hidden] h, and nothing beside it."""
    h = state[0]
    of_x = linear(x, w_x, b_x).chunk(3, 1)
    if h is None:
        of_h: Any = (0.0, 0.0, 0.0) if b_h is None else b_h.chunk(3)
    else:
        of_h = linear(h, w_h, b_h).chunk(3, 1)
    reset, update = (torch.sigmoid(of_x[at] + of_h[at]) for at in (0, 1))
    new = torch.tanh(of_x[2] + reset * of_h[2])
    # update * h + (1 - update) * new
    return (new - update * new if h is None else new + update * (h - new)), None


def called_lstm_cell(
    x: Any, state: Sequence[Any], w_x: Any, w_h: Any, b_x: Any = None, b_h: Any = None
) -> State:
    """What torch's function gets from a cell without a state: zeros."""
    return lstm_cell(x, [known_state(part) for part in state], w_x, w_h, b_x, b_h)


def called_gru_cell(x: Any, h: Any, w_x: Any, w_h: Any, b_x: Any = None, b_h: Any = None) -> Any:
    """The same of a GRU."""
    return gru_cell(x, (known_state(h), None), w_x, w_h, b_x, b_h)[0]


def known_state(state: Any) -> Any:
    """A state of zeros as None; any other one as it is."""
    return None if isinstance(state, Tensor) and uniform_zero(state) else state


def uniform_zero(state: Tensor) -> bool:
    """Whether it is a constant of zeros."""
    return not isinstance(state, Traced) and uniform(state) == 0.0


def recurrent(m: nn.LSTM | nn.GRU, x: Any, state: Any = None) -> Any:
    """torch.nn.LSTM or GRU over [steps, N, columns], or [N, steps, columns] with batch_first.

    Returns:
        The last layer's h after each step, and of all layers and directions the last state.

    Raises:
        ModelError: the sequence goes over the nodes, or a step is no row of each node.
    """
    is_lstm = isinstance(m, nn.LSTM)
    steps = _steps(m, x)
    states = _states(state, is_lstm)
    last = list[State]()
    for layer in range(m.num_layers):
        outs = list[list[Any]]()
        for direction in ("", "_reverse")[: 2 if m.bidirectional else 1]:
            cell = _cell(m, f"l{layer}{direction}", lstm_cell if is_lstm else gru_cell)
            first = (None, None) if states is None else states(len(last))
            states_after = over(cell, steps[::-1] if direction else steps, first)
            last.append(states_after[-1])
            ordered = states_after[::-1] if direction else states_after
            outs.append([h for h, _ in ordered])
        steps = [
            state[0] if len(state) == 1 else torch.cat(state, 1)
            for state in zip(*outs, strict=True)
        ]
    stacked = torch.stack(list(steps), 1)
    out = stacked if m.batch_first else stacked.transpose(0, 1)
    ends = [
        torch.stack([state[at] for state in last], 1).transpose(0, 1) for at in range(1 + is_lstm)
    ]
    return out, tuple(ends) if is_lstm else ends[0]


def over(
    cell: Callable[[Any, State], State], steps: Sequence[Any], first: State = (None, None)
) -> list[State]:
    """The state after each step."""
    states = [first]
    for x in steps:
        states.append(cell(x, states[-1]))
    return states[1:]


def _cell(m: Any, name: str, kind: Callable[..., State]) -> Callable[[Any, State], State]:
    """One layer in one direction."""
    of_x, of_h = (getattr(m, f"weight_{side}_{name}") for side in ("ih", "hh"))
    biases = (
        [getattr(m, f"bias_{side}_{name}") for side in ("ih", "hh")] if m.bias else [None, None]
    )
    return lambda x, state: kind(x, state, of_x, of_h, *biases)


def _steps(m: Any, x: Any) -> list[Any]:
    """[N, columns] of each step."""
    kind = type(m).__name__
    steps = None if not isinstance(x, Traced) else _taken_apart(x, first=not m.batch_first)
    if steps is None:
        raise refuse(
            here(),
            f"{kind} goes over the nodes one after another, but nodes have no order; known are"
            " sequences that each node has, with the nodes as batch: [steps, N, columns], or"
            " [N, steps, columns] with batch_first=True, such as the layers' results stacked",
        )
    if len(steps) > LONGEST or m.proj_size:
        raise refuse(
            here(), f"{kind} is known over at most {LONGEST} steps, and without projections"
        )
    return steps


def _taken_apart(x: Traced, *, first: bool) -> list[Any] | None:
    """The steps of a sequence that stand in dimension 0, or else in dimension 1."""
    node = x.node
    if first and node.op == "stack" and (*node.args[1:], *node.kwargs.values(), 0)[0] == 0:
        return [x.tape.wrap(row) for row in node.args[0]]
    rows, letters = displayed(x)
    if len(letters) != 3 or letters != (NODES_SECOND if first else "nab"):
        return None
    each: Any = rows
    return [each[:, at] for at in range(rows.node.value.shape[1])]


def _states(state: Any, is_lstm: bool) -> Callable[[int], State] | None:
    """The first state of each layer and direction, by its number."""
    if state is None:
        return None
    parts = [_each(part) for part in (state if is_lstm else (state, None))]
    return lambda at: (parts[0](at), parts[1](at))


def _each(state: Any) -> Callable[[int], Any]:
    """[N, hidden] of one of the layers' states [layers, N, hidden]."""
    if state is None or (isinstance(state, Tensor) and uniform_zero(state)):
        return lambda _at: None
    apart = _taken_apart(state, first=True) if isinstance(state, Traced) else None
    if apart is None:
        raise refuse(
            here(), "the first state is known as zeros, or as [layers, N, hidden] made of the nodes"
        )
    return lambda at: apart[at]
