"""What lies under an output: its versions' objects, and which versions are complete.

    versions/<version>/part-00000.parquet   (or .npy with .ids.npy or .ids.parquet), ...
    versions/<version>/manifest.json        written last: with it, the version is complete
    LATEST                                  names the current version

A version without a manifest is a run still under way, or what one that ended early left
behind; readers never see it.
"""

from __future__ import annotations

from embertide.errors import ObjectMissing
from embertide.spec.version_names import MANIFEST, is_version, version_uri
from embertide.storage.protocol import ObjectInfo, Storage


def objects_by_version(storage: Storage, output_uri: str) -> dict[str, list[ObjectInfo]]:
    """Objects of each version, complete or not, oldest version first; {} when there is none."""
    folders = storage.list_folders(f"{output_uri.rstrip('/')}/versions")
    versions = sorted(name for name in folders if is_version(name))
    return {version: objects_of(storage, output_uri, version) for version in versions}


def objects_of(storage: Storage, output_uri: str, version: str) -> list[ObjectInfo]:
    """Objects of one version; [] also when a competing run removes them right now."""
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
