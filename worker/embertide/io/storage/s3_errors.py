"""The errors of S3 and its client as this project's, each with what to do.

The codes come from AWS; MinIO, Ceph and versitygw send the same ones and a few of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from botocore import exceptions as boto

from embertide.errors import (
    AccessDenied,
    EmbertideError,
    ObjectMissing,
    OutputError,
    StorageError,
    StoreUnavailable,
)
from embertide.spec import naming
from embertide.spec.storage import NamedStore, Store

CONDITION_FAILED = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}
NO_OBJECT = {"NoSuchKey", "NotFound", "404"}
BEYOND_END = {"InvalidRange", "416"}
DENIED = {"AccessDenied", "403"}
NO_MULTI_DELETE = {
    "MissingContentMD5",
    "InvalidRequest",
    "InvalidArgument",
    "InvalidDigest",
    "BadDigest",
    "MalformedXML",
    "NotImplemented",
    "MethodNotAllowed",
    "400",
    "405",
    "411",
    "501",
}
"""Codes of stores that do not take a deletion of several objects, as without Content-MD5, which the
client no longer sends."""
CONNECTION_LOST = (boto.HTTPClientError, boto.ConnectionError, boto.IncompleteReadError)
"""No connection, or one that was closed or timed out."""

_CREDENTIALS = {
    "InvalidAccessKeyId": "the access key id is unknown",
    "XAdminUserNotFound": "the access key id is unknown",
    "SignatureDoesNotMatch": "the secret key is wrong",
    "ExpiredToken": "the credentials have expired",
    "ExpiredTokenException": "the credentials have expired",
    "TokenRefreshRequired": "the credentials have expired",
    "InvalidToken": "the session token is wrong",
    "RequestTimeTooSkewed": "this machine's clock differs too much from the store's",
}
_FULL = {"XMinioStorageFull", "QuotaExceeded", "InsufficientStorage", "EntityTooLarge"}
_WRONG_REGION = {
    "PermanentRedirect",
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
    "301",
}
_RIGHTS = {
    "ListObjectsV2": "s3:ListBucket",
    "GetObject": "s3:GetObject",
    "HeadObject": "s3:GetObject",
    "PutObject": "s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "DeleteObject": "s3:DeleteObject",
    "DeleteObjects": "s3:DeleteObject",
}
"""The action of a policy that an operation needs."""
_CLIENT_KEY = "stored using a form of Server Side Encryption"
_NO_CHECKSUM = {
    "InvalidRequest",
    "MissingContentMD5",
    "BadDigest",
    "NotImplemented",
    "XAmzContentSHA256Mismatch",
    "InvalidArgument",
}
_CHECKSUM = re.compile(r"checksum|content-md5|trailer|crc32|aws-chunked", re.IGNORECASE)
_OF_KEY = re.compile(r"kms:\w+")
_OF_BUCKETS = {"s3:ListBucket", "s3:ListBucketMultipartUploads"}
_BESIDE = {
    "s3:GetObject": " and s3:ListBucket on the bucket, without which this is also the answer about"
    " objects that do not exist (a bucket whose requesters pay wants requesterPays: true)",
    "s3:ListBucket": " (a bucket whose requesters pay wants requesterPays: true)",
    "s3:PutObject": " (a bucket may demand encryption of each write: spec.storage.encryption)",
}
_NOT_TLS = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
    "HTTP_REQUEST",
)
"""How OpenSSL's versions call an answer that is no TLS."""
_NO_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.TokenRetrievalError,
    boto.SSOError,
    boto.ProfileNotFound,
    boto.ConfigNotFound,
)


class CredentialsUnavailable(boto.CredentialRetrievalError):  # type: ignore[misc]
    """STS or a metadata service did not give credentials at any attempt, and may do so later."""


_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_PUBLIC = "for a public bucket, set anonymous: true in {}"


def code_of(error: boto.ClientError) -> str:
    """Such as ``NoSuchKey``; the HTTP status where the answer had no body."""
    return str(error.response.get("Error", {}).get("Code", ""))


def is_missing_object(error: ObjectMissing) -> bool:
    """Whether the bucket is there and only the object is not."""
    cause = error.__cause__
    return isinstance(cause, boto.ClientError) and code_of(cause) in NO_OBJECT


def how_to_sign_in(settings: Store, env: Mapping[str, str]) -> str:
    """What to do about credentials of a store, where this process runs."""
    field = "spec.storage"
    if isinstance(settings, NamedStore):
        field = f"the entry of spec.storage.stores for {settings.prefix}"
    if settings.anonymous:
        return f"the bucket is not public: take anonymous: true out of {field}, and sign in"
    if naming.ENV_IN_POD not in env:
        if settings.profile is not None:
            return f"look at the profile {settings.profile!r} ({field}.profile)"
        return f"set {_KEYS}, AWS_PROFILE, or give the machine a role; {_PUBLIC.format(field)}"
    if settings.credentials_secret is not None:
        return (
            f"look at {_KEYS} in the Secret {settings.credentials_secret!r} of the job's namespace"
            f" ({field}.credentialsSecret)"
        )
    return (
        f"name a Secret with {_KEYS} in {field}.credentialsSecret, or give the service account"
        f" of the pods (spec.workers.serviceAccountName) a role; {_PUBLIC.format(field)}"
    )


@contextmanager
def translated(uri: str, endpoint: str, sign_in: str) -> Iterator[None]:
    """Raise the client's exceptions as this project's, naming ``uri`` and the endpoint.

    Args:
        sign_in: see :func:`how_to_sign_in`.
    """
    try:
        yield
    except boto.ClientError as error:
        raise of_answer(error, uri, endpoint, sign_in) from error
    except boto.BotoCoreError as error:
        raise _of_client(error, uri, endpoint, sign_in) from error


def of_answer(error: boto.ClientError, uri: str, endpoint: str, sign_in: str) -> EmbertideError:
    """The error for an answer that the store gave."""
    code, bucket = code_of(error), uri.removeprefix("s3://").partition("/")[0]
    message = _message(error)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code == "NoSuchBucket":
        missing = ObjectMissing(f"{uri}: no bucket {bucket!r} at {endpoint}; check the uri")
        missing.no_bucket = True
        return missing
    if code in NO_OBJECT:
        return ObjectMissing(f"{uri}: no such object at {endpoint}; check the uri")
    if code in _CREDENTIALS:
        return AccessDenied(f"{uri}: {_CREDENTIALS[code]} ({endpoint}, {message}); {sign_in}")
    if code in _WRONG_REGION:
        return _wrong_region(error, uri, message)
    if (rule := _rule(code, message, uri, error)) is not None:
        return StorageError(rule)
    if code in _FULL:
        return OutputError(
            f"{uri} cannot be written: the store is full ({message}); raise its quota, lower"
            " output.keepVersions or choose another output.uri"
        )
    if status in (401, 403):
        return _denied(error, message, uri, endpoint, sign_in)
    return _of_status(status, message, uri, endpoint)


def _rule(code: str, message: str, uri: str, error: boto.ClientError) -> str | None:
    """What a rule of the bucket says no to, and what to do; None for anything else."""
    if code == "InvalidObjectState":
        kind = error.response.get("Error", {}).get("StorageClass") or "an archive"
        return (
            f"{uri} is archived in {kind}, and cannot be read ({message}): restore it, or copy"
            " it to a storage class that is read at once"
        )
    if code.startswith("KMS."):
        return (
            f"{uri}: the key that encrypts it cannot be used ({message}): correct"
            " spec.storage.encryption.keyId, or enable the key"
        )
    if _CLIENT_KEY in message:
        return (
            f"{uri} is encrypted with a key of its writer (SSE-C), which is not supported"
            f" ({message}): copy it to an object with SSE-S3 or SSE-KMS"
        )
    if code in _NO_CHECKSUM and _CHECKSUM.search(message):
        return (
            f"{uri}: the store and the write's checksum do not fit ({message}): set"
            " spec.storage.checksums to always where the bucket demands checksums, to whenRequired"
            " where the store does not know them"
        )
    return None


def _denied(
    error: boto.ClientError, message: str, uri: str, endpoint: str, sign_in: str
) -> AccessDenied:
    bucket = uri.removeprefix("s3://").partition("/")[0]
    right = _RIGHTS.get(error.operation_name, "an action")
    if (of_key := _OF_KEY.search(message)) is not None:
        return AccessDenied(
            f"{uri}: {endpoint} denies the use of its encryption key ({message}): allow"
            f" {of_key[0]} on that key"
        )
    place = f"the bucket {bucket!r}" if right in _OF_BUCKETS else f"{uri.rpartition('/')[0]}/*"
    return AccessDenied(
        f"{uri}: {endpoint} denies access with these credentials ({message}): allow {right} on"
        f" {place}{_BESIDE.get(right, '')}, or correct the credentials ({sign_in})"
    )


def _wrong_region(error: boto.ClientError, uri: str, message: str) -> StorageError:
    answer: dict[str, Any] = dict(error.response)
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = answer.get("Error", {}).get("Region") or headers.get("x-amz-bucket-region")
    bucket = uri.removeprefix("s3://").partition("/")[0]
    if region:
        return StorageError(
            f"{uri}: bucket {bucket!r} is in region {region!r} ({message}); set"
            f" spec.storage.region to {region}"
        )
    return StorageError(
        f"{uri}: bucket {bucket!r} is in another region ({message}); set spec.storage.region to its"
        " region"
    )


def reason_of(error: BaseException) -> str:
    """Why there was no answer, in a few words, such as ``connection refused``."""
    if isinstance(error, boto.ConnectTimeoutError | boto.ReadTimeoutError):
        return "timed out"
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.strerror:
            return found.strerror[0].lower() + found.strerror[1:]
        found = found.__cause__ or found.__context__
    return "the connection was lost"


def _of_status(status: int, message: str, uri: str, endpoint: str) -> StorageError:
    if status == 501:
        return StorageError(
            f"{uri}: {endpoint} does not support this request ({message}); publishing needs"
            " conditional writes (If-Match and If-None-Match)"
        )
    if status >= 500 or status == 429:
        return StoreUnavailable(
            f"{uri}: {endpoint} failed at every attempt ({message}); wait and run the job again, or"
            " raise spec.storage.maxAttempts"
        )
    return StorageError(f"{uri}: {endpoint} refused the request ({message})")


def _message(error: boto.ClientError) -> str:
    details: dict[str, Any] = error.response.get("Error", {})
    retries = error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0)
    message = str(details.get("Message", "")).strip()
    text = f"{details.get('Code', '?')}: {message}" if message else str(details.get("Code", "?"))
    return f"{text}, {retries + 1} attempts" if retries else text


def _of_client(error: boto.BotoCoreError, uri: str, endpoint: str, sign_in: str) -> StorageError:
    if isinstance(error, CredentialsUnavailable):
        return StoreUnavailable(
            f"{uri}: the credentials for S3 could not be fetched ({error}); wait and run the job"
            " again, or raise spec.storage.maxAttempts"
        )
    if isinstance(error, _NO_CREDENTIALS):
        return AccessDenied(f"{uri}: no usable credentials for S3 ({error}); {sign_in}")
    if isinstance(error, boto.SSLError) and any(sign in str(error) for sign in _NOT_TLS):
        return StorageError(
            f"{uri}: {endpoint} speaks http, not https: write endpointUrl:"
            f" {endpoint.replace('https://', 'http://', 1)}"
        )
    if isinstance(error, boto.SSLError):
        return StorageError(
            f"{uri}: TLS connection to {endpoint} failed ({error}); for a private certificate"
            " authority set AWS_CA_BUNDLE to the file of its certificate"
        )
    if isinstance(error, CONNECTION_LOST):
        return StoreUnavailable(
            f"{uri}: {endpoint} did not answer ({reason_of(error)}); check"
            " spec.storage.endpointUrl and the network, then run the job again"
        )
    return StorageError(f"{uri}: {error}")
