"""A version's manifest: what it consists of, written last and read first."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from embertide.errors import ObjectMissing, OutputError
from embertide.facts.telemetry.comparison import Comparison
from embertide.facts.telemetry.strict_json import json_text
from embertide.io.readers.objects import listed_folder
from embertide.io.storage.protocol import Storage
from embertide.io.versions.objects import complete_versions, manifest_uri, objects_of
from embertide.io.versions.parts import PartDigest
from embertide.io.versions.pointer import Follows
from embertide.spec.result_names import (
    label_of,
    manifest_results,
    name_of,
    node_type_of,
    result_key,
)
from embertide.spec.version_names import TARGETS, is_of_targets, version_uri

_MISPLACED = (
    "{uri} has the rows of {rows} nodes alone (inference.targets), and is no version of all nodes;"
    f" such versions are read below {TARGETS}, by embertide.read(..., targets=True) or --output"
    f" .../{TARGETS}"
)


def write_manifest(
    storage: Storage, output_uri: str, version: str, manifest: dict[str, Any]
) -> None:
    """Write a version's manifest, which makes the version complete.

    Raises:
        OutputError: the version has a manifest already.
    """
    uri = manifest_uri(output_uri, version)
    data = json_text(manifest, indent=1).encode() + b"\n"
    # A put that was retried after a lost answer is refused too, though its first try did it.
    if not storage.write_if(uri, data, None) and storage.read(uri) != data:
        raise OutputError(f"{uri} already exists: a version is published once; start a new run")


def read_manifest(storage: Storage, output_uri: str, version: str) -> tuple[dict[str, Any], str]:
    """A version's manifest and the SHA-256 of its bytes, in hex.

    Raises:
        ObjectMissing: no such version, or it is not complete; lists those that are.
        OutputError: the manifest is damaged.
    """
    uri = manifest_uri(output_uri, version)
    try:
        data = storage.read(uri)
    except ObjectMissing:
        raise ObjectMissing(_no_version(storage, output_uri, version)) from None
    try:
        manifest = json.loads(data)
        types_in(manifest), manifest["rows"], manifest["dim"], manifest["created"]
        comparison_in(manifest), targets_in(manifest), follows_in(manifest)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise OutputError(
            f"{uri} is damaged ({error!r}); go back to another version with embertide rollback"
        ) from error
    if targets_in(manifest) is not None and not is_of_targets(output_uri):
        raise OutputError(_MISPLACED.format(uri=uri, rows=manifest["rows"]))
    return manifest, hashlib.sha256(data).hexdigest()


def follows_in(manifest: dict[str, Any]) -> Follows | None:
    """What ``LATEST`` was as the version's run began; None where its release did not note that."""
    data = manifest.get("follows")
    return None if data is None else Follows(**data)


def order_of(version: str, manifest: dict[str, Any]) -> tuple[int, str]:
    """What complete versions are sorted by, the oldest first: the generation that its run found,
    and the time in its name. Versions of releases that did not note the first come before."""
    follows = follows_in(manifest)
    return (-1 if follows is None else follows.generation, version)


def targets_in(manifest: dict[str, Any]) -> dict[str, Any] | None:
    """What a manifest says of the nodes whose rows alone it has: ``rows`` ``of`` how many nodes,
    ``edges`` of ``allEdges``; None of a version of all nodes."""
    targets = manifest.get("targets")
    if targets is not None:
        targets["rows"], targets["of"]
    return dict(targets) if targets is not None else None


def _no_version(storage: Storage, output_uri: str, version: str) -> str:
    there = complete_versions(storage, output_uri)
    listed = f"it has {', '.join(there)}" if there else "nothing was published there yet"
    return f"{output_uri} has no complete version {version}; {listed}"


def part_digests(manifest: dict[str, Any]) -> list[PartDigest]:
    """The parts a manifest lists, of all its results and of scores."""
    parts = [part for of_type in types_in(manifest) for part in of_type.digests]
    return [*parts, *score_digests(manifest)]


def score_digests(manifest: dict[str, Any]) -> list[PartDigest]:
    """The parts with scores of pairs; [] of a version without."""
    return [PartDigest(**part) for part in (manifest.get("scores") or {}).get("parts", [])]


@dataclass(frozen=True)
class TypeEntry:
    """What a manifest says of one result: the rows of a node type.

    Attributes:
        name: of the type; "" in a version of one type, which does not name it.
        result: its name; "" in a version whose model has one result, which does not name it.
        parts: its parts, as the manifest has them.
        ids: kind of its ids; "" in versions from before it was kept.
        delta: its changes since the version before, as the manifest has them; None for none.
    """

    name: str
    result: str
    rows: int
    dim: int
    parts: list[dict[str, Any]]
    ids: str = ""
    delta: dict[str, Any] | None = None

    @property
    def label(self) -> str:
        """The result as messages and paths have it; "" of the only one of the only type."""
        return label_of(result_key(self.name, self.result))

    @property
    def digests(self) -> list[PartDigest]:
        """Its parts."""
        return [PartDigest(**part) for part in self.parts]


def together(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The fields of a manifest that describe its results, the way :func:`types_in` reads them.

    A version of one node type has them at the top, one of several under ``types``. Several results
    of a type are under ``results`` there, beside the rows of each and the length of the longest.

    Args:
        results: key -> what describes it: rows, dim, parts and more. The node type of a key is ""
            in a graph of one node type, and never "" in one of several, however many are published.
    """
    by_type: dict[str, dict[str, Any]] = {}
    for key, entry in results.items():
        by_type.setdefault(node_type_of(key), {})[name_of(key)] = entry
    types = {node_type: _of_one_type(named) for node_type, named in by_type.items()}
    if "" in types:
        return types[""]
    return {
        "rows": sum(entry["rows"] for entry in types.values()),
        "dim": max(entry["dim"] for entry in types.values()),
        "types": types,
    }


def _of_one_type(named: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The results of a node type, by name; "" of the only one."""
    if "" in named:
        return named[""]
    first = next(iter(named.values()))
    return {
        "rows": first["rows"],
        "dim": max(entry["dim"] for entry in named.values()),
        "ids": first["ids"],
        "results": named,
    }


def types_in(manifest: dict[str, Any]) -> list[TypeEntry]:
    """What a manifest says of each result."""
    return [
        TypeEntry(
            node_type_of(key),
            name_of(key),
            entry["rows"],
            entry["dim"],
            entry["parts"],
            entry.get("ids", ""),
            entry.get("delta"),
        )
        for key, entry in manifest_results(manifest).items()
    ]


def comparison_in(manifest: dict[str, Any]) -> Comparison | None:
    """How the version compares with the one that was current before; None where it has none."""
    data = manifest.get("comparison")
    return None if data is None else Comparison.from_json(data)


def check_rows(output_uri: str, version: str, manifest: dict[str, Any]) -> None:
    """Refuse a version whose parts do not hold one row for each node.

    Raises:
        OutputError: says how many rows there are, and how many nodes.
    """
    for of_type in types_in(manifest):
        written = sum(part["rows"] for part in of_type.parts)
        if written != of_type.rows:
            of = f" of {of_type.label!r}" if of_type.label else ""
            raise OutputError(
                f"the parts of {version_uri(output_uri, version)} have {written} rows{of}, the"
                f" graph has {of_type.rows} nodes{of}; nothing was published"
            )


def check_objects(
    storage: Storage, output_uri: str, version: str, manifest: dict[str, Any]
) -> None:
    """Refuse a version unless each part is there with its size, and no other data beside them.

    Raises:
        OutputError: names the first object that is missing, of another size, or not listed.
    """
    uri = version_uri(output_uri, version)
    objects = objects_of(storage, output_uri, version)
    folder = f"{listed_folder(uri)}/"
    there = {info.uri.removeprefix(folder): info.size for info in objects}
    parts = part_digests(manifest)
    listed = {name for part in parts for name, _, _ in part.objects()}
    there = {name: size for name, size in there.items() if name in listed or not _is_hidden(name)}
    for part in parts:
        for name, size, _ in part.objects():
            if name not in there:
                raise OutputError(f"{uri}/{name} is missing; the version was not published")
            if (held := there.pop(name)) != size:
                raise OutputError(
                    f"{uri}/{name} has {held} bytes, {size} were written; the version was not"
                    " published"
                )
    if there:
        raise OutputError(f"{uri}/{min(there)} does not belong to this version; remove it")


def _is_hidden(name: str) -> bool:
    """Whether the object, or a folder that it is in, is no data."""
    return any(part[0] in "_." for part in name.split("/"))
