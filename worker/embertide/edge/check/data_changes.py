"""Small changes of how a manifest describes its data: the commonest mistakes, each undone.

Another direction, weight or ids of the edges, other self-loops, features that are scaled or not, in
another order of columns or of rows.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from embertide.edge.check.data_files import DataFiles, Shift
from embertide.errors import EmbertideError
from embertide.spec.edges import EdgeInput
from embertide.spec.manifest import EmbeddingJob

_LOOPS = {
    "remove": "the graph of training had no self-loops",
    "addRemaining": "PyG's add_remaining_self_loops",
    "addToAll": "DGL's add_self_loop, PyG's add_self_loops",
    "replace": "DGL's AddSelfLoop",
    "keep": "the graph of training had those of the files",
}


@dataclass(frozen=True, kw_only=True)
class DataChange:
    """A change of a manifest.

    Attributes:
        field: that it changes, such as ``edges[0].directed``; two changes of the same exclude
            each other.
        text: the change in the words of the manifest, and what it stands for.
        kind: what such changes are about, for the list of what was tried.
    """

    field: str
    text: str
    kind: str = ""

    def __str__(self) -> str:
        return self.text


Changed = Iterator[tuple[DataChange, EmbeddingJob]]


def data_changes(job: EmbeddingJob, files: DataFiles) -> Changed:
    """Every single change, those of edges first; without those that the job may not have.

    Use a job before you ask for the next one.
    """
    fields = job.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for kind, field, text, change in (*_of_edges(job, files), *_of_nodes(job, files)):
        data = copy.deepcopy(fields)
        try:
            change(data["spec"]["input"])
            changed = EmbeddingJob.model_validate(data)
        except (ValidationError, EmbertideError):
            continue
        yield DataChange(field=field, text=f"spec.input.{text}", kind=kind), changed


Entry = tuple[str, str, str, Any]
"""What the change is about, the field, the text, and what makes it of the input's plain values."""


def _of_edges(job: EmbeddingJob, files: DataFiles) -> Iterator[Entry]:
    for at, edge in enumerate(job.spec.input.edges):
        field = f"edges[{at}]"
        source, destination = edge.columns.source, edge.columns.destination
        if edge.source_type == edge.destination_type:
            ends = {"source": destination, "destination": source}
            turned = f"source: {destination}, destination: {source} (the edges turned)"
            text = f"{field}.columns: {turned}"
            yield "direction of edges", f"{field}.ends", text, _columns(at, ends)
            yield "directed", *_set(at, "directed", not edge.directed)
            for loops in set(_LOOPS) - {edge.self_loops}:
                name, text, change = _set(at, "selfLoops", loops)
                yield "self-loops", name, f"{text} ({_LOOPS[loops]})", change
        if edge.columns.weight is not None:
            text = f"{field}.columns.weight left out (now {edge.columns.weight})"
            change = _columns(at, {"weight": None})
            yield "weights left out", f"{field}.weight", text, change
        for column in files.unused_of(edge):
            text = f"{field}.columns.weight: {column} (a column that the job does not read)"
            yield "other columns as weights", f"{field}.weight", text, _weight(at, column)
        other = "remove" if edge.duplicates == "keep" else "keep"
        yield "duplicates", *_set(at, "duplicates", other)
    # These read the edges once more, and are the rarest.
    for at, edge in enumerate(job.spec.input.edges):
        if files.can_shift(edge) and edge == files.job.spec.input.edges[at]:
            for shift in _shifts(edge):
                text = f"edges[{at}]: {_shifted(shift)} (the edges' ids are one off the features')"
                yield "ids one off", f"edges[{at}].ids", text, _other_ids(at, edge, shift, files)


def _shifts(edge: EdgeInput) -> list[Shift]:
    """Both ends, or one where they are of different node types."""
    one = [] if edge.source_type == edge.destination_type else [(-1, 0), (0, -1), (1, 0), (0, 1)]
    return [(-1, -1), (1, 1), *one]


def _shifted(shift: Shift) -> str:
    ends = zip(("source", "destination"), shift, strict=True)
    return ", ".join(f"{end} {'-' if by < 0 else '+'} 1" for end, by in ends if by)


def _of_nodes(job: EmbeddingJob, files: DataFiles) -> Iterator[Entry]:
    for at, node in enumerate(job.spec.input.nodes):
        features, field = node.features, f"nodes[{at}].features"
        if features is None:
            continue
        if features.scaling is not None:
            left_out = _features(at, {"scaling": None})
            yield "scaling", f"{field}.scaling", f"{field}.scaling left out", left_out
        elif node.name in files.spread:
            mean, scale = files.spread[node.name]
            values = {"scaling": {"mean": mean, "scale": scale}}
            text = f"{field}.scaling with each feature's own mean and standard deviation (the"
            text += " module was trained on standardised features)"
            yield "scaling", f"{field}.scaling", text, _features(at, values)
        given = files.columns_of(node.name)
        for order, columns in _orders(given, files.file_order(node.name)) if given else ():
            text = f"{field}.columns in the {order} order: {', '.join(columns)}"
            change = _features(at, {"columns": columns})
            yield "order of columns", f"{field}.columns", text, change
            if scaling := files.scaling_of(node.name) if features.scaling is not None else {}:
                places = [given.index(name) for name in columns]
                along = {name: [of[place] for place in places] for name, of in scaling.items()}
                text += ", with scaling in the same order"
                change = _features(at, {"columns": columns, "scaling": along})
                yield "order of columns", f"{field}.columns", text, change
        if node.ids == "dense" and features.id_column:
            text = (
                f"{field}.idColumn: null (row i is of node i, whatever {features.id_column} says)"
            )
            change = _features(at, {"idColumn": None})
            yield "order of rows", f"{field}.idColumn", text, change


def _orders(columns: list[str], in_file: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Other orders of columns that have names.

    Args:
        in_file: the columns, in the order of the file.
    """
    orders = {
        "file's": in_file if len(in_file) == len(columns) else columns,
        "alphabetical": sorted(columns),
        "numbers'": sorted(columns, key=_by_numbers),
        "opposite": columns[::-1],
    }
    seen = [columns]
    for name, order in orders.items():
        if order not in seen:
            seen.append(order)
            yield name, order


def _weight(at: int, column: str) -> Any:
    def change(data: Any) -> None:
        edge = data["edges"][at]
        edge.pop("weights", None)
        edge["columns"] = {**edge.get("columns", {}), "weight": column}

    return change


def _other_ids(at: int, edge: EdgeInput, shift: Shift, files: DataFiles) -> Any:
    def change(data: Any) -> None:
        data["edges"][at] = files.shifted(edge, shift)

    return change


def _by_numbers(name: str) -> list[tuple[int, str]]:
    """So that ``f10`` is after ``f9``."""
    return [(int(part or 0) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", name)]


def _set(at: int, name: str, value: Any) -> tuple[str, str, Any]:
    def change(data: Any) -> None:
        data["edges"][at][name] = value

    text = str(value).lower() if isinstance(value, bool) else value
    field = f"edges[{at}].{name}"
    return field, f"{field}: {text}", change


def _columns(at: int, columns: dict[str, Any]) -> Any:
    def change(data: Any) -> None:
        edge = data["edges"][at]
        merged = {**edge.get("columns", {}), **columns}
        edge["columns"] = {name: value for name, value in merged.items() if value is not None}

    return change


def _features(at: int, values: dict[str, Any]) -> Any:
    def change(data: Any) -> None:
        features = data["nodes"][at]["features"]
        features.update(values)
        if features.get("scaling", 0) is None:
            del features["scaling"]

    return change
