"""The model: rank 0 reads its files and sends them to all ranks, so all have the same bytes."""

from __future__ import annotations

from typing import Any, cast

from embertide.context import RunContext
from embertide.errors import InputChanged, ObjectMissing
from embertide.models.read import Model, read_files
from embertide.primitives.broadcast import broadcast_files
from embertide.storage.protocol import ObjectInfo, Storage


def share_model(ctx: RunContext, planned_digest: str) -> Model:
    """Read the job's model once for all ranks. Collective: every rank must call.

    Moves the bytes of its files to each other rank, along a tree (label world, ``model``).

    Args:
        planned_digest: of the files that the run was planned with; "": unknown.

    Raises:
        ObjectMissing, ModelError: on rank 0; see :func:`embertide.models.read.read_files`.
        InputChanged: on rank 0; the files are not those that the run was planned with.
    """
    uri, channel = ctx.job.spec.model.uri, ctx.exchange.channel("world", "model")
    if ctx.grid.rank == 0:
        kept = _Kept(ctx.storage)
        model = read_files(cast(Storage, kept), uri)
        if planned_digest not in ("", model.digest):
            raise InputChanged(
                f"{uri} changed after the run was planned with it; run the job again when nothing"
                " writes to it"
            )
        broadcast_files(channel, kept.files)
        return model
    return read_files(cast(Storage, _Sent(broadcast_files(channel, {}))), uri)


class _Kept:
    """A storage that keeps every object that is read."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.files: dict[str, bytes] = {}

    def read(self, uri: str) -> bytes:
        """See :meth:`Storage.read`."""
        self.files[uri] = self._storage.read(uri)
        return self.files[uri]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)


class _Sent:
    """Objects that another rank has read, as a storage has them."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files

    def read(self, uri: str) -> bytes:
        """See :meth:`Storage.read`."""
        if uri not in self._files:
            raise ObjectMissing(f"{uri} is not among what worker 0 has read of the model")
        return self._files[uri]

    def stat(self, uri: str) -> ObjectInfo | None:
        """See :meth:`Storage.stat`."""
        data = self._files.get(uri)
        return None if data is None else ObjectInfo(uri, len(data), "")
