"""Prometheus and promtool, built from a pinned Go module and kept in the cluster's cache."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.cluster.build import Module, build

MODULES = Path(__file__).resolve().parent / "modules"

# Of the service discoveries only Kubernetes' is built in: the others bring every cloud's client.
_PROMETHEUS = Module(
    "prometheus",
    ("prometheus", "promtool"),
    tags="remove_all_sd,enable_kubernetes_sd",
    modules=MODULES,
)


@dataclass(frozen=True)
class Programs:
    """Paths of the binaries."""

    prometheus: Path
    promtool: Path

    def check(self, *arguments: str | Path, cwd: Path | None = None) -> str:
        """What promtool says; AssertionError with it where the exit status is not 0."""
        result = subprocess.run(
            [self.promtool, *arguments], cwd=cwd, capture_output=True, text=True
        )
        said = result.stdout + result.stderr
        assert result.returncode == 0, said
        return said


def build_programs() -> Programs:
    """Both programs; RuntimeError where Go is missing (minutes with an empty Go cache)."""
    folder, _ = build(_PROMETHEUS)
    return Programs(folder / "prometheus", folder / "promtool")
