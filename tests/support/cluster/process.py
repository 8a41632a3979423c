"""The running node as seen from here: start it, give it orders, end it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.cluster.layout import Settings
from tests.support.paths import ROOT
from tests.support.patience import SOON_SECONDS


class NodeProcess:
    """One node; all of it ends when this process does, however that happens."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._layout = settings, settings.layout
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Returns when all but the kubelet answers and images are there; RuntimeError if not."""
        self._layout.root.mkdir(parents=True, exist_ok=True)
        with self._layout.node_log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.cluster.keeper"],
                env=os.environ | self._settings.environment | {"PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for the test run, which then ends the node
            )
        self._read_answer()
        kubeconfig = self._layout.config / "admin.kubeconfig"
        shutil.copyfile(kubeconfig, self._layout.kubeconfig)

    def order(self, do: str, component: str) -> None:
        """``start`` or ``stop`` (kill) a component; see components.py for their names."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, "component": component}) + "\n")
        self._process.stdin.flush()
        self._read_answer()

    def stop(self) -> None:
        """End it all; returns when nothing is left."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(SOON_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None

    @property
    def inside(self) -> int:
        """A process in the node's namespaces, for nsenter; its number as seen from here."""
        assert self._process is not None
        process = self._process.pid
        while Path(f"/proc/{process}/comm").read_text().strip() != "catatonit":
            children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
            process = int(children[0])
        return process

    def _read_answer(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": self._last_words()}
        if "error" in answer:
            raise RuntimeError(f"the test cluster: {answer['error']}")

    def _last_words(self) -> str:
        log = self._layout.node_log.read_text().strip()
        return f"ended without a word, see {self._layout.node_log}:\n{log[-2000:]}"
