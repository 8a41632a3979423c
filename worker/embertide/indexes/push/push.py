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

from embertide.errors import InputError, OutputError, StoreUnavailable
from embertide.indexes.layout import Layout, Limits
from embertide.indexes.push.loading import Source, load, retried
from embertide.indexes.push.protocol import Index, Metric, Table, TableSpec
from embertide.indexes.push.verify import Mismatch, verify
from embertide.indexes.rows import Shaper
from embertide.storage.protocol import Storage
from embertide.versions.catalog import VersionInfo, find_version, latest
from embertide.versions.manifest import TypeEntry, read_manifest, types_in
from embertide.versions.reading import choose_type

_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_IS_HELD = (
    "version {version} of {uri} is held: {why}. embertide release makes it current;"
    " --held pushes it all the same"
)

_log = logging.getLogger("embertide")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is pushed, and how.

    Attributes:
        name: that readers use; of several node types, each has ``_`` and its name after it.
        version: None is the current one.
        node_type: None is all of them.
        held: whether a held version may be pushed.
        keep: versions whose tables stay, the newest ones.
        restart: whether what an earlier push of this version has loaded is loaded again.
    """

    name: str
    version: str | None = None
    node_type: str | None = None
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
        loaded: whether rows were written; False where the table was there.
    """

    alias: str
    table: str
    rows: int
    previous: str
    loaded: bool


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
    """One node type's table."""

    table: Table
    spec: TableSpec
    source: Source
    previous: Table | None


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
    total, done = sum(part.rows for work in works for part in work.source.parts), 0

    def count(rows: int) -> None:
        nonlocal done
        done += rows
        on_rows(done, total)

    loaded = [_load_and_verify(index, work, options, count) for work in works]
    _check_still_wanted(storage, output_uri, index, info, works, options)
    retried(index, lambda: index.switch([work.table for work in works]))
    dropped, kept = _drop_old(index, works, options.keep)
    tables = [
        PushedTable(
            alias=work.table.alias,
            table=work.table.name,
            rows=sum(part.rows for part in work.source.parts),
            previous="" if work.previous is None else work.previous.version,
            loaded=written,
        )
        for work, written in zip(works, loaded, strict=True)
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
    if options.node_type is not None:
        types = [choose_type(output_uri, info.version, manifest, options.node_type)]
    works = []
    for of_type in types:
        table = Table(alias_of(options.name, of_type), info.version)
        if len(table.name) > index.longest_name:
            raise InputError(
                f"--name {options.name} makes {table.name}, which is longer than the"
                f" {index.longest_name} characters that the index takes"
            )
        entry = (manifest.get("types") or {"": manifest})[of_type.name]
        works.append(
            _work(storage, index, info, of_type, entry.get("ids") == "string", table, options)
        )
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
    if not of_type.name:
        return name
    return f"{name}_{re.sub('[^a-z0-9_]', '_', of_type.name.lower())}"


def _work(
    storage: Storage, index: Index, info: VersionInfo, of_type: TypeEntry, text_ids: bool,
    table: Table, options: Options,
) -> _Work:  # fmt: skip
    vectors = "float16" if options.vectors == "float16" else "float32"
    spec = TableSpec(
        dim=of_type.dim,
        text_ids=text_ids,
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
    return _Work(table, spec, source, index.current(table.alias))


def _load_and_verify(
    index: Index, work: _Work, options: Options, count: Callable[[int], None]
) -> bool:
    """Make the table what the version has; returns whether rows may have been written."""
    table, begun = work.table, work.table in index.tables(work.table.alias)
    if work.previous == table:
        verify(index, table, work.spec, work.source)
        count(sum(part.rows for part in work.source.parts))
        return False
    if begun and options.restart:
        index.drop(table)
        begun = False
    try:
        return _fill(index, work, begun, count)
    except Mismatch as error:
        if not begun:
            raise
        _log.warning("%s; it is loaded again from the start", error)
        index.drop(table)
        return _fill(index, work, False, lambda _rows: None)


def _fill(index: Index, work: _Work, begun: bool, count: Callable[[int], None]) -> bool:
    table, spec, source = work.table, work.spec, work.source
    if begun and index.count(table) == sum(part.rows for part in source.parts):
        index.finish(table, spec)
        verify(index, table, spec, source)
        count(sum(part.rows for part in source.parts))
        return False
    if not begun:
        index.create(table, spec)
    load(index, table, spec, source, begun=begun, on_rows=count)
    index.finish(table, spec)
    verify(index, table, spec, source)
    return True


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
