"""Pods that are stopped while they publish leave no multipart uploads; killed ones not for long."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest

from embertide.edge.synth import SynthOptions, synthesize
from embertide.io.storage.opening import open_storage
from embertide.io.storage.protocol import Storage
from embertide.io.versions.retention import ABANDONED_AFTER
from embertide.spec.manifest import EmbeddingJob, load_manifest
from embertide.spec.version_names import new_version, version_uri
from embertide.spec.workers import StorageSettings
from tests.support.commands import Running
from tests.support.patience import SOON_SECONDS, WAIT_SECONDS
from tests.support.pods import local_pods
from tests.support.s3.proxy import Answer, Forward, Request, s3_proxy
from tests.support.s3.server import S3Server
from tests.support.tcp_proxy import TcpProxy
from tests.support.versions import publish_one

pytestmark = pytest.mark.s3

NODES = 1 << 17
"""64 MiB of embeddings: several parts of an upload for each of two workers."""
PODS = 2
UPLOADS_OF_A_PAGE = 1000
RELEASE_SECONDS = 0.3


class HoldingProxy(TcpProxy):
    """Holds requests that begin an upload until both pods have looked for open uploads."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.held = threading.Semaphore(0)
        self._looks = 0
        self._looked = threading.Event()

    def _forward(self, one: socket.socket, other: socket.socket, *, answers: bool = False) -> None:
        if answers:
            super()._forward(one, other, answers=True)
            return
        with suppress(OSError):
            while data := one.recv(65536):
                line = data.split(b"\r\n", 1)[0]
                if line.startswith(b"POST") and b"uploads" in line and b"_probe-" not in line:
                    self.held.release()
                    # A request that is under way arrives, although its sender is gone.
                    self._looked.wait(WAIT_SECONDS)
                elif line.startswith(b"GET") and b"uploads" in line:
                    self._looks += 1
                    if self._looks == PODS:
                        threading.Timer(RELEASE_SECONDS, self._looked.set).start()
                other.sendall(data)
        with suppress(OSError):
            other.shutdown(socket.SHUT_WR)


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[HoldingProxy]:
    found = HoldingProxy(s3.host, int(s3.endpoint.rpartition(":")[2]))
    yield found
    found.close()


def make_job(s3: S3Server, place: str, endpoint: str, folder: Path) -> EmbeddingJob:
    settings = StorageSettings(endpoint_url=s3.endpoint, region=s3.region)
    options = SynthOptions(nodes=NODES, edges=NODES, width=8, layers=1, hidden=8)
    synthesize(open_storage(settings), place, options, lambda *_: None, settings)
    manifest = folder / "job.yaml"
    manifest.write_bytes(open_storage(settings).read(f"{place}/job.yaml"))
    job = load_manifest(manifest)
    storage = job.spec.storage.model_copy(update={"endpoint_url": endpoint})
    return job.model_copy(update={"spec": job.spec.model_copy(update={"storage": storage})})


def open_uploads(s3: S3Server) -> list[str]:
    """Keys of the bucket's multipart uploads that were neither completed nor aborted."""
    client: Any = boto3.client("s3", endpoint_url=s3.endpoint)
    found = client.list_multipart_uploads(Bucket=s3.bucket).get("Uploads", [])
    return [upload["Key"] for upload in found]


@pytest.mark.distributed
def test_an_upload_that_begins_while_its_worker_is_killed_is_aborted(
    s3: S3Server, root: str, proxy: HoldingProxy, tmp_path: Path
) -> None:
    """As of a job that is deleted: both pods are asked to stop, and no attempt follows."""
    job = make_job(s3, root, f"http://127.0.0.1:{proxy.port}", tmp_path)
    others = open_uploads(s3)  # of tests that leave some on purpose
    with local_pods(tmp_path / "pods", job) as made:
        pods = made.attempt("2x1")
        for _ in pods:
            assert proxy.held.acquire(timeout=WAIT_SECONDS), pods[0].log.read_text()
        for pod in pods:
            pod.terminate()
        for pod in pods:
            assert pod.ended(SOON_SECONDS) == 0, pod.log.read_text()
    time.sleep(2 * RELEASE_SECONDS)
    assert open_uploads(s3) == others


def test_what_killed_pods_left_goes_when_the_output_is_published_again(
    s3: S3Server, storage: Storage, root: str
) -> None:
    """Uploads of versions without any object; those of a run that may be at work stay."""
    client: Any = boto3.client("s3", endpoint_url=s3.endpoint)
    now = datetime.now(UTC)
    lost, working = new_version(now - ABANDONED_AFTER - timedelta(hours=1)), new_version(now)
    for version in (lost, working):
        key = f"{version_uri(root, version)}/part-00000.parquet".removeprefix(s3.uri(""))
        client.create_multipart_upload(Bucket=s3.bucket, Key=key)
    publish_one(storage, root, new_version())
    left = [uri.split("/")[-2] for uri in storage.unfinished(root)]
    storage.sweep(root)
    assert left == [working]


def test_more_uploads_than_a_page_are_listed(s3: S3Server, storage: Storage, root: str) -> None:
    client: Any = boto3.client("s3", endpoint_url=s3.endpoint)
    uris = [f"{root}/{number:04d}" for number in range(UPLOADS_OF_A_PAGE + 1)]
    for uri in uris:
        client.create_multipart_upload(Bucket=s3.bucket, Key=uri.removeprefix(s3.uri("")))
    listed = list(storage.unfinished(root))
    storage.sweep(root)
    assert listed == uris
    assert storage.unfinished(root) == []


def by_whole_key(request: Request, forward: Forward) -> Answer:
    """As MinIO: uploads are listed where the prefix is the key of their object, and only there."""
    if request.method != "GET" or "uploads" not in request.query:
        return forward(request)
    answer = forward(request)
    key = f"<Key>{request.query.get('prefix', '')}</Key>".encode()
    if key in answer.body:
        return answer
    empty = b"<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>"
    return replace(answer, body=empty + b"</ListMultipartUploadsResult>")


@pytest.mark.distributed
def test_a_killed_worker_leaves_no_upload_where_those_are_listed_by_key(
    s3: S3Server, root: str, tmp_path: Path
) -> None:
    with s3_proxy(s3.endpoint) as proxy:
        make_job(s3, root, proxy.endpoint, tmp_path)
        text = (tmp_path / "job.yaml").read_text()
        (tmp_path / "job.yaml").write_text(text.replace(s3.endpoint, proxy.endpoint))
        uploading, killed = threading.Event(), threading.Event()

        def hold(request: Request, forward: Forward) -> Answer:
            if request.method == "PUT" and "partNumber" in request.query:
                uploading.set()
                killed.wait(WAIT_SECONDS)
            return by_whole_key(request, forward)

        proxy.rule = hold
        run = Running(tmp_path, "run", str(tmp_path / "job.yaml"), "--grid", "2x1", "--json")
        assert uploading.wait(WAIT_SECONDS), run.output()
        assert any(root.removeprefix(s3.uri("")) in key for key in open_uploads(s3))
        run.kill_workers(2, 0, 1)
        killed.set()
        assert run.done(WAIT_SECONDS).code == 8
    assert [key for key in open_uploads(s3) if root.removeprefix(s3.uri("")) in key] == []
