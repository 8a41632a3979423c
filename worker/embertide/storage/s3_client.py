"""Requests to S3: counted, retried, and with this project's errors.

boto3 does the signing, the retries with back-off and the credential chain. It takes a while to
import, so the first ``s3://`` URI imports this module, and nothing else does.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import ClientError

from embertide.errors import EmbertideError, InputError, StorageError, StoreUnavailable
from embertide.spec import naming
from embertide.spec.workers import StorageSettings
from embertide.storage.protocol import ObjectInfo, OnRetry
from embertide.storage.s3_credentials import prefer_files
from embertide.storage.s3_errors import (
    BEYOND_END,
    CONDITION_FAILED,
    CONNECTION_LOST,
    NO_OBJECT,
    code_of,
    how_to_sign_in,
    reason_of,
    translated,
)
from embertide.storage.s3_retries import Retries
from embertide.telemetry.transfers import TransferStats

THREADS = 8
"""Concurrent requests."""

_READ_TIMEOUT_SECONDS = 60
NO_FAULT = CONDITION_FAILED | NO_OBJECT | BEYOND_END
"""Codes that answer whether an object is there, or is still the same."""
_WITHOUT_KEY = {"list_objects_v2", "delete_objects", "list_multipart_uploads"}


class S3Client:
    """One connection pool to one endpoint; calls may come from several threads.

    Attributes:
        endpoint: its URL.
        sign_in: what to do about credentials, for messages.
        stats: what was transferred so far.

    Args:
        on_retry: told a sentence before each retry; may be called from several threads.
    """

    def __init__(self, settings: StorageSettings, on_retry: OnRetry) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self.stats = TransferStats()
        self.endpoint = settings.endpoint_url or "AWS S3"
        self.sign_in = how_to_sign_in(settings.credentials_secret, os.environ)
        with translated("S3", self.endpoint, self.sign_in):
            self._client = self._connect()
        self.endpoint = self._client.meta.endpoint_url
        self._retries = Retries(self.endpoint, settings.max_attempts, on_retry)
        self._client.meta.events.register_first("needs-retry.s3", self._retries.decide)

    def _connect(self) -> Any:
        settings = self._settings
        path_style = settings.path_style
        if path_style is None:
            path_style = settings.endpoint_url is not None
        config = Config(
            retries={"mode": "standard", "total_max_attempts": settings.max_attempts},
            connect_timeout=settings.connect_timeout_seconds,
            read_timeout=_READ_TIMEOUT_SECONDS,
            max_pool_connections=THREADS + 2,
            s3={"addressing_style": "path" if path_style else "auto"},
            # Many stores do not support trailing checksums; published parts are read back anyway.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            user_agent_extra="embertide",
        )
        session = botocore.session.get_session()
        if folder := os.environ.get(naming.ENV_CREDENTIALS_FOLDER):
            prefer_files(session, Path(folder))
        client = boto3.session.Session(botocore_session=session).client(
            "s3", endpoint_url=settings.endpoint_url, region_name=settings.region, config=config
        )
        # Every call's first attempt is taken off the retries.
        client.meta.events.register("before-call.s3", partial(self._on_event, retries=-1))
        client.meta.events.register("before-send.s3", partial(self._on_event, 1, retries=1))
        return client

    def _on_event(self, requests: int = 0, *, retries: int, event_name: str, **_: Any) -> None:
        """botocore's events are named like ``before-send.s3.GetObject``."""
        self._count(event_name.rpartition(".")[2], requests, retries)

    def _count(self, operation: str, requests: int = 0, retries: int = 0, errors: int = 0) -> None:
        with self._lock:
            counted = self.stats.of(operation)
            counted.requests += requests
            counted.retries += retries
            counted.errors += errors

    def _count_bytes(self, read: int = 0, written: int = 0) -> None:
        with self._lock:
            self.stats.bytes_read += read
            self.stats.bytes_written += written

    @contextmanager
    def _calling(self, operation: str, uri: str, answers: Set[str] = NO_FAULT) -> Iterator[None]:
        """Raise this project's errors, and count them unless their codes are ``answers``."""
        try:
            with translated(uri, self.endpoint, self.sign_in):
                yield
        except EmbertideError as error:
            cause = error.__cause__
            if not isinstance(cause, ClientError) or code_of(cause) not in answers:
                self._count(operation, errors=1)
            raise

    def call(
        self, operation: str, uri: str, *, answers: Set[str] = NO_FAULT, **arguments: Any
    ) -> Any:
        """One operation of boto3's client on the bucket and key of ``uri``.

        Args:
            answers: codes of errors that are raised but not counted, since they answer what is
                asked.
        """
        bucket, key = bucket_and_key(uri)
        if operation not in _WITHOUT_KEY:
            arguments["Key"] = key
        self._count_bytes(written=len(arguments.get("Body", b"")))
        with self._calling(self._client.meta.method_to_api_mapping[operation], uri, answers):
            return getattr(self._client, operation)(Bucket=bucket, **arguments)

    def pages(self, field: str, uri: str, prefix: str, **more: str) -> Iterator[Any]:
        """One field of all pages of a listing of the bucket of ``uri``."""
        pages = self._client.get_paginator("list_objects_v2")
        with self._calling("ListObjectsV2", uri):
            for page in pages.paginate(Bucket=bucket_and_key(uri)[0], Prefix=prefix, **more):
                yield from page.get(field, [])

    def get(self, uri: str, start: int, length: int, etag: str = "") -> tuple[bytes, ObjectInfo]:
        """A range of bytes and the object it comes from; with ``etag`` from that state only.

        A connection lost within the body is retried here: boto3 retries until the first byte.
        """
        arguments: dict[str, Any] = {"Range": f"bytes={start}-{start + length - 1}"}
        if etag:
            arguments["IfMatch"] = f'"{etag}"'
        attempt = 1
        while True:
            try:
                answer = self.call("get_object", uri, **arguments)
                data: bytes = answer["Body"].read()
                break
            except CONNECTION_LOST as error:
                pause = self._retries.pause(attempt, reason_of(error))
                if pause is None:
                    self._count("GetObject", errors=1)
                    raise self._connection_lost(uri, error) from error
            except StorageError as error:
                return self._no_range(uri, error)
            self._count("GetObject", retries=1)
            time.sleep(pause)
            attempt += 1
        self._count_bytes(read=len(data))
        size = int(answer["ContentRange"].rpartition("/")[2])
        modified = answer["LastModified"].timestamp()
        return data, ObjectInfo(uri, size, plain(answer["ETag"]), modified)

    def _connection_lost(self, uri: str, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(
            f"{uri}: the connection to {self.endpoint} was lost {self._settings.max_attempts} times"
            f" while reading ({error}); check the network, then run the job again"
        )

    def _no_range(self, uri: str, error: StorageError) -> tuple[bytes, ObjectInfo]:
        cause = error.__cause__
        code = code_of(cause) if isinstance(cause, ClientError) else ""
        if code in BEYOND_END:
            return b"", ObjectInfo(uri, 0, "")
        if code in CONDITION_FAILED:
            raise InputError(f"{uri} changed after it was listed; run the job again") from cause
        raise error


def plain(etag: str) -> str:
    """An ETag without the quotes that HTTP puts around it."""
    return etag.strip('"')


def bucket_and_key(uri: str) -> tuple[str, str]:
    """``s3://bucket/key`` as (bucket, key); the key may be empty.

    Raises:
        StorageError: no bucket is named.
    """
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    if not bucket:
        raise StorageError(f"{uri} names no bucket; it should be like s3://bucket/key")
    return bucket, key


def require_key(uri: str) -> None:
    """Refuse a URI that names a bucket only.

    Raises:
        StorageError: says what it should be like.
    """
    if not bucket_and_key(uri)[1]:
        raise StorageError(f"{uri} names a bucket only; it should be like s3://bucket/key")
