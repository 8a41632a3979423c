"""The cluster for tests: built, started when the first test asks for it, ended with the session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster.build import build_all
from cluster.fixture import Cluster
from cluster.images import build_images
from cluster.installation import RELEASE, install
from cluster.jobs import Inputs, Jobs
from cluster.requirements import missing


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A running cluster; this process's AWS credentials are those of its S3 server."""
    reason = missing()
    if reason is not None:
        pytest.skip(f"{reason} (see tests/cluster/README.md)")
    reporter = pytestconfig.get_terminal_writer()
    programs = build_all(reporter.line)
    found = Cluster(programs, build_images(reporter.line))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_CA_BUNDLE"):
            patch.delenv(name, raising=False)
        for name, value in found.s3.environment.items():
            patch.setenv(name, value)
        try:
            found.start()
            yield found
        finally:
            found.stop()


@pytest.fixture(scope="session")
def operator(cluster: Cluster) -> str:
    """The name of the operator's Deployment, account and role, installed by the chart."""
    return install(cluster, RELEASE)


@pytest.fixture
def jobs(cluster: Cluster, operator: str) -> Iterator[Jobs]:
    """A fresh namespace that the operator looks after."""
    namespace = cluster.namespace("jobs")
    yield Jobs(cluster, namespace)
    cluster.discard(namespace)


@pytest.fixture(scope="session")
def tiny(cluster: Cluster) -> Inputs:
    """64 nodes: a job is process starts and little else."""
    return Inputs.make(cluster, "tiny", "--scale=6", "--width=8", "--hidden=8")


@pytest.fixture(scope="session")
def small(cluster: Cluster) -> Inputs:
    """512 nodes."""
    return Inputs.make(cluster, "small", "--scale=9", "--width=16", "--hidden=16")


@pytest.fixture(scope="session")
def big(cluster: Cluster) -> Inputs:
    """Enough edges that every stage lasts long enough to be met in."""
    return Inputs.make(cluster, "big", "--scale=16", "--width=64", "--hidden=64")
