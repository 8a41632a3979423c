"""The policy of docs/storage.md: a job runs with it, and not without any action of it."""

from __future__ import annotations

import copy
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml

from embertide.errors import AccessDenied, InputError
from embertide.io.readers.table_formats import FoldersAbove
from embertide.io.storage.opening import open_storage
from embertide.io.storage.protocol import Storage
from embertide.io.versions.catalog import list_versions
from embertide.spec.workers import StorageSettings
from tests.support.commands import Commands
from tests.support.paths import ROOT
from tests.support.s3.server import S3Server, server_program, server_with_accounts

pytestmark = [pytest.mark.s3, pytest.mark.distributed]

PAGE = (ROOT / "docs" / "storage.md").read_text()
STORAGE = ROOT / "worker" / "embertide" / "io" / "storage"
USER, KEY = "worker", "worker-secret"
LARGE = b"x" * (9 << 20)


def policy() -> dict[str, Any]:
    """The page's policy."""
    found = re.search(r"^```json\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None
    parsed: dict[str, Any] = json.loads(found[1])
    return parsed


ACTIONS = sorted({action for item in policy()["Statement"] for action in item["Action"]})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server with an account that has no rights but those of the bucket's policy."""
    with server_with_accounts(tmp_path_factory.mktemp("rights")) as found:
        admin = ("admin", "--access", found.access_key, "--secret", found.secret_key)
        account = ("create-user", "--access", USER, "--secret", KEY, "--role", "user")
        subprocess.run(
            [server_program(), *admin, "--endpoint-url", found.endpoint, *account], check=True
        )
        yield found


def owner(server: S3Server) -> Any:
    """A client with all rights."""
    return boto3.client(
        "s3", endpoint_url=server.endpoint, region_name=server.region,
        aws_access_key_id=server.access_key, aws_secret_access_key=server.secret_key,
    )  # fmt: skip


def allow(server: S3Server, statements: list[dict[str, Any]]) -> None:
    """Give the account these rights and no others."""
    granted = [item | {"Principal": {"AWS": [USER]}} for item in statements if item["Action"]]
    text = json.dumps(policy() | {"Statement": granted})
    owner(server).put_bucket_policy(Bucket="shop", Policy=text)


@pytest.fixture
def account(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, with the account's keys in this process's environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", USER)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("AWS_DEFAULT_REGION", server.region)
    return server


def test_the_table_has_every_request_that_the_storage_makes() -> None:
    code = "\n".join(path.read_text() for path in STORAGE.glob("s3*.py"))
    made = set(re.findall(r"""call\(\s*"(\w+)"|get_paginator\("(\w+)"\)""", code))
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| `(s3:\w+)` \|", PAGE, re.MULTILINE)
    listed = {name for names, _ in rows for name in re.findall(r"\w+", names)}
    assert {first or second for first, second in made} == listed
    assert sorted(action for _, action in rows) == ACTIONS


def test_a_job_runs_with_the_policy(account: S3Server, tmp_path: Path) -> None:
    place = str(tmp_path / "job")
    size = ("--scale", "7", "--width", "8", "--hidden", "8", "-q")
    run(tmp_path, "synth", place, *size)
    root = owner(account)
    job = yaml.safe_load((tmp_path / "job" / "job.yaml").read_text())
    spec = job["spec"]
    for part, prefix in ((spec["input"]["edges"][0], "edges"),
                         (spec["input"]["nodes"][0]["features"], "features"),
                         (spec["model"], "models")):  # fmt: skip
        folder = tmp_path / "job" / part["uri"].removeprefix("file://").rpartition("/job/")[2]
        for file in filter(Path.is_file, folder.rglob("*")):
            root.upload_file(str(file), "shop", f"{prefix}/{file.relative_to(folder)}")
        part["uri"] = f"s3://shop/{prefix}/"
    spec["output"] = {"uri": "s3://shop/embeddings/products", "keepVersions": 1}
    spec["storage"] = {"endpointUrl": account.endpoint, "region": account.region}
    manifest = tmp_path / "on-s3.yaml"
    manifest.write_text(yaml.safe_dump(job))
    allow(account, policy()["Statement"])
    for _ in range(2):  # the second deletes the first's version
        run(tmp_path, "run", str(manifest), "--workers", "2", "-q")
    settings = StorageSettings(endpoint_url=account.endpoint, region=account.region)
    assert len(list_versions(open_storage(settings), "s3://shop/embeddings/products")) == 1


def test_folders_above_count_as_far_as_they_may_be_listed(account: S3Server) -> None:
    root = owner(account)
    for key in ("lake/t/_delta_log/0.json", "lake/t/edges/a.parquet"):
        root.put_object(Bucket="shop", Key=key, Body=b"")
    settings = StorageSettings(endpoint_url=account.endpoint, region=account.region)
    storage = open_storage(settings)
    uri = "s3://shop/lake/t/edges/"
    listing = {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": ["arn:aws:s3:::shop"]}
    for prefix in ("lake/t/edges/*", "lake/t/*"):
        allow(account, [listing | {"Condition": {"StringLike": {"s3:prefix": [prefix]}}}])
        if prefix == "lake/t/*":
            with pytest.raises(InputError, match="Delta table: s3://shop/lake/t/_delta_log/ is"):
                FoldersAbove(storage).refuse_tables([uri])
        else:
            FoldersAbove(storage).refuse_tables([uri])
            assert len(storage.scan(uri).objects) == 1
            assert storage.stats.errors == 0


def run(folder: Path, *words: str) -> None:
    ended = Commands(folder).run(*words)
    assert ended.code == 0, ended.err


NEEDS: dict[str, Callable[[Storage], object]] = {
    "s3:ListBucket": lambda storage: storage.list("s3://shop/embeddings/x/"),
    "s3:GetObject": lambda storage: storage.read("s3://shop/embeddings/x/small"),
    "s3:PutObject": lambda storage: storage.write("s3://shop/embeddings/x/other", LARGE),
    "s3:DeleteObject": lambda storage: storage.delete(["s3://shop/embeddings/x/small"]),
    "s3:AbortMultipartUpload": lambda storage: storage.sweep("s3://shop/embeddings/x"),
    "s3:ListBucketMultipartUploads": lambda storage: storage.sweep("s3://shop/embeddings/x"),
}


def leave_objects(server: S3Server) -> None:
    """An object, and an upload that nobody completes."""
    client = owner(server)
    client.put_object(Bucket="shop", Key="embeddings/x/small", Body=b"x")
    client.create_multipart_upload(Bucket="shop", Key="embeddings/x/lost")


@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_is_needed(account: S3Server, action: str) -> None:
    settings = StorageSettings(endpoint_url=account.endpoint, region=account.region)
    storage = open_storage(settings)
    statements = policy()["Statement"]
    allow(account, statements)
    leave_objects(account)
    NEEDS[action](storage)
    leave_objects(account)
    fewer = copy.deepcopy(statements)
    for item in fewer:
        item["Action"] = [name for name in item["Action"] if name != action]
    allow(account, fewer)
    with pytest.raises(AccessDenied):
        NEEDS[action](storage)
