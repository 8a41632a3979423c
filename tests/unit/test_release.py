"""A release's packages: one version everywhere, what git knows and nothing else."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

import embertide
from tools.release import UV, Wrong, packages, run

VERSION = embertide.__version__


def test_the_version_is_one_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert packages.check_versions("") == VERSION
    with pytest.raises(Wrong, match=rf"the tag is v9\.9\.9, pyproject\.toml has {VERSION}"):
        packages.check_versions("v9.9.9")
    for date, refused in (("2026-12-01", False), ("not released yet", True)):
        monkeypatch.setattr(
            packages, "newest_entry", lambda date=date: (VERSION, date, "- **Jobs**")
        )
        if refused:
            with pytest.raises(Wrong, match="has no date but 'not released yet'"):
                packages.check_versions(f"v{VERSION}")
        else:
            assert packages.check_versions(f"v{VERSION}") == VERSION
    monkeypatch.setattr(packages, "newest_entry", lambda: ("9.9.9", "", ""))
    with pytest.raises(Wrong, match=r"versions differ: .*9\.9\.9 in CHANGELOG\.md"):
        packages.check_versions("")


@pytest.mark.tier(2)
def test_packages_hold_what_git_knows_and_nothing_else(tmp_path: Path) -> None:
    run(UV, "build", "--sdist", "--out-dir", tmp_path)
    (sdist,) = tmp_path.glob("*.tar.gz")
    pure = ("--config-setting=wheel.cmake=false", sdist)
    run(UV, "build", "--wheel", "--out-dir", tmp_path, *pure)
    wheel = tmp_path / f"embertide-{VERSION}-py3-none-any.whl"
    for package in (sdist, wheel):
        packages.check_contents(package)

    with tarfile.open(sdist) as archive:
        files = {one.name: archive.extractfile(one).read() for one in archive if one.isfile()}  # type: ignore[union-attr]
    with tarfile.open(sdist, "w:gz") as archive:
        for name in [*list(files)[1:], f"embertide-{VERSION}/worker/x.pyc"]:
            info = tarfile.TarInfo(name)
            info.size = len(files.get(name, b""))
            archive.addfile(info, io.BytesIO(files.get(name, b"")))
    with pytest.raises(Wrong, match=r"has \['worker/x\.pyc'\], which git does not know, and "):
        packages.check_contents(sdist)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("embertide/kernels/native/_native.abi3.so", b"")
    with pytest.raises(Wrong, match="has 1 modules of kernels"):
        packages.check_contents(wheel)


@pytest.mark.parametrize(
    ("tags", "pythons"),
    [
        ("cp311-cp311-manylinux_2_28_x86_64", ["3.11"]),
        ("cp312-abi3-manylinux_2_28_x86_64", ["3.12", "3.13"]),
        ("py3-none-any", ["3.11"]),
    ],
)
def test_each_python_has_a_wheel(tags: str, pythons: list[str]) -> None:
    assert packages.pythons_of(Path(f"embertide-{VERSION}-{tags}.whl")) == pythons
