"""What an index has to do, so that versions can be pushed into it.

Readers use one name, the *alias*. It stands for one *table* at a time (a table, a collection, a
branch), and :meth:`Index.switch` makes it stand for another one in one atomic step. Tables that are
being loaded are never what the alias stands for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy.typing as npt

from embertide.edge.indexes.rows import Shaped
from embertide.errors import OutputError

Errors = tuple[type[Exception], ...]
Metric = Literal["cosine", "l2", "ip"]
_SUFFIX = r"_(\d{8})t(\d{6})z_([0-9a-f]{6})"


@dataclass(frozen=True, order=True)
class Table:
    """A version's table in an index."""

    alias: str
    version: str

    @property
    def name(self) -> str:
        """Such as ``products_20261121t041922z_3fa9c1``: letters, digits and ``_`` alone."""
        return f"{self.alias}_{self.version.lower().replace('-', '_')}"

    @classmethod
    def parse(cls, alias: str, name: str) -> Table | None:
        """The table of an alias that has a name; None where it is of no version of it."""
        match = re.fullmatch(re.escape(alias) + _SUFFIX, name)
        if match is None:
            return None
        day, time, suffix = match.groups()
        return cls(alias, f"{day}T{time}Z-{suffix}")


@dataclass(frozen=True, kw_only=True)
class TableSpec:
    """What a table holds.

    Attributes:
        dim: D, the length of a vector.
        text_ids: whether ids are text; else integers of 64 bits.
        vectors: element type.
        metric: by which readers search it.
        search_index: whether an approximate search index is built, where the index has a choice.
    """

    dim: int
    text_ids: bool
    vectors: Literal["float32", "float16"] = "float32"
    metric: Metric = "cosine"
    search_index: bool = True


class Mismatch(OutputError):
    """The table is not what the version has."""


class Overtaken(OutputError):
    """Another version has become current, or was pushed, meanwhile; a new push takes that one."""

    permanent = False


class Index(Protocol):
    """An index that versions are pushed into.

    Attributes:
        transient: errors after which the same call may succeed.
        errors: all errors of the client.
        derives: whether :meth:`derive` works, so that a version can be made of the one before.
        longest_name: characters of a table's name, at most.
    """

    transient: Errors
    errors: Errors
    derives: bool
    longest_name: int

    def tables(self, alias: str) -> list[Table]:
        """The tables of an alias, in any order, whether they are loaded or not."""

    def current(self, alias: str) -> Table | None:
        """The table that readers of the alias see; None before the first.

        Raises:
            OutputError: the name is used for something else.
        """

    def create(self, table: Table, spec: TableSpec) -> None:
        """A new, empty table."""

    def append(self, table: Table, spec: TableSpec, batches: Iterable[Shaped]) -> None:
        """Add rows whose ids are not there; all of them are there when it returns.

        After an error some of them may be there, and a call with the same rows ends in the same.

        Raises:
            Mismatch: an id is there already, where the index notices.
        """

    def derive(
        self,
        base: Table,
        table: Table,
        spec: TableSpec,
        upserts: Iterable[Shaped],
        deletes: Iterable[Sequence[Any]],
    ) -> None:
        """A new table of the rows of another one and of what changed; only where ``derives``.

        After an error :meth:`tables` does not have it.
        """

    def finish(self, table: Table, _spec: TableSpec, /) -> None:
        """All rows are there: make the table ready to be searched. Done again, it does nothing.

        Raises:
            Mismatch: an id is there twice.
        """

    def count(self, table: Table) -> int:
        """Rows of the table."""

    def rows(self, table: Table, ids: Sequence[Any]) -> Mapping[Any, npt.NDArray[Any]]:
        """Id -> vector, of those ids that are there."""

    def stored(
        self, values: npt.NDArray[Any], _spec: TableSpec, /
    ) -> tuple[npt.NDArray[Any], float]:
        """[n, D] what :meth:`rows` gives back of vectors, and how far off it may be."""

    def switch(self, tables: Sequence[Table]) -> None:
        """Make each table the one that readers of its alias see.

        Each alias moves in one atomic step; all together where the index can.
        """

    def drop(self, table: Table) -> bool:
        """Remove a table that is no alias' current one; False where others share its rows."""

    def reconnect(self) -> None:
        """After a transient error: begin with a new connection."""

    def close(self) -> None:
        """Give back connections."""
