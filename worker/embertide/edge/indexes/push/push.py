"""Push a version: load a new table, verify it, switch, and only then drop what is old.

Whatever ends a push at whatever moment, readers of the alias see one version, whole. A push that is
started again goes on where the last one ended; a version whose table is still there is verified and
switched to, which is how one goes back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from embertide.edge.indexes.push.loading import load, retried
from embertide.edge.indexes.push.plan import Options, Work, chosen_version, plan
from embertide.edge.indexes.push.protocol import Index, Mismatch, Overtaken, Table
from embertide.edge.indexes.push.verify import verify
from embertide.errors import OutputError, StoreUnavailable
from embertide.io.storage.protocol import Storage
from embertide.io.versions.catalog import VersionInfo, latest

Made = Literal["full", "delta", "there"]

_LONGEST_CHAIN = 7
"""Tables more than are kept, which stay because later ones share their rows: then one is loaded in
full, and they can be dropped."""

_log = logging.getLogger("embertide")


@dataclass(frozen=True, kw_only=True)
class PushedTable:
    """What readers of one alias see now.

    Attributes:
        previous: the version that they saw before; "" for none.
        made: ``full`` (all rows were written), ``delta`` (of the table of the version before), or
            ``there`` (the table was there).
    """

    alias: str
    table: str
    rows: int
    previous: str
    made: Made


@dataclass(frozen=True, kw_only=True)
class Pushed:
    """A version that is in the index.

    Attributes:
        dropped, kept: tables of earlier versions that were removed, or could not be.
    """

    version: str
    tables: list[PushedTable]
    dropped: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    seconds: float = 0.0


def push(
    storage: Storage,
    output_uri: str,
    index: Index,
    options: Options,
    on_rows: Callable[[int, int], None] = lambda _done, _all: None,
) -> Pushed:
    """Load, verify, switch, drop.

    Args:
        on_rows: called with the rows that are in the index, and all rows.

    Raises:
        InputError: a name that the index does not take, or no such node type.
        ObjectMissing: no such version; lists those there are.
        OutputError: the version is held, the name is used for something else, another push has
            switched to a newer version meanwhile, or the table is not what the version has.
        StoreUnavailable: the index failed at each attempt.
    """
    info = chosen_version(storage, output_uri, options)
    with _errors_of(index):
        return _push(storage, output_uri, index, info, options, on_rows)


@contextmanager
def _errors_of(index: Index) -> Iterator[None]:
    """Turn the client's errors into ours."""
    try:
        yield
    except Mismatch as error:
        raise OutputError(f"{error}; nothing was switched, --restart loads it again") from error
    except index.transient as error:
        raise StoreUnavailable(f"the index failed: {error}; push again") from error
    except index.errors as error:
        raise OutputError(f"the index refused: {error}; nothing was switched") from error


def _push(
    storage: Storage, output_uri: str, index: Index, info: VersionInfo, options: Options,
    on_rows: Callable[[int, int], None],
) -> Pushed:  # fmt: skip
    began = time.perf_counter()
    works = plan(storage, output_uri, index, info, options)
    total, done = sum(work.rows for work in works), 0

    def count(rows: int) -> None:
        nonlocal done
        done += rows
        on_rows(done, total)

    how = [_load_and_verify(index, work, options, count) for work in works]
    _check_still_wanted(storage, output_uri, index, info, works, options)
    retried(index, lambda: index.switch([work.table for work in works]))
    dropped, kept = _drop_old(index, works, options.keep)
    tables = [
        PushedTable(
            alias=work.table.alias,
            table=work.table.name,
            rows=work.rows,
            previous="" if work.previous is None else work.previous.version,
            made=made,
        )
        for work, made in zip(works, how, strict=True)
    ]
    seconds = time.perf_counter() - began
    return Pushed(version=info.version, tables=tables, dropped=dropped, kept=kept, seconds=seconds)


def _load_and_verify(
    index: Index, work: Work, options: Options, count: Callable[[int], None]
) -> Made:
    """Make the table what the version has."""
    table, tables = work.table, index.tables(work.table.alias)
    if work.previous == table:
        # Readers see it, so it is not repaired below them.
        return _verify_all(index, work, count, "there")
    if table in tables and options.restart:
        index.drop(table)
        tables.remove(table)
    try:
        if table in tables:
            return _go_on(index, work, count)
        if _derive(index, work, tables, options):
            return _verify_all(index, work, count, "delta")
    except Mismatch as error:
        _log.warning("%s; it is loaded again from the start", error)
        index.drop(table)
    index.create(table, work.spec)
    load(index, table, work.spec, work.source, begun=False, on_rows=count)
    return _verify_all(index, work, lambda _rows: None, "full", tolerance=0.0)


def _go_on(index: Index, work: Work, count: Callable[[int], None]) -> Made:
    """With a table that an earlier push has begun, or loaded."""
    if index.count(work.table) == work.rows:
        return _verify_all(index, work, count, "there")
    load(index, work.table, work.spec, work.source, begun=True, on_rows=count)
    return _verify_all(index, work, lambda _rows: None, "full")


def _derive(index: Index, work: Work, tables: list[Table], options: Options) -> bool:
    """Make the table of that of the version before, if it is there; returns whether it is made."""
    delta, source = work.delta, work.source
    if delta is None or len(tables) >= options.keep + _LONGEST_CHAIN:
        return False
    base = Table(work.table.alias, delta.base)
    if base not in tables:
        return False

    def derive() -> None:
        upserts = (source.shaper.shape(batch) for batch in delta.upserted(source.storage))
        deletes = (
            source.shaper.shape_ids(ids).to_pylist() for ids in delta.deleted(source.storage)
        )
        index.derive(base, work.table, work.spec, upserts, deletes)

    retried(index, derive)
    return True


def _verify_all(
    index: Index,
    work: Work,
    count: Callable[[int], None],
    made: Made,
    tolerance: float | None = None,
) -> Made:
    index.finish(work.table, work.spec)
    allowed = work.tolerance if tolerance is None else tolerance
    verify(index, work.table, work.spec, work.source, allowed)
    count(work.rows)
    return made


def _check_still_wanted(
    storage: Storage, output_uri: str, index: Index, info: VersionInfo, works: list[Work],
    options: Options,
) -> None:  # fmt: skip
    """Refuse to switch where someone else has decided otherwise while rows were loaded."""
    if options.version is None and (now := latest(storage, output_uri).version) != info.version:
        raise Overtaken(
            f"the current version of {output_uri} is {now} now, {info.version} was loaded; nothing"
            " was switched, push again"
        )
    for work in works:
        current = index.current(work.table.alias)
        if current != work.previous and current is not None and current > work.table:
            raise Overtaken(
                f"another push has switched {work.table.alias} to {current.version} while"
                f" {info.version} was loaded; nothing was switched"
            )


def _drop_old(index: Index, works: list[Work], keep: int) -> tuple[list[str], list[str]]:
    """Drop all but the newest tables and the current one; the newest of those first."""
    dropped: list[str] = []
    kept: list[str] = []
    for work in works:
        tables = sorted(index.tables(work.table.alias), reverse=True)
        for table in tables[keep:]:
            if table == work.table:
                continue
            try:
                (dropped if index.drop(table) else kept).append(table.name)
            except Exception as error:
                _log.warning("%s is not dropped: %s; each push tries again", table.name, error)
                kept.append(table.name)
    return dropped, kept
