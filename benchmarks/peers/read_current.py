"""Reading all rows of an output's current version once, with a thread for each core; JSON.

    .venv/bin/python -m benchmarks.peers.read_current s3://bucket/embeddings --endpoint URL

The least that a comparison of all rows can cost.
"""

from __future__ import annotations

import json
import os
import time
from argparse import ArgumentParser

from embertide.io.readers.pool import map_splits
from embertide.io.storage.opening import open_storage
from embertide.io.versions.catalog import open_version
from embertide.io.versions.manifest import types_in
from embertide.io.versions.parts import PartDigest
from embertide.io.versions.reading import read_part
from embertide.spec.storage import StorageSettings
from embertide.spec.version_names import version_uri


def read_current(uri: str, settings: StorageSettings) -> dict[str, float]:
    """Seconds, and CPU seconds, that it takes."""
    storage = open_storage(settings)
    info, manifest = open_version(storage, uri)
    (of_type,) = types_in(manifest)

    def read(part: PartDigest) -> int:
        parts = read_part(storage, version_uri(uri, info.version), part, of_type.dim)
        return sum(len(ids) for ids, _ in parts)

    began, busy = time.perf_counter(), time.process_time()
    rows = sum(map_splits(of_type.digests, read, os.cpu_count() or 1))
    assert rows == of_type.rows
    return {"read": time.perf_counter() - began, "read_cpu": time.process_time() - busy}


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("uri")
    parser.add_argument("--endpoint", help="of an S3 server; credentials are the environment's")
    parser.add_argument("--region")
    options = parser.parse_args()
    at = StorageSettings(endpoint_url=options.endpoint, region=options.region)
    print(json.dumps(read_current(options.uri, at)))
