"""Memory that workers really take, held to its plan where the data outweigh what is constant."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.paths import ROOT
from tests.support.tiers import later

pytestmark = pytest.mark.distributed

CASES = [
    ("0.5", "0.2", ("wide@1x1,2x2", "wide-int64@1x1,2x1", "wide-strings@1x1,2x1,2x2")),
    # Little more than what is constant.
    ("1", "0.25", ("one-split@2x1,2x2",)),
    ("0.5", "0.2", ("weights@1x2", "gat@2x1", "gatv2@2x1,2x2", "single-loops@2x1")),
    # Ids of hubs in the order of degrees: by work alone, who has few edges would have 1.37 of its
    # rows.
    ("0.5", "0.2", ("types@2x1,1x2", "deep@1x4", "hubs@2x1,1x4,4x1", "growing@2x1,1x2")),
    ("0.25", "0.2", ("edge-features@1x1",)),
    ("0.5", "0.2", ("compared@1x1,2x1", "kept@1x1,2x1")),
    ("1", "0.2", ("dotgat@1x2", "wide-int64@2x1")),
]
"""How much of which shapes of ``benchmarks/memory.py``, on which grids, and how near to the plan;
the command has more. Those of a line share a process, whose imports take as long as a small run.
"""


@pytest.mark.parametrize(
    ("times", "within", "shapes"),
    later(CASES, CASES[0], CASES[2], CASES[3], CASES[5], several=True),
)
def test_the_fullest_worker_takes_what_is_planned(
    times: str, within: str, shapes: tuple[str, ...]
) -> None:
    hold("--times", times, "--within", within, *shapes)


def test_layers_of_many_edges_and_few_columns_take_no_more_than_is_planned_for_them() -> None:
    # Tensors are smaller than what edges were sorted in.
    hold("--times", "0.5", "--stage", "infer", "weights@1x1,1x2", "edges@1x2")


def test_what_one_edge_type_leaves_is_not_beside_the_look_ups_of_the_next() -> None:
    hold("--within", "0.12", "--stage", "ingest", "types-int64@2x2")


def hold(*options: str) -> None:
    # A process of its own: a fork server that other tests left here may have other settings.
    command = [sys.executable, "-m", "benchmarks.memory", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
