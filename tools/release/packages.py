"""The packages of a release: built into dist/, checked, installed and run.

Native wheels are compiled by Zig's clang against glibc 2.28, whatever this machine has: one for
Python 3.11, and one for Python's stable ABI from 3.12 on, for each processor. A wheel without
kernels is for every other machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.support.go_programs import program
from tests.support.paths import ROOT
from tools.release import DIST, UV, WORKFLOW, Part, Wrong, run

PYTHONS = ("3.11", "3.12", "3.13")
PROCESSORS = ("x86_64", "aarch64")
GLIBC = "2.28"

_MODULE = re.compile(r"embertide/kernels/native/_native\.[\w.-]+\.so")
_STABLE = "3.12"
"""The first Python whose stable ABI nanobind can use."""
_CONSTRAINTS = ("--all-extras", "--no-hashes", "--no-annotate", "--no-header")
_SHIPPED = ("worker", "operator", "otel", "tables", "lancedb", "milvus", "pgvector", "qdrant")
"""The extras that the list of components is about: those that are not for developers."""


def versions() -> dict[str, str]:
    """The version in each place that has one."""
    chart = yaml.safe_load((ROOT / "charts/embertide/Chart.yaml").read_text())
    module = (ROOT / "worker/embertide/_version.py").read_text()
    found = re.search(r'__version__ = "(.*)"', module)
    return {
        "pyproject.toml": tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
            "version"
        ],
        "worker/embertide/_version.py": found[1] if found else "",
        "Chart.yaml version": str(chart["version"]),
        "Chart.yaml appVersion": str(chart["appVersion"]),
        "CHANGELOG.md": newest_entry()[0],
    }


def newest_entry() -> tuple[str, str, str]:
    """Version, date and text of CHANGELOG.md's first entry."""
    text = (ROOT / "CHANGELOG.md").read_text()
    found = re.search(r"^## (\S+) \((.*?)\)\n+(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return (found[1], found[2], found[3].strip()) if found else ("", "", "")


def check_versions(tag: str) -> str:
    """The one version; with a tag, it is the tag's and its entry has a date."""
    found = versions()
    if len(set(found.values())) != 1:
        raise Wrong("versions differ: " + ", ".join(f"{v} in {k}" for k, v in found.items()))
    version, date, _ = newest_entry()
    if tag and tag != f"v{version}":
        raise Wrong(f"the tag is {tag}, pyproject.toml has {version}")
    if tag and not re.fullmatch(r"\d{4}-\d\d-\d\d", date):
        raise Wrong(f"CHANGELOG.md: the entry of {version} has no date but '{date}'")
    return version


def interpreter(version: str) -> str | None:
    """A Python of this version on this machine: on PATH, or one of pyenv's."""
    places = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for python in (shutil.which(f"python{version}"), *map(str, places)):
        if python is None:
            continue
        asked = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        ended = subprocess.run(asked, capture_output=True, text=True, check=False)
        if ended.stdout.strip() == version:
            return python
    return None


# Building


def build_wheels(sdist: Path) -> Iterator[Part]:
    """Every wheel that can be built here, from the sdist; the others by name."""
    source = unpack(sdist)
    for processor in PROCESSORS:
        for version in ("3.11", _STABLE):
            python = interpreter(version)
            kind = f"{'cp' + version.replace('.', '')} wheel, {processor}"
            if python is None:
                yield Part(kind, f"no: no Python {version} here; {WORKFLOW}, job packages")
                continue
            build_wheel(source, python, version, processor)
    run(UV, "build", "--wheel", "--out-dir", DIST, "--config-setting=wheel.cmake=false", source)
    yield from (Part(wheel.name, "yes") for wheel in sorted(DIST.glob("*.whl")))


def unpack(sdist: Path) -> Path:
    """The files of the sdist, always in one place: Zig keeps what it compiled by their paths."""
    folder = ROOT / ".cache/release"
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return folder / sdist.name.removesuffix(".tar.gz")


def build_wheel(source: Path, python: str, version: str, processor: str) -> None:
    """A wheel with kernels, in DIST. Python's headers are this machine's, which are the same."""
    import ziglang

    zig = Path(ziglang.__file__).with_name("zig")
    tag = "cp" + version.replace(".", "")
    settings = {
        "cmake.define.CMAKE_SYSTEM_NAME": "Linux",
        "cmake.define.CMAKE_SYSTEM_PROCESSOR": processor,
        "cmake.define.SKBUILD_SOABI": f"cpython-{tag[2:]}-{processor}-linux-gnu",
    }
    if version == _STABLE:
        settings["wheel.py-api"] = tag
    run(
        *(UV, "build", "--wheel", "--python", python, "--out-dir", DIST, source),
        *(f"--config-setting={name}={value}" for name, value in settings.items()),
        CXX=f"{zig} c++ -target {processor}-linux-gnu.{GLIBC}",
        # Python's headers leave stdio.h out for the stable ABI, and know a newer POSIX than 2.28.
        CXXFLAGS="-include cstdio -Wno-macro-redefined",
        EMBERTIDE_WHEEL_PLATFORM=f"manylinux_{GLIBC.replace('.', '_')}_{processor}",
    )


def build_release(tag: str) -> list[Part]:
    """Everything, into an empty DIST, each file checked."""
    version = check_versions(tag)
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    epoch = run("git", "log", "-1", "--format=%ct").strip()
    os.environ["SOURCE_DATE_EPOCH"] = epoch
    run(UV, "build", "--sdist", "--out-dir", DIST)
    sdist = DIST / f"embertide-{version}.tar.gz"
    parts = [Part(sdist.name, "yes"), *build_wheels(sdist)]
    run(program("helm"), "package", ROOT / "charts/embertide", "--destination", DIST)
    shipped = [f"--extra={name}" for name in _SHIPPED]
    sbom = DIST / f"embertide-{version}.cdx.json"
    run(UV, "export", "--quiet", "--locked", "--format=cyclonedx1.5", *shipped, "-o", sbom)
    (DIST / "NOTES.md").write_text(newest_entry()[2] + "\n")
    parts += [Part(name, "yes") for name in (f"embertide-{version}.tgz", sbom.name, "NOTES.md")]
    (DIST / ".gitignore").unlink()  # uv's
    files = sorted(DIST.iterdir())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (DIST / "SHA256SUMS").write_text("".join(sums))
    parts.append(Part("SHA256SUMS", "yes"))
    check_files(parts)
    return parts


# Checks of what was built


def check_files(parts: list[Part]) -> None:
    """Metadata as PyPI demands them, tags, contents."""
    packages = [*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")]
    run(sys.executable, "-m", "twine", "check", "--strict", *packages)
    (listed,) = DIST.glob("*.cdx.json")
    names = {one["name"] for one in json.loads(listed.read_text())["components"]}
    if not names >= {"torch", "kopf", "boto3"} or "pytest" in names:
        raise Wrong(f"{listed.name} is not the list of what users install: {sorted(names)}")
    seen = {part.name: part.seen for part in parts}
    seen[listed.name].append(f"{len(names)} components")
    for path in packages:
        check_contents(path)
        seen[path.name] += ["metadata", "contents"]
        if "manylinux" in path.name:
            check_tags(path)
            seen[path.name].append("tags")


def known_files(*folders: str) -> set[str]:
    """What git knows in these folders and files."""
    return set(run("git", "ls-files", *folders).split("\n")) - {""}


def check_contents(path: Path) -> None:
    """A package holds what git knows and what its kind adds, and nothing else."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            found = {name for name in wheel.namelist() if not name.endswith("/")}
        wanted = {
            name.partition("/")[2]
            for name in known_files("worker/embertide", "operator/embertide_operator")
            if not name.endswith((".cpp", ".hpp"))
        }
        native = {name for name in found if _MODULE.fullmatch(name)}
        if len(native) != ("py3-none-any" not in path.name):
            raise Wrong(f"{path.name} has {len(native)} modules of kernels")
        found = {name for name in found - native if ".dist-info/" not in name}
    else:
        with tarfile.open(path) as sdist:
            found = {member.name.partition("/")[2] for member in sdist if member.isfile()}
        wanted = known_files("pyproject.toml", "README.md", "LICENSE", "worker", "operator")
        wanted |= {"PKG-INFO"}
    if found != wanted:
        raise Wrong(
            f"{path.name} has {sorted(found - wanted)[:5]}, which git does not know,"
            f" and lacks {sorted(wanted - found)[:5]}"
        )


def check_tags(wheel: Path) -> None:
    """The kernels need no newer glibc than the wheel's tag has, and keep to the stable ABI."""
    said = run(sys.executable, "-m", "auditwheel", "show", "--disable-isa-ext-check", wheel)
    tag = r"manylinux_(\d+)_(\d+)_(\w+)"
    needed = re.search(rf'following platform tag: "{tag}"', " ".join(said.split()))
    given = re.search(tag, wheel.stem)
    if not needed or not given or needed[3] != given[3] or _glibc(needed) > _glibc(given):
        raise Wrong(f"{wheel.name} is not what its tag has:\n{said}")
    if "-abi3-" in wheel.name:
        run(sys.executable, "-m", "abi3audit", "--strict", wheel)


def _glibc(tag: re.Match[str]) -> tuple[int, int]:
    return int(tag[1]), int(tag[2])


# Installing and running


def try_wheels(parts: list[Part]) -> None:
    """Install every wheel of DIST that is for this machine, and run it."""
    processor = os.uname().machine
    found = {part.name: part for part in parts}
    with tempfile.TemporaryDirectory() as temporary:
        constraints = Path(temporary, "constraints.txt")
        run(
            UV,
            "export",
            "--quiet",
            "--locked",
            "--no-emit-project",
            *_CONSTRAINTS,
            "-o",
            constraints,
        )
        for wheel in sorted(DIST.glob("*.whl")):
            part = found.setdefault(wheel.name, Part(wheel.name, "before"))
            if not wheel.stem.endswith(("any", processor)):
                part.seen.append(f"not run: this is {processor}; {WORKFLOW}, job arm64")
                continue
            for version in pythons_of(wheel):
                python = interpreter(version)
                if python is None:
                    part.seen.append(f"not run by {version}, which is not here")
                    continue
                folder = Path(temporary, version)
                part.seen.append(
                    f"run by {version}: {try_wheel(wheel, python, folder, constraints)}"
                )
                shutil.rmtree(folder)
    parts[:] = found.values()


def pythons_of(wheel: Path) -> list[str]:
    """The versions that a wheel is for; of a pure one the first, since all have the same code."""
    tag = wheel.stem.split("-")[2]
    if tag == "py3":
        return [PYTHONS[0]]
    first = f"{tag[2]}.{tag[3:]}"
    return [first] if "-abi3-" not in wheel.name else [v for v in PYTHONS if v >= first]


def try_wheel(wheel: Path, python: str, folder: Path, constraints: Path) -> str:
    """Install a wheel into an empty environment with an empty HOME, and compute embeddings.

    Returns:
        Which kernels have run.
    """
    home, bin_ = folder / "home", folder / "venv/bin"
    home.mkdir(parents=True)
    cache = run(UV, "cache", "dir").strip()
    empty = {"HOME": str(home), "PYTHONPATH": "", "EMBERTIDE_NATIVE": ""}
    settings = {"UV_CACHE_DIR": cache, "UV_LINK_MODE": "hardlink", "VIRTUAL_ENV": str(bin_.parent)}
    run(UV, "venv", "--quiet", "--python", python, bin_.parent)

    def install(extra: str) -> None:
        what = f"embertide{extra} @ file://{wheel}"
        run(UV, "pip", "install", "--quiet", "--constraint", constraints, what, **empty, **settings)

    def embertide(*words: str | Path) -> str:
        return run(bin_ / "embertide", *words, **empty)

    install("")
    version = wheel.name.split("-")[1]
    if embertide("--version").strip() != f"embertide {version}":
        raise Wrong(f"{wheel.name}: embertide --version is {embertide('--version').strip()}")
    embertide("--help")
    install("[worker]")
    embertide("synth", folder / "toy", "--nodes", "1000", "--edges", "5000", "--width", "16")
    said = embertide("run", folder / "toy/job.yaml")
    if "1,000 embeddings" not in said:
        raise Wrong(f"{wheel.name}: a run ended without its embeddings:\n{said}")
    code = "from embertide.kernels import native; print(native.describe())"
    kernels = run(bin_ / "python", "-c", code, **empty).strip()
    own = run(sys.executable, "-c", code).strip()
    if ("py3-none-any" in wheel.name) == kernels.startswith("native") or (
        kernels.startswith("native") and kernels != own
    ):
        raise Wrong(f"{wheel.name} runs with kernels of {kernels}, a build of here with {own}")
    return re.split(r",| \(the", kernels)[0].replace("(", "") + " kernels"
