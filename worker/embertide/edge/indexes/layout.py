"""How the rows of a version are laid out for an index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FormatName = Literal["parquet", "vertex", "opensearch", "pgcopy"]
Vectors = Literal["float32", "float16", "int8"]
Lists = Literal["list", "fixed"]
IdType = Literal["keep", "text", "integer"]
ZeroRows = Literal["keep", "skip", "refuse"]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What the files of a version look like.

    Attributes:
        vectors: element type of the vectors. int8 is ``round(value / scale)``.
        lists: of parquet: lists of any length, or lists whose type has the length.
        half_bytes: of parquet: float16 vectors are lists of their little-endian bytes.
        ids: ``keep`` the type of the version's ids, or make them ``text`` or ``integer``.
        id_column, vector_column: names of the two columns.
        created_column, version_column: of parquet: names of columns that have when the version was
            published, and its name, in each row; "" for none. Feature stores join by them.
        normalize: whether vectors are divided by their L2 norm; zero vectors stay as they are.
        zero_rows: what happens to rows that are zero vectors as they are written.
        scale: of int8; None takes the largest absolute value of all rows, divided by 127.
        file_bytes, file_rows: size of a file, at most; None is without a bound on rows.
    """

    format: FormatName = "parquet"
    vectors: Vectors = "float32"
    lists: Lists = "fixed"
    half_bytes: bool = False
    ids: IdType = "keep"
    id_column: str = "id"
    vector_column: str = "embedding"
    created_column: str = ""
    version_column: str = ""
    normalize: bool = False
    zero_rows: ZeroRows = "keep"
    scale: float | None = None
    file_bytes: int = 512 << 20
    file_rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What an index accepts, as its documentation has it.

    Attributes:
        vectors: the element types.
        dim: longest vector.
        id_bytes: longest id as UTF-8.
        ascii_ids: whether ids must be ASCII.
        null_ids: whether an id may have a NUL character.
        files: most files of one import.
        file_bytes: largest file.
        fixed_columns: whether the columns must have the names of the preset.
    """

    vectors: tuple[Vectors, ...] = ("float32", "float16", "int8")
    dim: int | None = None
    id_bytes: int | None = None
    ascii_ids: bool = False
    null_ids: bool = True
    files: int | None = None
    file_bytes: int | None = None
    fixed_columns: bool = False
