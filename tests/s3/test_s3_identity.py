"""Credentials of services: hiccups are waited out, refusals are final, and a process asks once."""

from __future__ import annotations

import http.server
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.utils import ContainerMetadataFetcher

from embertide.errors import AccessDenied, StoreUnavailable
from embertide.io.storage import s3_retries
from embertide.io.storage.opening import open_storage
from embertide.io.storage.protocol import Storage
from embertide.spec.workers import StorageSettings
from tests.support.s3.server import S3Server

pytestmark = pytest.mark.s3

Answer = tuple[int, str]
_STS = "https://sts.amazonaws.com/doc/2011-06-15/"


class Service:
    """STS and the metadata services of machines and containers, as one server.

    Attributes:
        troubles: what is answered first, one after another.
        asked: the paths so far.
    """

    def __init__(self, endpoint: str, keys: dict[str, str]) -> None:
        self.endpoint, self._keys = endpoint, keys
        self.troubles: list[Answer] = []
        self.asked: list[str] = []

    def answer(self, method: str, path: str) -> Answer:
        self.asked.append(path)
        # As slow as a service is, so that threads meet there.
        time.sleep(0.05)
        if self.troubles:
            return self.troubles.pop(0)
        if path.endswith("/security-credentials/"):
            return 200, "role"
        if method == "PUT":
            return 200, "token"
        until = (datetime.now(UTC) + timedelta(hours=6)).strftime("%Y-%m-%dT%H:%M:%SZ")
        key, secret = self._keys["AWS_ACCESS_KEY_ID"], self._keys["AWS_SECRET_ACCESS_KEY"]
        if method == "POST":
            inner = f"<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>"
            inner += f"<SessionToken></SessionToken><Expiration>{until}</Expiration>"
            result = f"<AssumeRoleWithWebIdentityResult><Credentials>{inner}</Credentials>"
            result += "<AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/r/s</Arn>"
            result += "<AssumedRoleId>x:s</AssumedRoleId></AssumedRoleUser>"
            result += "</AssumeRoleWithWebIdentityResult>"
            name = "AssumeRoleWithWebIdentityResponse"
            return 200, f'<{name} xmlns="{_STS}">{result}</{name}>'
        found = {"AccessKeyId": key, "SecretAccessKey": secret, "Token": "", "Expiration": until}
        return 200, json.dumps(found)


@contextmanager
def serving(keys: dict[str, str]) -> Iterator[Service]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, text = service.answer(self.command, self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_PUT = do_POST = do_GET

        def log_message(self, *_: object) -> None:
            """Nothing on stderr."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service = Service(f"http://127.0.0.1:{server.server_port}", keys)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield service
        server.shutdown()
        thread.join()


@pytest.fixture
def service(s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Service]:
    """A service with the server's keys, and no other credentials in this process."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_DEFAULT_REGION", s3.region)
    monkeypatch.setattr(s3_retries, "pause_seconds", lambda _attempt: 0.01)
    monkeypatch.setattr(ContainerMetadataFetcher, "SLEEP_TIME", 0.01)
    monkeypatch.setattr(ContainerMetadataFetcher, "TIMEOUT_SECONDS", 60)
    with serving(s3.environment) as found:
        yield found


def web_identity(service: Service, folder: Path) -> dict[str, str]:
    (folder / "token").write_text(secrets.token_hex(4))
    return {
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/r",
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(folder / "token"),
        "AWS_ENDPOINT_URL_STS": service.endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def container(service: Service, _folder: Path) -> dict[str, str]:
    return {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{service.endpoint}/creds",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def machine(service: Service, _folder: Path) -> dict[str, str]:
    return {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{service.endpoint}/"}


Kind = Callable[[Service, Path], dict[str, str]]
KINDS: list[Kind] = [web_identity, container, machine]


def opened(
    s3: S3Server, kind: Kind, service: Service, folder: Path, monkeypatch: pytest.MonkeyPatch,
    told: list[str],
) -> Storage:  # fmt: skip
    for name, value in kind(service, folder).items():
        monkeypatch.setenv(name, value)
    settings = StorageSettings(endpoint_url=s3.endpoint, region=s3.region, max_attempts=3)
    return open_storage(settings, told.append)


@pytest.mark.parametrize("kind", KINDS)
def test_a_hiccup_is_waited_out(
    s3: S3Server, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    told: list[str] = []
    # Of a container and a machine, three requests are one attempt of ours.
    service.troubles = [(503, "<html>busy</html>")] * (2 if kind is web_identity else 6)
    storage = opened(s3, kind, service, tmp_path, monkeypatch, told)
    storage.write(s3.uri("identity"), b"1")
    assert storage.read(s3.uri("identity")) == b"1"
    assert told
    assert all(text.startswith("the service of the credentials does not ans") for text in told)


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_stays_away_may_come_back(
    s3: S3Server, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    service.troubles = [(500, "")] * 100
    storage = opened(s3, kind, service, tmp_path, monkeypatch, [])
    with pytest.raises(StoreUnavailable, match="credentials for S3 could not be fetched") as caught:
        storage.read(s3.uri("x"))
    assert not caught.value.permanent
    service.troubles = []
    storage.write(s3.uri("identity"), b"1")


def refusal(code: str) -> str:
    return f"<ErrorResponse><Error><Code>{code}</Code><Message>no</Message></Error></ErrorResponse>"


@pytest.mark.parametrize(
    ("kind", "answer", "said"),
    [
        (web_identity, (403, refusal("AccessDenied")), "AccessDenied"),
        (web_identity, (400, refusal("InvalidIdentityToken")), "InvalidIdentityToken"),
        (container, (403, "no"), "non 200 response 403"),
        (machine, (404, "none"), "Unable to locate credentials"),
    ],
)
def test_a_refusal_is_final(
    s3: S3Server, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    kind: Kind, answer: Answer, said: str,
) -> None:  # fmt: skip
    told: list[str] = []
    service.troubles = [answer] * 100
    storage = opened(s3, kind, service, tmp_path, monkeypatch, told)
    with pytest.raises(AccessDenied, match=f"no usable credentials.*{said}"):
        storage.read(s3.uri("x"))
    assert told == []


def test_a_token_that_is_not_there(
    s3: S3Server, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = opened(s3, web_identity, service, tmp_path, monkeypatch, [])
    (tmp_path / "token").unlink()
    with pytest.raises(AccessDenied, match=f"no usable credentials.*{tmp_path}/token"):
        storage.read(s3.uri("x"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_asks_once(
    s3: S3Server, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    """Whatever the number of its threads, and of its clients."""
    storages = [opened(s3, kind, service, tmp_path, monkeypatch, []) for _ in range(2)]
    calls = [(storage, f"{s3.uri('identity')}-{n}") for storage in storages for n in range(8)]

    def write(call: tuple[Storage, str]) -> Any:
        return call[0].write(call[1], b"1")

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(write, calls))
    # Of a machine: a token, the role's name, its keys.
    assert len(service.asked) == (3 if kind is machine else 1)


def test_threads_that_wait_fail_together(
    s3: S3Server, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.troubles = [(500, "")] * 10_000
    storage = opened(s3, web_identity, service, tmp_path, monkeypatch, told := [])

    def fails(number: int) -> bool:
        with pytest.raises(StoreUnavailable):
            storage.read(s3.uri(str(number)))
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(fails, range(8)))
    assert len(told) == 2
