"""Small changes of how a manifest describes its data: the commonest mistakes, each undone.

Another direction or weight of the edges, other self-loops, features that are scaled or not, in
another order of columns or of rows.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

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
    """

    field: str
    text: str

    def __str__(self) -> str:
        return self.text


Changed = Iterator[tuple[DataChange, EmbeddingJob]]


def data_changes(job: EmbeddingJob, spread: dict[str, tuple[list[float], list[float]]]) -> Changed:
    """Every single change, those of edges first; without those that the manifest may not have.

    Args:
        spread: node type -> mean and standard deviation of each of its features, as they are read.
    """
    fields = job.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for field, text, change in (*_of_edges(job), *_of_nodes(job, spread)):
        data = copy.deepcopy(fields)
        change(data["spec"]["input"])
        try:
            changed = EmbeddingJob.model_validate(data)
        except ValidationError:
            continue
        yield DataChange(field=field, text=f"spec.input.{text}"), changed


def _of_edges(job: EmbeddingJob) -> Iterator[tuple[str, str, Any]]:
    for at, edge in enumerate(job.spec.input.edges):
        field = f"edges[{at}]"
        source, destination = edge.columns.source, edge.columns.destination
        if edge.source_type == edge.destination_type:
            ends = {"source": destination, "destination": source}
            turned = f"source: {destination}, destination: {source} (the edges turned)"
            yield f"{field}.ends", f"{field}.columns: {turned}", _columns(at, ends)
            yield _set(at, "directed", not edge.directed)
            for loops in set(_LOOPS) - {edge.self_loops}:
                name, text, change = _set(at, "selfLoops", loops)
                yield name, f"{text} ({_LOOPS[loops]})", change
        if edge.columns.weight is not None:
            text = f"{field}.columns.weight left out (now {edge.columns.weight})"
            yield f"{field}.weight", text, _columns(at, {"weight": None})
        other = "remove" if edge.duplicates == "keep" else "keep"
        yield _set(at, "duplicates", other)


def _of_nodes(
    job: EmbeddingJob, spread: dict[str, tuple[list[float], list[float]]]
) -> Iterator[tuple[str, str, Any]]:
    for at, node in enumerate(job.spec.input.nodes):
        features, field = node.features, f"nodes[{at}].features"
        if features is None:
            continue
        if features.scaling is not None:
            left_out = _features(at, {"scaling": None})
            yield f"{field}.scaling", f"{field}.scaling left out", left_out
        elif node.name in spread:
            mean, scale = spread[node.name]
            values = {"scaling": {"mean": mean, "scale": scale}}
            text = f"{field}.scaling with each feature's own mean and standard deviation (the"
            text += " module was trained on standardised features)"
            yield f"{field}.scaling", text, _features(at, values)
        if features.columns:
            for order, columns in _orders(features.columns):
                text = f"{field}.columns in the {order} order: {', '.join(columns)}"
                yield f"{field}.columns", text, _features(at, {"columns": columns})
        if node.ids == "dense" and features.id_column:
            text = (
                f"{field}.idColumn: null (row i is of node i, whatever {features.id_column} says)"
            )
            yield f"{field}.idColumn", text, _features(at, {"idColumn": None})


def _orders(columns: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Other orders of columns that have names."""
    orders = {
        "alphabetical": sorted(columns),
        "numbers'": sorted(columns, key=_by_numbers),
        "opposite": columns[::-1],
    }
    seen = [columns]
    for name, order in orders.items():
        if order not in seen:
            seen.append(order)
            yield name, order


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
