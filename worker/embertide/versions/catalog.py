"""What lies under an output: its versions, complete or not, and what each of them holds.

    versions/<version>/part-00000.parquet   (or .npy with .ids.npy or .ids.parquet), ...
    versions/<version>/manifest.json        written last: with it, the version is complete
    LATEST                                  names the current version

A version whose manifest is missing is a run still under way, or the remains of one that
ended early; readers never see it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from embertide.errors import ObjectMissing, OutputError
from embertide.spec.version_names import MANIFEST, is_version, version_uri
from embertide.storage.protocol import ObjectInfo, Storage
from embertide.versions.parts import PartDigest


@dataclass(frozen=True)
class VersionInfo:
    """A complete version.

    Attributes:
        uri: where its objects lie.
        created: when its manifest was written, ISO 8601 in UTC.
        size: bytes of all parts.
        manifest_digest: SHA-256 of its manifest.json, in hex.
        current: whether LATEST named it when this was made.
    """

    version: str
    uri: str
    created: str
    rows: int
    dim: int
    size: int
    manifest_digest: str
    current: bool


def objects_by_version(storage: Storage, output_uri: str) -> dict[str, list[ObjectInfo]]:
    """Objects of each version, complete or not, oldest version first; {} when there is none."""
    folders = storage.list_folders(f"{output_uri.rstrip('/')}/versions")
    versions = sorted(name for name in folders if is_version(name))
    return {version: objects_of(storage, output_uri, version) for version in versions}


def objects_of(storage: Storage, output_uri: str, version: str) -> list[ObjectInfo]:
    """Objects of one version; [] also when another run removes them right now."""
    try:
        return storage.list(version_uri(output_uri, version))
    except ObjectMissing:
        return []


def is_complete(objects: list[ObjectInfo]) -> bool:
    """Whether a version's objects include its manifest."""
    return any(info.uri.endswith(f"/{MANIFEST}") for info in objects)


def complete_versions(storage: Storage, output_uri: str) -> list[str]:
    """Names of the complete versions, oldest first."""
    found = objects_by_version(storage, output_uri)
    return [version for version, objects in found.items() if is_complete(objects)]


def read_manifest(storage: Storage, output_uri: str, version: str) -> tuple[dict[str, Any], str]:
    """A version's manifest and the SHA-256 of its bytes.

    Raises:
        ObjectMissing: no such version, or it is not complete; lists those that are.
        OutputError: the manifest is damaged.
    """
    uri = f"{version_uri(output_uri, version)}/{MANIFEST}"
    try:
        data = storage.read(uri)
    except ObjectMissing as error:
        raise ObjectMissing(_no_version(storage, output_uri, version)) from error
    try:
        manifest = json.loads(data)
        manifest["parts"], manifest["rows"], manifest["dim"], manifest["created"]
    except (ValueError, KeyError, TypeError) as error:
        raise OutputError(
            f"{uri} is damaged ({error!r}); go back to another version with embertide rollback"
        ) from error
    return manifest, hashlib.sha256(data).hexdigest()


def _no_version(storage: Storage, output_uri: str, version: str) -> str:
    there = complete_versions(storage, output_uri)
    listed = f"it has {', '.join(there)}" if there else "nothing was published there yet"
    return f"{output_uri} has no complete version {version}; {listed}"


def describe(
    output_uri: str, version: str, manifest: dict[str, Any], digest: str, current: bool
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
    )


def part_digests(manifest: dict[str, Any]) -> list[PartDigest]:
    """The parts a manifest lists."""
    return [PartDigest(**part) for part in manifest["parts"]]


def check_objects(
    storage: Storage, output_uri: str, version: str, manifest: dict[str, Any]
) -> None:
    """Every part must be there with its size, and nothing else beside it.

    Raises:
        OutputError: names the first object that is missing, of another size, or not listed.
    """
    uri = version_uri(output_uri, version)
    objects = objects_of(storage, output_uri, version)
    there = {info.uri.rsplit("/", 1)[1]: info.size for info in objects}
    there.pop(MANIFEST, None)
    for part in part_digests(manifest):
        for name, size, _ in part.objects():
            if name not in there:
                raise OutputError(f"{uri}/{name} is missing; the version was not published")
            if (held := there.pop(name)) != size:
                raise OutputError(
                    f"{uri}/{name} has {held} bytes, {size} were written; the version was not"
                    " published"
                )
    if there:
        raise OutputError(f"{uri}/{min(there)} belongs to no part of this version; remove it")
