"""The operator, but it is killed right after its first write has reached the API server.

Prints what it wrote. Run by test_operator.py, as a process of its own.
"""

from __future__ import annotations

import os
from typing import Any, NoReturn

from embertide_operator.__main__ import main
from embertide_operator.api import client as kubernetes_api


class MortalApi(kubernetes_api.KubernetesApi):
    """Dies with every write."""

    def apply(self, manifest: dict[str, Any]) -> dict[str, Any]:
        super().apply(manifest)
        die(manifest["kind"])

    def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        super().create(manifest)
        die(manifest["kind"])

    def write_status(self, job: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
        super().write_status(job, status)
        die("EmbeddingJob/status")

    def scale(self, statefulset: dict[str, Any], replicas: int) -> dict[str, Any]:
        super().scale(statefulset, replicas)
        die("StatefulSet/scale")


def die(written: str) -> NoReturn:
    """As kill -9 does it; 9 is told apart from every other end by the exit code."""
    os.write(1, f"{written}\n".encode())
    os._exit(9)


if __name__ == "__main__":
    main(MortalApi)
