"""What planning needs of an exported model's text: tables, categories, names of results.

Embedding tables are npy files beside the program, a row for each node of a type. They are read like
features, a range of rows by each worker, so this only says which there are; neither torch nor the
rest of the model is loaded for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from embertide.io.storage.protocol import Storage

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


@dataclass(frozen=True)
class ProgramText:
    """The content of ``program.yaml``, as far as it could be read.

    What is wrong with it is reported by those who read all of the program.

    Attributes:
        folder: URI of the model's folder.
        content: {} of another kind of model.
    """

    folder: str
    content: Any

    @classmethod
    def read(cls, storage: Storage, model: str) -> ProgramText:
        """Read it, once.

        Args:
            model: URI of the folder, or of the file in it that says the model.
        """
        file = _file_of(model)
        folder = file.rsplit("/", 1)[0]
        if not file.endswith(f"/{PROGRAM_NAME}") or storage.stat(file) is None:
            return cls(folder, {})
        try:
            return cls(folder, yaml.safe_load(storage.read(file)))
        except UNREADABLE:
            return cls(folder, {})

    @property
    def weights(self) -> str:
        """The name of the weights' file in the folder; "" where it is not known."""
        try:
            return str(self.content["weights"]["file"])
        except UNREADABLE:
            return ""

    @property
    def tables(self) -> dict[str, TypeTables]:
        """Node type -> its tables; the type is "" in a model of one."""
        try:
            inputs = [entry for entry in self.content.get("inputs", []) if entry.get("tables")]
            return {str(entry.get("type", "")): _of_input(self.folder, entry) for entry in inputs}
        except UNREADABLE:
            return {}

    @property
    def categories(self) -> dict[str, list[tuple[int, int]]]:
        """Node type -> columns of its features that are categories, and how many each has."""
        return self._categories("inputs", "type")

    @property
    def edge_categories(self) -> dict[str, list[tuple[int, int]]]:
        """Relation -> the same of its edges' features; the relation is "" in a graph of one."""
        return self._categories("edges", "relation")

    def _categories(self, section: str, name: str) -> dict[str, list[tuple[int, int]]]:
        try:
            return {
                str(entry.get(name, "")): [
                    (int(of["column"]), int(of["count"])) for of in entry.get("categories", [])
                ]
                for entry in self.content.get(section, [])
            }
        except UNREADABLE:
            return {}

    @property
    def results(self) -> list[str]:
        """The names of the model's results; [] where it names none."""
        try:
            given = [str(entry.get("result", "")) for entry in self.content.get("outputs", [])]
        except UNREADABLE:
            return []
        return [name for name in dict.fromkeys(given) if name]


UNREADABLE = (
    *(yaml.YAMLError, UnicodeDecodeError),
    *(AttributeError, KeyError, TypeError, ValueError),
)


def _file_of(model: str) -> str:
    return model if model.endswith((".yaml", ".yml")) else f"{model.rstrip('/')}/{PROGRAM_NAME}"


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
