"""Locations of indexes, and how each kind is opened; secrets come from the environment alone.

postgresql://user@host:5432/database   PGPASSWORD, PGPASSFILE and what else libpq reads
qdrant+https://host:6333               QDRANT_API_KEY; qdrant:///folder is a folder of this machine
milvus+https://host:19530              MILVUS_TOKEN; milvus:///file.db is Milvus Lite
lancedb:///folder, lancedb+s3://bucket/prefix    spec.storage and the AWS variables
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib.util import find_spec
from urllib.parse import urlsplit

from embertide.edge.indexes.push.protocol import Index
from embertide.errors import AccessDenied, InputError, StoreUnavailable
from embertide.spec.push import has_secret, kind_of_index, without_secrets
from embertide.spec.storage import StorageSettings

QDRANT_KEY, MILVUS_TOKEN = "QDRANT_API_KEY", "MILVUS_TOKEN"
_CLIENTS = {
    "postgresql": ("psycopg", "pgvector"),
    "qdrant": ("qdrant_client", "qdrant"),
    "milvus": ("pymilvus", "milvus"),
    "lancedb": ("lancedb", "lancedb"),
}
"""Kind -> the module of its client, and the extra that installs it."""
_NO_CLIENT = (
    "{kind} needs the module {module}, which is not installed: install embertide[{extra}]; on"
    " Kubernetes, spec.push.image names an image that has it (docs/indexes.md)"
)


def open_index(location: str, settings: StorageSettings | None = None) -> Index:
    """Connect to an index.

    Args:
        settings: how to access an index in S3; None is the environment's.

    Raises:
        InputError: the location is malformed, of no kind that is known, or has a secret in it, or
            the kind's client is not installed.
        StoreUnavailable: it does not answer.
    """
    kind = kind_of_index(location)
    if kind not in _CLIENTS:
        known = ", ".join(_CLIENTS)
        raise InputError(
            f"the index is {without_secrets(location)!r}; it must begin with one of {known}"
        )
    _refuse_secrets(location)
    require_client(location)
    if kind == "lancedb":
        return _lance(location, settings or StorageSettings())
    return _OPENERS[kind](location)


def require_client(location: str) -> None:
    """Refuse a kind of index whose client is not installed, before anything is computed for it.

    Raises:
        InputError: says what to install.
    """
    kind = kind_of_index(location)
    module, extra = _CLIENTS[kind]
    if find_spec(module) is None:
        raise InputError(_NO_CLIENT.format(kind=kind, module=module, extra=extra))


def _refuse_secrets(location: str) -> None:
    if has_secret(location):
        raise InputError(
            f"the index {without_secrets(location)} has a secret in its location, which logs and"
            " process lists would show; set it in the environment (PGPASSWORD, QDRANT_API_KEY,"
            " MILVUS_TOKEN)"
        )


def _postgres(location: str) -> Index:
    import psycopg

    from embertide.edge.indexes.push.postgres import Postgres

    try:
        return Postgres(location)
    except psycopg.OperationalError as error:
        raise _unreachable(location, error) from None
    except psycopg.ProgrammingError as error:
        raise InputError(f"{without_secrets(location)} is no URI of PostgreSQL: {error}") from None


def _qdrant(location: str) -> Index:
    from qdrant_client import QdrantClient

    from embertide.edge.indexes.push.qdrant import Qdrant

    url, path = _url_or_path(location)
    if path:
        return Qdrant(QdrantClient(path=path))
    client = QdrantClient(url=url, api_key=os.environ.get(QDRANT_KEY), timeout=120)
    try:
        client.get_collections()
    except Exception as error:
        raise _unreachable(location, error) from None
    return Qdrant(client)


def _milvus(location: str) -> Index:
    from pymilvus import MilvusClient
    from pymilvus.exceptions import MilvusException

    from embertide.edge.indexes.push.milvus import Milvus

    url, path = _url_or_path(location)
    try:
        return Milvus(MilvusClient(path or url, token=os.environ.get(MILVUS_TOKEN, "")))
    except MilvusException as error:
        raise _unreachable(location, error) from None


def _lance(location: str, settings: StorageSettings) -> Index:
    from embertide.edge.indexes.push.lance import Lance

    url, path = _url_or_path(location)
    if path:
        return Lance(path)
    from embertide.edge.indexes.push.lance_s3 import s3_options

    options = s3_options(settings.of(url))
    try:
        return Lance(url, options)
    except Lance.errors as error:
        raise _unreachable(location, error) from None


def _url_or_path(location: str) -> tuple[str, str]:
    """The URL after the kind, or the path of a location of this machine."""
    kind, _, inner = location.partition(":")
    _, plus, scheme = kind.partition("+")
    if plus:
        return f"{scheme}:{inner}", ""
    parts = urlsplit(location)
    if parts.netloc or not parts.path.strip("/"):
        raise InputError(
            f"the index is {without_secrets(location)!r}; must be {kind}:///PATH, or {kind}+SCHEME://HOST"
        )
    return "", parts.path


def _unreachable(location: str, error: Exception) -> Exception:
    text = _in_short(str(error).strip())
    message = f"{without_secrets(location)} cannot be reached: {text}"
    return AccessDenied(message) if _DENIED.search(text) else StoreUnavailable(message)


def _in_short(text: str) -> str:
    """A client's words; of an answer of S3 with all that was asked, its code and message."""
    answer = _S3_ANSWER.search(text)
    return f"{answer[1]}: {answer[2]}" if answer else text[:_LONGEST]


_DENIED = re.compile(
    r"authentication|\b40[13]\b|forbidden|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch",
    re.IGNORECASE,
)
_S3_ANSWER = re.compile(r"<Code>(\w+)</Code>.*?<Message>([^<]*)</Message>", re.DOTALL)
_LONGEST = 1000
_OPENERS: dict[str, Callable[[str], Index]] = {
    "postgresql": _postgres,
    "qdrant": _qdrant,
    "milvus": _milvus,
}
