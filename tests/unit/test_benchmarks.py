"""Every benchmark runs at a tiny scale, and what it compares agrees; nothing is timed here."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
import threading
from argparse import Namespace
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from benchmarks import (
    comparing,
    end_to_end,
    files,
    graph,
    operator,
    scaling,
    store,
    typed,
)
from benchmarks.graph_dataset import make_ids, node_ids
from benchmarks.kernel_calls import close_or_nearer
from benchmarks.primitives import check_wire, measure
from benchmarks.support import network, rounds, svg
from benchmarks.support.commands import run
from benchmarks.support.rounds import Run
from benchmarks.support.workers import Workers
from embertide_operator.config.settings import Settings
from embertide_operator.decide.reconcile import decide
from embertide_operator.job.observe import Observed
from tests.support.bench_commands import Benchmark
from tests.support.sorted_edges import build_csr

pytestmark = pytest.mark.tier(2)

COMMANDS = (
    "all",
    "comparing",
    "dataset",
    "end_to_end",
    "files",
    "gpu_host",
    "graph",
    "graph_dataset",
    "kernels",
    "large",
    "large_dataset",
    "machine",
    "operator",
    "out_of_core",
    "primitives",
    "push",
    "report",
    "scaling",
    "store",
    "typed",
    "typed_dataset",
)
SMALL = ("--scale", "8", "--rounds", "0", "--settle", "0", "--no-limits")
HAS_DGL = importlib.util.find_spec("dgl") is not None


@pytest.fixture
def benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    return Benchmark(tmp_path, monkeypatch)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_how_to_call_it(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.{name}").main()
    assert not ended.value.code
    assert f"-m benchmarks.{name}" in capsys.readouterr().out


def test_files_are_read_and_written_by_both(benchmark: Benchmark) -> None:
    words = ["--scale", "6", "--rounds", "1", "--settle", "0", "--features", "npy", "parquet"]
    cases = benchmark.here(files.main, *words)["cases"]
    assert [case["features"] for case in cases] == ["npy", "parquet"]
    for case in cases:
        for of in case["systems"].values():
            assert of["files"] == pytest.approx(of["features"] + of["publish"], abs=1e-5)
            assert min(of["features"], of["publish"]) > 0
        assert case["systems"]["plain"]["files_ratio"] == 1


def test_what_comparing_costs_is_a_share_of_a_run(benchmark: Benchmark) -> None:
    words = ["--scale", "6", "--rounds", "1", "--settle", "0"]
    (case,) = benchmark.here(comparing.main, *words)["cases"]
    check_what_comparing_costs(case["systems"])


def check_what_comparing_costs(systems: dict[str, Any]) -> None:
    """The figures of the variants belong together."""
    alone = systems["alone"]
    for name in ("all", "compared"):
        of = systems[name]
        assert 0 < of["share"] == pytest.approx(of["comparison"] / of["work"], rel=0.1)
        assert of["read"] > 0
        assert of["added"] == pytest.approx(of["work"] - alone["work"])
        assert of["allowed"] == pytest.approx(of["read"] + 0.05 * alone["work"])
    assert alone["comparison"] == alone["checked"] == alone["added"] == 0
    assert systems["checked"]["of_run"] > 0


@pytest.mark.s3
def test_what_comparing_costs_is_measured_over_a_store(
    benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "somebody-elses")
    words = ["--scale", "6", "--rounds", "1", "--settle", "0", "--gigabits", "0"]
    (case,) = benchmark.here(comparing.main, *words)["cases"]
    assert case["gigabits"] == 0
    check_what_comparing_costs(case["systems"])


def test_graphs_are_made_of_all_kinds_of_ids(benchmark: Benchmark) -> None:
    words = ["--ids", "int64", "hex", "--format", "parquet", "csv", "--nodes", "300"]
    cases = benchmark.here(graph.main, *words, "--edges", "900", "--rounds", "1")["cases"]
    assert [(case["ids"], case["format"]) for case in cases] == [
        ("int64", "parquet"),
        ("int64", "csv"),
        ("hex", "parquet"),
        ("hex", "csv"),
    ]
    for case in cases:
        decoding = {"decoding"} if case["format"] == "parquet" else set()
        assert set(case["systems"]) == {"ours 1x1", "ours 2x1", *decoding}
        for of in case["systems"].values():
            stages = sum(of.get(stage, 0) for stage in graph.STAGES)
            assert of["graph"] == pytest.approx(stages, abs=1e-5)
            assert of["millions_per_second"] == pytest.approx(900e-6 / of["graph"], rel=1e-2)


@pytest.mark.s3
def test_a_store_is_read_and_written_by_both(
    benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "somebody-elses")
    words = ["--scale", "10", "--rounds", "1", "--loopback", "--grid", "2x1"]
    (case,) = benchmark.here(store.main, *words)["cases"]
    plain, ours = case["systems"]["plain"], case["systems"]["ours 2x1"]
    rows = 2**10 * (4 * 128 + 8)
    assert plain["written_bytes"] == rows
    for of in (plain, ours):
        assert of["transfers"] == pytest.approx(of["read"] + of["write"], abs=1e-5)
        assert min(of["read"], of["write"]) > 0
    # The rows, and headers, a manifest, a pointer; what was written is read back.
    assert rows < ours["written_bytes"] < 1.1 * rows
    assert ours["read_bytes"] > plain["read_bytes"] + rows


@pytest.mark.parametrize("kind", graph.KINDS)
def test_no_two_nodes_have_one_id(kind: str) -> None:
    assert len(set(node_ids(kind, 2000).to_pylist())) == 2000


def test_strings_are_not_asked_for_as_npy(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="not for string ids"):
        make_ids(tmp_path, "string", "npy", 10, 20)


def test_systems_agree_from_end_to_end(benchmark: Benchmark) -> None:
    dgl = ["dgl_full_graph", "dgl_layer_wise"] if HAS_DGL else []
    peers = ["--peers", "torch_csr", "pyg_layer_wise", *dgl]
    words = [*SMALL, "--conv", "gat", *peers, "--features", "parquet", "--grid", "2x1"]
    (case,) = benchmark.here(end_to_end.main, *words)["cases"]
    assert set(case["systems"]) == {*peers[1:], "ours 2x1"}
    for system in case["systems"].values():
        assert system["max_error"] < 1e-4
        assert system["wall"] > system["work"] > 0


@pytest.mark.dgl
@pytest.mark.parametrize(
    ("main", "conv", "grid"),
    [(typed.main, "rgcn", "2x1"), (typed.main, "hgt", "1x1"), (end_to_end.main, "appnp", "1x1")],
    ids=["rgcn", "hgt", "appnp"],
)
def test_dgl_agrees(benchmark: Benchmark, main: Callable[[], None], conv: str, grid: str) -> None:
    (case,) = benchmark.here(main, *SMALL, "--conv", conv, "--grid", grid)["cases"]
    assert len(case["systems"]) == 2
    for system in case["systems"].values():
        assert system["max_error"] < 1e-4


@pytest.mark.distributed
def test_primitives_agree_with_their_baselines(benchmark: Benchmark) -> None:
    small = ["--scale", "8", "--width", "128", "--rounds", "1", "--mib", "1", "--no-limits"]
    found = benchmark.apart("primitives", *small, "--loopback", "--grid", "4x2")
    (case,) = found["cases"]
    gemm, spmm = case["primitives"]["gemm"], case["primitives"]["spmm"]
    # Table 1 with M = 2, and 8 bytes a rank that say how much comes.
    assert gemm["all_reduce"]["total_bytes"] == gemm["ours"]["total_bytes"] + 64
    assert spmm["two_d"]["total_bytes"] > spmm["ours"]["total_bytes"]  # Table 2
    assert gemm["ours"]["total_wire_bytes"] > gemm["ours"]["total_bytes"]


def test_variants_that_take_several_times_as_long_are_timed_once() -> None:
    class Ranks(Workers):
        def call(self, task: object, *arguments: object) -> list[Run]:
            seconds = 4.0 if arguments == ("gemm", "all_reduce") else 1.0
            return [{"seconds": seconds, "bytes": 8, "wire_bytes": 9}]

    given = Namespace(rounds=3, slow=3)
    found = measure(Ranks([]), "gemm", given, "a title", shaped=True)
    assert [(of["runs"], of["ratio"]) for of in found.values()] == [(3, 1.0), (1, 4.0)]
    given.slow = 5
    found = measure(Ranks([]), "gemm", given, "a title", shaped=True)
    assert [of["runs"] for of in found.values()] == [3, 3]


def test_bytes_that_no_interface_received_end_the_command() -> None:
    came = [{"bytes": 7, "wire_bytes": 8}, {"bytes": 7, "wire_bytes": 7}]
    check_wire("spmm, ours", came)
    with pytest.raises(SystemExit, match="rank 1 counted 9 bytes, but 8 came over its interface"):
        check_wire("spmm, ours", [came[0], {"bytes": 9, "wire_bytes": 8}])


@pytest.mark.dgl
def test_kernels_agree_with_their_rivals(benchmark: Benchmark) -> None:
    found = benchmark.apart("kernels", "--scale", "8", "--rounds", "1", "--mib", "8")
    assert found["kernels"]["spmm_sum"]["rivals"].keys() == {"dgl", "torch"}


def test_scaling_counts_bytes_and_cpu(benchmark: Benchmark) -> None:
    # Processor time comes in steps of a hundredth of a second.
    small = ["--scale", "15", "--weak-scale", "15", "--rounds", "1", "--no-limits", "--conv", "gcn"]
    found = benchmark.here(scaling.main, *small, "--grid", "2x1")
    strong, weak = (case["grids"]["2x1"] for case in found["cases"])
    assert 0 < strong["bytes"] < weak["bytes"]
    assert min(strong["critical_cpu"], weak["critical_cpu"]) > 0


def test_variants_take_turns_and_ratios_are_of_rounds() -> None:
    order: list[str] = []

    def variant(name: str, seconds: list[float]) -> Callable[[], dict[str, Any]]:
        def once() -> dict[str, Any]:
            order.append(name)
            return {"seconds": seconds.pop(0), "stages": {"infer": 1.0}}

        return once

    runs = rounds.alternate({"a": variant("a", [1, 2, 9]), "b": variant("b", [2, 4, 3])}, 3)
    assert "".join(order) == "abbaab"
    assert rounds.middle(runs["a"]) == {"seconds": 2, "stages": {"infer": 1.0}}
    assert rounds.ratio(runs["b"], runs["a"], "seconds") == 2


def test_cpu_of_what_a_command_leaves_is_not_others() -> None:
    """A command's fork server ends after it, and nobody but the measurement waits for it then."""
    burn = "import time\nwhile time.process_time() < 0.5: pass"
    leave = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {burn!r}])"
    before = os.times()
    took = run([sys.executable, "-c", leave])
    after = os.times()
    assert after.children_user + after.children_system >= 0.5 + sum(before[2:4])
    assert took.user + took.system >= 0.5


def test_cpu_of_the_kernel_is_told_apart() -> None:
    code = "import os, time\nwhile os.times().system < 0.3: os.urandom(1 << 20)"
    took = run([sys.executable, "-c", code])
    assert took.system >= 0.3 > took.user


def test_sums_that_differ_must_be_the_nearer_ones() -> None:
    x = torch.full((4000, 2), 2.0**12)
    csr = build_csr(np.arange(4000), None, 1, 4000, first=0, remove_duplicates=False)
    bench: Any = SimpleNamespace(x=x, csr=csr)
    exact = x.sum(0, keepdim=True)
    assert close_or_nearer(bench, exact, exact.clone())
    assert close_or_nearer(bench, exact + 64, exact + 2.0**16)
    assert not close_or_nearer(bench, exact + 2.0**16, exact), "further off than the rival"
    assert not close_or_nearer(bench, exact + 2.0**16, exact + 2.0**18), "wrong as well"


def test_figures_leave_out_what_was_not_measured() -> None:
    drawn = svg.bars("Title", "s", ["x", "y"], [svg.Series("a<b", [1.0, None])])
    root = ElementTree.fromstring(drawn)
    names = [element.text for element in root.iter() if element.tag.endswith("title")]
    assert names == ["a<b: 1 s"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may have a network")
def test_network_says_what_it_lacks() -> None:
    with pytest.raises(network.NoNetwork), network.network(1):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
def test_namespaces_are_gone_after_an_error() -> None:
    def ours() -> set[str]:
        listed = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True)
        return {name for name in listed.stdout.split() if f"bench-{os.getpid()}-" in name}

    def interrupted() -> None:
        with network.network(2) as links:
            links.shape(1)
            assert len(ours()) == 3
            raise KeyboardInterrupt

    try:
        interrupted()
    except network.NoNetwork as lacking:
        pytest.skip(str(lacking))
    except KeyboardInterrupt:
        assert ours() == set()


def test_dataset_is_the_same_each_time(tmp_path: Path) -> None:
    from benchmarks.dataset import rmat

    source, destination = rmat(6, 500)
    again = rmat(6, 500)
    assert np.array_equal(source, again[0])
    assert not (source == destination).any()
    assert max(source.max(), destination.max()) < 64


def test_the_operator_has_nothing_to_do_with_the_finished_jobs_of_its_benchmark() -> None:
    """They are only there; otherwise their passes would be measured."""
    job = operator.manifest("done-0000")
    job["metadata"] |= {"uid": "u", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
    job["status"] = operator.finished_status()
    decision = decide(Observed(job), Settings(), datetime(2026, 1, 1, 12, tzinfo=UTC))
    assert decision.draft.fields == job["status"]
    assert (decision.apply, decision.delete, decision.requeue_after) == ([], [], None)


def test_a_watched_command_that_fails_leaves_no_watcher() -> None:
    before = threading.active_count()
    with pytest.raises(SystemExit, match="exit status 1:\nno memory"):
        run([sys.executable, "-c", "raise SystemExit('no memory')"], watch=True)
    assert threading.active_count() == before
