"""Embedding tables of a module: parameters with a row for each node of a type.

While a module is traced or proved, the random graph's features of the type take the table's place:
the program reads them as an input, and the table itself becomes a file of the model's folder.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from embertide.errors import ModelError
from embertide.tracing.record.graphs import GraphTypes
from embertide.tracing.record.roles import SHAPING, is_numbers
from embertide.tracing.record.traced import Node, Traced, plain, traced_in
from embertide.tracing.record.user_code import here, refuse

Tables = Mapping[str, nn.Parameter]
"""Node type -> [N, D]; the type is "" where the graph has one."""

INSTEAD = (
    "A table takes the place of features, and a job's nodes have one or the other. Let forward read"
    " the table alone; or export without --table, with the table's rows as further columns of the"
    " job's features, which forward then reads from there"
)
"""What to do where both are read."""


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
        if width is None and not types.typed:
            raise ModelError(
                f"a table is named for node type {node_type!r}, but a graph of one node type names"
                " none: give the table's name alone, --table NAME or tables=NAME"
            )
        if width is None:
            raise ModelError(
                f"a table is named for node type {node_type!r}, which the graph does not have:"
                f" {types}"
            )
        if width:
            raise ModelError(
                f"a table is named for node type {node_type!r}, which has {width} columns of"
                f" features in --graph. {INSTEAD}"
            )
    return replace(types, nodes=types.nodes | {name: one.shape[1] for name, one in tables.items()})


def check_read(module: nn.Module, tables: Mapping[str, str], inputs: Container[str]) -> None:
    """Refuse a table that ``forward`` does not read.

    Args:
        inputs: the node types of which the program reads something.

    Raises:
        ModelError: it does not read one.
    """
    for node_type, name in tables.items():
        if node_type not in inputs:
            raise ModelError(
                f"{type(module).__name__}.forward does not use the table {name}, or its result does"
                " not depend on it; name the table that it reads, or leave --table out"
            )


@dataclass(frozen=True)
class Beside:
    """Sees to it that nothing is read beside a table: ``forward`` gets the nodes' numbers there.

    Attributes:
        names: node type -> the table's name.
    """

    names: Mapping[str, str]

    def shaped(
        self, op: str, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Node | None:
        """The numbers in another shape; None of other tensors.

        Raises:
            ModelError: something else is done with numbers, as if they were features.
        """
        numbers = [one for one in traced_in((args, tuple(kwargs.values()))) if self._are(one.node)]
        if not numbers:
            return None
        if op not in (*SHAPING, "long", "int") or numbers[0] is not args[0]:
            self.check(numbers[0].node)
        node = numbers[0].node
        return replace(node, value=func(*plain(args), **plain(dict(kwargs))).long())

    def check(self, *read: Node) -> None:
        """Refuse to read numbers as features.

        Raises:
            ModelError: one of the nodes is such numbers.
        """
        for node in read:
            if self._are(node):
                of = f" of {node.of!r}" if node.of else ""
                raise refuse(
                    here(),
                    f"the module reads features{of} here, and the table {self.names[node.of]} is"
                    f" named for the same nodes. {INSTEAD}",
                )

    def _are(self, node: Node) -> bool:
        return bool(self.names) and is_numbers(node)


@contextmanager
def filled(module: nn.Module, tables: Mapping[str, str], x: Mapping[str, Tensor]) -> Iterator[None]:
    """Within it, the tables of a module are the features of their types.

    Args:
        tables: node type -> the table's name.
    """
    undo = []
    try:
        for node_type, name in tables.items():
            for owner, short in _owners(module, module.get_parameter(name)):
                undo.append((owner, short, owner._parameters[short]))
                owner._parameters[short] = x[node_type]
                if isinstance(owner, nn.Embedding):
                    owner.__dict__["forward"] = _Lookup(name, owner.num_embeddings, x[node_type])
        yield
    finally:
        for owner, short, param in undo:
            owner.__dict__.pop("forward", None)
            owner._parameters[short] = param


def _owners(module: nn.Module, table: nn.Parameter) -> list[tuple[Any, str]]:
    """The modules that have a parameter, some by tied weights, each with its name there."""
    return [
        (one, short)
        for one in module.modules()
        for short, param in one._parameters.items()
        if param is table
    ]


class _Lookup:
    """In place of an embedding's ``forward``: all rows, in order."""

    def __init__(self, name: str, rows: int, x: Tensor) -> None:
        self.name, self.rows, self.x = name, rows, x

    def __call__(self, index: Tensor) -> Tensor:
        """All rows, for the numbers of all nodes: as ``forward`` got them, or ``arange``."""
        counts = self.rows, len(plain(self.x))
        if isinstance(index, Traced):
            whole = is_numbers(index.node)
        else:
            whole = any(torch.equal(index.flatten(), torch.arange(count)) for count in counts)
        if not whole:
            raise refuse(
                here(),
                f"{self.name} is read at other places than torch.arange of all nodes; a node's row"
                " is the one of its own number, so read all rows in order",
            )
        return self.x if index.dim() == 1 else self.x.unsqueeze(1)
