"""Removing objects: from stores that demand Content-MD5, and what a removal that fails ends in."""

from __future__ import annotations

import pytest

from embertide.errors import AccessDenied
from embertide.io.storage.protocol import Storage
from embertide.io.versions.catalog import latest, list_versions
from tests.support.s3.jobs import SmallS3Job
from tests.support.s3.proxy import Answer, Forward, Request, S3Proxy, error, passing
from tests.support.versions import CURRENT, NEXT, OLD, publish_one

pytestmark = pytest.mark.s3


def is_removal(request: Request) -> bool:
    return request.method == "DELETE" or (request.method == "POST" and "delete" in request.query)


def demanding_md5(request: Request, forward: Forward) -> Answer:
    """As many stores answer clients since boto3 1.36, which leaves the header out."""
    several = request.method == "POST" and "delete" in request.query
    if several and "content-md5" not in {name.lower() for name in request.headers}:
        return error(400, "MissingContentMD5", "Missing required header: Content-Md5")
    return forward(request)


def test_a_store_that_demands_content_md5(proxied: Storage, proxy: S3Proxy, root: str) -> None:
    proxy.rule = demanding_md5
    for _ in range(2):
        uris = [f"{root}/{number}" for number in range(12)]
        for uri in uris:
            proxied.write(uri, b"1")
        proxied.delete([*uris, f"{root}/was-never-there"])
        assert [proxied.stat(uri) for uri in uris] == [None] * len(uris)
    # It is asked once, and is no fault.
    assert sum(request.method == "POST" for request in proxy.seen) == 1
    assert proxied.stats.errors == 0


def test_a_right_that_is_missing_is_asked_for_once(
    proxied: Storage, proxy: S3Proxy, root: str
) -> None:
    def deny(request: Request, forward: Forward) -> Answer:
        return error(403, "AccessDenied") if is_removal(request) else forward(request)

    proxied.write(f"{root}/x", b"1")
    proxy.rule = deny
    with pytest.raises(AccessDenied, match=rf"allow s3:DeleteObject on {root}/\*"):
        proxied.delete([f"{root}/x"])
    assert sum(map(is_removal, proxy.seen)) == 1


def test_old_versions_go_from_a_store_that_demands_content_md5(
    proxied: Storage, proxy: S3Proxy, root: str
) -> None:
    proxy.rule = demanding_md5
    for version in (OLD, CURRENT, NEXT):
        assert publish_one(proxied, root, version, keep=1).not_removed == ""
    assert [info.version for info in list_versions(proxied, root)] == [NEXT]


def test_a_version_that_cannot_be_removed_is_a_warning(
    proxied: Storage, proxy: S3Proxy, root: str
) -> None:
    publish_one(proxied, root, OLD)

    def deny(request: Request, forward: Forward) -> Answer:
        return error(403, "AccessDenied", "held") if is_removal(request) else forward(request)

    proxy.rule = deny
    info = publish_one(proxied, root, CURRENT, keep=1)
    assert latest(proxied, root).version == CURRENT
    assert f"{CURRENT} of {root} is published, but versions beyond" in info.not_removed
    assert "allow s3:DeleteObject" in info.not_removed


@pytest.mark.distributed
def test_a_run_whose_old_versions_stay_ends_well(job: SmallS3Job, proxy: S3Proxy) -> None:
    job.edit("output:", "output:\n    keepVersions: 1")
    assert job.run("-q").code == 0
    (first,) = job.versions

    def hold(request: Request, forward: Forward) -> Answer:
        held = first in request.path or first.encode() in request.body
        return error(403, "AccessDenied") if held and is_removal(request) else forward(request)

    proxy.rule = hold
    done = job.run("--force", "--json")
    assert done.code == 0, done.err
    report = done.events[-1]
    assert "could not be removed" in report["not_removed"]
    assert report["not_removed"] in report["warnings"]
    assert latest(job.storage, job.output).version == report["version"] != first
    # A run that computes nothing tries again, too.
    last = job.run("--json").events[-1]
    assert last["confirmed"]
    assert "could not be removed" in last["not_removed"]
    proxy.rule = passing
    last = job.run("--json").events[-1]
    assert (last["confirmed"], last["not_removed"]) == (True, "")
    assert not [text for text in last["warnings"] if "could not be removed" in text]
    assert job.versions == [report["version"]]
