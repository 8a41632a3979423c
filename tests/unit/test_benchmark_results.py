"""What the benchmarks keep, and the page that is made from it; nothing is measured here."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks import all as everything
from benchmarks import report
from benchmarks.report_operator import section
from benchmarks.report_summary import summary
from benchmarks.support import kept as keeping
from benchmarks.support import rounds
from benchmarks.support.embeddings import batches, difference
from benchmarks.support.kept import Kept

Run = dict[str, Any]

VARIANT = {"seconds": 1.0, "bytes": 2, "messages": 3, "peak_bytes": 4, "ratio": 2.0}
VARIANT |= {"total_bytes": 8, "total_wire_bytes": 12}
SYSTEM = {"wall": 3.0, "work": 2.0, "infer": 1.0, "user": 4.0, "system": 1.5}
SYSTEM |= {"peak_bytes": 1 << 30, "max_error": 1e-6}
SYSTEM |= {"wall_ratio": 1.0, "work_ratio": 1.0, "infer_ratio": 1.0, "runs": 3}
GRID = {"wall": 2.0, "critical_cpu": 1.0, "efficiency": 1.0, "bytes": 1 << 20, "messages": 7}
GRID |= {"peak_bytes": 1 << 20, "planned_bytes": 2 << 20}

DECODED = {"features": 0.5, "ingest": 0.75, "graph": 1.25, "millions_per_second": 12.8}
DECODED |= {"graph_ratio": 0.5}
BUILT = {"features": 0.5, "ingest": 1.5, "csr": 0.5, "graph": 2.5, "millions_per_second": 6.4}
BUILT |= {"graph_ratio": 1.0}
STORED = {"read": 1.0, "write": 2.0, "transfers": 3.0, "transfers_ratio": 1.5, "wall": 4.0}
STORED |= {"read_bytes": 5 << 20, "written_bytes": 6 << 20}

IN_MEMORY = {"wall": 20.0, "work": 16.0, "infer": 8.0, "cpu": 30.0, "wall_ratio": 1.0}
IN_MEMORY |= {"peak": 4 << 30, "planned": 5 << 30, "group": 0, "wrote": 0, "read": 0}
IN_MEMORY |= {"max_error": 0.0}
ON_DISK = IN_MEMORY | {"wall": 40.0, "wall_ratio": 2.0, "wrote": 8 << 30, "read": 6 << 30}
MEMMAPS = {"wall": 120.0, "wall_ratio": 6.0, "work": 110.0, "infer": 90.0, "cpu": 99.0}
MEMMAPS |= {"group": 2 << 30, "max_error": 1e-6}
LARGE = {"nodes": 48_000_000, "edges": 1_000_000_000, "width": 32, "memory": 8 << 30}
LARGE |= {"wall": 1200.0, "infer": 800.0, "cpu": 2000.0, "edges_a_core": 1.9e6, "dollars": 0.0504}
LARGE |= {"error": 1e-7, "peak": 7 << 30, "planned": 8 << 30, "group": 9 << 30, "others": 0.1}
LARGE |= {"wrote": 80 << 30, "read": 90 << 30, "stages": {"ingest": 250.0, "infer": 800.0}}

RESULTS: dict[str, Run] = {
    "out_of_core": {
        "cases": [
            {
                **{"scale": 22, "conv": "gcn", "memory": 2 << 30},
                "systems": {"in memory": IN_MEMORY, "on disk": ON_DISK, "memmaps": MEMMAPS},
            }
        ],
    },
    "large": LARGE,
    "primitives": {
        **{"workers": 8, "scale": 13, "width": 128, "qdisc": "tbf"},
        "cases": [
            {
                **{"gigabits": 1.0, "reached": 0.9, "grid": "1x8"},
                "primitives": {"gemm": {"ours": VARIANT, "all_reduce": VARIANT}},
            }
        ],
    },
    "graph": {
        **{"nodes": 4_000_000, "edges": 16_000_000},
        "cases": [
            {
                **{"ids": "hex", "format": "parquet"},
                "systems": {"ours 1x1": BUILT, "decoding": DECODED},
            }
        ],
    },
    "store": {
        **{"scale": 20, "conv": "gcn"},
        "cases": [{"gigabits": 1.0, "systems": {"plain": STORED, "ours 2x1": STORED}}],
    },
    "end_to_end": {
        "cases": [
            {
                **{"scale": 20, "conv": "gat", "features": "npy"},
                **{"nodes": 1 << 20, "edges": 20 << 20},
                "systems": {"torch_csr": SYSTEM, "ours 1x1": SYSTEM},
            }
        ],
    },
    "typed": {
        "cases": [
            {
                **{"scale": 18, "conv": "hgt", "nodes": 1 << 18, "edges": 5 << 20},
                "systems": {"dgl_typed": SYSTEM, "ours 1x1": SYSTEM, "ours 2x1": SYSTEM},
            }
        ],
    },
    "scaling": {
        "cases": [
            {
                **{"kind": "weak", "conv": "gcn", "scales": {"1x1": 15, "2x1": 16}},
                "grids": {"1x1": GRID, "2x1": GRID},
            }
        ],
    },
}

PageOf = Callable[..., str]


@pytest.fixture
def page_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PageOf:
    """The page that is made where there are results of these names only."""

    def make(*names: str) -> str:
        for name in names:
            results = {"where": rounds.where(), "machine": {}, **RESULTS[name]}
            (tmp_path / f"{name}.json").write_text(json.dumps(results))
        words = ["--results", str(tmp_path), "--out", str(tmp_path / "page.md")]
        monkeypatch.setattr(sys, "argv", ["report", *words])
        report.main()
        pages = [tmp_path / "page.md", *tmp_path.glob("page/*.md")]
        return "".join(page.read_text() for page in pages)

    return make


def test_the_page_has_runs_that_are_larger_than_memory(page_of: PageOf) -> None:
    page = page_of("out_of_core", "large")
    for part in (
        "- **1.00 billion edges**, 48.0 M nodes, GCN with three layers in 8.00 GiB: 20 minutes,"
        " 0.0504 dollars",
        "| GCN, scale 22, 2 GiB | memmaps | 120 | 6.00 | 110 | 90.0 | 99.0 |  |  | 2,048 |",
        "| the whole command | 1,200 s |",
        "| its stages, in seconds | ingest 250, infer 800 |",
        "| peak beyond the imports, and planned | 7,168 of 8,192 MiB |",
        "| written to the disk, and read | 80 and 90 GiB |",
    ):
        assert part in page


def test_page_is_made_from_what_there_is(page_of: PageOf, tmp_path: Path) -> None:
    page = page_of("primitives")
    assert "the same direction" in page
    # 16 bits take 16 ns at 1 Gbit/s.
    assert "most at 1 Gbit/s on 1x8, with 1.00 times the bytes" in page
    figure = tmp_path / "page" / "primitive-gemm.svg"
    assert figure.name in page
    assert ElementTree.parse(figure).getroot().tag.endswith("svg")
    assert "Fig. 14" not in page


def test_page_says_where_the_baseline_is_the_faster_one(
    page_of: PageOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    primitives = RESULTS["primitives"]
    slower = {"gemm": {"ours": VARIANT, "all_reduce": VARIANT | {"ratio": 0.9}}}
    cases = [*primitives["cases"], primitives["cases"][0] | {"grid": "4x2", "primitives": slower}]
    assert "takes longer in" not in page_of("primitives")
    monkeypatch.setitem(RESULTS, "primitives", primitives | {"cases": cases})
    assert "0.90 to 2.00 times as long as ours over 2 settings" in page_of("primitives")
    assert "the same direction, though ours takes longer in 1." in page_of("primitives")


def test_page_says_how_fast_a_graph_is_built(page_of: PageOf) -> None:
    page = page_of("graph")
    assert "16.0 M edges over 4.0 M nodes" in page
    assert "| hex, parquet | ours 1x1 | 0.500 | 1.50 | 0.500 | 2.50 | 6.40 | 1.00 |" in page
    assert "| hex, parquet | decoding | 0.500 | 0.750 |  | 1.25 | 12.8 | 0.500 |" in page


def test_page_says_what_a_store_is_asked_for(page_of: PageOf) -> None:
    page = page_of("store")
    assert "whole runs of GCN, scale 20" in page
    row = "1.00 | 2.00 | 3.00 | 1.50 | 5.00 | 6.00 | 4.00 |"
    assert f"| 1.00 Gbit/s | plain | {row}" in page
    assert f"| 1.00 Gbit/s | ours 2x1 | {row}" in page


@pytest.mark.parametrize(
    ("name", "paper", "row"),
    [
        ("end_to_end", "Fig. 14", "| 3.00 | 2.00 | 1.00 | 1.00 | 5.50 | 1,024 |"),
        ("scaling", "Fig. 15", "| 2x1 | 16 | 2.00 | 1.00 | 1.00 | 1.00 | 7 | 1.00 | 2.00 |"),
    ],
)
def test_a_section_stands_beside_the_papers_figure(
    page_of: PageOf, tmp_path: Path, name: str, paper: str, row: str
) -> None:
    page = page_of(name)
    assert f"**The paper, {paper}:**" in page
    assert row in page
    for figure in (tmp_path / "page").glob("*.svg"):
        assert f"{figure.name})" in page
        ElementTree.parse(figure)


def test_typed_graphs_have_a_section_of_their_own(page_of: PageOf, tmp_path: Path) -> None:
    page = page_of("typed")
    assert "### HGT, scale 18" in page
    assert "| DGL | 3.00 | 2.00 | 1.00 |" in page
    assert "| ours 2x1 | 3.00 | 2.00 | 1.00 |" in page
    assert [figure.name for figure in (tmp_path / "page").iterdir()] == ["typed-hgt-18.svg"]


def test_page_begins_with_the_numbers_that_matter(page_of: PageOf) -> None:
    where = rounds.where()
    page = page_of("end_to_end", "store")
    head, lines = page.split("\n\n")[1:3]
    assert head.startswith(f"**In short**, on {where['processor']}, {where['cores']} cores")
    assert lines.splitlines() == [
        "- **GAT**, 1.05 M nodes, 21.0 M edges, the whole command: 3.00 s and 1.00 GiB (1x1);"
        " torch script, the fastest other system, 3.00 s and 1.00 GiB",
        "- **From and to a store** at 1.00 Gbit/s: reading and publishing take 1.50 times as long"
        " as plain transfers of the same objects",
    ]


def test_summary_names_the_machine_of_a_result_from_another_one() -> None:
    here = {"where": {"processor": "A", "cores": 2, "memory_bytes": 24 << 30}}
    there = {"where": {"processor": "B", "cores": 4, "memory_bytes": 8 << 30}}
    text = summary(
        {
            "end_to_end": {**here, **RESULTS["end_to_end"]},
            "typed": {**here, **RESULTS["typed"]},
            "store": {**there, **RESULTS["store"]},
        }
    )
    assert text.startswith("**In short**, on A, 2 cores, 24 GiB")
    assert [line.endswith(" (on B, 4 cores, 8 GiB)") for line in text.splitlines()[2:]] == [
        False,
        False,
        True,
    ]


def test_the_summary_has_ten_lines_at_most() -> None:
    page = report.PAGE.read_text()
    assert 5 < len(page.split("\n\n")[2].splitlines()) <= 10


def test_a_page_without_results_is_a_page(page_of: PageOf) -> None:
    assert page_of().startswith("# Performance")


def test_embeddings_are_compared_row_by_row() -> None:
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    order = np.array([2, 0, 3, 1])
    assert difference(batches(rows), rows) == 0
    assert difference([(order[:3], rows[order[:3]]), (order[3:], rows[order[3:]])], rows) == 0
    assert difference([(order, rows)], rows) == 6
    assert difference([(order[:3], rows[order[:3]])], rows) == float("inf")
    assert not difference([(order, rows[order] * float("nan"))], rows) < 1


def test_what_is_kept_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, cases = tmp_path / "x.json", [{"scale": 16}, {"scale": 20}]

    def begin(about: Run, *, minutes: float | None = None) -> Kept:
        return Kept("x", about, out=out, resume=True, minutes=minutes)

    first = begin({"rounds": 3})
    first.limits(lambda: {"copy_1": 1.0})
    first.add({"scale": 16, "systems": {}})
    again = begin({"rounds": 3})
    assert (again.machine, list(again.missing(cases, dict))) == ({"copy_1": 1.0}, [cases[1]])
    again.add({"scale": 20, "systems": {}})
    assert [case["scale"] for case in json.loads(out.read_text())["cases"]] == [16, 20]
    assert list(begin({"rounds": 1}).missing(cases, dict)) == cases
    assert list(begin({"rounds": 1}, minutes=-1).missing(cases, dict)) == []
    elsewhere = rounds.where() | {"commit": "of later"}
    monkeypatch.setattr(keeping, "where", lambda: elsewhere)
    assert list(begin({"rounds": 3}).missing(cases, dict)) == cases


def test_parts_run_in_order_as_long_as_there_is_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = {"where": rounds.where(), "kernels": {}}
    (tmp_path / "kernels.json").write_text(json.dumps(there))
    parts = (
        everything.Part("end_to_end", "--scale 8", 99),
        everything.Part("machine", "--mib 8", 1, resumes=False),
        everything.Part("kernels", "", 1, resumes=False),
    )
    monkeypatch.setattr(everything, "PARTS", parts)
    run: list[list[str]] = []
    monkeypatch.setattr(everything, "_run", lambda command: run.append(command) or 0)
    words = ["--results", str(tmp_path), "--minutes", "2"]
    monkeypatch.setattr(sys, "argv", ["all", *words])
    everything.main()
    assert [command[command.index("-m") + 1] for command in run] == [
        "benchmarks.machine",
        "benchmarks.report",
    ]
    assert "end_to_end --scale 8: about 99 minutes: left out" in capsys.readouterr().err


def test_the_operators_numbers_become_a_section_of_the_page() -> None:
    step = {"cores": 0.1, "rss_bytes": 100 << 20, "requests_per_second": 5.0,
            "passes_per_second": 40.0, "pass_seconds": 0.004}  # fmt: skip
    latency = {"median_seconds": 0.2, "p99_seconds": 0.9, "count": 20}
    now = {"jobs": 1000, "latency_at": 50, "running": {"50": step}, "apply_to_statefulset": latency}
    text = section({"operators": {"now": now}})
    assert "| now | 50 | 100 | 0.1" in text
    assert "1000 EmbeddingJobs" in text
