"""Buckets with rules, and several stores: `spec.storage` says each, and each has its message."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml

from embertide.errors import AccessDenied, StorageError
from embertide.io.storage.opening import open_storage
from embertide.io.storage.protocol import Storage
from embertide.io.versions.catalog import list_versions
from embertide.io.versions.probe import check_output
from embertide.spec import naming
from embertide.spec.storage import StorageSettings
from tests.support.s3.jobs import SmallS3Job
from tests.support.s3.proxy import Answer, Forward, Request, S3Proxy, error
from tests.support.s3.server import S3Server, server_program, server_with_accounts
from tests.support.storage_contract import LARGE
from tests.support.versions import CURRENT, NEXT, OLD, publish_one

pytestmark = pytest.mark.s3


def at(proxy: S3Proxy, s3: S3Server, **rules: Any) -> Storage:
    fields = {"endpointUrl": proxy.endpoint, "region": s3.region, "maxAttempts": 2}
    return open_storage(StorageSettings.model_validate(fields | rules))


def headers_of(request: Request) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}


def makes_object(request: Request) -> bool:
    begins = request.method == "POST" and "uploads" in request.query
    return begins or (request.method == "PUT" and "uploadId" not in request.query)


def use_all(storage: Storage, root: str) -> None:
    """Everything that a run asks a store for."""
    check_output(storage, root, OLD)
    for version in (OLD, CURRENT, NEXT):
        publish_one(storage, root, version, keep=1)
    with storage.create(f"{root}/large") as file:
        file.write(LARGE)
    assert storage.read(f"{root}/large") == LARGE
    storage.sweep(root)
    storage.unfinished(root)
    assert [info.version for info in list_versions(storage, root)] == [NEXT]


# ---- one store's rules


def test_a_bucket_whose_requesters_pay(proxy: S3Proxy, s3: S3Server, root: str) -> None:
    def demand(request: Request, forward: Forward) -> Answer:
        pays = headers_of(request).get("x-amz-request-payer") == "requester"
        return forward(request) if pays else error(403, "AccessDenied")

    proxy.rule = demand
    use_all(at(proxy, s3, requesterPays=True), root)
    with pytest.raises(AccessDenied, match="requesterPays: true"):
        at(proxy, s3).list(root)
    with pytest.raises(AccessDenied, match="requesterPays: true"):
        at(proxy, s3).read(f"{root}/LATEST")


def test_a_bucket_that_demands_encryption(proxy: S3Proxy, s3: S3Server, root: str) -> None:
    asked = set[tuple[str | None, ...]]()
    names = [
        "x-amz-server-side-encryption",
        "x-amz-server-side-encryption-aws-kms-key-id",
        "x-amz-server-side-encryption-bucket-key-enabled",
    ]

    def demand(request: Request, forward: Forward) -> Answer:
        if not makes_object(request):
            assert not headers_of(request).keys() & set(names)
            return forward(request)
        asked.add(tuple(headers_of(request).get(name) for name in names))
        if names[0] not in headers_of(request):
            return error(403, "AccessDenied", "explicit deny in a resource-based policy")
        return forward(request)

    proxy.rule = demand
    key = "arn:aws:kms:eu-central-1:123456789012:key/x"
    encryption = {"algorithm": "aws:kms", "keyId": key, "bucketKey": True}
    use_all(at(proxy, s3, encryption=encryption), root)
    assert asked == {("aws:kms", key, "true")}
    with pytest.raises(AccessDenied, match=r"allow s3:PutObject on .*spec\.storage\.encryption"):
        at(proxy, s3).write(f"{root}/x", b"1")


def test_a_bucket_that_demands_checksums(proxy: S3Proxy, s3: S3Server, root: str) -> None:
    text = "Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests"

    def demand(request: Request, forward: Forward) -> Answer:
        sent = " ".join([*headers_of(request), headers_of(request).get("x-amz-trailer", "")])
        if request.method != "PUT" or "content-md5" in sent or "x-amz-checksum-" in sent:
            return forward(request)
        return error(400, "InvalidRequest", text)

    proxy.rule = demand
    use_all(at(proxy, s3, checksums="always"), root)
    with pytest.raises(StorageError, match=r"set spec\.storage\.checksums to always"):
        at(proxy, s3).write(f"{root}/x", b"1")


REFUSALS: list[tuple[int, str, str, type[Exception], str]] = [
    (403, "InvalidObjectState", "not valid for the object's storage class", StorageError,
     r"is archived in GLACIER, and cannot be read .*restore it"),
    (400, "KMS.DisabledException", "key is disabled", StorageError, "enable the key"),
    (400, "KMS.NotFoundException", "Invalid keyId", StorageError, r"encryption\.keyId"),
    (403, "AccessDenied", "User is not authorized to perform: kms:Decrypt on key", AccessDenied,
     "allow kms:Decrypt on that key"),
    (400, "InvalidRequest", "The object was stored using a form of Server Side Encryption. The"
     " correct parameters must be provided", StorageError, r"\(SSE-C\), which is not supported"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "code", "text", "kind", "advice"), REFUSALS, ids=[case[1] for case in REFUSALS]
)
def test_each_refusal_has_its_message(
    proxied: Storage, proxy: S3Proxy, root: str,
    status: int, code: str, text: str, kind: type[Exception], advice: str,
) -> None:  # fmt: skip
    body = f"<Error><Code>{code}</Code><Message>{text}</Message>"
    body += "<StorageClass>GLACIER</StorageClass></Error>"
    proxy.rule = lambda _request, _forward: Answer(
        status, body.encode(), {"Content-Type": "application/xml"}
    )
    with pytest.raises(kind, match=f"^{root}/x.*{advice}"):
        proxied.read(f"{root}/x")


# ---- public buckets


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with server_with_accounts(tmp_path_factory.mktemp("public")) as found:
        yield found


def test_a_public_bucket_without_keys(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = boto3.client(
        "s3", endpoint_url=server.endpoint, region_name=server.region,
        aws_access_key_id=server.access_key, aws_secret_access_key=server.secret_key,
    )  # fmt: skip
    root.put_object(Bucket="shop", Key="open/a", Body=b"1")
    for name in server.environment:
        monkeypatch.delenv(name, raising=False)
    # The chain would be asked for a second, and has nothing.
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    fields = {"endpointUrl": server.endpoint, "region": server.region}
    signed = open_storage(StorageSettings.model_validate(fields))
    with pytest.raises(AccessDenied, match="for a public bucket, set anonymous: true in"):
        signed.list("s3://shop/open/")
    anonymous = open_storage(StorageSettings.model_validate(fields | {"anonymous": True}))
    with pytest.raises(AccessDenied, match="the bucket is not public: take anonymous"):
        anonymous.list("s3://shop/open/")
    statement = {
        "Effect": "Allow",
        "Principal": "*",
        "Action": ["s3:GetObject", "s3:ListBucket"],
        "Resource": ["arn:aws:s3:::shop", "arn:aws:s3:::shop/open/*"],
    }
    text = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    root.put_bucket_policy(Bucket="shop", Policy=text)
    assert [info.uri for info in anonymous.list("s3://shop/open/")] == ["s3://shop/open/a"]
    assert anonymous.read("s3://shop/open/a") == b"1"


# ---- several stores


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A second server, with keys of its own and a bucket that the first does not have."""
    folder = tmp_path_factory.mktemp("other")
    (folder / "objects" / "lake").mkdir(parents=True)
    found = S3Server(server_program(), folder)
    found.start()
    yield found
    found.stop()


def as_profile(server: S3Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = server.environment
    file = folder / "credentials"
    file.write_text(
        f"[lake]\naws_access_key_id = {keys['AWS_ACCESS_KEY_ID']}\n"
        f"aws_secret_access_key = {keys['AWS_SECRET_ACCESS_KEY']}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))


@pytest.mark.distributed
def test_inputs_and_output_in_two_stores(
    s3: S3Server, other: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_profile(other, tmp_path, monkeypatch)
    made = SmallS3Job(s3, s3.endpoint, tmp_path)
    lake = {"prefix": "s3://lake", "endpointUrl": other.endpoint, "region": other.region}
    lake |= {"profile": "lake"}
    settings = {"endpointUrl": s3.endpoint, "region": s3.region, "stores": [lake]}
    storage = open_storage(StorageSettings.model_validate(settings))
    job = yaml.safe_load(made.text)
    for part in (job["spec"]["input"]["edges"][0], job["spec"]["input"]["nodes"][0]["features"]):
        name = part["uri"].rstrip("/").rpartition("/")[2]
        for info in storage.list(part["uri"]):
            file = info.uri.rpartition("/")[2]
            storage.write(f"s3://lake/{name}/{file}", storage.read(info.uri))
            storage.delete([info.uri])
        part["uri"] = f"s3://lake/{name}/"
    job["spec"]["storage"] = settings
    made.file.write_text(yaml.safe_dump(job))
    for command in ("plan", "run"):
        done = made.run("--json", command=command)
        assert done.code == 0, done.out + done.err
    s3_report = done.events[-1]["storage"]
    assert s3_report["bytes_read"] > 0 < s3_report["bytes_written"]
    assert len(made.versions) == 1
    # Without its entry, the default store is asked, which has no such bucket.
    del job["spec"]["storage"]["stores"]
    made.file.write_text(yaml.safe_dump(job))
    done = made.run("-q")
    assert done.code == 5
    assert f"no bucket 'lake' at {s3.endpoint}" in done.message


def test_in_a_pod_each_store_has_its_secret(
    s3: S3Server, other: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str
) -> None:
    """Also where variables of the pod have keys of the first store."""
    monkeypatch.setenv(naming.ENV_IN_POD, "1")
    monkeypatch.setenv(naming.ENV_STORES_FOLDER, str(tmp_path))
    (tmp_path / "lake-keys").mkdir()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        (tmp_path / "lake-keys" / name).write_text(other.environment[name])
    fields: dict[str, Any] = {"endpointUrl": s3.endpoint, "region": s3.region}
    store = {"prefix": "s3://lake/", "endpointUrl": other.endpoint, "region": other.region}
    for secret in ("lake-keys", None):
        store["credentialsSecret"] = secret
        storage = open_storage(StorageSettings.model_validate(fields | {"stores": [store]}))
        storage.write(f"{root}/a", b"1")
        if secret is not None:
            storage.write("s3://lake/a", b"2")
            assert storage.read("s3://lake/a") == b"2"
            continue
        with pytest.raises(AccessDenied, match=re.escape("stores for s3://lake/.credentialsSec")):
            storage.write("s3://lake/a", b"2")


Choice = Callable[[str], str | None]


def test_the_longest_prefix_decides() -> None:
    def entry(prefix: str) -> dict[str, str]:
        return {"prefix": prefix, "endpointUrl": f"https://{len(prefix)}"}

    prefixes = ["s3://a", "s3://a/b/", "s3://a/b/c"]
    settings = StorageSettings.model_validate(
        {"endpointUrl": "https://0", "stores": [entry(prefix) for prefix in prefixes]}
    )
    chosen: Choice = lambda uri: settings.of(uri).endpoint_url  # noqa: E731
    assert chosen("s3://a") == chosen("s3://a/bc") == "https://6"
    assert chosen("s3://a/b") == chosen("s3://a/b/cd") == "https://9"
    assert chosen("s3://a/b/c") == chosen("s3://a/b/c/d") == "https://10"
    assert chosen("s3://ab/x") == "https://0"
