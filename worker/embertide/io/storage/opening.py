"""One storage for all URIs: picks the store by scheme, and opens it on first use.

Above the stores, so that each of them knows the protocol alone and none knows the others.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

from embertide.errors import StorageError
from embertide.facts.telemetry.transfers import TransferStats
from embertide.io.storage.protocol import Listing, ObjectInfo, OnRetry, OnUpload, Span, Storage
from embertide.spec.schemes import FILE, SCHEMES, Scheme, examples, scheme_of
from embertide.spec.storage import StorageSettings, Store


def _ignore(_sentence: str) -> None:
    """The default for callbacks: do nothing."""


def as_uri(location: str) -> str:
    """Bare absolute paths are files."""
    return f"{FILE.name}://{location}" if location.startswith("/") else location


class Stores:
    """The storage that users of this package get: picks the store by the URI's scheme and prefix.

    A store is opened on first use, so that a run without S3 never loads its client. Pickled, it
    leaves ``on_retry`` and ``on_upload`` out, which belong to this process.
    """

    def __init__(
        self,
        settings: StorageSettings,
        on_retry: OnRetry = _ignore,
        on_upload: OnUpload = _ignore,
    ) -> None:
        self._settings, self._on_retry, self._on_upload = settings, on_retry, on_upload
        self._made: dict[tuple[str, int], Storage] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Stores, (self._settings,)

    @property
    def stats(self) -> TransferStats:
        """What stores transferred so far; local files count nothing."""
        stores = [store for (name, _), store in list(self._made.items()) if not SCHEMES[name].local]
        if len(stores) == 1:
            return stores[0].stats
        total = TransferStats()
        for store in stores:
            total.add(store.stats.copy())
        return total

    def _store(self, uri: str) -> Storage:
        scheme = scheme_of(uri)
        if scheme is None:
            raise StorageError(f"{uri}: unknown scheme; use {examples()}")
        settings = self._settings.of(uri)
        key = scheme.name, id(settings)
        with self._lock:
            if key not in self._made:
                self._made[key] = self._open_store(scheme, settings)
            return self._made[key]

    def _open_store(self, scheme: Scheme, settings: Store) -> Storage:
        module = importlib.import_module(scheme.module)
        store: Storage = module.open_store(settings, self._on_retry, self._on_upload)
        return store

    def list_folders(self, uri: str) -> list[str]:
        """See :meth:`Storage.list_folders`."""
        uri = as_uri(uri)
        return self._store(uri).list_folders(uri)

    def names(self, folder: str, start: str = "") -> list[str]:
        """See :meth:`Storage.names`."""
        folder = as_uri(folder)
        return self._store(folder).names(folder, start)

    def all_names(self, folder: str, start: str = "") -> list[str]:
        """See :meth:`Storage.all_names`."""
        folder = as_uri(folder)
        return self._store(folder).all_names(folder, start)

    def list(self, uri: str, *, hidden: bool = False) -> list[ObjectInfo]:
        """See :meth:`Storage.list`."""
        uri = as_uri(uri)
        return self._store(uri).list(uri, hidden=hidden)

    def scan(self, uri: str) -> Listing:
        """See :meth:`Storage.scan`."""
        uri = as_uri(uri)
        return self._store(uri).scan(uri)

    def stat(self, uri: str) -> ObjectInfo | None:
        """See :meth:`Storage.stat`."""
        uri = as_uri(uri)
        return self._store(uri).stat(uri)

    def read(self, uri: str) -> bytes:
        """See :meth:`Storage.read`."""
        uri = as_uri(uri)
        return self._store(uri).read(uri)

    def read_range(self, uri: str, start: int, length: int) -> bytes:
        """See :meth:`Storage.read_range`."""
        uri = as_uri(uri)
        return self._store(uri).read_range(uri, start, length)

    def read_into(self, uri: str, buffer: memoryview, spans: Sequence[Span] = ()) -> int:
        """See :meth:`Storage.read_into`."""
        uri = as_uri(uri)
        return self._store(uri).read_into(uri, buffer, spans)

    def open(
        self, uri: str, info: ObjectInfo | None = None, spans: Sequence[Span] = ()
    ) -> AbstractContextManager[Any]:
        """See :meth:`Storage.open`."""
        uri = as_uri(uri)
        return self._store(uri).open(uri, info, spans)

    def write(self, uri: str, data: bytes) -> ObjectInfo:
        """See :meth:`Storage.write`."""
        uri = as_uri(uri)
        return self._store(uri).write(uri, data)

    def write_soon(self, uri: str, data: bytes | memoryview) -> None:
        """See :meth:`Storage.write_soon`."""
        uri = as_uri(uri)
        self._store(uri).write_soon(uri, data)

    def settle(self, uris: Iterable[str]) -> None:
        """See :meth:`Storage.settle`."""
        of_stores: dict[Storage, Any] = {}
        for uri in map(as_uri, uris):
            of_stores.setdefault(self._store(uri), []).append(uri)
        for store, own in of_stores.items():
            store.settle(own)

    def create(self, uri: str) -> AbstractContextManager[BinaryIO]:
        """See :meth:`Storage.create`."""
        uri = as_uri(uri)
        return self._store(uri).create(uri)

    def write_if(self, uri: str, data: bytes, expected: str | None) -> bool:
        """See :meth:`Storage.write_if`."""
        uri = as_uri(uri)
        return self._store(uri).write_if(uri, data, expected)

    def try_upload(self, uri: str) -> None:
        """See :meth:`Storage.try_upload`."""
        uri = as_uri(uri)
        self._store(uri).try_upload(uri)

    def free_bytes(self, uri: str) -> int | None:
        """See :meth:`Storage.free_bytes`."""
        uri = as_uri(uri)
        return self._store(uri).free_bytes(uri)

    def making_room(
        self, uri: str, give_back: Callable[[], object]
    ) -> AbstractContextManager[None]:
        """See :meth:`Storage.making_room`."""
        uri = as_uri(uri)
        return self._store(uri).making_room(uri, give_back)

    def unfinished(self, folder: str) -> Sequence[str]:
        """See :meth:`Storage.unfinished`."""
        folder = as_uri(folder)
        return self._store(folder).unfinished(folder)

    def sweep(self, folder: str, begun: Iterable[str] = ()) -> None:
        """See :meth:`Storage.sweep`."""
        folder = as_uri(folder)
        self._store(folder).sweep(folder, begun)

    def delete(self, uris: Iterable[str]) -> None:
        """See :meth:`Storage.delete`."""
        for uri in map(as_uri, uris):
            self._store(uri).delete([uri])


def open_storage(
    settings: StorageSettings | None = None,
    on_retry: OnRetry = _ignore,
    on_upload: OnUpload = _ignore,
) -> Stores:
    """The storage for a job's ``spec.storage``.

    Args:
        on_retry: called with a sentence, such as "https://minio:9000 does not answer (connection
            refused), attempt 2 of 5", before each retry; may be called from several threads.
        on_upload: called with the URI of an object before its multipart upload begins; likewise.
    """
    return Stores(settings or StorageSettings(), on_retry, on_upload)
