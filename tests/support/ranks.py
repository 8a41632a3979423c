"""Runs a function on every rank of a grid, in real processes that talk over gloo.

Processes come from a fork server that has imported torch and the pipeline once.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from embertide.facts.telemetry.recorder import CountingRecorder
from embertide.graph.exchange import Exchange
from embertide.grid import Grid
from embertide.launch.worker import backend
from embertide.spec.grid import GridShape

Task = Callable[..., Any]
TIMEOUT_SECONDS = 300
GROUPED = 4
"""Grids of so many ranks exchange rows in groups, as ranks of several hosts do; the ranks of all
others read each other's rows in place."""


def on_grid(
    p: int, m: int, task: Task, *args: Any, device: str = "cpu", one_host: bool = False
) -> list[Any]:
    """``task(exchange, *args)`` on P x M ranks; their results in rank order.

    Ranks on ``cuda`` share the first GPU. See :data:`GROUPED`; with ``one_host`` they read in place
    whatever their number. An exception on any rank is raised here with that rank's traceback.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["embertide.launch.worker"])
    # Pickled plainly, by value: multiprocessing would pass every tensor as an open file.
    call = pickle.dumps((task, args))
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = [], []
        for rank in range(p * m):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(
                target=_main,
                args=(theirs, Path(folder) / "store", p, m, rank, device, call, one_host),
            )
            process.start()
            theirs.close()
            pipes.append(ours)
            processes.append(process)
        try:
            return _results(pipes)
        finally:
            for process in processes:
                process.kill()
                process.join()


def _results(pipes: list[Connection]) -> list[Any]:
    answers = []
    for rank, pipe in enumerate(pipes):
        if not pipe.poll(TIMEOUT_SECONDS):
            raise TimeoutError(f"rank {rank} gave no result within {TIMEOUT_SECONDS} s")
        try:
            answers.append(pipe.recv())
        except EOFError:
            answers.append((False, "the process died"))
    failed = [(rank, text) for rank, (good, text) in enumerate(answers) if not good]
    # A rank that lost its peer only tells that the peer failed.
    for rank, text in sorted(failed, key=lambda f: "gloo" in f[1]):
        raise AssertionError(f"rank {rank} failed:\n{text}")
    return [value for _, value in answers]


def _main(
    pipe: Connection,
    store: Path,
    p: int,
    m: int,
    rank: int,
    device: str,
    call: bytes,
    one_host: bool,
) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = "lo"
    # NCCL takes ranks on one GPU for a mistake, unless they say that their hosts are others.
    os.environ["NCCL_HOSTID"] = str(rank)
    place = torch.device(device, 0) if device == "cuda" else torch.device(device)
    try:
        task, args = pickle.loads(call)  # noqa: S301 - written by the test itself
        dist.init_process_group(
            backend(place),
            store=dist.FileStore(str(store), p * m),
            rank=rank,
            world_size=p * m,
        )
        exchange = Exchange(
            Grid(GridShape.of(p, m), rank),
            place,
            CountingRecorder(),
            in_place=one_host or p * m != GROUPED,
        )
        pipe.send((True, task(exchange, *args)))
        exchange.barrier()
    except BaseException:
        pipe.send((False, traceback.format_exc()))
