"""The binaries of the cluster, built from pinned Go modules and kept in a cache.

Every module under ``modules/`` has its own folder of binaries, named after a hash of what decides
its contents: go.mod, go.sum, our own Go code, flags and Go version. Where that folder is there,
nothing is done.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.cluster.layout import CACHE
from tests.support.cluster.shell import run
from tests.support.s3 import server as s3

MODULES = Path(__file__).resolve().parent / "modules"
BINARIES = CACHE / "bin"
_UNUSED_SECONDS = 7 * 24 * 3600
_VERSION_VARIABLES = "k8s.io/component-base/version"


@dataclass(frozen=True)
class Module:
    """One Go module: what it is told to build, how, and what must come out."""

    name: str
    binaries: tuple[str, ...]
    package: str = "tool"  # Go's word for all packages that go.mod lists as tools
    tags: str = ""
    modules: Path = MODULES

    @property
    def folder(self) -> Path:
        """Where go.mod is."""
        return self.modules / self.name


ALL = (
    Module("etcd", ("etcd",), package="go.etcd.io/etcd/server/v3"),
    Module(
        "containerd",
        ("containerd", "containerd-shim-runc-v2", "ctr"),
        tags="no_btrfs,no_zfs,no_devmapper",
    ),
    Module(
        "kubernetes",
        (
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kube-proxy",
            "kubelet",
            "kubectl",
        ),
    ),
    Module("coredns", ("coredns",)),
    Module("helm", ("helm",)),
    Module("charts", ("glua", "kubeconform")),
    Module("kstatus", ("kstatus",), package="."),
)


def build_all(say: Callable[[str], None] = print) -> dict[str, Path]:
    """Every binary by name; builds those that are missing (minutes with an empty Go cache)."""
    found: dict[str, Path] = {}
    for module in ALL:
        started = time.monotonic()
        folder, built = build(module)
        found |= {name: folder / name for name in module.binaries}
        how = "built" if built else "there"
        say(f"[cluster] {module.name}: {how}, {time.monotonic() - started:.1f} s")
    started = time.monotonic()
    found["versitygw"] = s3.build()
    say(f"[cluster] versitygw: there, {time.monotonic() - started:.1f} s")
    return found


def build(module: Module) -> tuple[Path, bool]:
    """The folder of one module's binaries, and whether they had to be built."""
    flags = _flags(module)
    folder = BINARIES / f"{module.name}-{_key(module, flags)}"
    if folder.exists():
        os.utime(folder)
        return folder, False
    # Built beside and renamed: a build may be interrupted, and two may run at once.
    fresh = BINARIES / f"{module.name}.{os.getpid()}"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    # One package may be given a name, several are put into a folder under their own.
    target = fresh if module.package == "tool" else fresh / module.binaries[0]
    command = [s3.find_go(), "build", *flags, "-o", f"{target}{'/' * target.is_dir()}"]
    run(*command, module.package, cwd=module.folder, env=os.environ | {"CGO_ENABLED": "0"})
    _replace(fresh, folder)
    for other in BINARIES.glob(f"{module.name}-*"):
        if other.stat().st_mtime < time.time() - _UNUSED_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
    return folder, True


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
    pins = (MODULES / "kubernetes" / "go.mod").read_text()
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)", pins, re.MULTILINE)
    assert found is not None, "modules/kubernetes/go.mod requires no k8s.io/kubernetes"
    return found[1]


def _key(module: Module, flags: list[str]) -> str:
    go = run(s3.find_go(), "env", "GOVERSION", "GOOS", "GOARCH", cwd=module.folder)
    digest = hashlib.sha256(repr((go, flags, module.package)).encode())
    for path in (*sorted(module.folder.glob("go.*")), *sorted(module.folder.glob("*.go"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _replace(fresh: Path, folder: Path) -> None:
    try:
        fresh.rename(folder)
    except OSError:
        if not folder.exists():
            raise
        shutil.rmtree(fresh)  # another build was quicker
