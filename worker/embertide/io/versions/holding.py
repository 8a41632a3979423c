"""Versions that a gate holds: complete, but not current until someone releases them.

A hidden object of the version says why. It is written before the manifest, and goes once the
version is current; whatever ends a run or a release in between, a held version never becomes
current by itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from embertide.errors import ObjectMissing, OutputError
from embertide.io.storage.protocol import Storage
from embertide.io.versions.pointer import utc_now
from embertide.spec.version_names import HELD, version_uri


def hold(storage: Storage, output_uri: str, version: str, reasons: Sequence[str]) -> None:
    """Keep a version from becoming current; before its manifest is written."""
    data = json.dumps({"reasons": list(reasons), "since": utc_now()}, indent=1)
    storage.write(_uri(output_uri, version), data.encode() + b"\n")


def reasons_held(storage: Storage, output_uri: str, version: str) -> list[str]:
    """Why a version is held; [] where it is not.

    Raises:
        OutputError: the object that has the reasons is damaged.
    """
    uri = _uri(output_uri, version)
    try:
        return [str(reason) for reason in json.loads(storage.read(uri))["reasons"]]
    except ObjectMissing:
        return []
    except (ValueError, LookupError, TypeError) as error:
        raise OutputError(
            f"{uri} is damaged ({error!r}); the version is held until embertide release"
        ) from error


def let_go(storage: Storage, output_uri: str, version: str) -> None:
    """Say no longer that a version is held; once it is current."""
    storage.delete([_uri(output_uri, version)])


def _uri(output_uri: str, version: str) -> str:
    return f"{version_uri(output_uri, version)}/{HELD}"
