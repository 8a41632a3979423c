"""A version's embeddings in memory, as the libraries that people use want them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from embertide.io.versions.catalog import VersionInfo
from embertide.io.versions.rows import ID_COLUMN, VECTOR_COLUMN

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Embeddings:
    """All embeddings of one version, or of one of its node types.

    It is also an Arrow stream: ``polars.DataFrame(embeddings)``, ``pyarrow.table(embeddings)``
    and ``duckdb.sql("SELECT * FROM embeddings")`` take it as it is.

    Attributes:
        info: the version's name, URI, rows, width and time of creation.
        table: a ``pyarrow.Table`` with the columns ``id`` (int64 or large_string) and
            ``embedding`` (fixed_size_list[D] of float32, or float16 where the job asked for it).
    """

    info: VersionInfo
    table: pa.Table = field(repr=False, compare=False)

    @property
    def dim(self) -> int:
        """D, the length of an embedding."""
        return int(self.table.schema.field(VECTOR_COLUMN).type.list_size)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def to_numpy(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Ids ``[n]`` (int64, or str objects) and vectors ``[n, D]``, row by row.

        Vectors have the published dtype and lie in C order, writable: a copy of the table's.
        """
        ids = np.array(self.table[ID_COLUMN].to_numpy())
        column = self.table[VECTOR_COLUMN]
        vectors = np.empty((len(self), self.dim), column.type.value_type.to_pandas_dtype())
        start = 0
        for chunk in column.chunks:
            rows = chunk.flatten().to_numpy().reshape(-1, self.dim)
            vectors[start : start + len(rows)] = rows
            start += len(rows)
        return ids, vectors

    def to_pandas(self) -> pd.DataFrame:
        """A frame ``[n, D]`` with the ids as its index: ``frame.loc[42]`` is a vector.

        For one column of arrays instead, take ``table.to_pandas()``.
        """
        import pandas as pd

        ids, vectors = self.to_numpy()
        return pd.DataFrame(vectors, index=pd.Index(ids, name=ID_COLUMN), copy=False)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)
