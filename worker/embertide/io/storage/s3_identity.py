"""Who a process is to S3: credentials that are fetched once for all its clients and threads.

STS and the metadata services of machines and containers have hiccups as stores have. Only what they
answer about the key itself is final; everything else is tried again, with the pauses of requests to
the store (`s3_retries.py`).
"""

from __future__ import annotations

import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import botocore.session
from botocore import exceptions as boto
from botocore.config import Config
from botocore.credentials import (
    CredentialProvider,
    CredentialResolver,
    Credentials,
    ReadOnlyCredentials,
    RefreshableCredentials,
)
from botocore.loaders import create_loader

from embertide.io.storage.s3_credentials import prefer_files
from embertide.io.storage.s3_errors import (
    CONNECTION_LOST,
    CredentialsUnavailable,
    code_of,
    reason_of,
)
from embertide.io.storage.s3_retries import PASSING, Retries
from embertide.spec import naming
from embertide.spec.storage import NamedStore, Store

_METHOD = "shared"
_MANDATORY_SECONDS = 600
"""Before they expire, from when on botocore makes every thread wait for new ones."""
_BUSY = {
    "IDPCommunicationError",
    "PriorRequestNotComplete",
    "RequestLimitExceeded",
    "RequestTimeout",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
}
"""Codes of STS that say nothing about the key, whatever their HTTP status."""
_OF_STATUS = re.compile(r"non 200 response (\d+)")
_IMDS = "http://169.254.169.254/"
_ROLES = "latest/meta-data/iam/security-credentials/"
_IMDS_SECONDS = 1.0
_READ_SECONDS = 20

Key = tuple[Any, ...]
_shared: dict[Key, SharedCredentials] = {}
_lock = threading.Lock()


def session_of(settings: Store, retries: Retries) -> Any:
    """A session of botocore with the credentials of this process for a store.

    Args:
        retries: of a client, whose caller gets their count; the newest client's count.

    Raises:
        botocore.exceptions.ProfileNotFound: by name.
    """
    profile = None if naming.ENV_IN_POD in os.environ else settings.profile
    folder = folder_of(settings)
    session = botocore.session.Session(profile=profile)
    # Of STS; a client of the store has its own settings of the same.
    once = Config(
        retries={"total_max_attempts": 1},
        connect_timeout=settings.connect_timeout_seconds,
        read_timeout=_READ_SECONDS,
    )
    session.set_default_client_config(once)
    if folder is not None:
        prefer_files(session, folder, to_variables=isinstance(settings, NamedStore))
    resolver = session.get_component("credential_provider")
    key = str(folder), profile, _surroundings()
    with _lock:
        found = _shared.setdefault(key, SharedCredentials(session, resolver))
        found.retries = retries
    resolver.providers = [_Provider(found)]
    return session


def share_loader(session: Any) -> None:
    """Have a session use the descriptions of services that others have read: that takes 0.1 s."""
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))


@cache
def _loader(data_path: str | None) -> Any:
    return create_loader(data_path)


def folder_of(settings: Store) -> Path | None:
    """Where the keys of the store's Secret are; None outside a pod, and without a Secret."""
    if not isinstance(settings, NamedStore):
        mounted = os.environ.get(naming.ENV_CREDENTIALS_FOLDER)
        return Path(mounted) if mounted else None
    stores = os.environ.get(naming.ENV_STORES_FOLDER)
    if stores is None or settings.credentials_secret is None:
        return None
    return Path(stores, settings.credentials_secret)


def _surroundings() -> Key:
    """What the chain reads: variables, and the states of the files that they name or imply."""
    names = {
        "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials",
        "AWS_CONFIG_FILE": "~/.aws/config",
    }
    files = (Path(os.environ.get(name, path)).expanduser() for name, path in names.items())
    variables = sorted(item for item in os.environ.items() if item[0].startswith("AWS_"))
    return tuple(variables), tuple((str(file), _changed(file)) for file in files)


def _changed(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


class _Provider(CredentialProvider):  # type: ignore[misc]
    METHOD = _METHOD
    CANONICAL_NAME = _METHOD

    def __init__(self, credentials: SharedCredentials) -> None:
        super().__init__()
        self._credentials = credentials

    def load(self) -> Credentials:
        """The credentials of the process."""
        return self._credentials


class SharedCredentials(Credentials):  # type: ignore[misc]
    """What a chain of providers finds, asked by one thread at a time.

    Attributes:
        retries: decides on the next attempt, and tells of it.
    """

    retries: Retries

    def __init__(self, session: Any, resolver: CredentialResolver) -> None:
        super().__init__("", "", method=_METHOD)
        self._session, self._resolver = session, CredentialResolver(resolver.providers)
        self._found: Credentials | None = None
        self._fetching = threading.Lock()
        self._failures = 0
        self._raise: Callable[[], NoReturn]

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """The keys to sign the next request with.

        Raises:
            CredentialsUnavailable: they could not be fetched at any attempt.
            botocore.exceptions.BotoCoreError: there are none, or what was asked refuses them.
        """
        found = self._found
        if found is not None and not _is_due(found):
            return found.get_frozen_credentials()
        failures = self._failures
        with self._fetching:
            # Who waited while another thread tried in vain does not try again.
            if self._failures != failures:
                self._raise()
            return self._fetch_patiently()

    def _fetch_patiently(self) -> ReadOnlyCredentials:
        attempt = 1
        while True:
            try:
                return self._fetch()
            except Exception as error:
                why = _passing(error)
                pause = None if why is None else self.retries.pause(attempt, why)
                if pause is None:
                    self._fail(error, passing=why is not None)
            time.sleep(pause)
            attempt += 1

    def _fetch(self) -> ReadOnlyCredentials:
        if self._found is None:
            self._found = self._resolver.load_credentials()
        if self._found is None:
            # A machine's metadata service that failed counts as one that is not there.
            if _has_roles(self._session):
                raise boto.CredentialRetrievalError(
                    provider="iam-role", error_msg="the machine's metadata service gave none"
                )
            raise boto.NoCredentialsError
        return self._found.get_frozen_credentials()

    def _fail(self, error: Exception, *, passing: bool) -> NoReturn:
        provider = self._found.method if self._found is not None else "the chain of providers"

        def again() -> NoReturn:
            if passing:
                raise CredentialsUnavailable(provider=provider, error_msg=str(error)) from error
            if isinstance(error, boto.BotoCoreError):
                raise error
            raise boto.CredentialRetrievalError(
                provider=provider, error_msg=str(error) or repr(error)
            ) from error

        self._failures, self._raise = self._failures + 1, again
        again()


def _is_due(found: Credentials) -> bool:
    """Whether no request can be signed before they were fetched again."""
    if not isinstance(found, RefreshableCredentials):
        return False
    return bool(found.refresh_needed(_MANDATORY_SECONDS))


def _passing(error: Exception) -> str | None:
    """What failed, where a later attempt may succeed."""
    if isinstance(error, boto.ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        passing = status in PASSING or code_of(error) in _BUSY
        return f"{error.operation_name}: {code_of(error)}" if passing else None
    if isinstance(error, CONNECTION_LOST):
        return None if isinstance(error, boto.SSLError) else reason_of(error)
    if isinstance(error, boto.CredentialRetrievalError):
        if error.kwargs.get("provider") == "custom-process":
            return None
        answered = _OF_STATUS.search(str(error))
        if answered is None:
            return str(error.kwargs.get("error_msg", error))
        return f"HTTP status {answered[1]}" if int(answered[1]) in PASSING else None
    return None


def _has_roles(session: Any) -> bool:
    """Whether a machine's metadata service answers, other than that there is no role."""
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return False
    endpoint = session.get_config_variable("ec2_metadata_service_endpoint") or _IMDS
    request = urllib.request.Request(f"{endpoint.rstrip('/')}/{_ROLES}")
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=_IMDS_SECONDS):
            return True
    except urllib.error.HTTPError as error:
        return error.code != 404
    except OSError:
        return False


def _forget() -> None:
    """In a forked process: its parent's threads may have held any lock."""
    global _lock
    _lock = threading.Lock()
    _shared.clear()


os.register_at_fork(after_in_child=_forget)
