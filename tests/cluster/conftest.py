"""The cluster for tests: built, started when the first test asks for it, ended with the session."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

import pytest

from tests.support.builder import Builder
from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.images import build_images
from tests.support.cluster.installation import RELEASE, install
from tests.support.cluster.jobs import Inputs, Jobs
from tests.support.cluster.leftovers import find_leftovers
from tests.support.cluster.programs import CLUSTER_PROGRAMS, build_all
from tests.support.cluster.requirements import missing
from tests.support.cluster.telling import Marks, mark, tell
from tests.support.needs import needed, speaker, uncaptured

_MARKS = pytest.StashKey[Marks]()
_IMAGES = pytest.StashKey[Future[dict[str, str]]]()
_IMAGE_LINES: list[str] = []
_BUILDER = pytest.StashKey[Builder]()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests first that start clusters themselves, since a machine has one at a time, and last
    the one that looks at which rights all others used."""
    places = {"test_begin_and_end.py": 0, "test_rights.py": 2}
    items.sort(key=lambda item: places.get(item.path.name, 1))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin with the images, beside the programs that the first test's marks name."""
    wanted = any(item.get_closest_marker("cluster") for item in session.items)
    if wanted and missing() is None and not session.config.getoption("collectonly"):
        speaker(session.config)("[cluster] images: some minutes on a new machine, beside programs")
        pool = ThreadPoolExecutor(1)
        session.config.stash[_IMAGES] = pool.submit(build_images, _IMAGE_LINES.append)
        pool.shutdown(wait=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Wait for the images, after the programs (tests/conftest.py is first) and before a test's time
    limit begins: building them takes longer."""
    if item.get_closest_marker("cluster") and _IMAGES in item.config.stash:
        wait([item.config.stash[_IMAGES]])
        while _IMAGE_LINES:  # not from the other thread: output is captured in this one
            speaker(item.config)(_IMAGE_LINES.pop(0))
        _build_for_later_tests(item.session)
    return (yield)


def _build_for_later_tests(session: pytest.Session) -> None:
    """Once the cluster's own programs are there, begin with those that a few tests need."""
    later = [name for name in needed(session.items) if name not in CLUSTER_PROGRAMS]
    if later and _BUILDER not in session.config.stash:
        with uncaptured(session.config):
            session.config.stash[_BUILDER] = Builder(later)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End builds that no test waited for."""
    if _BUILDER in session.config.stash:
        session.config.stash[_BUILDER].stop()


@pytest.fixture(scope="session")
def cluster_can_run() -> None:
    """Skips where it cannot."""
    reason = missing()
    if reason is not None:
        pytest.skip(f"{reason} (see tests/cluster/README.md)")


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config, cluster_can_run: None) -> Iterator[KubernetesCluster]:
    """A running cluster; this process's AWS credentials are those of its S3 server."""
    found = KubernetesCluster(build_all(), pytestconfig.stash[_IMAGES].result())
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
