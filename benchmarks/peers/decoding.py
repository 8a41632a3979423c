"""Pyarrow alone: decode what a run decodes until its CSR, and keep nothing.

.venv/bin/python -m benchmarks.peers.decoding DATA
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq

_BATCH_ROWS = 1 << 18


def _decode(path: Path) -> None:
    for _batch in pq.ParquetFile(path, pre_buffer=False).iter_batches(
        _BATCH_ROWS, use_threads=False
    ):
        pass


def main(argv: Sequence[str]) -> None:
    """Print seconds by stage as JSON."""
    data, seconds = Path(argv[0]), {}
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for stage, folder in (("features", "features"), ("ingest", "edges")):
            begin = time.perf_counter()
            list(pool.map(_decode, sorted((data / folder).iterdir())))
            seconds[stage] = time.perf_counter() - begin
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(sys.argv[1:])
