"""Plain reads and writes, no inference: features into memory, then as many bytes as npy.

Files are read side by side, each row to its id; the output is written and hashed on two threads,
then synced: what reading and publishing would take if nothing were checked.
"""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor

from benchmarks.peers.work import Work

_PIECE_BYTES = 4 << 20

work = Work.from_arguments(__doc__)
with work.stage("import"):
    import pyarrow.parquet  # noqa: F401  # counted as imports; used by reading

with work.stage("features"):
    x = work.read_features()

with work.stage("publish"), work.out.open("wb", buffering=0) as file, ThreadPoolExecutor(1) as pool:
    digest, data = hashlib.sha256(), x.data.cast("B")
    pieces = [data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES)]
    hashed = pool.map(digest.update, pieces)
    for piece in pieces:
        file.write(piece)
    list(hashed)
    os.fsync(file.fileno())

print(json.dumps({"stages": work.stages, "sha256": digest.hexdigest()}))
