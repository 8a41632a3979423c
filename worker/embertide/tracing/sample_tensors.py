"""The tensors of a sample, checked: features, ends of edges, weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from embertide.errors import ModelError


def features_of(what: str, value: Any, rows: int | None = None) -> Tensor:
    """[N, D] features, as they are.

    Args:
        what: their name, for messages.
        rows: how many there have to be; None where any number does.

    Raises:
        ModelError: they are no tensor of two dimensions and of numbers, or have other rows.
    """
    tensor = _tensor(what, value)
    if tensor.dim() != 2 or not tensor.numel():
        raise ModelError(
            f"the sample's {what} has the shape {_shape(tensor)}; features have a row for each node"
            " or edge and a column for each number: [N, D], with N and D of at least 1"
        )
    if tensor.dtype == torch.bool or tensor.is_complex():
        raise ModelError(
            f"the sample's {what} is of {tensor.dtype}; a job's features are numbers or categories:"
            " give .float(), or .long() for categories"
        )
    _check_rows(what, tensor, rows)
    return tensor


def ends_of(what: str, value: Any, sources: Tensor | None, destinations: Tensor | None) -> int:
    """How many edges there are, both of whose ends are rows of the features.

    Args:
        value: [2, E] integers: the sources, then the destinations.
        sources, destinations: [N, D] features of the nodes at both ends; None without any.

    Raises:
        ModelError: it is no such tensor, or an end is no node; names the edge.
    """
    ends = _tensor(what, value)
    if ends.layout != torch.strided or ends.dim() != 2 or len(ends) != 2 or not _is_whole(ends):
        raise ModelError(
            f"the sample's {what} is of {ends.dtype} and of the shape {_shape(ends)}; give the"
            " edges as integers [2, E], the sources in row 0 and the destinations in row 1"
        )
    for row, rows in enumerate((sources, destinations)):
        nodes = None if rows is None else len(rows)
        wrong = ends[row] < 0 if nodes is None else (ends[row] < 0) | (ends[row] >= nodes)
        if bool(wrong.any()):
            at = int(wrong.nonzero()[0])
            there = "numbers of nodes start at 0" if nodes is None else f"x has {nodes} rows"
            raise ModelError(
                f"the sample's {what} has {int(ends[row, at])} in row {row}, edge {at}, but"
                f" {there}; give the features of all nodes that edges name"
            )
    return ends.shape[1]


def weights_of(what: str, value: Any, edges: int | None) -> None:
    """Check that there is one number for each edge, [E] or [E, 1].

    Raises:
        ModelError: there is not.
    """
    tensor = _tensor(what, value)
    if tensor.dim() not in (1, 2) or (tensor.dim() == 2 and tensor.shape[1] != 1):
        raise ModelError(
            f"the sample's {what} has the shape {_shape(tensor)}; weights are one number for each"
            " edge: [E]"
        )
    _check_rows(what, tensor, edges)


def categories_in(what: str, features: Tensor | None) -> dict[int, int]:
    """Column -> its largest value + 1, of features of integers; {} of others.

    Raises:
        ModelError: a column has a number below 0, which is no category; names the row.
    """
    if features is None or not _is_whole(features):
        return {}
    below = (features < 0).nonzero()
    if len(below):
        row, column = below[0].tolist()
        raise ModelError(
            f"the sample's {what} has {int(features[row, column])} in row {row}, column {column};"
            " integers are categories, whole numbers from 0: give .float() where they are plain"
            " numbers"
        )
    return {at: int(most) + 1 for at, most in enumerate(features.amax(dim=0))}


def _tensor(what: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise ModelError(f"the sample's {what} is a {type(value).__name__}; give a torch.Tensor")
    return value


def _check_rows(what: str, tensor: Tensor, rows: int | None) -> None:
    if rows is not None and len(tensor) != rows:
        raise ModelError(
            f"the sample's {what} has {len(tensor)} rows, but there are {rows} edges in edge_index;"
            " give a row for each edge, in the same order"
        )


def _is_whole(tensor: Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def _shape(tensor: Tensor) -> str:
    return str(list(tensor.shape))
