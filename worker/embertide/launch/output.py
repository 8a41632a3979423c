"""Whether a job's output can be published to, asked by a plan, which must leave nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from embertide.errors import EmbertideError
from embertide.io.storage.local_errors import to_path
from embertide.io.storage.protocol import Storage
from embertide.io.versions.probe import check_output
from embertide.spec.schemes import is_local
from embertide.spec.version_names import new_version


def output_problem(storage: Storage, output_uri: str) -> EmbertideError | None:
    """Why no version could be published there; None if one could be."""
    with _no_new_folders(output_uri):
        try:
            check_output(storage, output_uri, new_version())
        except EmbertideError as error:
            return error
    return None


@contextmanager
def _no_new_folders(output_uri: str) -> Iterator[None]:
    """Remove the folders that writing a file makes, unless someone uses them by then."""
    if not is_local(output_uri):
        yield
        return
    versions = to_path(output_uri) / "versions"
    missing = [path for path in (versions, *versions.parents) if not os.path.lexists(path)]
    yield
    for path in missing:
        with suppress(OSError):
            path.rmdir()
