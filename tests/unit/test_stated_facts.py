"""What README and guides state of Embertide itself, where no other test holds it."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import torch
import yaml

import embertide
from embertide.spec.manifest import ModelRef
from tests.support.paths import ROOT
from tests.support.pyg import pyg


def test_make_help_names_every_target_for_people() -> None:
    """All that ``.PHONY`` lists but for what one of them calls."""
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split())
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = set(re.findall(r"^make ([\w-]+)", shown.stdout, re.MULTILINE))
    assert listed == targets - {"help", "sanitize-anew"}


def test_every_target_that_needs_packages_installs_them_first() -> None:
    """A prerequisite is read where its rule stands: a name that is set further down is empty."""
    makefile = (ROOT / "Makefile").read_text()
    for name in ("STAMP", "STAMP_ALL"):
        assert makefile.index(f"\n{name} := ") < makefile.index(f"$({name})")


def test_the_page_for_python_lists_every_function() -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    functions = {name for name in embertide.__all__ if name[0].islower()}
    assert set(re.findall(r"^\| `embertide\.(\w+)\(", page, re.MULTILINE)) == functions


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()


def rooms_of(package: Path) -> set[str]:
    """Modules and packages of the worker; in place of one of packages alone, these."""
    found = set[str]()
    for path in package.iterdir():
        modules = {p.name for p in path.glob("*.py")} if path.is_dir() else set()
        if modules == {"__init__.py"} and any(path.glob("*/__init__.py")):
            found |= {f"{path.name}/{inner.parent.name}" for inner in path.glob("*/__init__.py")}
        elif not path.name.startswith(("__", ".")):
            found.add(path.name)
    return found - {"py.typed"}


def test_the_page_of_rooms_has_them_all() -> None:
    room = re.compile(r"^(\| `.*) \| [^|]+ \|$", re.MULTILINE)
    named = {
        name.rstrip("/")
        for cell in room.findall(ARCHITECTURE.partition("## The rooms")[2].partition("\n```")[0])
        for name in re.findall(r"`([\w./]+)`", cell)
    }
    assert named == rooms_of(ROOT / "worker" / "embertide")


def test_the_page_of_rooms_has_the_order_that_is_checked() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    drawn = re.findall(r"```\n(api, cli, pod ->.*?)```", ARCHITECTURE, re.DOTALL)[0]
    floors = [sorted(floor.replace(",", " ").split()) for floor in drawn.split("->")]
    assert floors == [sorted(re.findall(r"\w+", layer)) for layer in layers]


INDEXES = [
    path
    for path in (ROOT / "worker" / "embertide").rglob("__init__.py")
    if re.search(r"^ *\w+\.py +\S", path.read_text(), re.MULTILINE)
]


@pytest.mark.parametrize("index", INDEXES, ids=lambda path: path.parent.name)
def test_an_index_of_modules_has_them_all(index: Path) -> None:
    listed = set(re.findall(r"^ *(\w+\.py) +\S", index.read_text(), re.MULTILINE))
    assert listed == {path.name for path in index.parent.glob("*.py")} - {"__init__.py"}


def test_a_model_is_either_kind_of_folder() -> None:
    described = ModelRef.model_fields["uri"].description or ""
    assert "program.yaml" in described
    assert "model.yaml" in described


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def minutes_of_tests() -> dict[str, list[str]]:
    """Room -> the files of the row that CONTRIBUTING has for it."""
    table = CONTRIBUTING.partition("## A minute of tests for each room")[2]
    return {
        room: _expanded(files)
        for rooms, files in re.findall(r"^\| (`.*`) \| `(test_\S+)` \|$", table, re.MULTILINE)
        for room in re.findall(r"`([\w/]+)/`", rooms)
    }


def _expanded(files: str) -> list[str]:
    """As bash expands its braces, of which there is one pair at most."""
    before, brace, rest = files.partition("{")
    names, _, after = rest.partition("}")
    return [f"{before}{name}{after}" for name in names.split(",")] if brace else [files]


def test_every_room_has_a_minute_of_tests() -> None:
    rooms = {room for room in rooms_of(ROOT / "worker" / "embertide") if not room.endswith(".py")}
    beside = {"operator", "charts", "docs", "benchmarks"}
    assert minutes_of_tests().keys() == rooms | beside


def test_the_tests_of_a_room_exist() -> None:
    assert _expanded("test_{a,b}.py") == ["test_a.py", "test_b.py"]
    named = {name for files in minutes_of_tests().values() for name in files}
    assert {name for name in named if not (ROOT / "tests" / "unit" / name).is_file()} == set()


def test_every_generated_page_is_listed() -> None:
    pages = {path.stem for path in (ROOT / "tests" / "support").glob("*_page.py")}
    assert set(re.findall(r"tests\.support\.(\w+_page)", CONTRIBUTING)) == pages


def test_a_release_has_one_version() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((ROOT / "charts" / "embertide" / "Chart.yaml").read_text())
    assert {package, embertide.__version__, chart["version"], chart["appVersion"]} == {package}


class Pna(torch.nn.Module):
    def __init__(self, edge_dim: int | None = None) -> None:
        super().__init__()
        scalers, degrees = ["identity", "amplification"], torch.tensor([1, 2, 3])
        self.conv = pyg.PNAConv(16, 8, ["mean", "max"], scalers, degrees, edge_dim=edge_dim)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.conv(x, edge_index)  # type: ignore[no-any-return]


class PnaOfEdges(Pna):
    def forward(  # type: ignore[override]
        self, x: torch.Tensor, edge_index: torch.Tensor, edge_attr: torch.Tensor
    ) -> torch.Tensor:
        return self.conv(x, edge_index, edge_attr)  # type: ignore[no-any-return]


def test_single_columns_within_a_model_are_not_cut(tmp_path: Path) -> None:
    """The guide's limits: embeddings of one column alone are for P x 1 grids."""
    assert "Embeddings of one column" in (ROOT / "docs" / "guide.md").read_text()
    narrow = embertide.export(PnaOfEdges(2), tmp_path / "narrow", edge_features=2)
    wide = embertide.export(Pna(), tmp_path / "wide")
    widths = [min(done.exported.program.sliced_widths.values()) for done in (narrow, wide)]
    assert widths == [8, 8]
