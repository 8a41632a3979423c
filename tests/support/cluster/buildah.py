"""buildah with a store of its own, and this machine's package index settings.

The Dockerfiles know nothing of proxies, mirrors or certificates. Where this machine needs them to
reach the package index, pip and uv inside a build get the same: as configuration files and
certificates mounted where both look by default.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tests.support.shared_cache import SHARED_CACHE
from tests.support.shell import run

_CERTIFICATES = Path("/etc/ssl/certs")
_KERNELS = Path(os.environ.get("EMBERTIDE_KERNEL_CACHE") or SHARED_CACHE / "kernels")
_PIP_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "timeout")


class Buildah:
    """Builds images into one store.

    Args:
        registry: host and port of a registry on this machine, which speaks plain HTTP.
    """

    def __init__(self, folder: Path, registry: str | None = None) -> None:
        self.folder = folder
        self.store = folder / "storage"
        self._command = (
            *("buildah", "--root", str(self.store), "--runroot", str(folder / "run")),
            # Without the option, the store would stay mounted upon itself.
            *("--storage-driver", "overlay", "--storage-opt", "overlay.skip_mount_home=true"),
        )
        # Here buildah keeps what Dockerfiles mount as caches, and large files while it works.
        self._environment = os.environ | {"TMPDIR": str(folder / "tmp")}
        (folder / "tmp").mkdir(parents=True, exist_ok=True)
        if registry is not None:
            settings = folder / "registries.conf"
            settings.write_text(f'[[registry]]\nlocation = "{registry}"\ninsecure = true\n')
            self._environment["CONTAINERS_REGISTRIES_CONF"] = str(settings)

    def run(self, *arguments: str | Path) -> str:
        """One command of buildah; RuntimeError with its words if it fails."""
        return run(*self._command, *arguments, env=self._environment).strip()

    def has(self, name: str) -> bool:
        """Whether there is an image of this name."""
        return bool(self.run("images", "--quiet", "--filter", f"reference={name}"))

    def commit(self, name: str, content: Path, target: str, *config: str) -> None:
        """An image of one file or folder, put at ``target``; ``config``: of buildah config."""
        container = self.run("from", "scratch")
        self.run("add", "--quiet", container, content, target)
        self.run("config", *config, container)
        self.run("commit", "--quiet", "--rm", container, name)

    def build(self, dockerfile: Path, context: Path, arguments: Mapping[str, str]) -> str:
        """Build a Dockerfile as docker would; returns the image's identifier (64 hex digits)."""
        self._share_caches()
        result = self.folder / f"{dockerfile.stem}.id"
        options = ["--quiet", "--layers", "--isolation=chroot", "--network=host"]
        options += [f"--build-arg={name}={value}" for name, value in arguments.items()]
        options += [f"--volume={source}:{target}:ro" for source, target in self._mounts().items()]
        self.run("bud", *options, f"--iidfile={result}", f"--file={dockerfile}", context)
        return result.read_text().strip().removeprefix("sha256:")

    def _mounts(self) -> dict[Path, str]:
        pip = self.folder / "pip.conf"
        pip.write_text("\n".join(["[global]", *_pip_settings(), ""]))
        uv = self.folder / "uv.toml"
        uv.write_text("\n".join([*_uv_settings(), ""]))
        mounts = {pip: "/etc/pip.conf", uv: "/etc/uv/uv.toml"}
        if _CERTIFICATES.exists():
            mounts[_CERTIFICATES] = str(_CERTIFICATES)
        return mounts

    def _share_caches(self) -> None:
        """What setup has downloaded and compiled on this machine is not made again."""
        caches = self.folder / "tmp" / "buildah-cache"
        caches.mkdir(parents=True, exist_ok=True)
        for name, cache in (("embertide-uv", _uv_cache()), ("embertide-kernels", _KERNELS)):
            shared = caches / name
            if cache is not None and not shared.exists():
                cache.mkdir(parents=True, exist_ok=True)
                shared.symlink_to(cache)


def _pip_settings() -> list[str]:
    settings = {
        name: os.environ.get(f"PIP_{name.replace('-', '_').upper()}") for name in _PIP_SETTINGS
    }
    bundle = _CERTIFICATES / "ca-certificates.crt"
    if bundle.exists():
        settings["cert"] = str(bundle)
    return [f"{name} = {value}" for name, value in settings.items() if value]


def _uv_settings() -> list[str]:
    index = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL")
    lines = ["system-certs = true"]
    if index:
        lines += ["[[index]]", f'url = "{index}"', "default = true"]
    return lines


def _uv_cache() -> Path | None:
    given = os.environ.get("UV_CACHE_DIR")
    if given:
        return Path(given)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "uv"
    return cache if cache.exists() else None
