"""What the commands show on terminals of 60 and 120 columns, beside stored screens.

After a change that is meant, write them again and look at the difference:

    EMBERTIDE_UPDATE_SCREENS=1 .venv/bin/python -m pytest tests/unit/test_screens.py
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from embertide.cli.neighbors import MetricName, print_neighbors
from embertide.cli.tables import print_estimate, print_report
from embertide.cli.versions import versions_table
from embertide.io.versions.catalog import VersionInfo
from embertide.io.versions.neighbors import Neighbor
from tests.support.cli import LARGE_ESTIMATE, LARGE_REPORT, LONG_URI

SCREENS = Path(__file__).parent / "screens"
WIDTHS = (60, 120)
VERSIONS = [
    VersionInfo(
        version=version,
        uri=f"{LONG_URI}/versions/{version}",
        created="2026-11-21T04:19:22.123456Z",
        rows=1_048_576_000,
        dim=1024,
        size=1023 << 30,
        manifest_digest="00",
        current=version.endswith("1"),
    )
    for version in ("20261120T041922Z-3fa9c0", "20261121T041922Z-3fa9c1")
]
NEAR = [Neighbor(f"item:{'long-name-' * 4}{i}", 0.98765 - i / 7) for i in range(3)]


def draw_plan(console: Console) -> None:
    print_estimate(console, LARGE_ESTIMATE, all_files=False)


def draw_report(console: Console) -> None:
    print_report(console, LARGE_REPORT)


def draw_versions(console: Console) -> None:
    console.print(versions_table(LONG_URI, VERSIONS, console.width))


def draw_neighbors(console: Console) -> None:
    columns = {"embeddings": NEAR, "features": NEAR[::-1]}
    print_neighbors(console, "item:[7]", columns, MetricName.COSINE)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("draw", [draw_plan, draw_report, draw_versions, draw_neighbors])
def test_screens(draw: Callable[[Console], None], width: int) -> None:
    out = io.StringIO()
    draw(Console(file=out, width=width))
    check(f"{draw.__name__.removeprefix('draw_')}-{width}.txt", out.getvalue(), width)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "command", ["", "run", "plan", "versions", "report", "rollback", "neighbors"]
)
def test_help(
    cli: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    width: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    _, out, _ = cli(*command.split(), "--help")
    check("-".join(["help", *command.split(), f"{width}.txt"]), out, width)


def check(name: str, screen: str, width: int) -> None:
    lines = [line.rstrip() for line in screen.splitlines()]
    text = "\n".join(lines) + "\n"
    # URIs stand on lines of their own, whole, so that they can be copied.
    too_long = [line for line in lines if len(line) > width and not line.strip().startswith("s3:")]
    assert too_long == []
    assert "…" not in text.replace("--install-completi…", "")
    stored = SCREENS / name
    if os.environ.get("EMBERTIDE_UPDATE_SCREENS"):
        stored.parent.mkdir(exist_ok=True)
        stored.write_text(text)
    assert text == stored.read_text()


EXAMPLES = [
    line.strip()
    for path in (Path(__file__).parents[2] / "worker/embertide/cli").glob("*.py")
    for line in path.read_text().splitlines()
    if line.startswith("      embertide ")
]


def test_examples_stay_on_one_line_of_60_columns() -> None:
    assert len(EXAMPLES) > 20
    assert [line for line in EXAMPLES if len(line) > 57] == []
