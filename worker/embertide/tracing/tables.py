"""Embedding tables of a module: parameters with a row for each node of a type.

While a module is traced or proved, the random graph's features of the type take the table's place:
the program reads them as an input, and the table itself becomes a file of the model's folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from embertide.errors import ModelError
from embertide.tracing.graphs import GraphTypes
from embertide.tracing.source import here, refuse
from embertide.tracing.traced import Traced, plain

Tables = Mapping[str, nn.Parameter]
"""Node type -> [N, D]; the type is "" where the graph has one."""


def find_tables(module: nn.Module, names: Mapping[str, str]) -> dict[str, str]:
    """Node type -> the full name of its table, given by that name or by its module's.

    Raises:
        ModelError: there is no such parameter, or it is no table.
    """
    params = dict(module.named_parameters(remove_duplicate=False))
    found = {}
    for node_type, given in names.items():
        name = given if given in params else f"{given}.weight"
        tables = [one for one, param in params.items() if param.dim() == 2]
        if name not in tables:
            raise ModelError(
                f"the module has no table {given!r}: no parameter [nodes, columns] of that name; it"
                f" has {', '.join(tables) or 'none'}"
            )
        if not bool(torch.isfinite(params[name]).all()):
            raise ModelError(f"{name} holds NaN or Inf; a table holds finite numbers")
        owner = module.get_submodule(name.rpartition(".")[0])
        if getattr(owner, "max_norm", None) is not None:
            raise ModelError(
                f"{name} is of an nn.Embedding with max_norm, which changes rows as they are read;"
                " train it without"
            )
        found[node_type] = name
    return found


def with_widths(types: GraphTypes, tables: Tables) -> GraphTypes:
    """The graph whose node types have the columns of their tables.

    Raises:
        ModelError: the graph has no such type, or it has features of its own.
    """
    for node_type in tables:
        width = types.nodes.get(node_type)
        if width is None or width:
            has = "is not among them" if width is None else "has features, and no table beside them"
            raise ModelError(f"a table is given of node type {node_type!r}; {has}: {types}")
    return replace(types, nodes=types.nodes | {name: one.shape[1] for name, one in tables.items()})


@contextmanager
def filled(module: nn.Module, tables: Mapping[str, str], x: Mapping[str, Tensor]) -> Iterator[None]:
    """Within it, the tables of a module are the features of their types.

    Args:
        tables: node type -> the table's name.
    """
    undo = []
    try:
        for node_type, name in tables.items():
            path, _, short = name.rpartition(".")
            owner: Any = module.get_submodule(path)
            undo.append((owner, short, owner._parameters.pop(short)))
            owner.__dict__[short] = x[node_type]
            if isinstance(owner, nn.Embedding):
                owner.__dict__["forward"] = _Lookup(name, owner.num_embeddings, x[node_type])
        yield
    finally:
        for owner, short, param in undo:
            del owner.__dict__[short]
            owner.__dict__.pop("forward", None)
            owner._parameters[short] = param


class _Lookup:
    """In place of an embedding's ``forward``: all rows, in order."""

    def __init__(self, name: str, rows: int, x: Tensor) -> None:
        self.name, self.rows, self.x = name, rows, x

    def __call__(self, index: Tensor) -> Tensor:
        """The features, for the numbers of all nodes or for the job's own input."""
        if isinstance(index, Traced):
            whole = isinstance(self.x, Traced) and index.node is self.x.node
        else:
            whole = index is self.x or any(
                torch.equal(index, torch.arange(count)) for count in (self.rows, len(plain(self.x)))
            )
        if not whole:
            raise refuse(
                here(),
                f"{self.name} is read at other places than torch.arange of all nodes; a node's row"
                " is the one of its own number, so read all rows in order",
            )
        return self.x
