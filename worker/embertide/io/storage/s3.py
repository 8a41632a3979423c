"""Objects in S3: the protocol's calls as requests; large objects as concurrent ranges and parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import accumulate
from typing import Any, BinaryIO, cast

from botocore.exceptions import ClientError

from embertide.errors import InputChanged, ObjectMissing, StorageError
from embertide.facts.telemetry.transfers import TransferStats
from embertide.io.storage.protocol import (
    CHANGED,
    NAMES_AT_ONCE,
    Listing,
    ObjectInfo,
    OnRetry,
    OnUpload,
    Span,
)
from embertide.io.storage.s3_client import (
    NO_FAULT,
    THREADS,
    S3Client,
    bucket_and_key,
    plain,
    require_key,
)
from embertide.io.storage.s3_errors import (
    CONDITION_FAILED,
    DENIED,
    NO_MULTI_DELETE,
    NO_OBJECT,
    code_of,
    is_missing_object,
    of_answer,
)
from embertide.io.storage.s3_streams import MultipartSink, RangedFile, committing
from embertide.io.storage.s3_upload import S3Upload
from embertide.spec.storage import Store

_DELETE_AT_ONCE = 1000
_FIRST_READ_BYTES = 8 << 20


def open_store(settings: Store, on_retry: OnRetry, on_upload: OnUpload) -> S3Store:
    """A store of S3's; see :mod:`embertide.spec.schemes`."""
    return S3Store(settings, on_retry, on_upload)


class S3Store:
    """See :class:`embertide.io.storage.protocol.Storage`.

    Raises:
        AccessDenied: by all methods, when the store refuses the credentials.
        StoreUnavailable: by all methods, when it does not answer after ``max_attempts``.
    """

    def __init__(
        self,
        settings: Store,
        on_retry: OnRetry = lambda _sentence: None,
        on_upload: OnUpload = lambda _uri: None,
    ) -> None:
        self._settings, self._on_upload = settings, on_upload
        self._client = S3Client(settings, on_retry)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="s3")
        self._deletes_several = True

    @property
    def stats(self) -> TransferStats:
        """What was transferred so far."""
        return self._client.stats

    def __reduce__(self) -> tuple[Any, ...]:
        return S3Store, (self._settings,)

    def list(self, uri: str, *, hidden: bool = False) -> list[ObjectInfo]:
        """The object, or the objects whose keys start with the uri and a slash."""
        bucket, key = bucket_and_key(uri)
        if key and not uri.endswith("/"):
            info = self.stat(uri)
            if info is not None:
                return [info]
        prefix = _folder(key)
        found = [
            info
            for info in self._objects(uri, prefix)
            if _is_listed(info.uri.removeprefix(f"s3://{bucket}/{prefix}"), hidden)
        ]
        if not found:
            raise self._nothing_below(uri)
        return sorted(found, key=lambda info: info.uri)

    def scan(self, uri: str) -> Listing:
        """The object, or the objects whose keys start with the uri and a slash."""
        bucket, key = bucket_and_key(uri)
        if key and not uri.endswith("/"):
            info = self.stat(uri)
            if info is not None:
                return Listing([info], [])
        folder = f"s3://{bucket}/{_folder(key)}"
        objects, hidden = [], set()
        for info in self._objects(uri, _folder(key)):
            name = info.uri.removeprefix(folder)
            if _is_listed(name, hidden=False):
                objects.append(info)
            elif (skipped := _hidden_part(name)) is not None:
                hidden.add(f"{folder}{skipped}")
        if not objects and not hidden:
            raise self._nothing_below(uri)
        return Listing(sorted(objects, key=lambda info: info.uri), sorted(hidden))

    def names(self, folder: str, start: str = "") -> list[str]:  # type: ignore[valid-type]
        """Keys and common prefixes directly below; one request.

        Whether that may be listed at all is part of the question: a refusal counts as no error.
        """
        prefix = _folder(bucket_and_key(folder)[1])
        answer = self._client.call(
            "list_objects_v2", folder, answers=NO_FAULT | DENIED, Prefix=f"{prefix}{start}",
            Delimiter="/", MaxKeys=NAMES_AT_ONCE,
        )  # fmt: skip
        keys = [item["Key"] for item in answer.get("Contents", [])]
        folders = [item["Prefix"] for item in answer.get("CommonPrefixes", [])]
        return sorted(key.removeprefix(prefix) for key in [*keys, *folders] if key != prefix)

    def all_names(self, folder: str, start: str = "") -> list[str]:  # type: ignore[valid-type]
        """Keys and common prefixes directly below; a request for 1000 of either, two at least."""
        prefix = _folder(bucket_and_key(folder)[1])
        pages = partial(self._client.pages, uri=folder, prefix=f"{prefix}{start}", Delimiter="/")
        keys = [item["Key"] for item in pages("Contents")]
        folders = [item["Prefix"] for item in pages("CommonPrefixes")]
        return sorted(key.removeprefix(prefix) for key in [*keys, *folders] if key != prefix)

    def _nothing_below(self, uri: str) -> ObjectMissing:
        return ObjectMissing(
            f"{uri}: no such object at {self._client.endpoint}, nor any below it (names that"
            " begin with '.' or '_' do not count); check the uri"
        )

    def _objects(self, uri: str, prefix: str) -> Iterator[ObjectInfo]:
        bucket, _ = bucket_and_key(uri)
        for item in self._client.pages("Contents", uri, prefix):
            yield ObjectInfo(
                f"s3://{bucket}/{item['Key']}",
                item["Size"],
                plain(item["ETag"]),
                item["LastModified"].timestamp(),
            )

    def list_folders(self, uri: str) -> list[str]:  # type: ignore[valid-type]
        """Common prefixes directly below; none when the bucket has nothing there."""
        prefix = _folder(bucket_and_key(uri)[1])
        found = self._client.pages("CommonPrefixes", uri, prefix, Delimiter="/")
        return sorted(item["Prefix"].removeprefix(prefix).rstrip("/") for item in found)

    def stat(self, uri: str) -> ObjectInfo | None:
        """Size and ETag of an object, None if it does not exist.

        Raises:
            ObjectMissing: the bucket does not exist.
        """
        if uri.endswith("/") or not bucket_and_key(uri)[1]:
            return None
        # A byte instead of HEAD, whose answers have no body, so that 400, 403 and 404 come without
        # the reason: the region, the bucket, the object, or the credentials.
        try:
            info = self._client.get(uri, 0, 1)[1]
        except ObjectMissing as error:
            if is_missing_object(error):
                return None
            raise
        return info if info.size else self._stat_empty(uri)

    def _stat_empty(self, uri: str) -> ObjectInfo:
        """An object without a first byte: the store's answer did not name its state."""
        found = self._client.call("head_object", uri)
        modified = found["LastModified"].timestamp()
        return ObjectInfo(uri, found["ContentLength"], plain(found["ETag"]), modified)

    def read(self, uri: str) -> bytes:
        """All bytes of one state of the object; a large one by several ranges at once."""
        data, info = self._client.get(uri, 0, _FIRST_READ_BYTES)
        if info.size <= len(data):
            return data
        with self.open(uri, info) as file:
            file.seek(len(data))
            return data + file.read()

    def read_range(self, uri: str, start: int, length: int) -> bytes:
        """At most ``length`` bytes from byte ``start``, in one request."""
        return self._client.get(uri, start, length)[0] if length > 0 else b""

    def read_into(self, uri: str, buffer: memoryview, spans: Sequence[Span] = ()) -> int:
        """Fill a buffer with parts of an object, each by a request; the object's size in bytes."""
        ends = list(accumulate(stop - start for start, stop in spans))

        def fetch(span: Span, end: int) -> int:
            data, info = self._client.get(uri, span[0], span[1] - span[0])
            buffer[end - span[1] + span[0] :][: len(data)] = data
            return info.size

        if not spans:
            data = self.read(uri)
            buffer[: len(data)] = data[: len(buffer)]
            return len(data)
        if len(spans) == 1:
            return fetch(spans[0], ends[0])
        return min(self._pool.map(fetch, spans, ends))

    def open(
        self, uri: str, info: ObjectInfo | None = None, spans: Sequence[Span] = ()
    ) -> BinaryIO:
        """Ranged reads of one state of the object.

        Raises:
            InputChanged: it changed since ``info`` was listed, or while it is read.
        """
        if info is None:
            info = self.stat(uri)
        if info is None:
            raise ObjectMissing(f"{uri}: no such object at {self._client.endpoint}; check the uri")
        etag, size = info.etag, info.size

        def fetch(start: int, length: int) -> bytes:
            data, seen = self._client.get(uri, start, length, etag)
            # Of stores whose tags do not change with the contents.
            if seen.size != size:
                raise InputChanged(CHANGED.format(uri=uri))
            return data

        return cast(BinaryIO, RangedFile(fetch, info.size, self._pool, spans=spans))

    def write(self, uri: str, data: bytes) -> ObjectInfo:
        """Create or replace the object; a large one by a multipart upload."""
        upload = S3Upload(self._client, uri, self._on_upload)
        with committing(lambda: MultipartSink(upload, self._pool)) as stream:
            stream.write(data)
        return ObjectInfo(uri, len(data), upload.etag)

    def write_soon(self, uri: str, data: bytes | memoryview) -> None:
        """Write as :meth:`write` does: what a store has accepted lasts."""
        self.write(uri, bytes(data))

    def settle(self, uris: Iterable[str]) -> None:
        """Nothing is left to do."""

    def free_bytes(self, uri: str) -> int | None:  # noqa: ARG002
        """None: a store does not say."""
        return None

    def making_room(
        self,
        uri: str,  # noqa: ARG002
        give_back: Callable[[], object],  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        """Nothing is tried again."""
        return nullcontext()

    def create(self, uri: str) -> AbstractContextManager[BinaryIO]:
        """A stream that becomes a multipart upload, or one put if it is small."""
        upload = S3Upload(self._client, uri, self._on_upload)
        return committing(lambda: MultipartSink(upload, self._pool))

    def write_if(self, uri: str, data: bytes, expected: str | None) -> bool:
        """A conditional put; the store must know If-Match and If-None-Match."""
        condition: dict[str, Any] = {"IfNoneMatch": "*"}
        if expected is not None:
            condition = {"IfMatch": f'"{expected}"'}
        require_key(uri)
        try:
            self._client.call("put_object", uri, Body=data, **condition)
        except StorageError as error:
            cause = error.__cause__
            if not isinstance(cause, ClientError):
                raise
            missing = expected is not None and code_of(cause) in NO_OBJECT
            if not missing and code_of(cause) not in CONDITION_FAILED:
                raise
            # An attempt whose answer was lost may have done it, and then defeats its retry.
            retried = cause.response["ResponseMetadata"].get("RetryAttempts", 0) > 0
            return retried and self._holds(uri, data)
        return True

    def _holds(self, uri: str, data: bytes) -> bool:
        try:
            return self.read(uri) == data
        except ObjectMissing:
            return False

    def try_upload(self, uri: str) -> None:
        """Begin a multipart upload and abort it."""
        upload = S3Upload(self._client, uri, self._on_upload)
        upload.begin()
        upload.cancel()

    def delete(self, uris: Iterable[str]) -> None:
        """Remove objects, up to 1000 with one request; one by one where a store refuses that."""
        buckets: dict[str, Any] = {}
        for uri in uris:
            require_key(uri)
            buckets.setdefault(bucket_and_key(uri)[0], []).append(bucket_and_key(uri)[1])
        for bucket, keys in buckets.items():
            for first in range(0, len(keys), _DELETE_AT_ONCE):
                self._delete(bucket, keys[first : first + _DELETE_AT_ONCE])

    def unfinished(self, folder: str) -> Sequence[str]:
        """URIs of the objects of multipart uploads that were neither completed nor aborted."""
        bucket, key = bucket_and_key(folder)
        uris: list[str] = []
        after: dict[str, Any] = {}
        while True:
            page = self._client.call("list_multipart_uploads", folder, Prefix=_folder(key), **after)
            uris += [f"s3://{bucket}/{upload['Key']}" for upload in page.get("Uploads", [])]
            if not page.get("IsTruncated"):
                return uris
            # With the key alone, the page after it begins with the next key, in every store.
            after = {"KeyMarker": page["NextKeyMarker"]}

    def sweep(self, folder: str, begun: Iterable[str] = ()) -> None:
        """Abort the multipart uploads below the folder that were not completed."""
        prefix = _folder(bucket_and_key(folder)[1])
        self._abort_uploads(folder, prefix)
        for uri in begun:
            key = bucket_and_key(uri)[1]
            if key.startswith(prefix):
                self._abort_uploads(uri, key)

    def _abort_uploads(self, uri: str, prefix: str) -> None:
        bucket, _ = bucket_and_key(uri)
        while True:
            found = self._client.call("list_multipart_uploads", uri, Prefix=prefix)
            for upload in found.get("Uploads", []):
                uri = f"s3://{bucket}/{upload['Key']}"
                self._client.call("abort_multipart_upload", uri, UploadId=upload["UploadId"])
            if not found.get("IsTruncated"):
                return

    def _delete(self, bucket: str, keys: Sequence[str]) -> None:
        if self._deletes_several:
            try:
                self._delete_together(bucket, keys)
                return
            except StorageError as error:
                cause = error.__cause__
                if not isinstance(cause, ClientError) or code_of(cause) not in NO_MULTI_DELETE:
                    raise
        uris = [f"s3://{bucket}/{key}" for key in keys]
        for _ in self._pool.map(self._delete_single, uris):
            pass
        # Only now, since what refuses both requests may be another fault.
        self._deletes_several = False

    def _delete_single(self, uri: str) -> None:
        try:
            self._client.call("delete_object", uri)
        except ObjectMissing as error:
            if not is_missing_object(error):
                raise

    def _delete_together(self, bucket: str, keys: Sequence[str]) -> None:
        wanted = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        answer = self._client.call(
            "delete_objects",
            f"s3://{bucket}/{keys[0]}",
            answers=NO_FAULT | NO_MULTI_DELETE,
            Delete=wanted,
        )
        for failed in answer.get("Errors", []):
            if failed.get("Code") in NO_OBJECT:
                continue
            status = 403 if failed.get("Code") == "AccessDenied" else 500
            response = {"Error": failed, "ResponseMetadata": {"HTTPStatusCode": status}}
            error = ClientError(response, "DeleteObjects")
            uri = f"s3://{bucket}/{failed.get('Key')}"
            raise of_answer(error, uri, self._client.endpoint, self._client.sign_in)


def _folder(key: str) -> str:
    """The prefix of the keys below ``key``."""
    return f"{key.rstrip('/')}/" if key else ""


def _hidden_part(name: str) -> str | None:
    """A name up to its first part that is hidden, with a slash if that is a folder."""
    parts = name.split("/")
    for at, part in enumerate(parts):
        if part.startswith((".", "_")):
            return "/".join(parts[: at + 1]) + ("/" if at + 1 < len(parts) else "")
    return None


def _is_listed(name: str, hidden: bool) -> bool:
    """Hidden names such as ``_SUCCESS`` are listed on demand, folders' empty objects never."""
    visible = not any(part.startswith((".", "_")) for part in name.split("/"))
    return (hidden or visible) and not name.endswith("/")
