"""Processes and what they start: ending all of them, and ending with the one that asked for us.

A worker that outlives its run holds memory, a GPU and a port, and may still write. So every
process that is started here ends with the process that asked for it, however that one ends.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from typing import Any

import psutil

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_TICK_SECONDS = 0.05
_PATIENCE_SECONDS = 5.0
"""How long to wait for processes that were killed; the system may hold on to one."""


def end_tree(process: BaseProcess) -> None:
    """Kill a process and all it started; returns when they are gone."""
    if process.pid is None:
        return
    tree: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        top = psutil.Process(process.pid)
        # So that it starts no more while we look.
        top.suspend()
        tree = [*top.children(recursive=True), top]
    kill_all(lambda: tree)


def end_children() -> None:
    """Kill every process that we started, and those they started; returns when they are gone."""
    kill_all(lambda: psutil.Process().children(recursive=True))


def kill_all(find: Callable[[], Iterable[psutil.Process]]) -> None:
    """Kill what is found, over and over, until nothing found is alive."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        living = [process for process in find() if _kill(process)]
        if not living:
            return
        psutil.wait_procs(living, timeout=_TICK_SECONDS)


def _kill(process: psutil.Process) -> bool:
    """Returns whether the process was still alive."""
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        process.kill()
    except psutil.NoSuchProcess:
        return False
    return True


def adopt_orphans(adopt: bool = True) -> None:
    """Become the parent of what our processes leave, so that it is among our children.

    Args:
        adopt: False for no longer.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(adopt))


def die_with_requester() -> None:
    """End this process when the one that asked for it ends, however it ends.

    The fork server, where it is the parent, outlives that one: every process it makes holds the
    pipe that it waits on.
    """
    requester = multiprocessing.parent_process()
    if requester is not None:
        threading.Thread(target=_follow, args=(requester,), name="requester", daemon=True).start()
    if sys.platform == "linux":
        # For the parent, be it the fork server, being killed: no process could stop us any more.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _follow(requester: Any) -> None:
    requester.join()
    os._exit(1)
