"""Whether a version can be published to an output: what that takes is tried before the work.

A missing right, or a store that takes a conditional write whatever the condition, would show in
the last step of a run, or when two runs publish at once. The probe's object is a hidden one of a
version that nothing else writes: no reader sees it, and a later run removes what a killed probe has
left.
"""

from __future__ import annotations

import secrets
from contextlib import suppress

from embertide.errors import EmbertideError, OutputError, StorageError
from embertide.io.storage.protocol import Storage
from embertide.io.versions.objects import objects_of
from embertide.spec.version_names import version_uri

_STALE = "0" * 32
"""A tag that the probe's object never has."""
_STORES = "use a store with conditional writes, such as AWS S3, MinIO or Ceph"
_IGNORES = (
    "{uri}: the store ignores {condition} and overwrites anyway, so that of two runs that"
    " publish at once the older one could win; {stores}"
)
_REFUSES = (
    "{uri}: the store refuses a write whose {condition} holds, so that no version could become"
    " current; {stores}"
)


def check_output(storage: Storage, output_uri: str, version: str) -> None:
    """Learn before the work whether a version could be published; leaves nothing.

    Takes nine requests to a store: four conditional puts, a get, a list, a delete, and a multipart
    upload that is begun and aborted.

    Args:
        version: a name that no other run has.

    Raises:
        AccessDenied: names the right that is missing.
        StorageError: the store ignores conditions, or does not know them.
        OutputError: the output cannot be written, or does not show what was written.
    """
    folder = version_uri(output_uri, version)
    uri = f"{folder}/_probe-{secrets.token_hex(4)}"
    try:
        _check_conditions(storage, uri)
        if uri not in [info.uri for info in objects_of(storage, output_uri, version)]:
            raise OutputError(f"{uri} was written, and a listing of {folder}/ does not have it")
        storage.try_upload(uri)
    except EmbertideError:
        with suppress(EmbertideError):
            storage.delete([uri])
        raise
    storage.delete([uri])


def _check_conditions(storage: Storage, uri: str) -> None:
    """Two writes whose condition holds, two whose condition does not."""
    if not storage.write_if(uri, _body(1), None):
        raise _problem(_REFUSES, uri, "If-None-Match: *")
    if storage.write_if(uri, _body(2), None):
        raise _problem(_IGNORES, uri, "If-None-Match: *")
    if storage.write_if(uri, _body(3), _STALE):
        raise _problem(_IGNORES, uri, "If-Match")
    info = storage.stat(uri)
    if info is None:
        raise OutputError(f"{uri} was written, and is not there")
    if not storage.write_if(uri, _body(4), info.etag):
        raise _problem(_REFUSES, uri, "If-Match")


def _body(number: int) -> bytes:
    """What a write leaves; each differs, since a write counts as done where its bytes are there."""
    return f"Embertide has probed whether it can publish here ({number}); remove this.\n".encode()


def _problem(text: str, uri: str, condition: str) -> StorageError:
    return StorageError(text.format(uri=uri, condition=condition, stores=_STORES))
