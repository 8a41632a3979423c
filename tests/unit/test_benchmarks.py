"""Every benchmark runs at a tiny scale, and what it compares agrees; nothing is timed here."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks import operator
from benchmarks.report_operator import section
from benchmarks.support import network, rounds, svg
from embertide_operator.observe import Observed
from embertide_operator.reconcile import decide
from embertide_operator.settings import Settings
from tests.support.paths import ROOT

COMMANDS = (
    "dataset",
    "end_to_end",
    "kernels",
    "machine",
    "operator",
    "primitives",
    "report",
    "scaling",
    "typed",
    "typed_dataset",
)
HAS_DGL = importlib.util.find_spec("dgl") is not None

Command = Callable[..., dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path) -> Command:
    """Run a command; what it kept."""

    def run_it(name: str, *words: str) -> dict[str, Any]:
        out = tmp_path / f"{name}.json"
        command = [sys.executable, "-W", "ignore", "-m", f"benchmarks.{name}", *words]
        # Threads that wait for each other cost more than graphs of this size.
        done = subprocess.run(
            [*command, "--out", str(out)],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(out.read_text())

    return run_it


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_how_to_call_it(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.{name}").main()
    assert not ended.value.code
    assert f"-m benchmarks.{name}" in capsys.readouterr().out


def test_systems_agree_from_end_to_end(run: Command) -> None:
    dgl = ["dgl_full_graph", "dgl_layer_wise"] if HAS_DGL else []
    small = ["--scale", "8", "--rounds", "0", "--settle", "0", "--no-limits", "--conv", "gat"]
    peers = ["--peers", "torch_csr", "pyg_layer_wise", *dgl]
    found = run("end_to_end", *small, *peers, "--features", "parquet", "--grid", "2x1")
    (case,) = found["cases"]
    assert set(case["systems"]) == {*peers[1:], "ours 2x1"}
    for system in case["systems"].values():
        assert system["max_error"] < 1e-4
        assert system["wall"] > system["work"] > 0


@pytest.mark.skipif(not HAS_DGL, reason="no wheel of dgl for this Python and machine")
@pytest.mark.parametrize(
    ("name", "conv", "grid"),
    [("typed", "rgcn", "2x1"), ("typed", "hgt", "1x1"), ("end_to_end", "appnp", "1x1")],
)
def test_dgl_agrees(run: Command, name: str, conv: str, grid: str) -> None:
    small = ["--scale", "8", "--rounds", "0", "--settle", "0", "--no-limits", "--conv", conv]
    (case,) = run(name, *small, "--grid", grid)["cases"]
    assert len(case["systems"]) == 2
    for system in case["systems"].values():
        assert system["max_error"] < 1e-4


@pytest.mark.distributed
def test_primitives_agree_with_their_baselines(run: Command) -> None:
    small = ["--scale", "8", "--width", "16", "--rounds", "1", "--mib", "1", "--no-limits"]
    found = run("primitives", *small, "--loopback", "--grid", "4x2")
    (case,) = found["cases"]
    gemm, spmm = case["primitives"]["gemm"], case["primitives"]["spmm"]
    # Table 1 with M = 2, and 8 bytes a rank that say how much comes.
    assert gemm["all_reduce"]["total_bytes"] == gemm["ours"]["total_bytes"] + 64
    assert spmm["two_d"]["total_bytes"] > spmm["ours"]["total_bytes"]  # Table 2


@pytest.mark.skipif(not HAS_DGL, reason="no wheel of dgl for this Python and machine")
def test_kernels_agree_with_their_rivals(run: Command) -> None:
    found = run("kernels", "--scale", "8", "--rounds", "1", "--mib", "8")
    assert found["kernels"]["spmm_sum"]["rivals"].keys() == {"dgl", "torch"}


def test_scaling_counts_bytes_and_cpu(run: Command) -> None:
    small = ["--scale", "8", "--weak-scale", "8", "--rounds", "1", "--no-limits", "--conv", "gcn"]
    found = run("scaling", *small, "--grid", "2x1")
    strong, weak = (case["grids"]["2x1"] for case in found["cases"])
    assert 0 < strong["bytes"] < weak["bytes"]
    assert min(strong["critical_cpu"], weak["critical_cpu"]) > 0


def test_page_is_made_from_what_there_is(tmp_path: Path) -> None:
    run = {"seconds": 1.0, "bytes": 2, "messages": 3, "peak_bytes": 4, "ratio": 2.0}
    case = {"gigabits": 1.0, "reached": 0.9, "grid": "1x8"}
    results = {
        "where": rounds.where(),
        "machine": {},
        **{"workers": 8, "scale": 13, "width": 128, "qdisc": "tbf"},
        "cases": [{**case, "primitives": {"gemm": {"ours": run, "all_reduce": run}}}],
    }
    (tmp_path / "primitives.json").write_text(json.dumps(results))
    words = ["--results", str(tmp_path), "--out", str(tmp_path / "page.md")]
    subprocess.run([sys.executable, "-m", "benchmarks.report", *words], cwd=ROOT, check=True)
    page = (tmp_path / "page.md").read_text()
    assert "the same direction" in page
    figure = tmp_path / "page" / "primitive-gemm.svg"
    assert figure.name in page
    assert ElementTree.parse(figure).getroot().tag.endswith("svg")


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


def test_the_operators_numbers_become_a_section_of_the_page() -> None:
    step = {"cores": 0.1, "rss_bytes": 100 << 20, "requests_per_second": 5.0,
            "passes_per_second": 40.0, "pass_seconds": 0.004}  # fmt: skip
    latency = {"median_seconds": 0.2, "p99_seconds": 0.9, "count": 20}
    now = {"jobs": 1000, "latency_at": 50, "running": {"50": step}, "apply_to_statefulset": latency}
    text = section({"operators": {"now": now}})
    assert "| now | 50 | 100 | 0.1" in text
    assert "1000 EmbeddingJobs" in text
