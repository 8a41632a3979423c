"""The cluster for tests: built, started when the first test asks for it, ended with the session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster.build import build_all
from cluster.fixture import Cluster
from cluster.images import build_images
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
