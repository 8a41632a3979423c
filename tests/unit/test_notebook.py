"""What notebooks show of an estimate, a report and a version."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

import embertide
from embertide.facts.telemetry.notebook import html_table
from embertide.io.versions.catalog import TypeInfo
from tests.support.pyg import pyg
from tests.support.run_reports import make_report
from tests.support.small_job import NODES, SmallJob


def test_text_is_escaped_and_empty_values_are_left_out() -> None:
    html = html_table("<job>", {"a&b": "<script>", "empty": "", "none": None, "zero": 0}, ["<i>"])
    assert "<script>" not in html
    assert "&lt;job&gt;" in html
    assert "a&amp;b" in html
    assert "<li>&lt;i&gt;</li>" in html
    assert "empty" not in html
    assert "none" not in html
    assert ">0</td>" in html


def test_a_report_is_a_table(tmp_path: Path) -> None:
    report = replace(make_report(2, 1), warnings=["a & b"], held=["rows removed: 20%"])
    html = report._repr_html_()
    assert report.version in html
    assert "a &amp; b" in html
    assert "rows removed: 20%" in html
    assert "2x1" in html


def test_an_estimate_is_a_table(tmp_path: Path) -> None:
    job = SmallJob.make(tmp_path)
    html = embertide.plan(job.manifest, grid="2x1")._repr_html_()
    assert "What a run will take" in html
    assert f">{NODES}</td>" in html
    assert "on 2x1" in html


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(300, 40)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


def test_an_export_is_a_table_without_weights() -> None:
    done = embertide.export(Net(), explain=True)
    html = done._repr_html_()
    assert "Net, exported" in html
    assert ">SAGEConv conv, 40 columns, 24,040 parameters</td>" in html
    assert ">features of the nodes, columns: 300</td>" in done.explanation._repr_html_()
    for shown in (done, done.explanation):
        assert "Argument edge_index: the edges\n" in repr(shown)
        assert len(repr(shown)) < 1000
    for held in (done.exported, done.exported.program, done.files):
        assert "tensor(" not in repr(held)
        assert len(repr(held)) < 2000


def test_a_version_with_several_results_is_a_table() -> None:
    info = embertide.VersionInfo(
        version="20261121T041922Z-3fa9c1",
        uri="file:///out/versions/20261121T041922Z-3fa9c1",
        created="2026-11-21T04:19:30Z",
        rows=12,
        dim=6,
        size=2048,
        manifest_digest="3aa85441",
        current=True,
        types={"hidden": TypeInfo(12, 6), "logits": TypeInfo(12, 3)},
    )
    html = info._repr_html_()
    assert "2.0 KiB" in html
    assert "12 of 3 values" in html
    assert "3aa85441" not in repr(info), "a comparison and the like take pages"
    assert "rows=12, dim=6, size=2048, current=True" in repr(info)
