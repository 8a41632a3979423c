"""What a push has to do: a table for each result of a version. Nothing is written here."""

from __future__ import annotations

import re
from dataclasses import dataclass

from embertide.edge.indexes.layout import Layout, Limits
from embertide.edge.indexes.push.loading import Source
from embertide.edge.indexes.push.protocol import Index, Metric, Table, TableSpec
from embertide.edge.indexes.rows import Shaper
from embertide.errors import InputError, OutputError
from embertide.io.storage.protocol import Storage
from embertide.io.versions.catalog import VersionInfo, find_version, latest
from embertide.io.versions.deltas import Delta, delta_of
from embertide.io.versions.manifest import TypeEntry, read_manifest, types_in
from embertide.io.versions.reading import choose_result

_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_IS_HELD = (
    "version {version} of {uri} is held: {why}. embertide release makes it current;"
    " --held pushes it all the same"
)
_OF_SOME = (
    "version {version} has the rows of {rows:,} of {of:,} nodes alone (inference.targets), and"
    " readers of the index would miss the others; push a version of all nodes"
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is pushed, and how.

    Attributes:
        name: that readers use; of several node types, each has ``_`` and its name after it.
        version: None is the current one.
        node_type, result: None is all of them.
        deltas: whether a table may be made of that of the version before and of what changed.
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
    deltas: bool = True
    held: bool = False
    keep: int = 2
    restart: bool = False


@dataclass(frozen=True)
class Work:
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
        """Rows of the version."""
        return sum(part.rows for part in self.source.parts)

    @property
    def tolerance(self) -> float:
        """How far rows of a table that is made of deltas may be from those of the version."""
        return 0.0 if self.delta is None else self.delta.tolerance


def chosen_version(storage: Storage, output_uri: str, options: Options) -> VersionInfo:
    """The version to push.

    Raises:
        ObjectMissing: no such version; lists those there are.
        OutputError: it is held, or has the rows of some nodes alone.
    """
    wanted = options.version
    info = find_version(storage, output_uri, wanted) if wanted else latest(storage, output_uri)
    if info.of_nodes:
        raise OutputError(_OF_SOME.format(version=info.version, rows=info.rows, of=info.of_nodes))
    if info.held and not options.held:
        why = "; ".join(info.held)
        raise OutputError(_IS_HELD.format(version=info.version, uri=output_uri, why=why))
    return info


def plan(
    storage: Storage, output_uri: str, index: Index, info: VersionInfo, options: Options
) -> list[Work]:
    """What there is to do for each result.

    Raises:
        InputError: a name that the index does not take, or no such node type or result.
        OutputError: a name is used for something else.
    """
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
) -> Work:  # fmt: skip
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
    wanted = options.deltas and has_delta and as_published and index.derives
    delta = delta_of(info.uri, of_type) if wanted else None
    return Work(table, spec, source, index.current(table.alias), delta)


def default_name(text: str) -> str:
    """A name for readers made of a job's name, or of a location."""
    last = text.rstrip("/").rsplit("/", 1)[-1].lower()
    name = re.sub("[^a-z0-9_]", "_", last)
    return name if _NAME.fullmatch(name) else f"_{name}"
