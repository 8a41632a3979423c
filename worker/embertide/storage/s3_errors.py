"""The errors of S3 and its client as this project's, each with what to do.

The codes come from AWS; MinIO, Ceph and versitygw send the same ones and a few of their own.
"""

from __future__ import annotations

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

CONDITION_FAILED = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}
NO_OBJECT = {"NoSuchKey", "NotFound", "404"}
BEYOND_END = {"InvalidRange", "416"}
DENIED = {"AccessDenied", "403"}
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
_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


def code_of(error: boto.ClientError) -> str:
    """Such as ``NoSuchKey``; the HTTP status where the answer had no body."""
    return str(error.response.get("Error", {}).get("Code", ""))


def is_missing_object(error: ObjectMissing) -> bool:
    """Whether the bucket is there and only the object is not."""
    cause = error.__cause__
    return isinstance(cause, boto.ClientError) and code_of(cause) in NO_OBJECT


def how_to_sign_in(secret: str | None, env: Mapping[str, str]) -> str:
    """What to do about credentials, where this process runs.

    Args:
        secret: ``spec.storage.credentialsSecret``.
    """
    if naming.ENV_IN_POD not in env:
        return f"set {_KEYS}, AWS_PROFILE, or give the machine a role"
    if secret is not None:
        return (
            f"look at {_KEYS} in the Secret {secret!r} of the job's namespace"
            " (spec.storage.credentialsSecret)"
        )
    return (
        f"name a Secret with {_KEYS} in spec.storage.credentialsSecret, or give the service account"
        " of the pods (spec.workers.serviceAccountName) a role"
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
    said = _said(error)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code == "NoSuchBucket":
        missing = ObjectMissing(f"{uri}: no bucket {bucket!r} at {endpoint}; check the uri")
        missing.no_bucket = True
        return missing
    if code in NO_OBJECT:
        return ObjectMissing(f"{uri}: no such object at {endpoint}; check the uri")
    if code in _CREDENTIALS:
        return AccessDenied(f"{uri}: {_CREDENTIALS[code]} ({endpoint}, {said}); {sign_in}")
    if code in _WRONG_REGION:
        return _wrong_region(error, uri, said)
    if code in _FULL:
        return OutputError(
            f"{uri} cannot be written: the store is full ({said}); raise its quota, lower"
            " output.keepVersions or choose another output.uri"
        )
    return _of_status(status, said, uri, endpoint, sign_in)


def _wrong_region(error: boto.ClientError, uri: str, said: str) -> StorageError:
    answer: dict[str, Any] = dict(error.response)
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = answer.get("Error", {}).get("Region") or headers.get("x-amz-bucket-region")
    bucket = uri.removeprefix("s3://").partition("/")[0]
    if region:
        return StorageError(
            f"{uri}: bucket {bucket!r} is in region {region!r} ({said}); set spec.storage.region to"
            f" {region}"
        )
    return StorageError(
        f"{uri}: bucket {bucket!r} is in another region ({said}); set spec.storage.region to its"
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


def _of_status(status: int, said: str, uri: str, endpoint: str, sign_in: str) -> StorageError:
    if status in (401, 403):
        return AccessDenied(
            f"{uri}: {endpoint} denies access with these credentials ({said}): correct"
            f" them ({sign_in}), or allow s3:ListBucket on the bucket and s3:GetObject,"
            " s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload on its objects as far as"
            " they are needed"
        )
    if status == 501:
        return StorageError(
            f"{uri}: {endpoint} does not support this request ({said}); publishing needs"
            " conditional writes (If-Match and If-None-Match)"
        )
    if status >= 500 or status == 429:
        return StoreUnavailable(
            f"{uri}: {endpoint} failed at every attempt ({said}); wait and run the job again, or"
            " raise spec.storage.maxAttempts"
        )
    return StorageError(f"{uri}: {endpoint} refused the request ({said})")


def _said(error: boto.ClientError) -> str:
    details: dict[str, Any] = error.response.get("Error", {})
    retries = error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0)
    message = str(details.get("Message", "")).strip()
    text = f"{details.get('Code', '?')}: {message}" if message else str(details.get("Code", "?"))
    return f"{text}, {retries + 1} attempts" if retries else text


def _of_client(error: boto.BotoCoreError, uri: str, endpoint: str, sign_in: str) -> StorageError:
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
