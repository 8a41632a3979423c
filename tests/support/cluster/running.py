"""Components as processes: start, stop, wait until one answers, start again what ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.cluster.components import Component
from tests.support.patience import WAIT_SECONDS


class ComponentProcesses:
    """Some components and their processes, which write into one folder of logs."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._components: dict[str, Component] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def add(self, component: Component) -> None:
        """Make a component known without starting it."""
        self._components[component.name] = component

    def start(self, name: str) -> None:
        """Start a component; nothing happens where it runs."""
        running = self._processes.get(name)
        if running is not None and running.poll() is None:
            return
        component = self._components[name]
        with self._log(name).open("ab") as log:
            self._processes[name] = subprocess.Popen(
                component.command,
                env=os.environ | component.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def stop(self, name: str) -> None:
        """Kill a component, as a crash does; it stays away until it is started."""
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def revive(self) -> None:
        """Start again what ended by itself, as a kubelet does with a control plane's pods.

        The scheduler ends itself when its cache contradicts the API server.
        """
        for name, process in list(self._processes.items()):
            if process.poll() is not None:
                print(f"{name} ended with status {process.returncode}", file=sys.stderr, flush=True)
                self.start(name)

    def wait_for(self, name: str, answers: Callable[[], bool]) -> None:
        """Wait until a component answers; RuntimeError where it ended or takes too long."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not answers():
            code = self._processes[name].poll()
            if code is not None or time.monotonic() > deadline:
                how = "does not answer" if code is None else f"ended with status {code}"
                raise RuntimeError(f"{name} {how}, see {self._log(name)}")
            time.sleep(0.05)

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"
