"""Columns of features that are categories, as a user declares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from embertide.errors import ModelError
from embertide.tracing.record.graphs import GraphTypes

CategoriesOf = Mapping[str, Mapping[Any, int]]
"""Node type or relation -> column, as a number or its text -> how many categories it has."""


def with_features_of_categories(
    types: GraphTypes, nodes: CategoriesOf | None, edges: CategoriesOf | None
) -> GraphTypes:
    """The graph whose features have categories in some columns.

    Raises:
        ModelError: there is no such node type or relation, or what is declared is no number.
    """
    return replace(
        types,
        categories=_of(nodes or {}, list(types.nodes), "--categories"),
        edge_categories=_of(edges or {}, list(types.relations), "--edge-categories"),
    )


def _of(declared: CategoriesOf, there: list[str], option: str) -> dict[str, dict[int, int]]:
    unknown = [name for name in declared if name not in there]
    if unknown:
        known = ", ".join(filter(None, there)) or "one type, which has no name"
        raise ModelError(
            f"{option} names {unknown[0]!r}, but the graph has {known}; give"
            f" {option} '{form_of_categories(there)}'"
        )
    return {name: _columns(columns, option) for name, columns in declared.items() if columns}


def form_of_categories(names: Sequence[str]) -> str:
    """An example of what the options take, for a graph with such types or relations."""
    columns = '{"0": 10}'
    return columns if not any(names) else f'{{"{names[0]}": {columns}}}'


def _columns(columns: Any, option: str) -> dict[int, int]:
    if not isinstance(columns, Mapping):
        raise ModelError(
            f'{option} has {columns!r} for a type; give columns by number: {{"0": 10}}'
        )
    counts = {}
    for column, count in columns.items():
        if not str(column).isdigit() or type(count) is not int or count < 1:
            raise ModelError(
                f"{option} has {column!r}: {count!r}; give the number of a column, from 0, and how"
                ' many categories it has: {"0": 10}'
            )
        counts[int(column)] = count
    return counts


def check_columns(types: GraphTypes) -> None:
    """Refuse categories of a column that the features do not have.

    Raises:
        ModelError: names it.
    """
    both = (
        *((name, types.nodes[name], of) for name, of in types.categories.items()),
        *(
            (name, types.edge_features.get(name, 0), of)
            for name, of in types.edge_categories.items()
        ),
    )
    for name, width, columns in both:
        if columns and max(columns) >= width:
            of = f" of {name}" if name else ""
            raise ModelError(
                f"column {max(columns)} is declared to have categories, but the features{of} have"
                f" {width} columns, 0 to {width - 1}"
            )
