"""The benchmarks of what is larger than memory, or than a GPU, on small graphs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import gpu_host, large, large_dataset, out_of_core
from tests.support.bench_commands import Benchmark

pytestmark = pytest.mark.tier(2)


@pytest.fixture
def benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    return Benchmark(tmp_path, monkeypatch)


def test_a_sum_from_host_memory_is_measured_beside_all_on_the_device(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--device", "cpu", "--scale", "6", "--width", "10", "--panel", "4", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", ["gpu_host", *words])
    gpu_host.main()
    case = json.loads(capsys.readouterr().out)
    assert 1000 < case["edges"] <= 20 << 6
    assert case["tensors_bytes"] == 2 * 4 * 64 * 10
    assert case["device_bytes"] == 4 * 4 * 64 * 4
    assert case["from_host_by_sum"] == case["from_host_seconds"] / case["sum_seconds"]
    assert min(case["link_share"], case["sum_memory_share"], case["link_gb_s_each_way"]) > 0


@pytest.mark.distributed
def test_tensors_on_disk_have_the_bits_of_those_in_memory_and_memmaps_agree(
    benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(out_of_core, "DISK_BYTES", 8 << 20)
    words = ["--scale", "17", "--memory", "460MiB", "--rounds", "0", "--settle", "0"]
    (case,) = benchmark.here(out_of_core.main, *words)["cases"]
    assert set(case["systems"]) == {"in memory", "on disk", "memmaps"}
    on_disk = case["systems"]["on disk"]
    assert on_disk["max_error"] == 0
    assert on_disk["wrote_of_plan"] == pytest.approx(1, abs=0.15)
    assert on_disk["read_of_plan"] == pytest.approx(1, abs=0.15)
    assert on_disk["bound"] > 0
    assert case["systems"]["memmaps"]["max_error"] < 1e-4


def test_without_a_run_on_disk_memmaps_are_compared_with_one_in_memory(
    benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(out_of_core, "DISK_BYTES", 8 << 20)
    monkeypatch.setattr(out_of_core, "LIMITS", False)
    words = ["--scale", "8", "--memory", "330MiB", "--rounds", "0", "--settle", "0"]
    (case,) = benchmark.here(out_of_core.main, *words, "--conv", "gat")["cases"]
    assert case["limited"] is False
    assert "for a worker (--memory, spec.workers.memory)" in case["problem"]
    assert set(case["systems"]) == {"in memory", "memmaps"}
    assert case["systems"]["memmaps"]["max_error"] < 1e-4


@pytest.mark.distributed
def test_a_large_run_is_made_of_parquet_files_that_are_drawn_in_parts(
    benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(large_dataset, "FILE_EDGES", 10_000)
    monkeypatch.setattr(large_dataset, "FILE_NODES", 2_000)
    sizes = ["--nodes", "5000", "--edges", "30000", "--width", "8"]
    words = [*sizes, "--memory", "400MiB", "--work", str(tmp_path / "data")]
    if not large.LIMITS:
        with pytest.raises(SystemExit, match="run it as root"):
            benchmark.here(large.main, *words)
        return
    result = benchmark.here(large.main, *words)
    assert 29_000 < result["edges"] < 30_000
    assert 0 < result["error"] < 1e-5
    assert result["peak"] < result["planned"]
    per_core = 3 * result["edges"] / result["infer"] / large.THREADS
    assert result["edges_a_core"] == pytest.approx(per_core)
    files = [
        len(list((tmp_path / "data" / "large" / name).iterdir())) for name in ("edges", "features")
    ]
    assert files == [3, 3]
