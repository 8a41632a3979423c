"""Which tier a test is of, and that a tier has what it needs."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from embertide.models.dgl_interop import why_no_dgl
from tests.support import tiers
from tests.support.paths import ROOT


@pytest.mark.parametrize(
    ("text", "tier"),
    [
        ("import torch\n", 1),
        ("def test() -> None:\n    import polars\n", 1),
        ("import polars\n", 2),
        ("from scipy.sparse import csr_matrix\n", 2),
        ("from tests.support.tool_files import IDS\n", 2),
        ("from tests.support import tool_files\n", 2),
        ("from tests.support import (\n    models,\n    tool_files,\n)\n", 2),
        ("pytestmark = pytest.mark.tier(3)\n", 3),
        ("pytestmark = [\n    pytest.mark.distributed,\n    pytest.mark.tier(2),\n]\n", 2),
        ("import polars\n\npytestmark = [pytest.mark.tier(3)]\n", 3),
        ("@pytest.mark.tier(2)\ndef test() -> None: ...\n", 1),
    ],
)
def test_what_is_known_of_a_file_before_it_is_imported(
    tmp_path: Path, text: str, tier: int
) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(text)
    assert tiers.tier_of_file(path)[0] == tier


def test_ranks_and_jobs_are_of_the_second_tier_unless_stated(tmp_path: Path) -> None:
    (tmp_path / tiers.PROCESSES).mkdir()
    path = tmp_path / tiers.PROCESSES / "test_it.py"
    found = []
    for text in ("", "@pytest.mark.tier(1)\ndef test() -> None: ...\n"):
        path.write_text(text)
        found.append(tiers.tier_of_file(path)[0])
    assert found == [2, 1]


def test_folders_are_of_the_second_tier() -> None:
    for folder, why in tiers.FOLDERS.items():
        assert tiers.tier_of_file(ROOT / "tests" / folder / "test_it.py") == (2, why)


class Like:
    """What :func:`tiers.spread` looks at of a test without parameters."""

    def __init__(self, name: str, tier: bool = False) -> None:
        self.path, self.name, self.tier = ROOT, name, tier

    def get_closest_marker(self, name: str) -> bool:
        return name == "tier" and self.tier


def test_of_many_parameters_some_are_tried_evenly() -> None:
    few, many = [Like("few") for _ in range(tiers.MOST)], [Like("many") for _ in range(90)]
    stated = [Like("stated", tier=True) for _ in range(90)]
    tried = tiers.spread(cast("list[pytest.Item]", [*few, *many, *stated]))
    assert tried == {item: at % 3 == 0 for at, item in enumerate(many)}


@pytest.mark.tier(2)
def test_no_parameter_is_left_out_of_both_tiers() -> None:
    test = "tests/unit/test_native_csr.py::test_rows_are_sorted"

    def collected(*options: str) -> int:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
        found = subprocess.run(
            [*command, *options, test], cwd=ROOT, capture_output=True, text=True, check=True
        )
        return found.stdout.count(f"{test}[")

    first, rest = collected("--tier=1"), collected("--tier=2", "--from-tier=2")
    assert 0 < first <= tiers.MOST < rest == collected("--tier=2")


def test_a_run_names_what_it_left_out() -> None:
    config, again = (cast("pytest.Config", SimpleNamespace(stash=pytest.Stash())) for _ in range(2))
    tiers.leave_out(config, 2, "an S3 server", 29)
    tiers.leave_out(config, 2, "vector indexes")
    tiers.leave_out(config, 3, "every model")
    tiers.take_left(again, tiers.left_as_list(config))
    assert tiers.summary(again) == [
        "left to `make test-all`: 30 tests and files (an S3 server 29, vector indexes 1)",
        "left to `make test-exhaustive`: 1 tests and files (every model 1)",
    ]


def test_the_first_tier_cannot_import_what_it_does_not_install(
    pytestconfig: pytest.Config,
) -> None:
    hidden = {name for name in tiers.PACKAGES if name in sys.modules and not sys.modules[name]}
    assert hidden == (set(tiers.PACKAGES) - {"pandas"} if pytestconfig.option.tier == 1 else set())


@pytest.mark.tier(2)
@pytest.mark.parametrize("name", tiers.PACKAGES)
def test_the_second_tier_has_its_packages(name: str) -> None:
    if name == "dgl" and sys.version_info >= (3, 12):
        pytest.skip(why_no_dgl())
    assert find_spec(name) is not None, "make setup-all installs it"
