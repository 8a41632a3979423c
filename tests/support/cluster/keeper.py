"""Keeps the node: gives it namespaces and control groups, waits for its end, cleans up after it.

It stays outside the namespaces, so that it lives on when the node is killed. Standard input and
output belong to the node; when the test run that holds their other ends dies, the node ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from tests.support.cluster import cgroups, network
from tests.support.cluster.layout import Settings
from tests.support.cluster.machine import ENTER


def main() -> None:
    """Ends when the node has ended and nothing of it is left; settings are in the environment."""
    layout = Settings.of_this_process().layout
    signal.signal(signal.SIGTERM, _exit)
    try:
        with _lock(layout.lock):
            network.check_free()
            shutil.rmtree(layout.state, ignore_errors=True)
            layout.logs.mkdir(parents=True)
            try:
                with cgroups.own_groups():
                    _run_node()
            finally:
                # By then its server has ended. Jobs may have left gigabytes, which nobody reads.
                shutil.rmtree(layout.objects, ignore_errors=True)
    except RuntimeError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        sys.exit(1)


def _run_node() -> None:
    here = os.open("/proc/self/ns/net", os.O_RDONLY)
    module = "tests.support.cluster.node_main"
    command = (*ENTER, sys.executable, "-m", module, str(here))
    process = subprocess.Popen(command, pass_fds=(here,))
    try:
        process.wait()
    finally:
        process.kill()
        process.wait()
        network.remove_link()


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise RuntimeError(
                f"the test cluster of this checkout is up already (process {file.read().strip()}):"
                " end that test run or `make cluster` first"
            ) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _exit(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
