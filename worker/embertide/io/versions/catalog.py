"""The complete versions of an output: what each of them holds, and which one is current."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from embertide.errors import ObjectMissing, OutputError
from embertide.facts.telemetry.comparison import Comparison
from embertide.facts.telemetry.format import human_bytes
from embertide.facts.telemetry.notebook import html_table
from embertide.io.storage.protocol import Storage
from embertide.io.versions.holding import reasons_held
from embertide.io.versions.manifest import (
    comparison_in,
    order_of,
    part_digests,
    read_manifest,
    targets_in,
    types_in,
)
from embertide.io.versions.objects import (
    complete_versions,
    is_complete,
    is_held,
    objects_by_version,
)
from embertide.io.versions.pointer import read_pointer
from embertide.spec.version_names import version_uri


@dataclass(frozen=True)
class TypeInfo:
    """One of several results: how many rows, and their length."""

    rows: int
    dim: int


@dataclass(frozen=True, kw_only=True)
class VersionInfo:
    """A complete version.

    Attributes:
        version: its name, such as ``20261121T041922Z-3fa9c1``.
        uri: where its objects are.
        created: when its manifest was written, ISO 8601 in UTC.
        rows: number of embeddings, one for each node, or each of some.
        dim: D, the length of an embedding; of several types or results, of the longest.
        size: bytes of all parts.
        manifest_digest: SHA-256 of its manifest, in hex.
        current: whether LATEST named it when this was read.
        row_type: how rows were held that layers read over edges, the job's ``inference.rows``;
            float32 in versions from before there was a choice.
        types: of a version of several node types or results each one, by its label: ``author``,
            ``author/logits``, ``logits``; empty where there is one without a name.
        comparison: with the version that was current before it; None where it has none.
        held: why a gate holds the version, so that it is not current; () where none does.
        of_nodes: of how many nodes it has the rows, where it has those of some alone
            (``inference.targets``); 0 of a version of all.
        not_removed: of a version that was published just now: why older ones are still there
            that the job does not keep; "" where all are gone.
        not_current: of such a version: why ``LATEST`` names another one, though nothing holds it.
        clock: of such a version: what is wrong with a clock, as far as is seen; "" for nothing.
    """

    version: str
    uri: str
    created: str
    rows: int
    dim: int
    size: int
    manifest_digest: str = field(repr=False)
    current: bool
    row_type: str = field(default="float32", repr=False)
    types: dict[str, TypeInfo] = field(default_factory=dict)
    comparison: Comparison | None = field(default=None, repr=False)
    held: tuple[str, ...] = ()
    not_removed: str = field(default="", repr=False)
    not_current: str = field(default="", repr=False)
    clock: str = field(default="", repr=False)
    of_nodes: int = 0

    @property
    def counted(self) -> str:
        """How many rows it has, for people."""
        return f"{self.rows:,}" + (f" of {self.of_nodes:,}" if self.of_nodes else "")

    def _repr_html_(self) -> str:
        """For notebooks."""
        facts = {
            "URI": self.uri,
            "Created": self.created,
            "Rows": f"{self.counted} of {self.dim} values"
            if not self.of_nodes
            else f"{self.counted} nodes, of {self.dim} values",
            **{name: f"{of.rows:,} of {of.dim} values" for name, of in self.types.items()},
            "Size": human_bytes(self.size),
            "Current": "yes" if self.current else "no",
            "Held": "; ".join(self.held),
        }
        return html_table(self.version, facts)


def describe(
    output_uri: str,
    version: str,
    manifest: dict[str, Any],
    digest: str,
    current: bool,
    held: Sequence[str] = (),
) -> VersionInfo:
    """The summary of a manifest."""
    return VersionInfo(
        version=version,
        uri=version_uri(output_uri, version),
        created=manifest["created"],
        rows=manifest["rows"],
        dim=manifest["dim"],
        size=sum(size for part in part_digests(manifest) for _, size, _ in part.objects()),
        manifest_digest=digest,
        current=current,
        row_type=manifest.get("rowType", "float32"),
        types={t.label: TypeInfo(t.rows, t.dim) for t in types_in(manifest) if t.label},
        comparison=comparison_in(manifest),
        held=() if current else tuple(held),
        of_nodes=(targets_in(manifest) or {}).get("of", 0),
    )


def list_versions(storage: Storage, output_uri: str) -> list[VersionInfo]:
    """All complete versions, oldest first; [] before the first."""
    pointer = read_pointer(storage, output_uri)
    current = pointer.version if pointer is not None else None
    found, orders = [], []
    for version, objects in objects_by_version(storage, output_uri).items():
        if not is_complete(objects):
            continue
        try:
            manifest, digest = read_manifest(storage, output_uri, version)
            held = reasons_held(storage, output_uri, version) if is_held(objects) else []
        except ObjectMissing:
            continue  # Removed by a run that published just now.
        found.append(describe(output_uri, version, manifest, digest, version == current, held))
        orders.append(order_of(version, manifest))
    return [info for _, info in sorted(zip(orders, found, strict=True), key=itemgetter(0))]


def find_version(storage: Storage, output_uri: str, version: str) -> VersionInfo:
    """One complete version by its name.

    Raises:
        ObjectMissing: no such version, or it is not complete; lists those that are.
        OutputError: LATEST or the manifest is damaged.
    """
    return open_version(storage, output_uri, version)[0]


def latest(storage: Storage, output_uri: str) -> VersionInfo:
    """The current version, the one that LATEST names.

    Raises:
        ObjectMissing: nothing was published yet, or the version was removed by hand.
        OutputError: LATEST or the manifest is damaged, or they do not belong together.
    """
    return _current(storage, output_uri)[0]


def open_version(
    storage: Storage, output_uri: str, version: str | None = None
) -> tuple[VersionInfo, dict[str, Any]]:
    """A complete version (default: the current one) and its manifest, which is read once.

    Raises:
        ObjectMissing: no such version, or it is not complete; lists those that are.
        OutputError: LATEST or the manifest is damaged, or they do not belong together.
    """
    if version is None:
        return _current(storage, output_uri)
    manifest, digest = read_manifest(storage, output_uri, version)
    pointer = read_pointer(storage, output_uri)
    current = pointer is not None and pointer.version == version
    held = [] if current else reasons_held(storage, output_uri, version)
    return describe(output_uri, version, manifest, digest, current, held), manifest


def _current(storage: Storage, output_uri: str) -> tuple[VersionInfo, dict[str, Any]]:
    pointer = read_pointer(storage, output_uri)
    if pointer is None:
        raise ObjectMissing(_nothing_current(storage, output_uri))
    manifest, digest = read_manifest(storage, output_uri, pointer.version)
    if digest != pointer.manifest_digest:
        raise OutputError(
            f"the manifest of {version_uri(output_uri, pointer.version)} was changed after it was"
            f" published: its SHA-256 is {digest}, LATEST has {pointer.manifest_digest}"
        )
    return describe(output_uri, pointer.version, manifest, digest, True), manifest


def _nothing_current(storage: Storage, output_uri: str) -> str:
    there = complete_versions(storage, output_uri)
    if there:
        return (
            f"{output_uri} has no LATEST; choose one of its versions with embertide rollback, or"
            f" embertide release where it is held: {', '.join(there)}"
        )
    return f"nothing was published to {output_uri} yet; check the uri, or start embertide run"
