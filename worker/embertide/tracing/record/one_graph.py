"""The numbers of graphs that nodes belong to, where all nodes are of one."""

from __future__ import annotations

from typing import Any

import torch

from embertide.tracing.record.traced import name_of
from embertide.tracing.record.user_code import here, refuse

DENSE = (
    "to_dense_batch puts all nodes into one matrix, for attention over all pairs of nodes, which"
    " needs the whole graph at once; attention over edges is known (TransformerConv, GATConv), and"
    " linear attention over all nodes (GPSConv(attn_type='performer'), SGFormer, q @ (k.T @ v))"
)


class OneGraph:
    """Stands for ``batch``, and for an order or a mask by it, while a module is recorded.

    Rows that are put in its order, or picked by it, stay as they are.
    """

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes

    device = torch.device("cpu")

    def __len__(self) -> int:
        return self._nodes

    def sort(self, *_args: Any, **_kwargs: Any) -> tuple[OneGraph, OneGraph]:
        """In order, and the order."""
        return self, self

    def __setitem__(self, _key: Any, _value: Any) -> None:
        """An order that is turned round stays what it is."""

    def __invert__(self) -> Any:
        raise refuse(here(), DENSE)

    @classmethod
    def __torch_function__(
        cls, func: Any, _types: Any, args: tuple[Any, ...] = (), _kwargs: Any = None
    ) -> Any:
        """Rows as they are, or another such order."""
        name = name_of(func)
        if name in ("__getitem__", "empty_like", "argsort"):
            return args[0]
        if name == "sort":
            return args[0], args[0]
        raise refuse(
            here(),
            f"{name} of batch is not known: all nodes are of one graph, and their rows are neither"
            " sorted nor picked by it",
        )
