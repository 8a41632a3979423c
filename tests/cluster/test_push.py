"""Versions into a real PostgreSQL by pods: readers are switched, back too; what fails is shown."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np
import pytest
import yaml

from embertide.io.versions.catalog import latest
from embertide.io.versions.reading import iter_embeddings
from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.indexes import Database, await_pushed, database_of_pods
from tests.support.cluster.jobs import Inputs, Jobs, Manifest, find_condition
from tests.support.cluster.layout import HOST
from tests.support.ports import free_port

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def database(cluster: KubernetesCluster) -> Iterator[Database]:
    """For all tests here; each uses another name."""
    with database_of_pods() as served:
        yield served


@pytest.fixture
def name() -> str:
    """That readers use, new in each test."""
    return f"products_{secrets.token_hex(4)}"


def with_index(tiny: Inputs, jobs: Jobs, job: str, database: Database, name: str) -> Manifest:
    """A job that is pushed; all of them have the same output."""
    manifest = tiny.job(job, f"{jobs.root}/out")
    manifest["spec"]["push"] = database.push_spec(jobs, name)
    return manifest


def see(database: Database, name: str, tiny: Inputs, output: str, version: str) -> None:
    """Readers of the index see this version, bit for bit."""
    seen, count = database.rows(name), 0
    for ids, vectors in iter_embeddings(tiny.storage, output, version):
        for key, vector in zip(ids, vectors, strict=True):
            assert np.array_equal(seen[int(key)], vector)
            count += 1
    assert count == len(seen) > 0


def test_each_version_is_pushed_and_a_rollback_is_once_it_is_asked_for(
    tiny: Inputs, jobs: Jobs, database: Database, name: str
) -> None:
    database.make_secret(jobs)
    output, versions = f"{jobs.root}/out", []
    for night in ("first", "second"):
        jobs.apply(with_index(tiny, jobs, night, database, name))
        version = jobs.complete(night)["output"]["version"]
        status = await_pushed(jobs, night, version)
        assert (status["push"]["rows"], status["push"]["names"]) == (64, [name])
        assert find_condition(status, "Ready")["status"] == "True"
        see(database, name, tiny, output, version)
        assert "Pushed" in jobs.reasons(night)
        versions.append(version)
    jobs.await_no_pods()
    jobs.python("-m", "embertide", "rollback", "--output", f"{jobs.root}/out", versions[0])
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    jobs.kubectl("annotate", "--overwrite", "ej", "second", f"embertide.dev/push-requested={now}")
    await_pushed(jobs, "second", versions[0])
    see(database, name, tiny, output, versions[0])
    shown = jobs.kubectl("get", "ej", "second", "-o", "wide")
    assert "PUSHED" in shown.splitlines()[0]
    everything = jobs.kubectl("get", "ej,configmaps,events", "-o", "yaml")
    assert database.password not in everything


def test_what_a_push_lacks_is_shown_and_leaves_the_job_complete(
    tiny: Inputs, jobs: Jobs, database: Database, name: str
) -> None:
    """First its Secret, which is waited for, then an index that answers."""
    job = with_index(tiny, jobs, "night", database, name)
    nowhere = f"postgresql://postgres@{HOST}:{free_port()}/postgres"
    job["spec"]["push"] |= {"uri": nowhere, "backoffLimit": 1}
    jobs.apply(job)
    version = jobs.complete("night")["output"]["version"]
    reason = "CreateContainerConfigError"
    status = jobs.await_("night", lambda s: find_condition(s, "Pushed").get("reason") == reason)
    assert 'secret "index" not found' in find_condition(status, "Pushed")["message"]
    assert status["phase"] == "Succeeded"
    pods = [pod for pod in jobs.pods() if pod["metadata"]["name"] == "night-push"]
    assert len(pods) == 1, yaml.safe_dump(pods)
    database.make_secret(jobs)
    status = jobs.await_("night", lambda s: (s.get("push") or {}).get("completionTime"), 180)
    pushed = find_condition(status, "Pushed")
    assert (pushed["status"], pushed["reason"]) == ("False", "StoreUnavailable")
    assert f"{HOST}:" in pushed["message"]
    assert "cannot be reached" in pushed["message"]
    assert "spec.push.backoffLimit is 1" in pushed["message"]
    assert status["phase"] == "Succeeded"
    assert find_condition(status, "Published")["status"] == "True"
    assert latest(tiny.storage, f"{jobs.root}/out").version == version
    assert jobs.reasons("night").count("PushFailed") == 3, "for the Secret, and both attempts"
    # The index is mended in the spec, which a finished job takes.
    jobs.patch("night", {"push": database.push_spec(jobs, name)})
    await_pushed(jobs, "night", version)
    see(database, name, tiny, f"{jobs.root}/out", version)
