"""The operator as a process of this machine, and its own figures: memory, CPU, requests, passes."""

from __future__ import annotations

import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil

from benchmarks.support.rounds import Run
from embertide.spec import metric_names as names

_PORT = 18080
_LONGEST_SECONDS = 120.0


def wait(condition: Callable[[], bool], what: str) -> None:
    """Until it is true; SystemExit where that takes too long."""
    until = time.monotonic() + _LONGEST_SECONDS
    while not condition():
        if time.monotonic() > until:
            raise SystemExit(f"waited {_LONGEST_SECONDS:g} s in vain: {what}")
        time.sleep(0.02)


class OperatorProcess:
    """One that looks after one namespace.

    Args:
        python: the interpreter that has it installed.
    """

    def __init__(self, python: str, kubeconfig: Path, namespace: str, log: Path) -> None:
        environment = os.environ | {
            "KUBECONFIG": str(kubeconfig),
            "EMBERTIDE_NAMESPACES": namespace,
            "EMBERTIDE_IMAGE": "none",
            "EMBERTIDE_PORT": str(_PORT),
            "EMBERTIDE_MAX_RUNNING_JOBS": "0",
        }
        self._log = log.open("wb")
        self.process = subprocess.Popen(
            [python, "-m", "embertide_operator"],
            env=environment,
            stdout=self._log,
            stderr=self._log,
            cwd="/",
        )
        self._of_system = psutil.Process(self.process.pid)

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._log.close()

    def healthy(self) -> bool:
        """Whether it serves and is well."""
        if self.process.poll() is not None:
            raise SystemExit(f"the operator ended with {self.process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{_PORT}/healthz", timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def measure(self, seconds: float) -> Run:
        """Rates over some time, and memory at its end."""
        before, cpu = self._counters(), sum(self._of_system.cpu_times()[:2])
        began = time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        cores = (sum(self._of_system.cpu_times()[:2]) - cpu) / took
        after = self._counters()
        passes = after["passes"] - before["passes"]
        requests = after["requests"] - before["requests"]
        return {
            "cores": round(cores, 4),
            "rss_bytes": self._of_system.memory_info().rss,
            "requests_per_second": round(requests / took, 2),
            "passes_per_second": round(passes / took, 2),
            "pass_seconds": round((after["seconds"] - before["seconds"]) / max(passes, 1), 5),
            "request_seconds": round((after["asking"] - before["asking"]) / max(requests, 1), 5),
        }

    def _counters(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{_PORT}/metrics", timeout=30) as answer:
            text = answer.read().decode()

        def total(name: str) -> float:
            lines = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
            return sum(map(float, lines))

        duration = names.RECONCILE_SECONDS.name
        return {
            "requests": total(names.API_REQUESTS.name),
            "passes": total(f"{duration}_count"),
            "seconds": total(f"{duration}_sum"),
            "asking": total(f"{names.API_SECONDS.name}_sum"),
        }
