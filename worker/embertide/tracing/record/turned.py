"""Rows whose nodes stand in another dimension than the first, such as [heads, N, columns].

They are recorded as the rows that they show, with the nodes in front, and as exchanges of
dimensions. What is done with each value, and what picks, joins or adds up along a dimension, is
done with the rows. Dimensions have letters: n of the nodes, then a, b, ... in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from embertide.tracing.record.node_statistics import BESIDE_ROWS
from embertide.tracing.record.traced import Node, Traced

NODES, LETTERS = "n", "abcdefgh"
PLACES = NODES + LETTERS
NODES_SECOND = "anb"
"""The letters of [steps, N, columns]."""
SAME = ("contiguous", "clone", "detach", "to", "float", "double", "type_as")
_TURNS = ("transpose", "t", "T", "mT")
_EACH = BESIDE_ROWS | {"exp", "relu", "elu", "sigmoid", "softplus", "square", "abs", "neg"}
_EACH |= {"tanh", "dropout", "leaky_relu", "gelu", "linear", "layer_norm"}
"""What leaves all dimensions but the last as they are, in whichever the nodes are."""
_OVER_STEPS = ("sum", "mean", "amax", "amin", "max", "min")
"""Reductions, also over the steps of [steps, N, columns]."""


def displayed(x: Traced) -> tuple[Traced, str]:
    """The rows that a tensor shows, nodes first, and the letters of the tensor's dimensions.

    The letters of the rows are n, a, b, ..., in order.
    """
    node, swaps = x.node, list[tuple[int, int]]()
    dims = x.dim()
    while isinstance(node.value, Tensor) and node.value.dim() == dims:
        swapped = _swapped(node)
        if swapped is None and node.op not in SAME:
            break
        swaps += [] if swapped is None else [swapped]
        if not isinstance(node.args[0], Node):
            break
        node = node.args[0]
    letters = list(NODES + LETTERS[: dims - 1])
    for a, b in reversed(swaps):
        letters[a], letters[b] = letters[b], letters[a]
    return x.tape.wrap(node), "".join(letters)


def _swapped(node: Node) -> tuple[int, int] | None:
    """The two dimensions that an operation exchanges."""
    dims = node.value.dim() if isinstance(node.value, Tensor) else 0
    if node.op == "mT" or (node.op in ("t", "T") and dims == 2):
        return dims - 2, dims - 1
    if node.op == "transpose":
        places = [*node.args[1:], *node.kwargs.values()]
        if len(places) == 2:
            return places[0] % dims, places[1] % dims
    return None


def of_turned(
    func: Callable[..., Any], op: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """What is done with rows whose nodes are not in front, with them in front; else None."""
    x, *others = args
    if x.node.whole or not isinstance(x.node.value, Tensor) or not 2 <= x.node.value.dim() <= 4:
        return None
    rows, own = displayed(x)
    dims = list(own)
    if op in _TURNS:
        a, b = (
            (len(dims) - 2, len(dims) - 1)
            if op != "transpose"
            else (place % len(dims) for place in (*others, *kwargs.values()))
        )
        dims[a], dims[b] = dims[b], dims[a]
        return rows if "".join(dims) == PLACES[: len(dims)] else None
    if own[0] == NODES:
        # A dimension in front of the nodes is kept after them, until it is gone again.
        front = op == "unsqueeze" and others == [0] and not kwargs
        front |= op == "__getitem__" and _puts_in_front(others[0])
        return rows.unsqueeze(1).transpose(0, 1) if front and len(own) == 2 else None
    if own == NODES_SECOND and (place := _picked(op, x, others)) is not None:
        return rows[:, place]
    places = (*others, *kwargs.values())
    if own == NODES_SECOND and op in _OVER_STEPS and len(places) == 1 and places[0] in (0, -3):
        return func(rows, 1)
    if op == "sum":
        return _sum_of_turned(rows, own, places)
    traced = [arg for arg in args if isinstance(arg, Traced)]
    alike = all(not arg.node.whole and displayed(arg)[1] == own for arg in traced)
    numbers = op == "linear" or all(
        isinstance(arg, (Traced, int, float)) or (op in ("layer_norm", "dropout")) for arg in args
    )
    if op not in _EACH or not alike or not numbers or own[-1] != PLACES[len(own) - 1]:
        return None
    moved = (displayed(arg)[0] if isinstance(arg, Traced) else arg for arg in args)
    return turned(func(*moved, **kwargs), PLACES[: len(own)], own)


def _puts_in_front(key: Any) -> bool:
    """Whether a key is ``None``, or that and all rows."""
    keys = key if isinstance(key, tuple) else (key,)
    rest = [entry for entry in keys[1:] if entry is not Ellipsis]
    return keys[0] is None and all(
        isinstance(entry, slice) and entry == slice(None) for entry in rest
    )


def _picked(op: str, x: Traced, others: list[Any]) -> int | None:
    """Which step of [steps, N, columns] a call takes alone."""
    steps: int = x.node.value.shape[0]
    if op == "squeeze" and steps == 1 and others in ([], [0]):
        return 0
    if op == "__getitem__" and type(others[0]) is int and -steps <= others[0] < steps:
        place: int = others[0]
        return place % steps
    return None


def joined(func: Callable[..., Any], parts: Sequence[Traced], *places: Any) -> Any:
    """Tensors side by side whose nodes are all in the same dimension, and not in front."""
    if any(part.node.whole or not isinstance(part.node.value, Tensor) for part in parts):
        return None
    moved = [displayed(part) for part in parts]
    own, dims = moved[0][1], parts[0].dim()
    if own != NODES_SECOND or any(letters != own for _, letters in moved) or len(places) != 1:
        return None
    dim = PLACES.index(own[places[0] % dims])
    return turned(func([rows for rows, _ in moved], dim), PLACES[:dims], own) if dim else None


def _sum_of_turned(rows: Any, own: str, places: tuple[Any, ...]) -> Any:
    """``k.sum(dim)`` over the nodes, where they are not in front."""
    if len(places) != 1 or type(places[0]) is not int or own[places[0] % len(own)] != NODES:
        return None
    left = own.replace(NODES, "")
    return rows.sum(0) if left == LETTERS[: len(left)] else None


def rows_in(x: Traced, letters: str, wanted: str) -> Any:
    """Rows with their dimensions in another order, of which the nodes stay first."""
    rows, own = displayed(x)
    order = [PLACES.index(own[letters.index(letter)]) for letter in wanted]
    return rows if order == sorted(order) else rows.permute(*order)


def node_letter(x: Traced, letters: str) -> str | None:
    """The letter of the nodes' dimension; None where a tensor has no such dimension."""
    rows, own = displayed(x)
    if rows.node.value.shape[0] != x.tape.counts.get(x.node.of) or len(own) != len(letters):
        return None
    return letters[own.index(NODES)]


def turned(x: Any, letters: str, result: str) -> Any:
    """Rows with their dimensions as a result has them."""
    return x if letters == result else x.permute(*(letters.index(letter) for letter in result))
