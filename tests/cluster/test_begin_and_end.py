"""A cluster ends as a whole, however its parts end. These start their own, before the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.layout import Layout
from tests.support.cluster.leftovers import find_leftovers
from tests.support.cluster.process import NodeProcess
from tests.support.cluster.programs import build_all
from tests.support.paths import ROOT
from tests.support.patience import SOON_SECONDS

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.tier(3),
    pytest.mark.usefixtures("cluster_can_run"),
]

LAYOUT = Layout()


def new_node() -> NodeProcess:
    """Without images, so that nothing but Go programs has to be there."""
    return KubernetesCluster(build_all(), {}).node


def await_leftovers(good: Callable[[list[str]], bool]) -> None:
    deadline = time.monotonic() + SOON_SECONDS
    while not good(find_leftovers(LAYOUT)):
        assert time.monotonic() < deadline, find_leftovers(LAYOUT)
        time.sleep(0.05)


def test_nothing_is_left_when_it_is_stopped() -> None:
    node = new_node()
    node.start()
    assert list(LAYOUT.objects.iterdir()) != [], "the bucket"
    node.order("start", "node-2")
    assert find_leftovers(LAYOUT) != []
    node.stop()
    assert find_leftovers(LAYOUT) == []


def test_a_second_one_says_so_and_leaves_the_first_alone() -> None:
    first = new_node()
    first.start()
    try:
        second = new_node()
        with pytest.raises(RuntimeError, match="up already"):
            second.start()
        second.stop()
        first.order("stop", "s3")  # it still listens
    finally:
        first.stop()
    assert find_leftovers(LAYOUT) == []


@pytest.mark.parametrize("who", ["the test run", "the first process inside"])
def test_nothing_is_left_when_somebody_is_killed(who: str) -> None:
    program = (
        "from tests.cluster.test_begin_and_end import new_node\n"
        "node = new_node(); node.start(); print(node.inside); input()"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    words = iter(run.stdout.readline, "")
    inside = int(next(line for line in words if line.strip().isdigit()))
    os.kill(run.pid if who == "the test run" else inside, signal.SIGKILL)
    await_leftovers(lambda found: not found)
    run.kill()
    run.communicate()


def test_killed_keeper_takes_the_node_along_and_the_next_one_cleans_up() -> None:
    node = new_node()
    node.start()
    keeper = parent_of(parent_of(node.inside))
    os.kill(keeper, signal.SIGKILL)
    await_leftovers(lambda found: all("empty" in line or "S3 objects" in line for line in found))
    node.stop()
    node.start()
    node.stop()
    assert find_leftovers(LAYOUT) == []


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])
