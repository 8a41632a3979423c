"""The images and the chart of a release, in a registry of this machine: pushed, pulled, run.

The steps of the workflow's job ``images`` are run as they are there, by buildah instead of Docker
and for this machine's processor. They build from a clone of the newest commit, upon the base image
of the test cluster, which is made of Debian's packages, and in the cluster's store, which has large
layers already. Nothing else of it stays here.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.cluster.buildah import Buildah
from tests.support.cluster.images import BASE_IMAGE, LARGE_BYTES, locked_store, make_base
from tests.support.cluster.loading import read_layers
from tests.support.cluster.requirements import missing
from tests.support.go_programs import program
from tests.support.paths import ROOT
from tests.support.publishing import registry
from tools.release import DIST, WORKFLOW, Part, Wrong, run

USER = "65532:65532"
PROCESSOR = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
LABELS = {
    "source": "SOURCE", "revision": "REVISION", "version": "VERSION", "created": "CREATED",
    "base.name": "BASE",
}  # fmt: skip
"""Of each image, with the arguments that they come from."""
_FOLDER = ROOT / ".cache" / "release-images"
_BUILT = "localhost/embertide-release"
_ROOM_GB = {True: 15, False: 22}
"""Free disk while images with torch are built and pulled: with its layer in the store, without."""


@dataclass(frozen=True)
class Trial:
    """What is run in a container of an image, as its user.

    Attributes:
        entrypoint: the image's; without arguments and without a cluster it ends with 2.
        commands: what a shell runs behind it, in an empty folder of the user's.
        words: output that it must have; VERSION is the release's.
        seen: what that shows.
    """

    entrypoint: str
    commands: str
    words: tuple[str, ...]
    seen: str


_POD = "python -m embertide.pod"
TRIALS = {
    "operator": Trial(
        "python -m embertide_operator",
        """
        python -c '
        from importlib.metadata import version
        print("embertide", version("embertide"))'
        """.replace("        ", ""),
        (
            "embertide-operator: Invalid kube-config file. No configuration found.",
            "embertide VERSION\n",
        ),
        "starts and looks for its cluster",
    ),
    "worker": Trial(
        _POD,
        """
        embertide --version
        embertide synth toy --nodes 1000 --edges 5000 --width 16
        embertide run toy/job.yaml
        python -c 'from embertide.kernels import native; print("kernels:", native.describe())'
        """,
        (f"usage: {_POD}", "embertide VERSION\n", "1,000 embeddings", "kernels: native"),
        "computes embeddings by native kernels",
    ),
    "push": Trial(
        _POD,
        """
        for module in lance milvus postgres qdrant; do
            python -c "import embertide.edge.indexes.push.$module"; echo "$module: imported"
        done
        embertide push --help
        """,
        (
            *(f"{name}: imported\n" for name in ("lance", "milvus", "postgres", "qdrant")),
            "Load a published version into an index",
        ),
        "imports all clients of indexes",
    ),
}
"""By Dockerfile."""


@dataclass(frozen=True)
class Pushed:
    """An image in the registry, by its digest."""

    part: Part
    name: str
    trial: Trial
    arguments: Mapping[str, str]


def publish(parts: list[Part]) -> None:
    """Push, pull and run what can be built here; adds rows, and what was seen of the chart."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    found = {part.name: part for part in parts}
    with _folder() as folder, registry(folder / "registry") as host:
        archive = DIST / f"embertide-{version}.tgz"
        check_chart(host, archive, folder / "chart")
        chart = found.setdefault(archive.name, Part(archive.name, "before"))
        chart.seen.append("pushed, pulled by digest")
        reason = missing()
        if reason is None:
            for image in list(push_images(host, folder)):
                check_image(image, folder, host)
                found[image.part.name] = image.part
        else:
            values = {"env.REGISTRY": host, "steps.arguments.outputs.version": version}
            for row, step in builds():
                name = _name(fill(step["with"]["tags"], values | row))
                found[name] = Part(name, f"no: {reason}; {WORKFLOW}, job images")
    others = "images for another processor, one name for both"
    found[others] = Part(others, f"no: {WORKFLOW}, jobs images and tags")
    parts[:] = found.values()


def builds() -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    """The steps of the workflow that build and push an image, with their row of the matrix."""
    workflow = yaml.safe_load((ROOT / ".github/workflows" / WORKFLOW).read_text())
    job = workflow["jobs"]["images"]
    for row in job["strategy"]["matrix"]["include"]:
        here = f"matrix.image == '{row['image']}'"
        values = {f"matrix.{name}": text for name, text in row.items()}
        for step in job["steps"]:
            if "docker/build-push-action@" in step.get("uses", "") and step.get("if", here) == here:
                yield values | {"matrix.arch": PROCESSOR}, step


def fill(text: str, values: Mapping[str, str]) -> str:
    """A text of the workflow with its expressions' values."""
    try:
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda found: values[found[1]], text)
    except KeyError as error:
        raise Wrong(f"{WORKFLOW}: there is no value here for {error} in '{text}'") from None


def build_arguments(source: Path, image: str) -> dict[str, str]:
    """What docker/build-arguments prints in a checkout."""
    urls = tomllib.loads((source / "pyproject.toml").read_text())["project"]["urls"]
    url = os.environ.get("SOURCE") or urls["Homepage"]
    said = run(source / "docker" / "build-arguments", image, SOURCE=url)
    return dict(line.split("=", 1) for line in said.splitlines())


def push_images(host: str, folder: Path) -> Iterator[Pushed]:
    """Build and push each image as the workflow's steps do."""
    source, digest = folder / "source", folder / "digest"
    run("git", "clone", "--quiet", "--shared", ROOT, source)
    with locked_store(host) as builder:
        try:
            _demand_room(builder)
            make_base(builder)
            push = ("push", "--quiet", "--digestfile", digest)
            builder.run(*push, BASE_IMAGE, f"docker://{host}/base:latest")
            base = f"{host}/base@{digest.read_text().strip()}"
            values = {"env.REGISTRY": host}
            for row, step in builds():
                arguments = build_arguments(source, row["matrix.image"]) | {"BASE": base}
                values |= row | {
                    "steps.arguments.outputs.version": arguments["VERSION"],
                    "steps.arguments.outputs.all": "\n".join(
                        f"{name}={text}" for name, text in arguments.items()
                    ),
                }
                given = {name: fill(str(text), values) for name, text in step["with"].items()}
                words = dict(line.split("=", 1) for line in given["build-args"].splitlines())
                part = Part(_name(given["tags"]), f"yes, of {arguments['REVISION'][:8]}")
                if words.get("TORCH") == "cpu" and not words["TORCH_INDEX"]:
                    part.seen.append("torch with CUDA's libraries: no TORCH_INDEX")
                print(f"[release] {part.name}", flush=True)
                started = time.monotonic()
                identifier = builder.build(source / given["file"], source, words)
                builder.run("tag", identifier, f"{_BUILT}:id-{identifier[:12]}")
                built = time.monotonic()
                quick = ("--compression-format=zstd", "--compression-level=1")
                builder.run(*push, *quick, identifier, f"docker://{given['tags']}")
                ended = time.monotonic()
                part.seen.append(f"built in {built - started:.0f} s")
                part.seen.append(f"pushed in {ended - built:.0f} s")
                values[f"steps.{step.get('id')}.outputs.digest"] = digest.read_text().strip()
                name = f"{given['tags'].rpartition(':')[0]}@{digest.read_text().strip()}"
                yield Pushed(part, name, TRIALS[Path(given["file"]).stem], arguments)
        finally:
            _forget(builder, host)


def _name(tag: str) -> str:
    return f"image {tag.partition('/')[2]}"


def _demand_room(builder: Buildah) -> None:
    layers = read_layers(builder.store).values()
    large = any(layer.get("diff-size", 0) > LARGE_BYTES for layer in layers)
    needed = _ROOM_GB[large or bool(os.environ.get("TORCH_INDEX"))]
    free = shutil.disk_usage(builder.folder).free / 1e9
    if free < needed:
        raise Wrong(
            f"the images take up to {needed} GB of disk while they are seen, {free:.0f} GB are free"
        )


def _forget(builder: Buildah, host: str) -> None:
    """Leave the images of the test cluster, and layers that they have too."""
    builder.run("rm", "--all")
    for image in json.loads(builder.run("images", "--json")):
        for name in image.get("names") or ():
            if name.startswith((f"{host}/", f"{_BUILT}:")):
                builder.run("rmi", name)


def check_image(image: Pushed, folder: Path, host: str) -> None:
    """What the registry has of an image, and what it does once it is pulled into an empty store."""
    crane = program("crane")
    config = json.loads(run(crane, "config", image.name))
    check_config(image.part.name, config, image.arguments, image.trial.entrypoint)
    manifest = json.loads(run(crane, "manifest", image.name))
    image.part.bytes = sum(layer["size"] for layer in manifest["layers"])
    started = time.monotonic()
    store = Buildah(folder / "pulled", host)
    try:
        said = try_image(store, image.name, image.trial)
        size = store.run("images", "--format", "{{.Size}}")
    finally:
        store.run("rm", "--all")
        shutil.rmtree(store.folder)
    check_words(image.part.name, said, image.trial, image.arguments["VERSION"])
    image.part.seen += [
        f"pulled ({size}) and run in {time.monotonic() - started:.0f} s",
        "labels, user, entrypoint",
        image.trial.seen,
    ]


def check_config(
    name: str, config: Mapping[str, Any], arguments: Mapping[str, str], entrypoint: str
) -> None:
    """An image says what it was built from, and starts as the chart expects it."""
    found = config["config"]
    labels = found.get("Labels") or {}
    wanted = {"architecture": PROCESSOR, "user": USER, "entrypoint": entrypoint.split()}
    has = {
        "architecture": config["architecture"],
        "user": found.get("User"),
        "entrypoint": found.get("Entrypoint"),
    }
    for label, argument in LABELS.items():
        wanted[f"label {label}"] = arguments[argument]
        has[f"label {label}"] = labels.get(f"org.opencontainers.image.{label}")
    for what, value in wanted.items():
        if has[what] != value:
            raise Wrong(f"{name}: the {what} is {has[what]!r}, must be {value!r}")


def try_image(store: Buildah, image: str, trial: Trial) -> str:
    """Pull an image and run it; what it said."""
    container = store.run("from", "--quiet", f"docker://{image}")
    home = store.folder / "scratch"
    home.mkdir()
    user, group = map(int, USER.split(":"))
    os.chown(home, user, group)
    shell = f"id -u; id -g; {{ {trial.entrypoint} 2>&1 || test $? = 2; }}\n{trial.commands}"
    place = ("--volume", f"{home}:/scratch", "--workingdir", "/scratch")
    return store.run("run", "--isolation=chroot", *place, container, "--", "sh", "-euc", shell)


def check_words(image: str, said: str, trial: Trial, version: str) -> None:
    """A trial has said what it should."""
    user = USER.replace(":", "\n")
    for text in (f"{user}\n", *trial.words):
        words = text.replace("VERSION", version)
        if words not in f"{said}\n":
            raise Wrong(f"{image} did not say '{words.strip()}' but:\n{said}")


def check_chart(host: str, archive: Path, pulled: Path) -> None:
    """Push a chart; by its digest the registry gives the same bytes back."""
    helm = program("helm")
    place = f"oci://{host}/charts"
    said = run(helm, "push", "--plain-http", archive, place)
    digest = re.search(r"^Digest: (sha256:[0-9a-f]{64})$", said, re.MULTILINE)
    if digest is None:
        raise Wrong(f"helm push tells no digest:\n{said}")
    pulled.mkdir()
    name = archive.name.rpartition("-")[0]
    run(helm, "pull", "--plain-http", f"{place}/{name}@{digest[1]}", "--destination", pulled)
    (file,) = pulled.iterdir()
    if file.read_bytes() != archive.read_bytes():
        raise Wrong(f"{archive.name} is another one when it is pulled")


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder for the images, which is gone afterwards; that of a run that was killed, before."""
    shutil.rmtree(_FOLDER, ignore_errors=True)
    (_FOLDER / "registry").mkdir(parents=True)
    try:
        yield _FOLDER
    finally:
        shutil.rmtree(_FOLDER)
