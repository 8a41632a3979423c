"""Images from buildah's store into containerd's, without packing and unpacking them.

Exporting and importing an image of 6 GB means reading, hashing and writing every byte four times:
minutes, for each change of code. Both stores keep a layer as a plain folder in the format of
overlayfs, so a layer is handed over by linking its files: seconds, and no further space. Manifest
and configuration are imported as usual; containerd finds all layers unpacked already.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.shell import run

_SNAPSHOTTER = "overlayfs"


@dataclass(frozen=True)
class Layer:
    """One layer of an image: its folder in buildah's store and the digest of its archive."""

    folder: Path
    digest: str


@dataclass(frozen=True)
class StoredImage:
    """An image in buildah's store, layers from the lowest up."""

    name: str
    manifest: str
    config: str
    layers: list[Layer]


def read_image(store: Path, name: str) -> StoredImage:
    """Look an image up in a store of containers/storage; ``name`` with tag."""
    images = json.loads((store / "overlay-images" / "images.json").read_text())
    image = next(image for image in images if name in image.get("names", ()))
    layers = read_layers(store)
    chain: list[Layer] = []
    above: str | None = image["layer"]
    while above:
        layer = layers[above]
        chain.insert(0, Layer(store / "overlay" / above / "diff", layer["diff-digest"]))
        above = layer.get("parent")
    folder = store / "overlay-images" / image["id"]
    config = next(path for path in folder.iterdir() if _is_config(path, image["id"]))
    manifest = (folder / "manifest").read_text()
    return StoredImage(name, manifest, config.read_text(), chain)


def read_layers(store: Path) -> dict[str, dict[str, Any]]:
    """All layers of a store of containers/storage, by identifier."""
    found = json.loads((store / "overlay-layers" / "layers.json").read_text())
    return {layer["id"]: layer for layer in found}


class Containerd:
    """containerd's store, through its socket."""

    def __init__(self, ctr: Path, socket: Path) -> None:
        self._ctr = (str(ctr), "--address", str(socket), "--namespace", "k8s.io")

    def answers(self) -> bool:
        """Whether it is up."""
        return subprocess.run([*self._ctr, "version"], capture_output=True).returncode == 0

    def load(self, image: StoredImage) -> None:
        """Make an image known; its layers that are not there yet are linked."""
        present = {line.split()[0] for line in self._run("snapshots", "ls").splitlines()[1:]}
        chain = ""
        for layer in image.layers:
            below, chain = chain, _chain(chain, layer.digest)
            if chain not in present:
                self._link(layer, chain, below)
        self._run("images", "import", "--local", "--no-unpack", "-", input=_archive(image))
        config = json.loads(image.manifest)["config"]["digest"]
        # What keeps the layers, once somebody collects garbage.
        label = f"containerd.io/gc.ref.snapshot.{_SNAPSHOTTER}={chain}"
        self._run("content", "label", config, label)

    def _link(self, layer: Layer, chain: str, below: str) -> None:
        key = f"link-{chain}"
        mounts = self._run("snapshots", "prepare", "--mounts", key, *([below] if below else []))
        folder = _writable_folder(json.loads(mounts))
        run("cp", "--archive", "--link", "--no-target-directory", layer.folder, folder)
        self._run("snapshots", "commit", chain, key)

    def _run(self, *arguments: str, input: bytes | None = None) -> str:
        return run(*self._ctr, *arguments, input=input)


def _is_config(path: Path, identifier: str) -> bool:
    # An image is named by the digest of its configuration.
    return path.name.startswith("=") and hashlib.sha256(path.read_bytes()).hexdigest() == identifier


def _chain(below: str, digest: str) -> str:
    """The name of a layer upon others, as the image specification defines it."""
    if not below:
        return digest
    return "sha256:" + hashlib.sha256(f"{below} {digest}".encode()).hexdigest()


def _writable_folder(mounts: list[dict[str, Any]]) -> Path:
    (mount,) = mounts
    if mount["Type"] == "bind":
        return Path(mount["Source"])
    found = next(option for option in mount["Options"] if option.startswith("upperdir="))
    return Path(re.sub("^upperdir=", "", found))


def _archive(image: StoredImage) -> bytes:
    """An image layout without its layers."""
    manifest = image.manifest.encode()
    described = {
        "mediaType": json.loads(image.manifest)["mediaType"],
        "digest": "sha256:" + hashlib.sha256(manifest).hexdigest(),
        "size": len(manifest),
        "annotations": {"io.containerd.image.name": image.name},
    }
    index = json.dumps({"schemaVersion": 2, "manifests": [described]}).encode()
    config = image.config.encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in {
            "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
            "index.json": index,
            f"blobs/sha256/{hashlib.sha256(manifest).hexdigest()}": manifest,
            f"blobs/sha256/{hashlib.sha256(config).hexdigest()}": config,
        }.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
