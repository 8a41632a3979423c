"""A broken night on the cluster: held, reported, released by hand; the next night goes on."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.versions.catalog import latest
from tests.support.cluster.jobs import Inputs, Jobs, Manifest, find_condition

pytestmark = pytest.mark.cluster


def night(tiny: Inputs, jobs: Jobs, name: str, share: float = 1.0) -> Manifest:
    """A job on a share of the edges, all jobs with the same output and the default gate."""
    job = tiny.job(name, f"{jobs.root}/out")
    uri = job["spec"]["input"]["edges"][0]["uri"]
    if share < 1:
        objects = sorted(info.uri for info in tiny.storage.list(uri))
        table = pa.concat_tables(pq.read_table(io.BytesIO(tiny.storage.read(o))) for o in objects)
        buffer = io.BytesIO()
        pq.write_table(table.slice(0, round(share * len(table))), buffer)
        uri = f"{jobs.root}/{name}/"
        tiny.storage.write(f"{uri}part-0.parquet", buffer.getvalue())
    job["spec"]["input"]["edges"][0]["uri"] = uri
    job["spec"]["output"]["gate"] = {}
    return job


def command(jobs: Jobs, *words: str) -> dict[str, Any]:
    """What ``embertide ... --json`` answers, as a person at a terminal would run it."""
    s3 = jobs.cluster.s3
    env = os.environ | {"AWS_ENDPOINT_URL": s3.endpoint, "AWS_REGION": s3.region}
    place = ["--output", f"{jobs.root}/out", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "embertide", *words, *place], env=env, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_broken_night_is_held_and_released_by_hand(tiny: Inputs, jobs: Jobs) -> None:
    output = f"{jobs.root}/out"
    jobs.apply(night(tiny, jobs, "good"))
    good = jobs.complete("good")["output"]["version"]
    jobs.apply(night(tiny, jobs, "broken", 0.5))
    status = jobs.complete("broken")
    held = status["output"]["version"]

    published = find_condition(status, "Published")
    assert (published["status"], published["reason"]) == ("True", "Held")
    assert "maxEdgeChange is 20%" in published["message"]
    assert find_condition(status, "Complete")["reason"] == "Held"
    assert "maxEdgeChange is 20%" in status["output"]["held"]
    assert status["report"]["comparison"]["previous"] == good
    assert "Held" in jobs.reasons("broken")
    assert latest(tiny.storage, output).version == good

    assert command(jobs, "release")["version"] == held
    assert latest(tiny.storage, output).version == held
    jobs.apply(night(tiny, jobs, "next", 0.51))
    status = jobs.complete("next")
    assert find_condition(status, "Published")["reason"] == "Published"
    assert status["report"]["comparison"]["previous"] == held
    assert latest(tiny.storage, output).version == status["output"]["version"]
