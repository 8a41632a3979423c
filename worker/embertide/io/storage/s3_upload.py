"""Requests that write one object: a put, or a multipart upload."""

from __future__ import annotations

from functools import partial
from typing import Any

from embertide.io.storage.protocol import OnUpload
from embertide.io.storage.s3_client import S3Client, plain, require_key

_PART = ("ETag", "ChecksumCRC32")
"""What of the answer about a part completes the upload, as far as it is there."""


class S3Upload:
    """See :class:`embertide.io.storage.s3_streams.Upload`."""

    def __init__(self, client: S3Client, uri: str, on_upload: OnUpload) -> None:
        require_key(uri)
        self._note = partial(on_upload, uri)
        self._call = partial(client.call, uri=uri)
        self._id, self.etag = "", ""

    def put(self, data: bytes | bytearray) -> None:
        """The whole object in one request."""
        self.etag = plain(self._call("put_object", Body=data)["ETag"])

    def begin(self) -> None:
        """Start a multipart upload."""
        self._note()
        self._id = self._call("create_multipart_upload")["UploadId"]

    def put_part(self, number: int, data: bytes | bytearray) -> Any:
        """Upload part ``number``, from 1; returns what ``finish`` needs of it."""
        sent = self._call("upload_part", UploadId=self._id, PartNumber=number, Body=data)
        return {"PartNumber": number} | {name: sent[name] for name in _PART if name in sent}

    def finish(self, parts: list[Any]) -> None:
        """Complete the multipart upload, which makes the object visible."""
        answer = self._call(
            "complete_multipart_upload", UploadId=self._id, MultipartUpload={"Parts": parts}
        )
        self.etag = plain(answer["ETag"])

    def cancel(self) -> None:
        """Abort the multipart upload, which removes its parts."""
        self._call("abort_multipart_upload", UploadId=self._id)
