"""Embedding tables of a model: npy files beside its program, a row for each node of a type.

They are read like features, a range of rows by each worker, so this only says which there are;
neither torch nor the rest of the model is loaded for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from embertide.storage.protocol import Storage

PROGRAM_NAME = "program.yaml"


@dataclass(frozen=True)
class ModelTable:
    """A table of a node type.

    Attributes:
        uri: [N, columns] npy.
        ids: URI of [N] npy, the id that each row is of; None where it is the row's number.
    """

    uri: str
    columns: int
    ids: str | None = None


@dataclass(frozen=True)
class TypeTables:
    """The tables of a node type, in the order of their columns.

    Attributes:
        features: columns of the job's features before them; 0 where the tables take their place.
    """

    features: int
    tables: tuple[ModelTable, ...]


def tables_of(storage: Storage, model: str) -> dict[str, TypeTables]:
    """Node type -> its tables; the type is "" in a model of one.

    What is wrong with the program is said by those who read all of it.

    Args:
        model: URI of the folder, or of the file in it that says the model.
    """
    file = _file_of(model)
    folder = file.rsplit("/", 1)[0]
    try:
        inputs = [entry for entry in _inputs(storage, file) if entry.get("tables")]
        return {str(entry.get("type", "")): _of_input(folder, entry) for entry in inputs}
    except _UNREADABLE:
        return {}


def categories_of(storage: Storage, model: str) -> dict[str, list[tuple[int, int]]]:
    """Node type -> columns of its features that are categories, and how many each has.

    Args:
        model: as for :func:`tables_of`.
    """
    try:
        return {
            str(entry.get("type", "")): [
                (int(of["column"]), int(of["count"])) for of in entry.get("categories", [])
            ]
            for entry in _inputs(storage, _file_of(model))
        }
    except _UNREADABLE:
        return {}


_UNREADABLE = (
    *(yaml.YAMLError, UnicodeDecodeError),
    *(AttributeError, KeyError, TypeError, ValueError),
)


def _file_of(model: str) -> str:
    return model if model.endswith((".yaml", ".yml")) else f"{model.rstrip('/')}/{PROGRAM_NAME}"


def _inputs(storage: Storage, file: str) -> list[Any]:
    if not file.endswith(f"/{PROGRAM_NAME}") or storage.stat(file) is None:
        return []
    content: Any = yaml.safe_load(storage.read(file))
    return list(content["inputs"])


def _of_input(folder: str, entry: Any) -> TypeTables:
    tables = tuple(
        ModelTable(
            uri=f"{folder}/{table['file']}",
            columns=int(table["columns"]),
            ids=f"{folder}/{table['ids']}" if table.get("ids") else None,
        )
        for table in entry["tables"]
    )
    return TypeTables(int(entry["columns"]) - sum(table.columns for table in tables), tables)
