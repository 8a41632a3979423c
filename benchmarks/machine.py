"""What this machine can do at most: memory, arithmetic, disk, digests.

    .venv/bin/python -m benchmarks.machine

Kernels and stages are measured as a share of these. The other commands call :func:`limits` in
the same run, because a shared machine is another one an hour later.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.support.commands import drop_cached
from benchmarks.support.rounds import Run, save, table

ROW_BYTES = 512
"""A row of 128 floats, what an aggregation gathers."""


def limits(folder: Path, *, mib: int = 512, repeats: int = 5) -> Run:
    """All limits; sizes of the arrays and the file are ``mib`` MiB.

    Returns:
        GB/s, GFLOP/s by name; the best of ``repeats``, since a limit is what can be reached.
    """
    threads = len(os.sched_getaffinity(0))
    found = {f"copy_{count}": _copy(count, mib, repeats) for count in sorted({1, threads})}
    found["gather_512_bytes"] = _gather(mib, repeats)
    found["gemm_gflops"] = _gemm(mib, repeats)
    found |= {f"sha256_{count}": _digest(count, mib // 4, 3) for count in sorted({1, threads})}
    found |= _disk(folder, mib // 2, 3)
    return {name: round(value, 3) for name, value in found.items()} | {"threads": threads}


def _best(work: Callable[[], object], repeats: int) -> float:
    """Fewest seconds, after one call that is not counted."""
    work()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _copy(threads: int, mib: int, repeats: int) -> float:
    """GB/s read and written together."""
    source = np.ones(mib << 18, np.float32)
    target = np.zeros_like(source)
    pieces = list(
        zip(np.array_split(source, threads), np.array_split(target, threads), strict=True)
    )
    with ThreadPoolExecutor(threads) as pool:
        seconds = _best(lambda: list(pool.map(lambda p: np.copyto(p[1], p[0]), pieces)), repeats)
    return 2 * source.nbytes / seconds / 1e9


def _gather(mib: int, repeats: int) -> float:
    """GB/s of rows read at random and added up: torch's sums over 64 random rows at a time."""
    import torch

    rows = torch.ones((mib << 20) // ROW_BYTES, ROW_BYTES // 4)
    count = len(rows) // 64 * 64
    indices = torch.randint(len(rows), (count,), dtype=torch.int32)
    offsets = torch.arange(0, count, 64, dtype=torch.int32)

    def gather() -> object:
        return torch.nn.functional.embedding_bag(indices, rows, offsets, mode="sum")

    return count * ROW_BYTES / _best(gather, repeats) / 1e9


def _gemm(mib: int, repeats: int) -> float:
    """GFLOP/s of [n, 128] x [128, 128] in float32."""
    import torch

    x, weight = torch.ones((mib << 20) // (4 * ROW_BYTES), 128), torch.ones(128, 128)
    out = torch.empty_like(x)
    seconds = _best(lambda: torch.mm(x, weight, out=out), repeats)
    return 2 * len(x) * 128 * 128 / seconds / 1e9


def _digest(threads: int, mib: int, repeats: int) -> float:
    """GB/s of SHA-256."""
    data = bytes(mib << 20)
    with ThreadPoolExecutor(threads) as pool:
        seconds = _best(
            lambda: list(pool.map(lambda _: hashlib.sha256(data).digest(), range(threads))),
            repeats,
        )
    return threads * len(data) / seconds / 1e9


def _disk(folder: Path, mib: int, repeats: int) -> Run:
    """GB/s of one sequential file: written to the disk, read from it, read from the cache."""
    folder.mkdir(parents=True, exist_ok=True)
    block = np.random.default_rng(0).bytes(8 << 20)
    size = max(1, mib // 8) * len(block)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "file"

        def write() -> None:
            with path.open("wb") as file:
                for _ in range(size // len(block)):
                    file.write(block)
                file.flush()
                os.fsync(file.fileno())

        def read() -> None:
            with path.open("rb", buffering=0) as file:
                while file.read(8 << 20):
                    pass

        def cold() -> float:
            drop_cached(Path(place))
            start = time.perf_counter()
            read()
            return time.perf_counter() - start

        seconds = {
            "disk_write": _best(write, repeats),
            "disk_read": min(cold() for _ in range(repeats)),
            "cached_read": _best(read, repeats),
        }
    return {name: size / value / 1e9 for name, value in seconds.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=512, help="size of arrays and of the file")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--out", type=Path, help="the JSON file; default benchmarks/results")
    given = parser.parse_args()
    found = limits(given.folder, mib=given.mib)
    units = {"gemm_gflops": "GFLOP/s", "threads": ""}
    rows = [[name, value, units.get(name, "GB/s")] for name, value in found.items()]
    print(table(["limit", "", "unit"], rows))
    save("machine", {"machine": found}, given.out)


if __name__ == "__main__":
    main()
