"""Products over all nodes: ``k.T @ v``, a sum of products of rows, and ``q @ (k.T @ v)``.

Linear attention makes a small matrix of all nodes' keys and values, by which each node's query is
multiplied. The matrix is no tensor of nodes or edges, so it is recorded by its factors until rows
meet it. Nodes may stand in any dimension before, as where heads come first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from embertide.tracing.record.constants import uniform
from embertide.tracing.record.protocols import Recorder
from embertide.tracing.record.traced import Traced, plain, traced_in, viewed
from embertide.tracing.record.turned import (
    LETTERS,
    NODES,
    PLACES,
    SAME,
    displayed,
    joined,
    node_letter,
    of_turned,
    rows_in,
    turned,
)
from embertide.tracing.record.user_code import here, refuse

OUTER, ATTEND = "outer", "attend_all"
_MATMUL = ("matmul", "mm", "bmm", "__matmul__")
_SCALES = ("mul", "__mul__", "__rmul__", "div", "__truediv__", "true_divide")
_JOINS = ("cat", "concat")


def over_pairs(
    tape: Recorder, func: Callable[..., Any], op: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """What a product of torch's gives that sums over all nodes, or is multiplied with such a sum.

    Returns:
        None for other calls.

    Raises:
        ModelError: something else is done with such a sum.
    """
    passed = list(traced_in((args, tuple(kwargs.values()))))
    sums = [x for x in passed if x.node.op == OUTER]
    if any(x.node.edges for x in passed):
        return None
    result: Any = None
    if op in _MATMUL and len(args) == 2 and len(passed) == 2:
        result = _multiplied(tape, *args)
    elif op == "einsum":
        result = _einsum(tape, *args)
    elif sums and op in _SCALES and len(args) == 2:
        result = _scaled(tape, op, *args)
    elif sums and op in SAME:
        result = args[0]
    elif not sums and args and isinstance(args[0], Traced):
        result = of_turned(func, op, args, kwargs)
    elif not sums and op in _JOINS and len(passed) == len(args[0]):
        result = joined(func, passed, *args[1:], *kwargs.values())
    if result is None and sums:
        raise refuse(
            here(),
            f"{op} of a sum over all nodes of products of their rows is not known; known are its"
            " product with rows, q @ (k.T @ v), and its multiples",
        )
    return result


def _is_rows(x: Any) -> bool:
    return isinstance(x, Traced) and not x.node.whole and x.node.op != OUTER


# Products by their letters.


def _multiplied(tape: Recorder, a: Any, b: Any) -> Any:
    """``a @ b`` of two tensors."""
    if b.node.whole and _is_rows(a):
        return _with_statistic(a, b)
    dims = a.dim()
    if b.dim() != dims or not 2 <= dims <= 3:
        return None
    lead = "h" * (dims - 2)
    return _product(tape, f"{lead}xy", f"{lead}yz", f"{lead}xz", a, b)


def _with_statistic(a: Any, b: Traced) -> Any:
    """``q @ k.sum(0)``, of which each node has a row while a module is recorded."""
    shape = list(b.node.value.shape)
    column = len(shape) == a.dim() + 1 and shape[-1] == 1
    rows, own = displayed(a)
    if (not column and len(shape) != 2) or sorted(own) != sorted(PLACES[: len(own)]):
        return None
    if own.replace(NODES, "") != LETTERS[: len(own) - 1]:
        return None
    statistic: Any = viewed(b, shape[1:-1]) if column else b
    total = (rows * statistic).sum(-1, keepdim=column)
    return turned(total, PLACES[: len(own)], own) if column else total


def _einsum(tape: Recorder, equation: Any, *operands: Any) -> Any:
    listed = len(operands) == 1 and isinstance(operands[0], (list, tuple))
    parts = list(operands[0] if listed else operands)
    terms, arrow, result = str(equation).replace(" ", "").partition("->")
    letters = terms.split(",")
    if "." in terms or not arrow or len(letters) != len(parts):
        return None
    if len(parts) == 1:
        return _summed(letters[0], result, parts[0])
    if len(parts) != 2:
        return None
    traced = [isinstance(part, Traced) for part in parts]
    if traced == [False, True]:
        letters, parts, traced = letters[::-1], parts[::-1], traced[::-1]
    if traced == [True, False]:
        number = uniform(parts[1]) if isinstance(parts[1], Tensor) else None
        own = len(letters[1]) == 1 and letters[1] == node_letter(parts[0], letters[0])
        total = _summed(letters[0], result, parts[0]) if own and number is not None else None
        return None if total is None else total * float(number or 0.0)
    return _product(tape, letters[0], letters[1], result, parts[0], parts[1])


def _summed(letters: str, result: str, x: Any) -> Any:
    """A sum over all nodes alone; None for other ones."""
    if not _is_rows(x):
        return None
    nodes = node_letter(x, letters)
    if nodes is None or sorted(result) != sorted(letters.replace(nodes, "", 1)):
        return None
    return rows_in(x, letters, nodes + result).sum(0)


def _product(tape: Recorder, of_a: str, of_b: str, result: str, a: Any, b: Any) -> Any:
    """A product of two tensors by the letters of their dimensions; None where no sum is in it."""
    if _is_rows(b) and not _is_rows(a):
        of_a, of_b, a, b = of_b, of_a, b, a
    if not _is_rows(a):
        return None
    nodes = node_letter(a, of_a)
    if nodes is None:
        return None
    if b.node.op == OUTER:
        return _attended(tape, of_a, of_b, result, a, b, nodes)
    if b.node.whole:
        return _beside(of_a, of_b, result, a, b, nodes)
    if nodes in result or node_letter(b, of_b) != nodes:
        return None
    return _outer(tape, of_a, of_b, result, a, b, nodes)


def _beside(of_a: str, of_b: str, result: str, a: Any, b: Any, nodes: str) -> Any:
    """Rows and a statistic, which has a row for each node while a module is recorded."""
    if nodes in of_b or nodes not in result or b.dim() != len(of_b) + 1:
        return None
    rest = result.replace(nodes, "", 1)
    rows = rows_in(a, of_a, nodes + of_a.replace(nodes, "", 1))
    product = torch.einsum(
        f"{nodes}{of_a.replace(nodes, '', 1)},{nodes}{of_b}->{nodes}{rest}", rows, b
    )
    return turned(product, nodes + rest, result)


def _outer(
    tape: Recorder, of_a: str, of_b: str, result: str, a: Any, b: Any, nodes: str
) -> Traced | None:
    """The sum over all nodes of products of their rows, by its factors."""
    heads = "".join(letter for letter in result if letter in of_a and letter in of_b)
    first, second = (
        "".join(letter for letter in result if letter in of and letter not in heads)
        for of in (of_a, of_b)
    )
    used = sorted(nodes + heads + first), sorted(nodes + heads + second)
    if (sorted(of_a), sorted(of_b)) != used or len(first) != 1 or len(second) != 1:
        return None
    k, v = rows_in(a, of_a, nodes + heads + first), rows_in(b, of_b, nodes + heads + second)
    value = torch.einsum(f"{of_a},{of_b}->{result}", plain(a), plain(b))
    roles = "".join(
        "k" if letter == first else "v" if letter == second else "h" for letter in result
    )
    return tape.wrap(tape.add(OUTER, (k, v, roles), {}, value))


def _attended(
    tape: Recorder, of_q: str, of_sum: str, result: str, q: Any, total: Traced, nodes: str
) -> Any:
    """Rows times such a sum."""
    k, v, roles = total.node.args
    if len(of_sum) != len(roles):
        return None
    heads = "".join(letter for letter, role in zip(of_sum, roles, strict=True) if role == "h")
    of_k, of_v = of_sum[roles.index("k")], of_sum[roles.index("v")]
    if of_k in result:
        k, v, of_k, of_v = v, k, of_v, of_k
    fits = sorted(of_q) == sorted(nodes + heads + of_k)
    if not fits or sorted(result) != sorted(nodes + heads + of_v):
        return None
    rows = rows_in(q, of_q, nodes + heads + of_k)
    value = torch.einsum(f"{of_q},{of_sum}->{nodes}{heads}{of_v}", plain(q), plain(total))
    attended = tape.wrap(tape.add(ATTEND, (rows, tape.wrap(k), tape.wrap(v)), {}, value))
    return turned(attended, nodes + heads + of_v, result)


def _scaled(tape: Recorder, op: str, a: Any, b: Any) -> Traced | None:
    """A multiple of such a sum, recorded as a multiple of its rows ``v``."""
    total, factor = (a, b) if isinstance(a, Traced) and a.node.op == OUTER else (b, a)
    divides = op not in ("mul", "__mul__", "__rmul__")
    is_number = isinstance(factor, (int, float)) or (
        isinstance(factor, Tensor) and not isinstance(factor, Traced) and factor.numel() == 1
    )
    if isinstance(factor, Traced):
        is_number = factor.node.whole and factor.node.value[0].numel() == 1
    if not is_number or (divides and total is b):
        return None
    k, v, roles = total.node.args
    rows: Any = tape.wrap(v)
    rows = rows / factor if divides else rows * factor
    number = plain(factor)[0] if isinstance(factor, Traced) else factor
    value = plain(total) / number if divides else plain(total) * number
    return tape.wrap(tape.add(OUTER, (tape.wrap(k), rows, roles), {}, value))
