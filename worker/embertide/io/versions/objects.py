"""What lies under an output: its versions' objects, and which versions are complete.

    versions/<version>/part-00000.parquet   (or .npy with .ids.npy or .ids.parquet), ...
    versions/<version>/_manifest.json       written last: with it, the version is complete
    versions/<version>/_held.json           why the version is held, while it is; before that
    versions/<version>/_report.json, .html  what the run did, if it could be kept; after that
    LATEST                                  names the current version

Names of what is not data begin with ``_`` or ``.``, so that tools which read folders of parquet
files can read a version as a whole. A version without a manifest is a run that has not ended, or
what one that ended early left behind; readers never see it.
"""

from __future__ import annotations

from embertide.errors import ObjectMissing
from embertide.io.storage.protocol import ObjectInfo, Storage
from embertide.spec.version_names import HELD, MANIFEST, is_version, version_uri


def objects_by_version(storage: Storage, output_uri: str) -> dict[str, list[ObjectInfo]]:
    """Objects of each version, complete or not, oldest version first; {} when there is none."""
    folders = storage.list_folders(f"{output_uri.rstrip('/')}/versions")
    versions = sorted(name for name in folders if is_version(name))
    return {version: objects_of(storage, output_uri, version) for version in versions}


def objects_of(storage: Storage, output_uri: str, version: str) -> list[ObjectInfo]:
    """All objects of one version; [] also when a competing run removes them right now."""
    try:
        # As a folder's URI, so that no object of that name is looked for first.
        return storage.list(f"{version_uri(output_uri, version)}/", hidden=True)
    except ObjectMissing:
        return []


def manifest_uri(output_uri: str, version: str) -> str:
    """Where a version's manifest is."""
    return f"{version_uri(output_uri, version)}/{MANIFEST}"


def manifest_in(objects: list[ObjectInfo]) -> str | None:
    """The URI of the manifest among a version's objects, if it is there."""
    return next((info.uri for info in objects if info.uri.rsplit("/", 1)[1] == MANIFEST), None)


def is_complete(objects: list[ObjectInfo]) -> bool:
    """Whether a version's objects include its manifest."""
    return manifest_in(objects) is not None


def is_held(objects: list[ObjectInfo]) -> bool:
    """Whether a version's objects say that it is held."""
    return any(info.uri.endswith(f"/{HELD}") for info in objects)


def complete_versions(storage: Storage, output_uri: str) -> list[str]:
    """Names of the complete versions, oldest first."""
    found = objects_by_version(storage, output_uri)
    return [version for version, objects in found.items() if is_complete(objects)]
