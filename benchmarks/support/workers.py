"""Worker processes that stay, each in its network namespace, and run one task after another.

They come from a fork server that has imported torch and the pipeline once. A task is a function
``task(world, *arguments)`` of an importable module; all ranks run it and their results return in
rank order. Grids may change from task to task: ranks are connected once.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pickle
import socket
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from benchmarks.support.network import Network
from embertide.kernels.threads import set_threads

_CLONE_NEWUTS, _CLONE_NEWNET = 0x04000000, 0x40000000
TIMEOUT_SECONDS = 300


@dataclass(frozen=True)
class World:
    """What a task knows of where it runs."""

    rank: int
    size: int


class Workers:
    """Handles to the ranks."""

    def __init__(self, pipes: list[Connection]) -> None:
        self._pipes = pipes

    def call(self, task: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Run a task on every rank; results in rank order.

        Raises:
            RuntimeError: with the first failed rank's traceback.
        """
        # Pickled plainly: multiprocessing would pass every tensor as an open file.
        message = pickle.dumps((task, arguments))
        for pipe in self._pipes:
            pipe.send_bytes(message)
        answers = []
        for rank, pipe in enumerate(self._pipes):
            if not pipe.poll(TIMEOUT_SECONDS):
                raise RuntimeError(f"rank {rank} gave no result within {TIMEOUT_SECONDS} s")
            answers.append(pickle.loads(pipe.recv_bytes()))  # noqa: S301 - our own workers'
            if isinstance(answers[-1], _Failed):
                raise RuntimeError(f"rank {rank} failed:\n{answers[-1].text}")
        return answers


@dataclass(frozen=True)
class _Failed:
    text: str


@contextmanager
def workers(count: int, network: Network | None) -> Iterator[Workers]:
    """Start ``count`` ranks, on the namespaces of a network or on loopback; end them after."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.support.workers", "benchmarks.tasks"])
    pipes, processes = [], []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for rank in range(count):
                ours, theirs = context.Pipe()
                given = (theirs, World(rank, count), f"{folder}/store", network)
                process = context.Process(target=_serve, args=given, daemon=True)
                process.start()
                theirs.close()
                pipes.append(ours)
                processes.append(process)
            yield Workers(pipes)
        finally:
            for process in processes:
                process.kill()
                process.join()


def _serve(pipe: Connection, world: World, store: str, network: Network | None) -> None:
    """Join the others, then run tasks until the pipe closes."""
    torch.set_num_threads(1)
    set_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo" if network is None else network.interface
    if network is not None:
        _enter(network.namespaces[world.rank])
    dist.init_process_group(
        "gloo",
        store=FileStore(store, world.size),
        rank=world.rank,
        world_size=world.size,
        timeout=timedelta(seconds=TIMEOUT_SECONDS),
    )
    while True:
        try:
            task, arguments = pickle.loads(pipe.recv_bytes())  # noqa: S301 - our own parent's
        except EOFError:
            return
        try:
            answer: Any = task(world, *arguments)
        except BaseException:
            answer = _Failed(traceback.format_exc())
        pipe.send_bytes(pickle.dumps(answer))


def _enter(namespace: str) -> None:
    """Move this process into a network namespace, with a host name of its own.

    With one host name the ranks could take themselves for neighbours and bypass the network.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/var/run/netns/{namespace}").open() as handle:
        if libc.setns(handle.fileno(), _CLONE_NEWNET) or libc.unshare(_CLONE_NEWUTS):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    socket.sethostname(namespace)
