"""Memory of workers whose readers are ahead of a distant store, held to its plan."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from embertide.spec.workers import StorageSettings
from embertide.storage.opening import open_storage
from tests.support.commands import Commands
from tests.support.s3.server import S3Server
from tests.support.tcp_proxy import tcp_proxy

pytestmark = [pytest.mark.s3, pytest.mark.distributed]

LATENCY_SECONDS = 0.005
"""Of each piece of 64 KiB of an answer."""
WITHIN = 0.2
"""Of the plan."""
SIZES = {
    "parquet": ("--scale", "19", "--width", "64"),
    "npy": ("--scale", "19", "--width", "64", "--format", "npy"),
}


@pytest.fixture
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return Commands(tmp_path_factory.mktemp("commands"))


@pytest.mark.parametrize("grid", ["1x1", "2x1"])
@pytest.mark.parametrize("format", SIZES)
def test_readers_ahead_take_what_is_planned(
    s3: S3Server, commands: Commands, tmp_path: Path, format: str, grid: str
) -> None:
    place = s3.uri(f"memory-{format}")
    made = commands.run(
        "synth", place, *SIZES[format], "--hidden", "8", "-q", "--endpoint-url", s3.endpoint
    )
    assert made.code == 0, made.err
    settings = StorageSettings(endpoint_url=s3.endpoint, region=s3.region)
    text = open_storage(settings).read(f"{place}/job.yaml").decode()
    at = urlsplit(s3.endpoint)
    assert at.hostname is not None
    assert at.port is not None
    with tcp_proxy(at.hostname, at.port) as proxy:
        proxy.delay_seconds = LATENCY_SECONDS
        manifest = tmp_path / "job.yaml"
        manifest.write_text(text.replace(s3.endpoint, f"http://127.0.0.1:{proxy.port}"))
        done = commands.run("run", str(manifest), "--grid", grid, "--json")
    assert done.code == 0, done.out + done.err
    report = done.events[-1]
    planned = report["planned_memory"]
    taken = {
        stage: max(memory["stage_bytes"][stage] for memory in report["memory"])
        for stage in ("features", "ingest")
    }
    print(json.dumps({"planned": {k: v >> 20 for k, v in planned.items()}, "taken": {k: v >> 20 for k, v in taken.items()}}))
    ratios = {stage: size / planned[stage] for stage, size in taken.items()}
    assert all(abs(ratio - 1) <= WITHIN for ratio in ratios.values()), ratios
