"""Memory of workers that read ahead of a distant store and write to it, held to its plan."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from embertide.io.storage.opening import open_storage
from embertide.spec.workers import StorageSettings
from tests.support.commands import Commands
from tests.support.planned_peaks import hold_peaks
from tests.support.s3.server import S3Server
from tests.support.tcp_proxy import tcp_proxy

pytestmark = [pytest.mark.s3, pytest.mark.distributed]

LATENCY_SECONDS = 0.005
"""Of each piece of 64 KiB of an answer."""
STAGES = ("features", "ingest", "publish")
LEAST, MOST = 0.8, 1.2
"""Of the plan of a stage."""
SMALL = ("--scale", "18", "--width", "64", "--hidden", "8", "--embedding", "8", "-q")
SHAPES = {
    "parquet": ("--edge-factor", "20"),
    # With parts that go as several.
    "npy": (
        *("--edge-factor", "20", "--feature-format", "npy", "--edge-format", "npy"),
        *("--embedding", "64"),
    ),
    "strings": ("--edge-factor", "12", "--ids", "string"),
}
GRIDS = {"parquet": ("1x1", "2x1"), "npy": ("1x1", "2x1"), "strings": ("1x1",)}


@pytest.fixture
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return Commands(tmp_path_factory.mktemp("commands"))


@pytest.mark.parametrize(
    "shape",
    ["parquet", *(pytest.param(name, marks=pytest.mark.tier(3)) for name in ("npy", "strings"))],
)
def test_readers_ahead_and_uploads_take_what_is_planned(
    s3: S3Server, commands: Commands, tmp_path: Path, shape: str
) -> None:
    place = s3.uri(f"memory-{shape}")
    options = (*SMALL, *SHAPES[shape], "--endpoint-url", s3.endpoint)
    made = commands.run("synth", place, *options)
    assert made.code == 0, made.err
    settings = StorageSettings(endpoint_url=s3.endpoint, region=s3.region)
    text = open_storage(settings).read(f"{place}/job.yaml").decode()
    text = text.replace("output:", "output:\n    compare: false")
    server = urlsplit(s3.endpoint)
    assert server.hostname is not None
    assert server.port is not None
    with tcp_proxy(server.hostname, server.port) as proxy:
        proxy.delay_seconds = LATENCY_SECONDS
        manifest = tmp_path / "job.yaml"
        manifest.write_text(text.replace(s3.endpoint, f"http://127.0.0.1:{proxy.port}"))
        for grid in GRIDS[shape]:
            hold_peaks(partial(ratios_of, commands, manifest, grid), LEAST, MOST)


def ratios_of(commands: Commands, manifest: Path, grid: str) -> dict[str, float]:
    """Stage -> what the fullest worker took in it, as a share of its plan."""
    done = commands.run("run", str(manifest), "--force", "--grid", grid, "--json")
    assert done.code == 0, done.out + done.err
    report = done.events[-1]
    return {
        stage: max(memory["stage_bytes"][stage] for memory in report["memory"])
        / report["planned_memory"][stage]
        for stage in STAGES
    }
