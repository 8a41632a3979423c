"""One run at a time writes an output: the next one on this machine waits, as on the cluster.

Two runs at once would be correct, `io/versions/pointer.py` sees to that, but share the cores and
the memory that each of them planned to have.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from embertide.errors import OutputError
from embertide.facts.telemetry.progress import OnProgress, Progress
from embertide.io.storage.file_lock import locked
from embertide.io.storage.local_errors import to_path
from embertide.launch.leftovers import OUTPUT_PREFIX
from embertide.spec.schemes import is_local
from embertide.spec.storage import StorageSettings


@contextmanager
def output_lock(
    output_uri: str, storage: StorageSettings, on_progress: OnProgress
) -> Iterator[None]:
    """Hold the output; wait for the run of this user and temporary folder that holds it.

    Raises:
        OutputError: no file can be made in the temporary folder.
    """

    def say(holder: str) -> None:
        # Empty in the moment between its lock and its number.
        who = f"process {holder}" if holder else "another process"
        message = f"waiting for {who}, which writes the same output"
        on_progress(Progress("start", message=message))

    path = lock_path(output_uri, storage)
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(path, say))
        except OSError as error:
            raise OutputError(
                f"{path} cannot be made: {error.strerror}; set TMPDIR to a folder with space"
            ) from error
        yield


def lock_path(output_uri: str, storage: StorageSettings) -> Path:
    """The file whose lock stands for an output, however its URI is written."""
    if is_local(output_uri):
        place = os.path.realpath(to_path(output_uri))
    else:
        location = output_uri.rstrip("/")
        place = f"{location} at {storage.of(location).endpoint_url}"
    digest = hashlib.sha256(place.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"{OUTPUT_PREFIX}{os.getuid()}-{digest}.lock"
