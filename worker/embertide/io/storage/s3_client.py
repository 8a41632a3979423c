"""Requests to S3: counted, retried, and with this project's errors.

boto3 does the signing, the retries with back-off and the credential chain. It takes a while to
import, so the first ``s3://`` URI imports this module, and nothing else does.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Set
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import boto3
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError, IncompleteReadError

from embertide.errors import EmbertideError, InputChanged, StorageError, StoreUnavailable
from embertide.facts.telemetry.transfers import TransferStats
from embertide.io.storage.protocol import CHANGED, GONE, ObjectInfo, OnRetry
from embertide.io.storage.s3_errors import (
    BEYOND_END,
    CONDITION_FAILED,
    CONNECTION_LOST,
    NO_OBJECT,
    code_of,
    how_to_sign_in,
    reason_of,
    translated,
)
from embertide.io.storage.s3_identity import session_of, share_loader
from embertide.io.storage.s3_retries import Retries
from embertide.spec.storage import Store

THREADS = 8
"""Concurrent requests."""

_READ_TIMEOUT_SECONDS = 60
NO_FAULT = CONDITION_FAILED | NO_OBJECT | BEYOND_END
"""Codes that answer whether an object is there, or is still the same."""
_BEGINS_OBJECT = {"put_object", "create_multipart_upload"}
_CHECKSUMS = {"whenRequired": "when_required", "always": "when_supported"}
_WITHOUT_KEY = {"list_objects_v2", "delete_objects", "list_multipart_uploads"}


class S3Client:
    """One connection pool to one endpoint; calls may come from several threads.

    Attributes:
        endpoint: its URL.
        sign_in: what to do about credentials, for messages.
        stats: what was transferred so far.

    Args:
        on_retry: called with a sentence before each retry; may be called from several threads.
    """

    def __init__(self, settings: Store, on_retry: OnRetry) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self.stats = TransferStats()
        self.endpoint = settings.endpoint_url or "AWS S3"
        self.sign_in = how_to_sign_in(settings, os.environ)
        self._of_request, self._of_object = _rules_of(settings)
        with translated("S3", self.endpoint, self.sign_in):
            self._client = self._connect(on_retry)
        self.endpoint = self._client.meta.endpoint_url
        self._retries = Retries(self.endpoint, settings.max_attempts, on_retry)
        self._client.meta.events.register_first("needs-retry.s3", self._retries.decide)

    def _connect(self, on_retry: OnRetry) -> Any:
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
            request_checksum_calculation=_CHECKSUMS[settings.checksums],
            response_checksum_validation="when_required",
            signature_version=UNSIGNED if settings.anonymous else None,
            user_agent_extra="embertide",
        )
        waiting = Retries("the service of the credentials", settings.max_attempts, on_retry)
        ours = session_of(settings, waiting)
        session = boto3.session.Session(botocore_session=ours)
        # Not before: boto3's session adds a folder to the loader that it finds.
        share_loader(ours)
        client = session.client(
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
        arguments |= self._of_request
        if operation in _BEGINS_OBJECT:
            arguments |= self._of_object
        if operation == "create_multipart_upload" and self._settings.checksums == "always":
            # Else the checksums of the parts have nothing to belong to.
            arguments["ChecksumAlgorithm"] = "CRC32"
        self._count_bytes(written=len(arguments.get("Body", b"")))
        with self._calling(self._client.meta.method_to_api_mapping[operation], uri, answers):
            return getattr(self._client, operation)(Bucket=bucket, **arguments)

    def pages(self, field: str, uri: str, prefix: str, **more: str) -> Iterator[Any]:
        """One field of all pages of a listing of the bucket of ``uri``."""
        pages = self._client.get_paginator("list_objects_v2")
        more |= self._of_request
        with self._calling("ListObjectsV2", uri):
            for page in pages.paginate(Bucket=bucket_and_key(uri)[0], Prefix=prefix, **more):
                yield from page.get(field, [])

    def get(self, uri: str, start: int, length: int, etag: str = "") -> tuple[bytes, ObjectInfo]:
        """A range of bytes and the object it comes from; with ``etag`` from that state only.

        A connection lost within the body is retried here: boto3 retries until the first byte.

        Raises:
            InputChanged: with ``etag``: the object has another state now, or is gone.
        """
        arguments: dict[str, Any] = {"Range": f"bytes={start}-{start + length - 1}"}
        if etag:
            arguments["IfMatch"] = f'"{etag}"'
        attempt = 1
        while True:
            try:
                answer = self.call("get_object", uri, **arguments)
                with closing(answer["Body"]) as body:
                    size = self._size_in(answer, uri, start, length, etag)
                    data: bytes = body.read()
                if len(data) != (expected := min(length, size - start)):
                    raise IncompleteReadError(actual_bytes=len(data), expected_bytes=expected)
                break
            except CONNECTION_LOST as error:
                pause = self._retries.pause(attempt, reason_of(error))
                if pause is None:
                    self._count("GetObject", errors=1)
                    raise self._connection_lost(uri, error) from error
            except StorageError as error:
                return self._no_range(uri, error, etag)
            self._count("GetObject", retries=1)
            time.sleep(pause)
            attempt += 1
        self._count_bytes(read=len(data))
        modified = answer["LastModified"].timestamp()
        return data, ObjectInfo(uri, size, plain(answer["ETag"]), modified)

    def _size_in(self, answer: Any, uri: str, start: int, length: int, etag: str) -> int:
        """The object's size, from an answer about a range of it that is what was asked for.

        Stores differ in what they make of conditions and ranges that they do not know.
        """
        if etag and plain(answer["ETag"]) != etag:
            raise InputChanged(CHANGED.format(uri=uri))
        if (part := answer.get("ContentRange")) is not None:
            return int(part.rpartition("/")[2])
        size = int(answer["ContentLength"])
        if start > 0 or size > length:
            raise StorageError(
                f"{uri}: {self.endpoint} answers with the whole object where a range of it is asked"
                " for; reading needs a store that knows the header Range"
            )
        return size

    def _connection_lost(self, uri: str, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(
            f"{uri}: the connection to {self.endpoint} was lost {self._settings.max_attempts} times"
            f" while reading ({error}); check the network, then run the job again"
        )

    def _no_range(self, uri: str, error: StorageError, etag: str) -> tuple[bytes, ObjectInfo]:
        cause = error.__cause__
        code = code_of(cause) if isinstance(cause, ClientError) else ""
        if code in BEYOND_END and not etag:
            return b"", ObjectInfo(uri, 0, "")
        if code in CONDITION_FAILED | BEYOND_END:
            raise InputChanged(CHANGED.format(uri=uri)) from cause
        if etag and code in NO_OBJECT:
            raise InputChanged(GONE.format(uri=uri)) from cause
        raise error


def _rules_of(settings: Store) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a bucket's rules ask for: arguments of every request, and of those that make objects."""
    of_object: dict[str, Any] = {}
    if (encryption := settings.encryption) is not None:
        of_object["ServerSideEncryption"] = encryption.algorithm
        if encryption.key_id is not None:
            of_object["SSEKMSKeyId"] = encryption.key_id
        if encryption.bucket_key is not None:
            of_object["BucketKeyEnabled"] = encryption.bucket_key
    return ({"RequestPayer": "requester"} if settings.requester_pays else {}), of_object


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
