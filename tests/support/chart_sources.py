"""Files of other projects that tests of the chart need, from pinned Go modules, kept in the cache.

Go's module proxy has the whole source of a module, so also definitions that are no Go code.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.cluster.layout import CACHE
from tests.support.go_programs import MODULES, find_go
from tests.support.once import Say, once

NAME = "chart-sources"
"""By which tests ask for them."""
MONITORS = ("podmonitors", "servicemonitors", "prometheusrules")
"""The definitions of prometheus-operator that the chart's objects need."""
_DEFINITION = "example/prometheus-operator-crd/monitoring.coreos.com_{}.yaml"
_SWAGGER = "api/openapi-spec/swagger.json"


@dataclass(frozen=True)
class Source:
    """A Go module's version with the checksum that go.sum has for it, and the files wanted."""

    module: str
    version: str
    checksum: str
    files: tuple[str, ...]

    def fetch(self, say: Say = print) -> list[Path]:
        """The files, from the cache; see :func:`tests.support.once.once`.

        Raises:
            AssertionError: the module's checksum is another one.
        """
        folder = CACHE / "sources" / f"{self.module.rsplit('/', 1)[-1]}-{self.version}"
        once(NAME, folder, lambda: self._copy_to(folder), "half a minute", say)
        return [folder / Path(name).name for name in self.files]

    def _copy_to(self, folder: Path) -> None:
        """Copy beside the folder and rename, so that it is never half there."""
        module = _download(self)
        fresh = folder.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        for name in self.files:
            shutil.copyfile(module / name, fresh / Path(name).name)
        fresh.rename(folder)


def _download(source: Source) -> Path:
    with tempfile.TemporaryDirectory() as folder:
        told = subprocess.run(
            [find_go(), "mod", "download", "-json", f"{source.module}@{source.version}"],
            cwd=folder,
            capture_output=True,
            text=True,
        )
    assert told.returncode == 0, told.stdout + told.stderr
    answer = json.loads(told.stdout)
    assert answer["Sum"] == source.checksum, f"{source.module}: {answer['Sum']}"
    return Path(answer["Dir"])


def kubernetes(say: Say = print) -> Path:
    """The OpenAPI document of the Kubernetes version that the test cluster has."""
    pins = (MODULES["kubernetes"].folder / "go.sum").read_text()
    found = re.search(r"^k8s\.io/kubernetes (v\S+) (h1:\S+)$", pins, re.MULTILINE)
    assert found is not None, "modules/kubernetes/go.sum has no k8s.io/kubernetes"
    (path,) = Source("k8s.io/kubernetes", found[1], found[2], (_SWAGGER,)).fetch(say)
    return path


def prometheus_operator(say: Say = print) -> list[Path]:
    """prometheus-operator's definitions of :data:`MONITORS`."""
    return Source(
        "github.com/prometheus-operator/prometheus-operator",
        "v0.85.0",
        "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
        tuple(_DEFINITION.format(name) for name in MONITORS),
    ).fetch(say)


def pod_groups(say: Say = print) -> list[Path]:
    """The definitions of PodGroups: of the coscheduling plugin, and of Volcano."""
    plugin = Source(
        "sigs.k8s.io/scheduler-plugins",
        "v0.31.8",
        "h1:Ie2EFRnkE9T2tBjxwypww7hJJyPRIwrXJNZeNxjP6QY=",
        ("config/crd/bases/scheduling.x-k8s.io_podgroups.yaml",),
    )
    volcano = Source(
        "volcano.sh/volcano",
        "v1.10.0",
        "h1:+GzQinGgeV0j58WpWpxByOXgF+YfUPW55zghM8GqjF0=",
        ("config/crd/volcano/bases/scheduling.volcano.sh_podgroups.yaml",),
    )
    return [*plugin.fetch(say), *volcano.fetch(say)]


def fetch_all(say: Say = print) -> None:
    """Every file that tests read."""
    for fetch in (kubernetes, prometheus_operator, pod_groups):
        fetch(say)
