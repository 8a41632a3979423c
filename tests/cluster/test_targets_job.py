"""A job for some nodes alone on Kubernetes: its status, and its version, apart from all nodes'."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.support.cluster.jobs import Inputs, Jobs, find_condition, workers
from tests.support.exact import assert_exact

pytestmark = pytest.mark.cluster

WANTED = [7, 3, 50, 3]
"""Three nodes; one of them twice."""
READ = """
import json, embertide
ids, vectors = embertide.read({output!r}, targets=True).to_numpy()
print(json.dumps([ids.tolist(), vectors.tolist()]))
"""


def test_a_job_for_some_nodes_publishes_these_apart(tiny: Inputs, jobs: Jobs) -> None:
    output = f"{jobs.root}/out"
    whole = tiny.job("whole", output)
    some = tiny.job("some", output, workers=workers(2, 1), inference={"targets": {"ids": WANTED}})
    jobs.apply(whole, some)
    version = jobs.complete("whole")["output"]["version"]
    status = jobs.complete("some")
    assert status["output"]["uri"].startswith(f"{output}/_targets/versions/")
    assert status["output"]["rows"] == 3
    report = status["report"]
    assert report["targetRows"] == 3
    assert report["targetEdges"] > 0
    assert find_condition(status, "Published")["status"] == "True"

    ids, vectors = json.loads(jobs.python("-c", READ.format(output=output)))
    assert sorted(ids) == [3, 7, 50]
    assert_exact(np.array(vectors, np.float32), tiny.reference[ids])
    # The version of all nodes is another one, and as it was.
    assert tiny.versions(output) == [version]
    tiny.check(output)
    assert tiny.versions(f"{output}/_targets") == [status["output"]["version"]]

    other = {"spec": {"inference": {"targets": {"ids": [5]}}}}
    patch = "patch", "ej", "some", "--type=merge", "-p", json.dumps(other)
    refused = jobs.cluster.try_kubectl("-n", jobs.namespace, *patch)
    assert refused.returncode != 0
    assert "cannot change once the job is accepted" in refused.stderr
