"""The images of the tests: pause and a base from Debian's packages, the rest from ``docker/``.

The operator's and the worker's are built from the Dockerfiles that are shipped, with build
arguments only. Names say what is inside (``localhost/embertide-worker:id-<12 hex digits>``), so
that pods with an old image are never mistaken for pods with the new one.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.support.cluster.buildah import Buildah
from tests.support.cluster.config import PAUSE_IMAGE
from tests.support.cluster.layout import CACHE
from tests.support.cluster.loading import read_layers
from tests.support.paths import ROOT
from tests.support.shell import run

_SUITE = "bookworm"
_PACKAGES = "python3,python3-venv,ca-certificates"
BASE_IMAGE = (
    f"localhost/embertide-base:{hashlib.sha256(f'{_SUITE} {_PACKAGES}'.encode()).hexdigest()[:12]}"
)
_FOLDER = CACHE / "images"
IMAGE_STORE = _FOLDER / "storage"
LARGE_BYTES = 1 << 30
_LARGE_LAYERS = 2
"""Of an image: CUDA's libraries, torch with all others."""
_MANY_IMAGES = 200
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def build_images(say: Callable[[str], None] = print) -> dict[str, str]:
    """Image names by role: ``pause``, ``operator``, ``worker``, ``push``; builds what has changed.

    From nothing this takes minutes (PyTorch is large); a change of code takes seconds.
    """
    names = {"pause": PAUSE_IMAGE}
    with locked_store() as buildah:
        _timed(say, "pause", partial(_make_pause, buildah))
        _timed(say, "base", partial(make_base, buildah))
        for role in ("operator", "worker"):
            names[role] = _timed(say, role, partial(_make, buildah, role, {}))
        upon = {"WORKER": names["worker"], "INDEXES": "pgvector"}
        names["push"] = _timed(say, "push", partial(_make, buildah, "push", upon))
        _prune(buildah, set(names.values()) | {BASE_IMAGE})
    return names


@contextmanager
def locked_store(registry: str | None = None) -> Iterator[Buildah]:
    """The images' store, while no other process builds in it; `Buildah` has the argument."""
    buildah = Buildah(_FOLDER, registry)
    with (buildah.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield buildah


def _make(buildah: Buildah, role: str, arguments: Mapping[str, str]) -> str:
    dockerfile = ROOT / "docker" / f"{role}.Dockerfile"
    identifier = buildah.build(dockerfile, ROOT, {"BASE": BASE_IMAGE, **arguments})
    # The letters keep it from being read as a number where YAML comes in between.
    name = f"localhost/embertide-{role}:id-{identifier[:12]}"
    if not buildah.has(name):
        buildah.run("tag", identifier, name)
    return name


def _make_pause(buildah: Buildah) -> None:
    if not buildah.has(PAUSE_IMAGE):
        program = Path("/usr/bin/catatonit")
        settings = ("--entrypoint", '["/catatonit", "-P"]', "--user", "65535:65535")
        buildah.commit(PAUSE_IMAGE, program, "/catatonit", *settings)


def make_base(buildah: Buildah) -> None:
    """Debian with Python, as no registry is needed for it."""
    if buildah.has(BASE_IMAGE):
        return
    folder = buildah.folder / "base"
    shutil.rmtree(folder, ignore_errors=True)
    options = ("--variant=minbase", f"--include={_PACKAGES}")
    run("debootstrap", *options, _SUITE, folder, _mirror())
    for leftover in ("var/cache/apt/archives", "var/lib/apt/lists"):
        shutil.rmtree(folder / leftover, ignore_errors=True)
    buildah.commit(BASE_IMAGE, folder, "/", "--env", f"PATH={_PATH}")
    shutil.rmtree(folder)


def _prune(buildah: Buildah, wanted: set[str]) -> None:
    """Forget older images once they take room: other dependencies, or very many builds.

    Stages that only builds need go with them and are made again by the next one, in seconds.
    """
    sizes = [layer.get("diff-size", 0) for layer in read_layers(buildah.store).values()]
    images = buildah.run("images", "--all", "--format", "{{.Name}}:{{.Tag}}").splitlines()
    large = sum(size > LARGE_BYTES for size in sizes)
    if large <= _LARGE_LAYERS and len(images) <= _MANY_IMAGES:
        return
    # A build that was killed leaves a container, whose image could not go. The store is ours.
    buildah.run("rm", "--all")
    for name in images:
        if name.startswith("localhost/") and name not in wanted:
            buildah.run("rmi", name)
    buildah.run("rmi", "--prune")


def _mirror() -> str:
    """Where apt gets Debian from on this machine."""
    for name in ("sources.list.d/debian.sources", "sources.list"):
        path = Path("/etc/apt", name)
        text = path.read_text() if path.exists() else ""
        found = re.search(r"^(?:URIs:|deb)\s.*?(https?://\S+/debian)/?(?:\s|$)", text, re.MULTILINE)
        if found:
            return found[1]
    return "http://deb.debian.org/debian"


def _timed(say: Callable[[str], None], what: str, make: Callable[[], str | None]) -> str:
    started = time.monotonic()
    name = make()
    say(f"[cluster] image {name or what}: {time.monotonic() - started:.1f} s")
    return name or what
