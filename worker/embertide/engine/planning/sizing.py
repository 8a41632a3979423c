"""Memory of whole processes: what work takes, with imports, on a machine and in a container.

The estimate counts what a worker allocates; machines and containers also hold the libraries.
All numbers for that are here. Imports no torch.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil

from embertide.spec.grid import GridShape
from embertide.spec.workers import Workers

IMPORTS_BYTES = 320 << 20
"""A worker after its imports, before any work: anonymous memory, as a run's report measures it.
Measured with torch's CUDA build."""
SHARED_IMPORTS_BYTES = 145 << 20
"""Part of IMPORTS_BYTES that all workers of a machine share, since they are forked from one process
that imported everything: the rest is a worker's proportional set size."""
BESIDE_BYTES = 505 << 20
"""The processes other than workers, once on each machine and in each container. Proportional set
sizes in MiB: fork server 195, launcher 115, main process 95 with an S3 client, resource tracker 6;
and 96 of libraries' code that two pods on the measured machine shared."""

_MARGIN = 1.25
"""Factor of a container's memory: a container that takes more than it has is ended."""
_ROUND_BYTES = 64 << 20
_BESIDE_TENSORS_BYTES = 256 << 20
"""On a scratch volume: logs, progress and temporary files of the run."""
_WORKERS_PER_CORE = 8
"""More only take turns: they compute nothing sooner, and every exchange waits for the last."""


@dataclass(frozen=True)
class Machine:
    """The resources of a machine."""

    cores: int
    memory_bytes: int


def this_machine() -> Machine:
    """The machine that this process is on."""
    return Machine(os.cpu_count() or 1, int(psutil.virtual_memory().total))


def asked_grid(asked: Workers, grid: GridShape | None, workers: int | None) -> GridShape:
    """The grid given, else the manifest's, else one partition for each of the workers asked for."""
    if grid is None and workers is None and isinstance(asked.grid, GridShape):
        return asked.grid
    return grid or GridShape.of(workers or asked.count or 1, 1)


def worker_bytes(peak_bytes: int) -> int:
    """A worker with its imports, as its report will show it; its work takes ``peak_bytes``."""
    return peak_bytes + IMPORTS_BYTES


def machine_bytes(peak_bytes: int, workers: int) -> int:
    """All processes of a run whose workers share one machine; what they share counts once."""
    return workers * (worker_bytes(peak_bytes) - SHARED_IMPORTS_BYTES) + BESIDE_BYTES


def container_bytes(peak_bytes: int) -> int:
    """Memory to ask for a container with one worker, with a margin, rounded up to 64 MiB."""
    needed = int(machine_bytes(peak_bytes, 1) * _MARGIN)
    return -(-needed // _ROUND_BYTES) * _ROUND_BYTES


def work_bytes_in(container: int) -> int:
    """What the work of one worker may take in a container of so many bytes."""
    return max(0, int(container / _MARGIN) - machine_bytes(0, 1))


def container_problem(peak_bytes: int, container: int) -> str | None:
    """Why a container of so many bytes is likely to be ended; None if it is not."""
    needed = machine_bytes(peak_bytes, 1)
    if needed <= container:
        return None
    return (
        f"the plan needs about {_gib(needed)} for the container of each worker, which has"
        f" {_gib(container)} (limits.memory) and is ended where it takes more; use more workers or"
        " raise the limit"
    )


def volume_bytes(disk_bytes: int) -> int:
    """Size to ask for a worker's scratch volume, with a margin, rounded up to 64 MiB.

    A file system keeps some of its volume for itself, and the run's own files are there too.
    """
    needed = int(disk_bytes * _MARGIN) + _BESIDE_TENSORS_BYTES
    return -(-needed // _ROUND_BYTES) * _ROUND_BYTES


def machine_problem(grid: GridShape, peak_bytes: int, machine: Machine) -> str | None:
    """Why a machine cannot run all workers of a grid, and what to do; None if it can."""
    most = machine.cores * _WORKERS_PER_CORE
    if grid.workers > most:
        return (
            f"grid {grid} has {grid.workers} workers, but this machine has"
            f" {_some(machine.cores, 'core')}, on which they would only take turns; use at most"
            f" {most} workers here, {machine.cores} or fewer to be quick"
        )
    needed = machine_bytes(peak_bytes, grid.workers)
    if needed > machine.memory_bytes:
        return (
            f"grid {grid} needs about {_gib(needed)} on one machine"
            f" ({_some(grid.workers, 'worker')} of {_gib(worker_bytes(peak_bytes))} with imports,"
            f" of which they share {_gib(SHARED_IMPORTS_BYTES)}, and {_gib(BESIDE_BYTES)} beside"
            " them), but this one has"
            f" {_gib(machine.memory_bytes)}; embertide plan shows what other grids need, and on a"
            " cluster each worker has a container of its own"
        )
    return None


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def _some(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
