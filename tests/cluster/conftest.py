"""The cluster for tests: built, started when the first test asks for it, ended with the session."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.images import build_images
from tests.support.cluster.installation import RELEASE, install
from tests.support.cluster.jobs import Inputs, Jobs
from tests.support.cluster.leftovers import find_leftovers
from tests.support.cluster.programs import build_all
from tests.support.cluster.requirements import missing
from tests.support.cluster.telling import Marks, mark, tell
from tests.support.needs import speaker

_MARKS = pytest.StashKey[Marks]()
_IMAGES = pytest.StashKey[dict[str, str]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests first that start clusters themselves: a machine has one at a time."""
    items.sort(key=lambda item: item.path.name != "test_begin_and_end.py")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build images that are not there yet, which takes longer than a test may take."""
    wanted = any(item.get_closest_marker("cluster") for item in session.items)
    if wanted and missing() is None and not session.config.getoption("collectonly"):
        try:
            session.config.stash[_IMAGES] = build_images(speaker(session.config))
        except RuntimeError as error:
            pytest.exit(str(error), returncode=1)


@pytest.fixture(scope="session")
def cluster_can_run() -> None:
    """Skips where it cannot."""
    reason = missing()
    if reason is not None:
        pytest.skip(f"{reason} (see tests/cluster/README.md)")


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config, cluster_can_run: None) -> Iterator[KubernetesCluster]:
    """A running cluster; this process's AWS credentials are those of its S3 server."""
    found = KubernetesCluster(build_all(), pytestconfig.stash[_IMAGES])
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
    assert find_leftovers(found.layout) == []


@pytest.fixture(scope="session")
def operator(cluster: KubernetesCluster) -> str:
    """The name of the operator's Deployment, account and role, installed by the chart."""
    return install(cluster, RELEASE)


@pytest.fixture
def jobs(cluster: KubernetesCluster, operator: str) -> Iterator[Jobs]:
    """A fresh namespace that the operator looks after."""
    namespace = cluster.namespace("jobs")
    yield Jobs(cluster, namespace)
    cluster.discard(namespace)


@pytest.fixture(scope="session")
def tiny(cluster: KubernetesCluster) -> Inputs:
    """64 nodes: a job is process starts and little else."""
    return Inputs.make(cluster, "tiny", "--scale=6", "--width=8", "--hidden=8")


@pytest.fixture(scope="session")
def small(cluster: KubernetesCluster) -> Inputs:
    """512 nodes."""
    return Inputs.make(cluster, "small", "--scale=9", "--width=16", "--hidden=16")


@pytest.fixture(scope="session")
def big(cluster: KubernetesCluster) -> Inputs:
    """Enough edges that every stage lasts long enough to be met in."""
    return Inputs.make(cluster, "big", "--scale=14", "--width=32", "--hidden=32")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Remember how long the cluster's logs are when a test begins."""
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if cluster is not None:
        item.stash[_MARKS] = mark(cluster)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the cluster has to say about a failure; say once why it cannot run."""
    report = yield
    if report.skipped and missing() is not None and isinstance(report.longrepr, tuple):
        # Reasons are counted by place: with one place for all they are one line.
        report.longrepr = (__file__, 1, report.longrepr[2])
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and cluster is not None:
        report.sections += tell(cluster, item.stash.get(_MARKS, {}))
    return report
