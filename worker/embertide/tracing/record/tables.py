"""Embedding tables of a module: parameters or buffers with a row for each node of a type.

A node type's input has the columns of its features first, then those of its tables. While a module
is recorded or proved, a table stands for its columns of the random graph's input: the program reads
them as an input, and the table itself becomes a file of the model's folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from embertide.errors import ModelError
from embertide.tracing.record.graphs import GraphTypes
from embertide.tracing.record.roles import SHAPING, is_numbers, shaped
from embertide.tracing.record.traced import Node, Traced, plain, traced_in
from embertide.tracing.record.user_code import here, refuse


@dataclass(frozen=True)
class Table:
    """An embedding table of a node type.

    Attributes:
        names: of the parameter or buffer; of several, where a module puts their rows one below
            another (``torch.cat([user.weight, item.weight])``), the first nodes' first.
        columns: of its rows.
    """

    names: tuple[str, ...]
    columns: int

    @property
    def name(self) -> str:
        """For messages."""
        return " + ".join(self.names)

    def parts(self, module: nn.Module) -> list[Tensor]:
        """[rows, columns] of each parameter or buffer."""
        return [_stored(module)[name] for name in self.names]


Tables = Mapping[str, tuple[Table, ...]]
"""Node type -> its tables, in the order of their columns; the type is "" where the graph has one.
"""


class NumbersReadAsFeatures(ModelError):
    """``forward`` reads features of nodes where it gets their numbers."""

    def to_json(self) -> dict[str, Any]:
        """The same as a `ModelError`, the only class that others know."""
        return ModelError(str(self)).to_json()


class RowsBelow(ModelError):
    """``forward`` puts the rows of tables one below another, so that they are one table.

    Attributes:
        names: of their parameters, in order.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(f"the rows of {' and '.join(names)} are put one below another")
        self.names = names


TableNames = Mapping[str, str | Sequence[str | tuple[str, ...]]]
"""Node type -> its table, or its tables; several names are one table, row below row."""


def find_tables(module: nn.Module, names: TableNames) -> Tables:
    """The tables by their full names; a table is given by that name or by its module's.

    Tables with different numbers of rows cannot stand side by side, and are one, row below row.

    Raises:
        ModelError: there is no such parameter or buffer, or it is no table.
    """
    found = dict[str, tuple[Table, ...]]()
    for node_type, of_type in names.items():
        short = dict.fromkeys([of_type] if isinstance(of_type, str) else of_type)
        tables = tuple(_find(module, name) for name in short)
        rows = {sum(map(len, table.parts(module))) for table in tables}
        if len(rows) > 1 and len({table.columns for table in tables}) == 1:
            every = tuple(name for table in tables for name in table.names)
            tables = (Table(every, tables[0].columns),)
        found[node_type] = tables
    return found


def below(tables: Tables, names: tuple[str, ...]) -> dict[str, list[tuple[str, ...]]]:
    """The tables' names for `find_tables`, some of them as one table."""
    joined = dict[str, list[tuple[str, ...]]]()
    for node_type, of_type in tables.items():
        own = [table.names for table in of_type]
        inside = set(names) <= {name for table in own for name in table}
        rest = [table for table in own if not (inside and set(table) <= set(names))]
        joined[node_type] = [names, *rest] if inside else own
    return joined


def _stored(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name."""
    params = module.named_parameters(remove_duplicate=False)
    return {**dict(params), **dict(module.named_buffers(remove_duplicate=False))}


def _find(module: nn.Module, short: str | tuple[str, ...]) -> Table:
    if not isinstance(short, str):
        parts = [_find(module, name) for name in short]
        return Table(tuple(name for part in parts for name in part.names), parts[0].columns)
    params = _stored(module)
    name = short if short in params else f"{short}.weight"
    tables = [
        path for path, param in params.items() if param.dim() == 2 and param.is_floating_point()
    ]
    if name not in tables:
        raise ModelError(
            f"the module has no table {short!r}: no parameter or buffer [nodes, columns] of that"
            f" name; it has {', '.join(tables) or 'none'}"
        )
    if not bool(torch.isfinite(params[name]).all()):
        raise ModelError(f"{name} holds NaN or Inf; a table holds finite numbers")
    owner = module.get_submodule(name.rpartition(".")[0])
    if getattr(owner, "max_norm", None) is not None:
        raise ModelError(
            f"{name} is of an nn.Embedding with max_norm, which changes rows as they are read;"
            " train it without"
        )
    return Table((name,), params[name].shape[1])


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
        rows: recorded rows of a table of its own -> its name.
    """

    tables: Tables
    rows: dict[Node, str] = field(default_factory=dict)

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
        if op in _LOOKUPS:
            rows = [x for x in traced_in(args) if x is not numbers[0]]
            named = args[0 if op == "embedding" else -1] is numbers[0] and numbers[0].dim() == 1
            if named and len(rows) == 1 and rows[0].node.of == numbers[0].node.of:
                return rows[0].node
        if op not in (*SHAPING, "long", "int") or numbers[0] is not args[0]:
            self.check(numbers[0].node)
        node = numbers[0].node
        return replace(node, value=func(*plain(args), **plain(dict(kwargs))).long())

    def joined(self, op: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Traced | None:
        """All rows of a table whose parts a module puts one below another; None for other calls.

        Raises:
            RowsBelow: they are of tables that were taken to stand side by side.
            ModelError: something else is done with a part.
        """
        passed = list(traced_in((args, tuple(kwargs.values()))))
        some = [x for x in passed if x.node.op == SOME_ROWS]
        dim = (*args[1:], *kwargs.values(), 0)[0]
        if op not in _JOINS or dim != 0:
            if some and (op not in SHAPING or len(passed) > 1):
                raise refuse(here(), _OF_SOME)
            return some[0] if some else None
        parts = [x.node if isinstance(x, Traced) else None for x in args[0]]
        names = [None if part is None else self.rows.get(shaped(part)) for part in parts]
        if len(names) > 1 and len(set(names)) == len(names) and None not in names:
            raise RowsBelow(tuple(str(name) for name in names))
        if not some:
            return None
        whole, _, all_names = some[0].node.args
        places = [shaped(part).args[1] for part in parts if part is not None]
        if len(some) < len(parts) or sorted(places) != [*range(len(all_names))]:
            raise refuse(here(), _OF_SOME)
        if places != sorted(places):
            raise RowsBelow(tuple(all_names[at] for at in places))
        rows: Traced = some[0].tape.wrap(whole)
        return rows

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
            for table, whole in zip(of_type, rows, strict=True):
                if isinstance(whole, Traced) and len(table.names) == 1:
                    whole.tape.beside.rows[whole.node] = table.name
                parts = table.parts(module), _below(whole, table.names)
                for name, stored, part in zip(table.names, *parts, strict=True):
                    for owner, own, short in _owners(module, stored):
                        undo.append((owner, own, short, own[short]))
                        own[short] = part
                        if isinstance(owner, nn.Embedding):
                            lookup = _Lookup(name, owner.num_embeddings, part)
                            owner.__dict__["forward"] = lookup
        yield
    finally:
        for owner, own, short, stored in reversed(undo):
            owner.__dict__.pop("forward", None)
            own[short] = stored


SOME_ROWS = "some_rows"
"""The operation that takes the rows of one of several parameters out of a table of all."""
_OF_SOME = (
    "some of the nodes' rows are read alone; tables whose rows stand one below another are known"
    " as torch.cat([first.weight, second.weight]) alone: compute after it, or make each a node type"
)
_JOINS = ("cat", "concat", "concatenate", "vstack")
_LOOKUPS = ("__getitem__", "embedding", "index_select")


def _below(rows: Tensor, names: tuple[str, ...]) -> list[Tensor]:
    """Rows as those of several parameters, one below another; how many each has is any number."""
    if len(names) == 1:
        return [rows]
    count = len(names)
    later = len(rows) // (count + 1)
    bounds = [0, *(len(rows) - later * left for left in range(count - 1, -1, -1))]
    parts = []
    for at, (start, stop) in enumerate(pairwise(bounds)):
        part = plain(rows)[start:stop]
        if isinstance(rows, Traced):
            part = rows.tape.wrap(rows.tape.add(SOME_ROWS, (rows, at, names), {}, part))
        parts.append(part)
    return parts


def _owners(module: nn.Module, table: Tensor) -> list[tuple[Any, dict[str, Any], str]]:
    """The modules that have a parameter or buffer, some by tied weights, each with its name."""
    return [
        (part, own, short)
        for part in module.modules()
        for own in (part._parameters, part._buffers)
        for short, tensor in own.items()
        if tensor is table
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
