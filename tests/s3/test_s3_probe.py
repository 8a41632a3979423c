"""What publishing needs is tried before the work; each thing that is missing has its message."""

from __future__ import annotations

import re

import boto3
import pytest

from embertide.errors import AccessDenied, OutputError, StorageError
from embertide.io.storage.opening import open_storage
from embertide.io.storage.protocol import Storage
from embertide.io.versions.catalog import list_versions
from embertide.io.versions.probe import check_output
from embertide.spec.version_names import new_version
from embertide.spec.workers import StorageSettings
from tests.support.s3.jobs import SmallS3Job
from tests.support.s3.proxy import Answer, Forward, Request, S3Proxy, error
from tests.support.s3.server import S3Server

pytestmark = pytest.mark.s3


def asked(request: Request) -> str:
    """Which of the probe's requests it is."""
    headers = {name.lower() for name in request.headers}
    match request.method:
        case "PUT" if "if-none-match" in headers:
            return "put if new"
        case "PUT" if "if-match" in headers:
            return "put if same"
        case "POST" if "uploads" in request.query:
            return "begin upload"
        case "POST":
            return "delete"
        case "DELETE":
            return "abort upload" if "uploadId" in request.query else "delete"
        case _:
            return "list" if "list-type" in request.query else "get"


def left(s3: S3Server, root: str) -> list[str]:
    """Objects and uploads below a prefix."""
    client = boto3.client("s3", endpoint_url=s3.endpoint, region_name=s3.region)
    where = {"Bucket": s3.bucket, "Prefix": root.removeprefix(s3.uri(""))}
    objects = client.list_objects_v2(**where).get("Contents", [])
    uploads = client.list_multipart_uploads(**where).get("Uploads", [])
    return [item["Key"] for item in [*objects, *uploads]]


def test_nine_requests_that_leave_nothing(
    proxied: Storage, proxy: S3Proxy, s3: S3Server, root: str
) -> None:
    check_output(proxied, root, new_version())
    expected = ["put if new"] * 2 + ["put if same", "get", "put if same", "list"]
    expected += ["begin upload", "abort upload", "delete"]
    assert [asked(request) for request in proxy.seen] == expected
    assert left(s3, root) == []
    assert proxied.stats.errors == 0


def test_no_reader_sees_a_probe(proxied: Storage, proxy: S3Proxy, root: str) -> None:
    seen = []

    def look(request: Request, forward: Forward) -> Answer:
        answer = forward(request)
        if asked(request) == "put if new":
            seen.append(list_versions(open_storage(storage_at(proxy)), root))
        return answer

    def storage_at(proxy: S3Proxy) -> StorageSettings:
        return StorageSettings(endpoint_url=proxy.endpoint, region="us-east-1")

    proxy.rule = look
    check_output(proxied, root, new_version())
    assert seen == [[], []]


DENIED = {
    "put if new": r"allow s3:PutObject on {root}/versions/.*/\*",
    "get": r"allow s3:GetObject on {root}/versions/.*/\*",
    "list": r"allow s3:ListBucket on the bucket 'embertide-tests'",
    "begin upload": r"allow s3:PutObject on {root}/versions/.*/\*",
    "abort upload": r"allow s3:AbortMultipartUpload on {root}/versions/.*/\*",
    "delete": r"allow s3:DeleteObject on {root}/versions/.*/\*",
}


@pytest.mark.parametrize("what", DENIED)
def test_a_right_that_is_missing_is_named(
    proxied: Storage, proxy: S3Proxy, s3: S3Server, root: str, what: str
) -> None:
    def deny(request: Request, forward: Forward) -> Answer:
        return error(403, "AccessDenied") if asked(request) == what else forward(request)

    proxy.rule = deny
    with pytest.raises(AccessDenied, match=DENIED[what].format(root=re.escape(root))):
        check_output(proxied, root, new_version())
    if what not in ("delete", "abort upload"):
        assert left(s3, root) == []


@pytest.mark.parametrize(
    ("ignored", "condition"), [("if-none-match", "If-None-Match: *"), ("if-match", "If-Match")]
)
def test_a_store_that_ignores_conditions(
    proxied: Storage, proxy: S3Proxy, s3: S3Server, root: str, ignored: str, condition: str
) -> None:
    def ignore(request: Request, forward: Forward) -> Answer:
        answer = forward(request)
        return Answer(200, b"", {"ETag": '"0"'}) if answer.status == 412 and ignored in {
            name.lower() for name in request.headers
        } else answer  # fmt: skip

    proxy.rule = ignore
    with pytest.raises(StorageError, match=re.escape(f"the store ignores {condition} and over")):
        check_output(proxied, root, new_version())
    assert left(s3, root) == []


EMPTY = b'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"/>'
# To which requests a store answers how, and what is said of it.
WRONG: dict[str, tuple[str, Answer, type[Exception], str]] = {
    "knows no conditions": (
        "put if",
        error(501, "NotImplemented", "A header you provided implies functionality"),
        StorageError,
        "publishing needs conditional writes",
    ),
    "whose conditions never hold": (
        "put if same",
        error(412, "PreconditionFailed"),
        StorageError,
        "refuses a write whose If-Match holds",
    ),
    "whose listing lacks what was written": (
        "list",
        Answer(200, EMPTY, {"Content-Type": "application/xml"}),
        OutputError,
        r"was written, and a listing of .*/ does not have it",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_store_that_does_not_do(proxied: Storage, proxy: S3Proxy, root: str, name: str) -> None:
    what, answer, kind, message = WRONG[name]
    proxy.rule = lambda request, forward: (
        answer if asked(request).startswith(what) else forward(request)
    )
    with pytest.raises(kind, match=message):
        check_output(proxied, root, new_version())


@pytest.mark.distributed
def test_a_run_ends_before_its_work(s3: S3Server, job: SmallS3Job, proxy: S3Proxy) -> None:
    def ignore(request: Request, forward: Forward) -> Answer:
        answer = forward(request)
        put = request.method == "PUT" and answer.status == 412
        return Answer(200, b"", {"ETag": '"0"'}) if put else answer

    proxy.rule = ignore
    for command in ("run", "plan"):
        done = job.run("--json", command=command)
        assert done.code == 5, done.err
        assert "the store ignores If-None-Match" in done.events[-1]["message"]
        assert "ingest" not in {event.get("stage") for event in done.events}
    assert left(s3, job.output) == []
