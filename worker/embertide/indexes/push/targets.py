"""Locations of indexes, and how each kind is opened; secrets come from the environment alone.

postgresql://user@host:5432/database   PGPASSWORD, PGPASSFILE and what else libpq reads
qdrant+https://host:6333               QDRANT_API_KEY; qdrant:///folder is a folder of this machine
milvus+https://host:19530              MILVUS_TOKEN; milvus:///file.db is Milvus Lite
lancedb:///folder, lancedb+s3://bucket/prefix    the AWS variables
"""

from __future__ import annotations

import os
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

from embertide.errors import AccessDenied, InputError, StoreUnavailable
from embertide.indexes.push.protocol import Index

QDRANT_KEY, MILVUS_TOKEN = "QDRANT_API_KEY", "MILVUS_TOKEN"


def open_index(location: str) -> Index:
    """Connect to an index.

    Raises:
        InputError: the location is malformed, of no kind that is known, or has a secret in it.
        StoreUnavailable: it does not answer.
        ModuleNotFoundError: the kind's client is not installed.
    """
    kind, _, _ = urlsplit(location).scheme.partition("+")
    opener = _OPENERS.get("postgresql" if kind == "postgres" else kind)
    if opener is None:
        known = ", ".join(_OPENERS)
        raise InputError(
            f"--to is {without_secrets(location)!r}; it must begin with one of {known}"
        )
    _refuse_secrets(location)
    return opener(location)


def without_secrets(location: str) -> str:
    """A location as it may be shown: without what stands before an @, and without a query."""
    parts = urlsplit(location)
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")
    return shown.geturl()


def _refuse_secrets(location: str) -> None:
    parts = urlsplit(location)
    secret = parts.password is not None or any(
        "password" in name or "key" in name or "token" in name for name in parse_qs(parts.query)
    )
    if secret:
        raise InputError(
            f"--to {without_secrets(location)} has a secret in it, which logs and process lists"
            " would show; set it in the environment (PGPASSWORD, QDRANT_API_KEY, MILVUS_TOKEN)"
        )


def _postgres(location: str) -> Index:
    import psycopg

    from embertide.indexes.push.postgres import Postgres

    try:
        return Postgres(location)
    except psycopg.OperationalError as error:
        raise _unreachable(location, error) from None
    except psycopg.ProgrammingError as error:
        raise InputError(
            f"--to {without_secrets(location)} is no URI of PostgreSQL: {error}"
        ) from None


def _qdrant(location: str) -> Index:
    from qdrant_client import QdrantClient

    from embertide.indexes.push.qdrant import Qdrant

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

    from embertide.indexes.push.milvus import Milvus

    url, path = _url_or_path(location)
    try:
        return Milvus(MilvusClient(path or url, token=os.environ.get(MILVUS_TOKEN, "")))
    except MilvusException as error:
        raise _unreachable(location, error) from None


def _lance(location: str) -> Index:
    from embertide.indexes.push.lance import Lance

    url, path = _url_or_path(location)
    return Lance(path or url)


def _url_or_path(location: str) -> tuple[str, str]:
    """The URL after the kind, or the path of a location of this machine."""
    kind, _, inner = location.partition(":")
    _, plus, scheme = kind.partition("+")
    if plus:
        return f"{scheme}:{inner}", ""
    parts = urlsplit(location)
    if parts.netloc or not parts.path.strip("/"):
        raise InputError(
            f"--to is {without_secrets(location)!r}; must be {kind}:///PATH, or {kind}+SCHEME://HOST"
        )
    return "", parts.path


def _unreachable(location: str, error: Exception) -> Exception:
    text = str(error).strip()
    message = f"{without_secrets(location)} cannot be reached: {text}"
    denied = any(word in text.lower() for word in ("authentication", "401", "403", "forbidden"))
    return AccessDenied(message) if denied else StoreUnavailable(message)


_OPENERS: dict[str, Callable[[str], Index]] = {
    "postgresql": _postgres,
    "qdrant": _qdrant,
    "milvus": _milvus,
    "lancedb": _lance,
}
