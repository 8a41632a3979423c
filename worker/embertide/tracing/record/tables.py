"""Embedding tables of a module: parameters with a row for each node of a type.

A node type's input has the columns of its features first, then those of its tables. While a module
is recorded or proved, a table stands for its columns of the random graph's input: the program reads
them as an input, and the table itself becomes a file of the model's folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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


@dataclass(frozen=True)
class Table:
    """An embedding table of a node type.

    Attributes:
        name: of the parameter.
        columns: of its rows.
    """

    name: str
    columns: int


Tables = Mapping[str, tuple[Table, ...]]
"""Node type -> its tables, in the order of their columns; the type is "" where the graph has one.
"""


class NumbersReadAsFeatures(ModelError):
    """``forward`` reads features of nodes where it gets their numbers."""

    def to_json(self) -> dict[str, Any]:
        """The same as a `ModelError`, the only class that others know."""
        return ModelError(str(self)).to_json()


def find_tables(module: nn.Module, names: Mapping[str, str | Sequence[str]]) -> Tables:
    """The tables by their full names; a table is given by that name or by its module's.

    Args:
        names: node type -> its table, or its tables.

    Raises:
        ModelError: there is no such parameter, or it is no table.
    """
    return {
        node_type: tuple(
            _find(module, name)
            for name in dict.fromkeys([of_type] if isinstance(of_type, str) else of_type)
        )
        for node_type, of_type in names.items()
    }


def _find(module: nn.Module, short: str) -> Table:
    params = dict(module.named_parameters(remove_duplicate=False))
    name = short if short in params else f"{short}.weight"
    tables = [path for path, param in params.items() if param.dim() == 2]
    if name not in tables:
        raise ModelError(
            f"the module has no table {short!r}: no parameter [nodes, columns] of that name; it"
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
    return Table(name, params[name].shape[1])


def columns_of(tables: Sequence[Table]) -> int:
    """Columns of all of a type's tables."""
    return sum(table.columns for table in tables)


def with_tables(types: GraphTypes, tables: Tables) -> GraphTypes:
    """The graph whose node types have the columns of their tables, after those of their features.

    Raises:
        ModelError: the graph has no such type.
    """
    for node_type in tables:
        if node_type not in types.nodes and not types.typed:
            raise ModelError(
                f"a table is named for node type {node_type!r}, but a graph of one node type names"
                " none: give the table's name alone, --table NAME or tables=NAME"
            )
        if node_type not in types.nodes:
            raise ModelError(
                f"a table is named for node type {node_type!r}, which the graph does not have:"
                f" {types}"
            )
    nodes = {name: width + columns_of(tables.get(name, ())) for name, width in types.nodes.items()}
    return replace(types, nodes=nodes)


def parts_of_input(x: Tensor, tables: Sequence[Table]) -> tuple[Tensor | None, list[Tensor]]:
    """The features of an input and the rows of each of its tables.

    Args:
        x: [N, columns] of the features and of all tables.

    Returns:
        [N, features] or None for a type without features, and [N, columns] for each table.
    """
    start = x.shape[1] - columns_of(tables)
    features, rows = (_cut(x, 0, start) if start else None), list[Tensor]()
    for table in tables:
        rows.append(_cut(x, start, start + table.columns))
        start += table.columns
    return features, rows


def _cut(x: Tensor, start: int, stop: int) -> Tensor:
    if (start, stop) == (0, x.shape[1]):
        return x
    if isinstance(x, Traced):
        cut: Tensor = x.tape.columns(x, start, stop)
        return cut
    return x[:, start:stop]


def check_read(
    module: nn.Module,
    tables: Tables,
    types: GraphTypes,
    read: Mapping[str, frozenset[int]],
) -> None:
    """Refuse a table that ``forward`` does not read, and features beside tables that it does not.

    Args:
        types: the graph, with the columns of tables.
        read: node type -> the first columns of the parts of its input that the program reads.

    Raises:
        ModelError: it does not read one.
    """
    kind = type(module).__name__
    for node_type, of_type in tables.items():
        start = types.nodes[node_type] - columns_of(of_type)
        if start and 0 not in read.get(node_type, ()):
            named = f" of node type {node_type!r}" if node_type else ""
            raise ModelError(
                f"{kind}.forward does not use the features{named}, or its result does not depend on"
                " them; let it take the tables alone: without --width, and with 0 columns in"
                " --graph"
            )
        for table in of_type:
            if start not in read.get(node_type, ()):
                raise ModelError(
                    f"{kind}.forward does not use the table {table.name}, or its result does not"
                    " depend on it; name the table that it reads, or leave --table out"
                )
            start += table.columns


@dataclass(frozen=True)
class Beside:
    """Checks that nodes' numbers, which ``forward`` gets beside a table, only name its rows.

    Attributes:
        tables: of each node type.
    """

    tables: Tables

    def shaped(
        self, op: str, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Node | None:
        """The numbers in another shape; None for other tensors.

        Raises:
            ModelError: something else is done with numbers, as if they were features.
        """
        numbers = [x for x in traced_in((args, tuple(kwargs.values()))) if self._are(x.node)]
        if not numbers:
            return None
        if op not in (*SHAPING, "long", "int") or numbers[0] is not args[0]:
            self.check(numbers[0].node)
        node = numbers[0].node
        return replace(node, value=func(*plain(args), **plain(dict(kwargs))).long())

    def check(self, *read: Node) -> None:
        """Refuse to read numbers as features.

        Raises:
            NumbersReadAsFeatures: one of the nodes is such numbers.
        """
        for node in read:
            if self._are(node):
                of = f" of {node.of!r}" if node.of else ""
                names = ", ".join(table.name for table in self.tables[node.of])
                text = (
                    f"the module reads features{of} here, but gets the nodes' numbers, which name"
                    f" the rows of {names}; say how many columns the features have, with --width"
                    " or in --graph, so that it gets them, and take the numbers by an argument"
                    " called node_id"
                )
                raise NumbersReadAsFeatures(f"{here()}: {text}")

    def _are(self, node: Node) -> bool:
        return bool(self.tables) and is_numbers(node)


@contextmanager
def filled(module: nn.Module, tables: Tables, x: Mapping[str, Tensor]) -> Iterator[None]:
    """Within it, the tables of a module are their columns of the types' inputs.

    Args:
        x: node type -> [N, columns] of its features and tables.
    """
    undo = []
    try:
        for node_type, of_type in tables.items():
            _, rows = parts_of_input(x[node_type], of_type)
            for table, part in zip(of_type, rows, strict=True):
                for owner, short in _owners(module, module.get_parameter(table.name)):
                    undo.append((owner, short, owner._parameters[short]))
                    owner._parameters[short] = part
                    if isinstance(owner, nn.Embedding):
                        lookup = _Lookup(table.name, owner.num_embeddings, part)
                        owner.__dict__["forward"] = lookup
        yield
    finally:
        for owner, short, param in reversed(undo):
            owner.__dict__.pop("forward", None)
            owner._parameters[short] = param


def _owners(module: nn.Module, table: nn.Parameter) -> list[tuple[Any, str]]:
    """The modules that have a parameter, some by tied weights, each with its name there."""
    return [
        (part, short)
        for part in module.modules()
        for short, param in part._parameters.items()
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
                " is the row of its number, so read all rows in order",
            )
        return self.x if index.dim() == 1 else self.x.unsqueeze(1)
