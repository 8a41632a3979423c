"""A version's manifest: what it consists of, written last and read first."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from embertide.errors import ObjectMissing, OutputError
from embertide.spec.version_names import MANIFEST, version_uri
from embertide.storage.protocol import Storage
from embertide.versions.objects import complete_versions, objects_of
from embertide.versions.parts import PartDigest


def write_manifest(
    storage: Storage, output_uri: str, version: str, manifest: dict[str, Any]
) -> None:
    """Write a version's manifest, which makes the version complete.

    Raises:
        OutputError: the version has a manifest already.
    """
    uri = f"{version_uri(output_uri, version)}/{MANIFEST}"
    data = json.dumps(manifest, indent=1).encode() + b"\n"
    # A put that was retried after a lost answer is refused too, though its first try did it.
    if not storage.write_if(uri, data, None) and storage.read(uri) != data:
        raise OutputError(f"{uri} already exists: a version is published once; start a new run")


def read_manifest(storage: Storage, output_uri: str, version: str) -> tuple[dict[str, Any], str]:
    """A version's manifest and the SHA-256 of its bytes, in hex.

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


def part_digests(manifest: dict[str, Any]) -> list[PartDigest]:
    """The parts a manifest lists."""
    return [PartDigest(**part) for part in manifest["parts"]]


def check_rows(output_uri: str, version: str, manifest: dict[str, Any]) -> None:
    """Refuse a version whose parts do not hold one row for each node.

    Raises:
        OutputError: says how many rows there are, and how many nodes.
    """
    written = sum(part.rows for part in part_digests(manifest))
    if written != manifest["rows"]:
        raise OutputError(
            f"the parts of {version_uri(output_uri, version)} have {written} rows, the graph has"
            f" {manifest['rows']} nodes; nothing was published"
        )


def check_objects(
    storage: Storage, output_uri: str, version: str, manifest: dict[str, Any]
) -> None:
    """Refuse a version unless each part is there with its size, and nothing else beside them.

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
        raise OutputError(f"{uri}/{min(there)} does not belong to this version; remove it")
