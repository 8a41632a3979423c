"""The options of a LanceDB in S3: a job's ``spec.storage`` in LanceDB's words.

LanceDB has another client. Where an option is unset, it looks for credentials as others do: in
variables, and at the services of the machine or of the service account.
"""

from __future__ import annotations

from embertide.errors import AccessDenied
from embertide.io.storage.s3_credentials import MountedCredentials
from embertide.io.storage.s3_identity import folder_of
from embertide.spec.storage import Encryption, Store


def s3_options(store: Store) -> dict[str, str]:
    """Options for ``lancedb.connect``.

    Raises:
        AccessDenied: the keys of the mounted Secret are missing or empty.
    """
    options = {
        "aws_endpoint": store.endpoint_url,
        "allow_http": "true" if (store.endpoint_url or "").startswith("http://") else None,
        "aws_region": store.region,
        "aws_virtual_hosted_style_request": "true" if store.path_style is False else None,
        "aws_skip_signature": "true" if store.anonymous else None,
        "aws_request_payer": "true" if store.requester_pays else None,
        **_encryption(store.encryption),
        **_keys(store),
    }
    return {name: value for name, value in options.items() if value is not None}


def _encryption(wanted: Encryption | None) -> dict[str, str | None]:
    if wanted is None:
        return {}
    bucket_key = None if wanted.bucket_key is None else str(wanted.bucket_key).lower()
    return {
        "aws_server_side_encryption": wanted.algorithm,
        "aws_sse_kms_key_id": wanted.key_id,
        "aws_sse_bucket_key_enabled": bucket_key,
    }


def _keys(store: Store) -> dict[str, str | None]:
    """The keys of the Secret that a pod has as files; those of others LanceDB finds itself."""
    folder = folder_of(store)
    if folder is None or store.anonymous:
        return {}
    keys = MountedCredentials(folder).get_frozen_credentials()
    if not keys.access_key:
        raise AccessDenied(f"the Secret {store.credentials_secret} has no keys for LanceDB")
    return {
        "aws_access_key_id": keys.access_key,
        "aws_secret_access_key": keys.secret_key,
        "aws_session_token": keys.token,
    }
