"""Stores that do not answer, or not as they should: how long that is borne, and what is said."""

from __future__ import annotations

import http.server
import json
import pickle
import re
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embertide.errors import ObjectMissing, StorageError, StoreUnavailable
from embertide.io.storage.opening import open_storage
from embertide.spec.workers import StorageSettings
from tests.support.commands import Running
from tests.support.s3.jobs import SmallS3Job
from tests.support.s3.server import S3Server

pytestmark = pytest.mark.s3


class Answers(http.server.BaseHTTPRequestHandler):
    """The same answer to every request."""

    status, body, header = 200, b"", ("x-none", "")

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.send_header(*self.header)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(self.body)

    do_HEAD = do_PUT = do_GET

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


@contextmanager
def answering(status: int, body: str, *header: str) -> Iterator[str]:
    """The endpoint of a server on a real socket."""
    fields = {"status": status, "body": body.encode()} | ({"header": header} if header else {})
    handler = type("Same", (Answers,), fields)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


def test_a_refused_connection_is_borne_for_seconds_and_told(s3: S3Server) -> None:
    s3.stop()
    told: list[str] = []

    def note(sentence: str) -> None:
        told.append(sentence)
        if len(told) == 2:
            s3.start()

    storage = open_storage(StorageSettings(endpoint_url=s3.endpoint, region=s3.region), note)
    began = time.monotonic()
    with pytest.raises(ObjectMissing):
        storage.read(s3.uri("nothing-here"))
    assert time.monotonic() - began >= 1.5
    assert len(told) >= 2
    assert told[0] == f"{s3.endpoint} does not answer (connection refused), attempt 2 of 5"
    assert [int(text.split()[-3]) for text in told] == list(range(2, 2 + len(told)))
    assert storage.stats.retries == len(told)


def test_a_port_that_stays_closed_ends_it(credentials: None) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
        told: list[str] = []
        settings = StorageSettings(endpoint_url=endpoint, region="r", max_attempts=3)
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"did not answer \(connection refused\)"):
            open_storage(settings, told.append).read("s3://b/x")
    assert time.monotonic() - began >= 1.5
    assert [text[-6:] for text in told] == ["2 of 3", "3 of 3"]


def test_a_failing_gateway_is_told(credentials: None) -> None:
    told: list[str] = []
    with answering(502, "<html>Bad Gateway</html>") as endpoint:
        settings = StorageSettings(endpoint_url=endpoint, region="r", max_attempts=2)
        with pytest.raises(StoreUnavailable, match="failed at every attempt"):
            open_storage(settings, told.append).read("s3://b/x")
    assert told == [f"{endpoint} does not answer (HTTP status 502), attempt 2 of 2"]


def test_what_is_told_stays_in_its_process(s3: S3Server) -> None:
    settings = StorageSettings(endpoint_url=s3.endpoint, region=s3.region, max_attempts=2)

    def refuse(_sentence: str) -> None:
        raise AssertionError

    copy = pickle.loads(pickle.dumps(open_storage(settings, refuse)))  # noqa: S301
    s3.stop()
    with pytest.raises(StoreUnavailable):
        copy.read(s3.uri("x"))


def test_https_on_an_http_port_is_named(s3: S3Server) -> None:
    endpoint = s3.endpoint.replace("http://", "https://")
    storage = open_storage(StorageSettings(endpoint_url=endpoint, region=s3.region))
    message = f"{endpoint} speaks http, not https: write endpointUrl: {s3.endpoint}"
    with pytest.raises(StorageError, match=re.escape(message)):
        storage.list(s3.uri("x"))


def test_a_region_that_the_store_corrects_works(s3: S3Server) -> None:
    settings = StorageSettings(endpoint_url=s3.endpoint, region="eu-nowhere-9")
    storage, uri = open_storage(settings), s3.uri(f"region-{secrets.token_hex(4)}")
    assert storage.stat(uri) is None
    storage.write(uri, b"1")
    assert [info.size for info in storage.list(uri)] == [1]
    assert storage.read(uri) == b"1"


_MALFORMED = (
    "<Error><Code>AuthorizationHeaderMalformed</Code><Message>the region 'r' is wrong; expecting"
    " '{region}'</Message>{tag}</Error>"
)


@pytest.mark.parametrize(
    ("status", "tag", "header", "advice"),
    [
        (400, "<Region>eu-x-2</Region>", (), "is in region 'eu-x-2'.*region to eu-x-2"),
        (301, "", ("x-amz-bucket-region", "eu-x-2"), "is in region 'eu-x-2'.*region to eu-x-2"),
        (400, "", (), "is in another region.*set spec.storage.region to its region"),
    ],
)
def test_a_wrong_region_is_named(
    credentials: None, status: int, tag: str, header: tuple[str, ...], advice: str
) -> None:
    body = _MALFORMED.format(region="eu-x-2", tag=tag)
    with answering(status, body, *header) as endpoint:
        storage = open_storage(StorageSettings(endpoint_url=endpoint, region="r"))
        for call in (storage.stat, storage.list, storage.read):
            with pytest.raises(StorageError, match=f"^s3://b/x: bucket 'b' {advice}"):
                call("s3://b/x")


@pytest.mark.distributed
def test_a_run_says_that_its_store_does_not_answer(s3: S3Server, tmp_path: Path) -> None:
    job = SmallS3Job(s3, s3.endpoint, tmp_path)
    s3.stop()
    run = Running(tmp_path, "run", str(job.file), "--grid", "1x1", "--json")
    sentence = f"{s3.endpoint} does not answer (connection refused), attempt 2 of 5"
    while sentence not in run.output():
        assert run.process.poll() is None, run.output()
        time.sleep(0.01)
    s3.start()
    done = run.done(120)
    assert done.code == 0
    told = [json.dumps(event) for event in done.events if event.get("message") == sentence]
    assert '"stage": "start"' in told[0]
