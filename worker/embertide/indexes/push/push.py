"""Push a version: load a new table, verify it, switch, and only then drop what is old.

Whatever ends a push at whatever moment, readers of the alias see one version, whole. A push that is
started again goes on where the last one ended; a version whose table is still there is verified and
switched to, which is how one goes back.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from embertide.errors import InputError, OutputError, StoreUnavailable
from embertide.indexes.layout import Layout, Limits
from embertide.indexes.push.loading import Source, load, retried
from embertide.indexes.push.protocol import Index, Metric, Mismatch, Table, TableSpec
from embertide.indexes.push.verify import verify
from embertide.indexes.rows import Shaper
from embertide.storage.protocol import Storage
from embertide.versions.catalog import VersionInfo, find_version, latest
from embertide.versions.deltas import Delta, delta_of
from embertide.versions.manifest import TypeEntry, read_manifest, types_in
from embertide.versions.reading import choose_result

Made = Literal["full", "delta", "there"]

_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_IS_HELD = (
    "version {version} of {uri} is held: {why}. embertide release makes it current;"
    " --held pushes it all the same"
)

_LONGEST_CHAIN = 7
"""Tables more than are kept, which stay because later ones share their rows: then one is loaded in
full, and they can be dropped."""

_log = logging.getLogger("embertide")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is pushed, and how.

    Attributes:
        name: that readers use; of several node types, each has ``_`` and its name after it.
        version: None is the current one.
        node_type, result: None is all of them.
        held: whether a held version may be pushed.
        keep: versions whose tables stay, the newest ones.
        restart: whether what an earlier push of this version has loaded is loaded again.
    """

    name: str
    version: str | None = None
    node_type: str | None = None
    result: str | None = None
    metric: Metric = "cosine"
    vectors: str = "float32"
    normalize: bool = False
    search_index: bool = True
    held: bool = False
    keep: int = 2
    restart: bool = False


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


@dataclass(frozen=True)
class _Work:
    """One result's table.

    Attributes:
        previous: what readers see now.
        delta: the changes since the version before; None where there are none, or where they are
            not those of what is written.
    """

    table: Table
    spec: TableSpec
    source: Source
    previous: Table | None
    delta: Delta | None = None

    @property
    def rows(self) -> int:
        """Of the version."""
        return sum(part.rows for part in self.source.parts)

    @property
    def tolerance(self) -> float:
        """How far rows of a table that is made of deltas may be from those of the version."""
        return 0.0 if self.delta is None else self.delta.tolerance


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
    info = _version(storage, output_uri, options)
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
    works = _plan(storage, output_uri, index, info, options)
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


def _version(storage: Storage, output_uri: str, options: Options) -> VersionInfo:
    if options.version is None:
        return latest(storage, output_uri)
    info = find_version(storage, output_uri, options.version)
    if info.held and not options.held:
        why = "; ".join(info.held)
        raise OutputError(_IS_HELD.format(version=info.version, uri=output_uri, why=why))
    return info


def _plan(
    storage: Storage, output_uri: str, index: Index, info: VersionInfo, options: Options
) -> list[_Work]:
    """What there is to do for each node type; nothing is written."""
    manifest, _ = read_manifest(storage, output_uri, info.version)
    types = types_in(manifest)
    if options.node_type is not None or options.result is not None:
        types = [choose_result(info.uri, manifest, options.node_type, options.result)]
    works = []
    for of_type in types:
        table = Table(alias_of(options.name, of_type), info.version)
        if len(table.name) > index.longest_name:
            raise InputError(
                f"--name {options.name} makes {table.name}, which is longer than the"
                f" {index.longest_name} characters that the index takes"
            )
        dtype = manifest.get("dtype", "float32")
        works.append(_work(storage, index, info, of_type, dtype, table, options))
    if len({work.table.alias for work in works}) < len(works):
        raise InputError("two node types have the same name in the index; push them one by one")
    return works


def alias_of(name: str, of_type: TypeEntry) -> str:
    """The name that readers of a node type use.

    Raises:
        InputError: it has other characters than indexes take.
    """
    if _NAME.fullmatch(name) is None:
        raise InputError(
            f"--name is {name!r}; must begin with a lower-case letter and have lower-case letters,"
            " digits and '_' alone"
        )
    if not of_type.label:
        return name
    return f"{name}_{re.sub('[^a-z0-9_]', '_', of_type.label.lower())}"


def _work(
    storage: Storage, index: Index, info: VersionInfo, of_type: TypeEntry,
    dtype: str, table: Table, options: Options,
) -> _Work:  # fmt: skip
    vectors = "float16" if options.vectors == "float16" else "float32"
    spec = TableSpec(
        dim=of_type.dim,
        text_ids=of_type.ids == "string",
        vectors=vectors,  # type: ignore[arg-type]
        metric=options.metric,
        search_index=options.search_index,
    )
    layout = Layout(vectors=spec.vectors, normalize=options.normalize)
    source = Source(
        storage=storage,
        uri=info.uri,
        parts=of_type.digests,
        dim=of_type.dim,
        shaper=Shaper(layout, Limits(null_ids=False)),
    )
    has_delta = of_type.delta is not None and "why" not in of_type.delta
    # Other values than the published ones are off by another distance.
    as_published = not options.normalize and options.vectors == dtype
    delta = delta_of(info.uri, of_type) if has_delta and as_published and index.derives else None
    return _Work(table, spec, source, index.current(table.alias), delta)


def _load_and_verify(
    index: Index, work: _Work, options: Options, count: Callable[[int], None]
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


def _go_on(index: Index, work: _Work, count: Callable[[int], None]) -> Made:
    """With a table that an earlier push has begun, or loaded."""
    if index.count(work.table) == work.rows:
        return _verify_all(index, work, count, "there")
    load(index, work.table, work.spec, work.source, begun=True, on_rows=count)
    return _verify_all(index, work, lambda _rows: None, "full")


def _derive(index: Index, work: _Work, tables: list[Table], options: Options) -> bool:
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
    work: _Work,
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
    storage: Storage, output_uri: str, index: Index, info: VersionInfo, works: list[_Work],
    options: Options,
) -> None:  # fmt: skip
    """Refuse to switch where someone else has decided otherwise while rows were loaded."""
    if options.version is None and (now := latest(storage, output_uri).version) != info.version:
        raise OutputError(
            f"the current version of {output_uri} is {now} now, {info.version} was loaded; nothing"
            " was switched, push again"
        )
    for work in works:
        current = index.current(work.table.alias)
        if current != work.previous and current is not None and current > work.table:
            raise OutputError(
                f"another push has switched {work.table.alias} to {current.version} while"
                f" {info.version} was loaded; nothing was switched"
            )


def _drop_old(index: Index, works: list[_Work], keep: int) -> tuple[list[str], list[str]]:
    """Drop all but the newest tables and the current one; the newest of those first."""
    dropped, kept = [], []
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


def default_name(text: str) -> str:
    """A name for readers made of a job's name, or of a location."""
    last = text.rstrip("/").rsplit("/", 1)[-1].lower()
    name = re.sub("[^a-z0-9_]", "_", last)
    return name if _NAME.fullmatch(name) else f"_{name}"
