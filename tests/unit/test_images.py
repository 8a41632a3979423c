"""What images are built from: base images by digest, requirements by hash, labels that say it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.go_programs import program
from tests.support.paths import ROOT
from tests.support.publishing import registry

pytestmark = pytest.mark.needs("publishing")

DOCKER = ROOT / "docker"
IMAGES = {"operator": "operator", "worker-cpu": "worker", "worker-cuda": "worker"}
DIGEST = r"sha256:[0-9a-f]{64}"


def find_uv() -> str:
    """The uv command that set this environment up."""
    own = ROOT / ".cache" / "uv" / "bin" / "uv"
    return str(own) if own.exists() else "uv"


def say(*command: str | Path, code: int = 0, **env: str) -> str:
    """What a program of docker/ prints, both streams."""
    ended = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"UV": find_uv()} | env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert ended.returncode == code, ended.stdout
    return ended.stdout


def arguments(image: str, **env: str) -> dict[str, str]:
    lines = say(DOCKER / "build-arguments", image, **env).splitlines()
    return dict(line.split("=", 1) for line in lines)


# Arguments and labels


@pytest.mark.parametrize("image", IMAGES)
def test_every_argument_is_one_of_the_dockerfile(image: str) -> None:
    text = (DOCKER / f"{IMAGES[image]}.Dockerfile").read_text()
    given = arguments(image, SOURCE="https://git.example/embertide")
    declared = set(re.findall(r"^ARG (\w+)", text, re.MULTILINE))
    assert declared - set(given) == {"UV_VERSION"}
    assert set(given) <= declared
    assert given["SOURCE"] == "https://git.example/embertide"
    assert re.fullmatch(r"[0-9a-f]{40}(-modified)?", given["REVISION"])
    assert f'version = "{given["VERSION"]}"' in (ROOT / "pyproject.toml").read_text()


def test_no_dockerfile_names_a_base_image_itself() -> None:
    for path in DOCKER.glob("*.Dockerfile"):
        froms = re.findall(r"^FROM (\S+)", path.read_text(), re.MULTILINE)
        stages = re.findall(r"^FROM \S+ AS (\w+)", path.read_text(), re.MULTILINE)
        # Upon an image that was built from here.
        upon = {"${WORKER}"} if path.name == "push.Dockerfile" else set()
        assert set(froms) - set(stages) == {"${BASE}"} | upon


def test_images_are_built_by_one_release_of_uv() -> None:
    files = DOCKER.glob("*.Dockerfile")
    versions = {re.findall(r"^ARG UV_VERSION=(\S+)", f.read_text(), re.MULTILINE)[0] for f in files}
    assert len(versions) == 1


@pytest.mark.parametrize("image", ["operator", "push", "worker"])
def test_what_an_image_installs_is_compiled(image: str) -> None:
    """Its user may not write beside the modules, and would compile them at every start."""
    text = (DOCKER / f"{image}.Dockerfile").read_text()
    (final,) = re.findall(r"^FROM \S+ AS image\n(.*)", text, re.MULTILINE | re.DOTALL)
    steps = [step for step in re.split(r"^(?=RUN )", final, flags=re.MULTILINE) if "uv pip" in step]
    assert steps
    for step in steps:
        assert "UV_COMPILE_BYTECODE=1" in step or step.count("uv pip") == step.count("--compile-")


@pytest.mark.parametrize(("torch", "compiler"), [("cuda", True), ("cpu", False)])
def test_the_image_for_gpus_has_the_compiler_that_triton_calls(
    torch: str, compiler: bool, tmp_path: Path
) -> None:
    text = (DOCKER / "worker.Dockerfile").read_text()
    image = text[text.index(" AS image") :]
    (command,) = re.findall(r'^RUN (if \[ "\$\{TORCH\}".*?\bfi)$', image, re.MULTILINE | re.DOTALL)
    called = tmp_path / "called"
    for name in ("apt-get", "rm"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {called}\n')
        (tmp_path / name).chmod(0o755)
    ended = subprocess.run(
        ["/bin/sh", "-euc", command], env={"PATH": str(tmp_path), "TORCH": torch}, check=False
    )
    assert ended.returncode == 0
    words = called.read_text().split() if called.exists() else []
    assert {"gcc", "libc6-dev", "libpython3-dev"} <= set(words) if compiler else not words


def test_an_unknown_image_is_refused() -> None:
    assert "'worker' is no image" in say(DOCKER / "build-arguments", "worker", code=2)


# Base images


def test_base_images_are_pinned_by_digest() -> None:
    pins = [line for line in (DOCKER / "base-images.env").read_text().splitlines() if "=" in line]
    assert pins
    for line in pins:
        assert re.fullmatch(rf"[A-Z_]+=[\w./-]+:[\w.-]+@{DIGEST}", line), line


@pytest.fixture
def layers(tmp_path: Path) -> list[Path]:
    """Two layers for images of one file each."""
    made = []
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
        made.append(tmp_path / f"{name}.tar")
        with tarfile.open(made[-1], "w") as tar:
            tar.add(tmp_path / name, arcname=name)
    return made


def test_digests_are_asked_of_the_registry(tmp_path: Path, layers: list[Path]) -> None:
    crane, pins = program("crane"), tmp_path / "base-images.env"
    with registry() as host:
        image = f"{host}/python:3.11"

        def push(layer: Path) -> str:
            say(crane, "append", "--new_layer", layer, "--new_tag", image)
            return say(crane, "digest", image).strip()

        pin = partial(say, DOCKER / "pin-base-images", CRANE=str(crane))
        first = push(layers[0])
        pins.write_text(f"# why\nBASE={image}\n")
        assert first in pin("--check", pins, code=1)
        pin(pins)
        assert pins.read_text() == f"# why\nBASE={image}@{first}\n"
        assert "up to date" in pin("--check", pins)
        second = push(layers[1])
        assert second != first
        said = pin("--check", pins, code=1)
        assert first in said
        assert second in said
        pin(pins)
        assert pins.read_text() == f"# why\nBASE={image}@{second}\n"
        pins.write_text(f"BASE={host}/python:3.12\n")
        assert "MANIFEST_UNKNOWN" in pin(pins, code=1)
        assert pins.read_text() == f"BASE={host}/python:3.12\n", "a failure leaves the file alone"
    pins.write_text("python\n")
    assert "is not NAME=image:tag@digest" in pin(pins, code=2)


def test_processors_have_one_image(layers: list[Path]) -> None:
    crane = program("crane")
    with registry() as host:
        image = f"{host}/operator:0.1.0"
        digests = []
        for layer, processor in zip(layers, ("amd64", "arm64"), strict=True):
            name = f"{image}-{processor}"
            say(crane, "append", "--new_layer", layer, "--new_tag", name)
            say(crane, "mutate", "--set-platform", f"linux/{processor}", "--tag", name, name)
            digests.append(say(crane, "digest", name).strip())
        said = say(DOCKER / "join-platforms", image, CRANE=str(crane))
        digest = re.findall(DIGEST, said)[-1]
        joined = json.loads(say(crane, "manifest", f"{host}/operator@{digest}"))
    assert [one["digest"] for one in joined["manifests"]] == digests
    assert [one["platform"]["architecture"] for one in joined["manifests"]] == ["amd64", "arm64"]


# Requirements


def requirements(text: str) -> dict[str, str]:
    """The lines of a requirements file by package, hashes included."""
    joined = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    return {m[1]: m[0] for m in re.finditer(r"^([\w.-]+)==.*$", joined, re.MULTILINE)}


def test_cuda_requirements_are_the_lock(tmp_path: Path) -> None:
    say(DOCKER / "export-requirements", "cuda", tmp_path)
    found = requirements((tmp_path / "locked.txt").read_text())
    assert {"torch", "triton", "numpy", "opentelemetry-sdk"} <= set(found)
    assert all("--hash=sha256:" in line for line in found.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cuda.txt", "locked.txt"]
    libraries = requirements((tmp_path / "cuda.txt").read_text())
    assert libraries.items() <= found.items()
    assert {"triton", "nvidia-cudnn-cu13"} <= set(libraries)
    assert all(re.match("triton|cuda|nvidia", name) for name in libraries)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """A package index with a torch of the locked version, with nothing in it."""
    version = re.search(r'^name = "torch"\nversion = "(.*)"', (ROOT / "uv.lock").read_text(), re.M)
    assert version is not None
    name = f"torch-{version[1]}+cpu"
    folder = tmp_path / "index" / "torch"
    folder.mkdir(parents=True)
    wheel = folder / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        info = f"{name}.dist-info"
        file.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {name[6:]}\n"
        )
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (folder / "index.html").write_text(f'<a href="{wheel.name}#sha256={digest}">{wheel.name}</a>')

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = partial(Handler, directory=str(folder.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """docker/'s programs beside a torch-cpu.txt of the test's own."""
    folder = tmp_path / "docker"
    folder.mkdir()
    for name in ("export-requirements", "pin-torch-cpu"):
        (folder / name).write_text((DOCKER / name).read_text())
        (folder / name).chmod(0o755)
    (folder / "torch-cpu.txt").write_text("--index-url http://127.0.0.1:9\n")
    return folder


def test_the_cpu_build_is_installed_by_hash_from_one_index(
    tmp_path: Path, index: str, programs: Path
) -> None:
    out = tmp_path / "requirements"
    say(programs / "pin-torch-cpu", index)
    say(programs / "export-requirements", "cpu", out)
    locked = requirements((out / "locked.txt").read_text())
    assert not [name for name in locked if re.match(r"torch$|triton|cuda|nvidia", name)]
    assert {"sympy", "networkx", "numpy"} <= set(locked), "what torch itself needs stays"
    pins = (out / "torch.txt").read_text()
    assert f"--index-url {index}\n" in pins
    assert list(requirements(pins)) == ["torch"]

    target = tmp_path / "installed"
    install = (find_uv(), "pip", "install", "--no-deps", "--require-hashes", "--no-cache")
    options = ("--python", sys.executable, "--target", str(target), "-r", str(out / "torch.txt"))
    say(*install, *options)
    assert list(target.glob("torch-*+cpu.dist-info"))
    other = re.sub(DIGEST, "sha256:" + "0" * 64, pins)
    (out / "torch.txt").write_text(other)
    assert "Hash mismatch" in say(*install, "--reinstall", *options, code=1)


def test_without_hashes_the_cpu_build_is_that_of_an_index_or_of_pypi(
    tmp_path: Path, index: str, programs: Path
) -> None:
    out = tmp_path / "requirements"
    warned = say(programs / "export-requirements", "cpu", out)
    assert "has no hashes of torch" in warned
    assert "torch of PyPI is taken" in warned
    assert {"torch", "triton", "numpy"} <= set(requirements((out / "locked.txt").read_text()))
    assert not (out / "torch.txt").exists()

    assert f"from {index} without" in say(programs / "export-requirements", "cpu", out, index)
    locked = requirements((out / "locked.txt").read_text())
    assert not [name for name in locked if re.match(r"torch$|triton|cuda|nvidia", name)]
    target = tmp_path / "installed"
    install = (find_uv(), "pip", "install", "--no-deps", "--no-cache", "--python", sys.executable)
    say(*install, "--target", str(target), "-r", str(out / "torch.txt"))
    assert list(target.glob("torch-*+cpu.dist-info"))
