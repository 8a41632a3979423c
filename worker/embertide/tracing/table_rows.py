"""The rows of a module's embedding tables, and the ids that they are of, as a model stores them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from embertide.errors import ModelError
from embertide.io.readers.npy import HEADERS
from embertide.io.storage.protocol import Storage
from embertide.models.folder_writing import StoredTable
from embertide.tracing.record.tables import Tables

TableIds = Sequence[int] | Sequence[str] | npt.NDArray[Any]
"""The id of each row."""


def stored_tables(
    module: nn.Module, tables: Tables, ids: Mapping[str, TableIds]
) -> dict[str, list[StoredTable]]:
    """Node type -> its tables with their rows.

    Raises:
        ModelError: ids are of another number of rows, twice, or neither whole numbers nor texts.
    """
    stored: dict[str, list[StoredTable]] = {}
    for node_type, of_type in tables.items():
        for table in of_type:
            parts = [part.detach() for part in table.parts(module)]
            rows = parts[0] if len(parts) == 1 else torch.cat(parts)
            own = None if node_type not in ids else _ids(ids[node_type], table.name, len(rows))
            stored.setdefault(node_type, []).append(StoredTable(rows, own))
    return stored


def check_ids(tables: Tables, ids: Mapping[str, TableIds]) -> None:
    """Refuse ids of a node type without a table.

    Raises:
        ModelError: names it.
    """
    unknown = [name for name in ids if name not in tables]
    if unknown:
        raise ModelError(
            f"ids of rows are given for node type {unknown[0]!r}, of which no table is named; name"
            " it by --table"
        )


def _ids(raw: TableIds, table: str, rows: int) -> npt.NDArray[Any]:
    """[rows] int64 or texts.

    Raises:
        ModelError: they are not such, or do not fit the table.
    """
    ids = np.asarray(raw)
    if ids.dtype.kind in "iu":
        ids = ids.astype(np.int64)
    elif ids.dtype.kind == "O" and all(isinstance(name, str) for name in ids):
        ids = ids.astype(np.str_)
    if ids.ndim != 1 or ids.dtype.kind not in "iU":
        raise ModelError(
            f"the ids of {table} are {ids.dtype} of shape {list(ids.shape)}; give a list of whole"
            " numbers or of texts, one for each row"
        )
    if len(ids) != rows:
        raise ModelError(
            f"{table} has {rows} rows, but there are {len(ids)} ids; give one for each"
        )
    values, counts = np.unique(ids, return_counts=True)
    if (counts > 1).any():
        raise ModelError(
            f"the ids of {table} have {values[counts > 1][0].item()!r} more than once; give each"
            " row its own"
        )
    return ids


def read_table_ids(storage: Storage, uri: str) -> npt.NDArray[Any]:
    """The ids of a table's rows, from an npy file.

    Raises:
        ModelError: it is no npy file, or holds objects, which are not read.
        StorageError: it cannot be read.
    """
    data = storage.read(uri)
    try:
        with HEADERS:
            ids: npt.NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
    except ValueError as error:
        raise ModelError(
            f"{uri} is no npy file of whole numbers or texts ({error}); write it with"
            " numpy.save, texts as numpy.array(ids, dtype=str)"
        ) from None
    if not isinstance(ids, np.ndarray):
        raise ModelError(f"{uri} is an npz, an archive of arrays; save the ids alone by numpy.save")
    return ids
