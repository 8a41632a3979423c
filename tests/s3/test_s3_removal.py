"""Removing objects: from stores that demand Content-MD5, and what a removal that fails ends in."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest

from embertide.errors import AccessDenied
from embertide.spec.workers import StorageSettings
from embertide.storage.opening import open_storage
from embertide.storage.protocol import Storage
from embertide.versions.catalog import latest, list_versions
from tests.support.commands import Commands
from tests.support.s3.proxy import Answer, Forward, Request, S3Proxy, error, passing
from tests.support.s3.server import S3Server
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
def test_a_run_whose_old_versions_stay_ends_well(
    s3: S3Server, proxy: S3Proxy, tmp_path: Path
) -> None:
    place, commands = s3.uri(f"stay-{secrets.token_hex(4)}"), Commands(tmp_path)
    size = ("--scale", "6", "--width", "4", "--hidden", "4", "-q")
    assert commands.run("synth", place, *size, "--endpoint-url", proxy.endpoint).code == 0
    settings = StorageSettings(endpoint_url=proxy.endpoint, region=s3.region)
    storage = open_storage(settings)
    text = storage.read(f"{place}/job.yaml").decode()
    (tmp_path / "job.yaml").write_text(text.replace("output:", "output:\n    keepVersions: 1"))
    assert commands.run("run", str(tmp_path / "job.yaml"), "-q").code == 0
    (first,) = list_versions(storage, f"{place}/embeddings")

    def hold(request: Request, forward: Forward) -> Answer:
        held = first.version in request.path or first.version.encode() in request.body
        return error(403, "AccessDenied") if held and is_removal(request) else forward(request)

    proxy.rule = hold
    done = commands.run("run", str(tmp_path / "job.yaml"), "--force", "--json")
    assert done.code == 0, done.err
    report = json.loads(done.out.splitlines()[-1])
    assert "could not be removed" in report["not_removed"]
    assert report["not_removed"] in report["warnings"]
    assert latest(storage, f"{place}/embeddings").version == report["version"] != first.version
    # A run that computes nothing tries again, too.
    done = commands.run("run", str(tmp_path / "job.yaml"), "--json")
    last = json.loads(done.out.splitlines()[-1])
    assert last["confirmed"]
    assert "could not be removed" in last["not_removed"]
    proxy.rule = passing
    done = commands.run("run", str(tmp_path / "job.yaml"), "--json")
    last = json.loads(done.out.splitlines()[-1])
    assert (last["confirmed"], last["not_removed"]) == (True, "")
    assert not [text for text in last["warnings"] if "could not be removed" in text]
    assert [info.version for info in list_versions(storage, f"{place}/embeddings")] == [
        report["version"]
    ]
