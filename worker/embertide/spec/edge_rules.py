"""CEL rules of inputs whose rows name two nodes: edges, and pairs that get scores."""

from __future__ import annotations

from typing import Literal, get_args

from embertide.spec.cel import Rule, or_default
from embertide.spec.dialect import DIALECT_RULES
from embertide.spec.tables import table_rules

SelfLoops = Literal["keep", "remove", "addToAll", "addRemaining", "replace"]

TO_ADD = (
    "addToAll (one more at every node, as add_self_loop of DGL and add_self_loops of PyG), "
    "addRemaining (exactly one at every node, as add_remaining_self_loops of PyG) or replace "
    "(remove all, then add one to every node)"
)
_HEADER = or_default("self.header", "true")
_TEXT = "self.format in ['csv', 'tsv']"
_NAMED = f"(self.format != 'npy' && (!({_TEXT}) || {_HEADER}))"


def _columns_are(kind: str, columns: tuple[str, ...]) -> str:
    given = (f"(!has(self.columns.{c}) || type(self.columns.{c}) == {kind})" for c in columns)
    return f"!has(self.columns) || ({' && '.join(given)})"


def end_rules(columns: tuple[str, ...]) -> tuple[Rule, ...]:
    """Rules of an input whose rows name two nodes: how its columns are named.

    Args:
        columns: the fields of ``columns``.
    """
    return (
        Rule(
            f"!{_NAMED} || ({_columns_are('string', columns)})",
            "must be column names, since parquet, and csv and tsv with a header, have them",
            ".columns",
        ),
        Rule(
            f"{_NAMED} || ({_columns_are('int', columns)})",
            "must be 0-based indexes, since npy, and csv and tsv with header: false, have no names",
            ".columns",
        ),
    )


def ends_differ() -> str:
    """In CEL: the ends of an edge are different columns."""
    return f"{_column('source', 'src', 0)} != {_column('destination', 'dst', 1)}"


def _column(name: str, default: str, index: int) -> str:
    column = f"self.columns.{name}"
    given = f"has(self.columns) && has({column})"
    return f"({given} ? {column} : {_NAMED} ? dyn('{default}') : dyn({index}))"


def _features_are(kind: str) -> str:
    columns = "self.features.columns"
    return f"!has(self.features) || !has({columns}) || {columns}.all(c, type(c) == {kind})"


def _columns_differ() -> str:
    source, destination = _column("source", "src", 0), _column("destination", "dst", 1)
    weight = "self.columns.weight"
    differs = f"{weight} != {source} && {weight} != {destination}"
    return f"{ends_differ()} && (!has(self.columns) || !has({weight}) || ({differs}))"


def _features_are_no_ends() -> str:
    """Neither of an edge's ends is a feature of it, given or by default."""
    source, destination = _column("source", "src", 0), _column("destination", "dst", 1)
    columns, vectors = "self.features.columns", "self.features.vectorColumn"
    return (
        "!has(self.features) || ("
        f"(!has({columns}) || !({source} in {columns} || {destination} in {columns})) && "
        f"(!has({vectors}) || ({vectors} != {source} && {vectors} != {destination})))"
    )


_SOURCE, _DESTINATION = (
    or_default(f"self.{end}", "'node'") for end in ("sourceType", "destinationType")
)

_LOOPS = or_default("self.selfLoops", "'keep'")

TEXT_RULES = (
    Rule(
        f"{_HEADER} || self.format in ['csv', 'tsv']",
        "only csv and tsv can lack a header; omit it",
        ".header",
    ),
    Rule(
        "!has(self.delimiter) || self.format == 'csv'",
        "only format csv has a delimiter; omit it",
        ".delimiter",
    ),
    Rule(
        "!has(self.delimiter) || "
        r"(self.delimiter < '\u0080' && !(self.delimiter in ['\n', '\r', '\"', '\u0000']))",
        "must be one ASCII character that does not end a line or quote",
        ".delimiter",
    ),
)
"""Rules of an input that may be csv or tsv."""

EDGE_RULES = (
    *end_rules(("source", "destination", "weight")),
    Rule(
        f"!{_NAMED} || ({_features_are('string')})",
        "of edges must be names, since parquet, and csv and tsv with a header, have them",
        ".features.columns",
    ),
    Rule(
        f"{_NAMED} || ({_features_are('int')})",
        "of edges must be 0-based indexes, since npy, and csv and tsv with header: false, have no"
        " names",
        ".features.columns",
    ),
    Rule(
        f"{_NAMED} || !has(self.features) || !has(self.features.vectorColumn)",
        "of edges is for parquet, and csv and tsv with a header; give columns",
        ".features.vectorColumn",
        "FieldValueForbidden",
    ),
    Rule(
        f"!has(self.where) || ({_NAMED} ? type(self.where.column) == string : "
        "type(self.where.column) == int)",
        "must be a column name, or a 0-based index for npy and for csv and tsv with header: false",
        ".where.column",
    ),
    Rule(
        _features_are_no_ends(),
        "of edges cannot be their source or destination column; name other columns",
        ".features",
    ),
    Rule(
        "!has(self.weights) || !has(self.columns) || !has(self.columns.weight)",
        "cannot be given beside columns.weight; keep one of the two",
        ".weights",
        "FieldValueForbidden",
    ),
    Rule(_columns_differ(), "source, destination and weight must be different columns", ".columns"),
    *TEXT_RULES,
    *DIALECT_RULES,
    Rule(
        f"{or_default('self.directed', 'true')} || {_SOURCE} == {_DESTINATION}",
        "edges between two node types have a direction; omit it or set true",
        ".directed",
    ),
    Rule(
        f"{_LOOPS} in {list(get_args(SelfLoops))}",
        f"must be keep, remove, {TO_ADD}",
        ".selfLoops",
    ),
    Rule(
        f"{_LOOPS} == 'keep' || {_SOURCE} == {_DESTINATION}",
        "edges between two node types have no self-loops; omit it or set keep",
        ".selfLoops",
    ),
    Rule(
        f"!has(self.reverse) || {or_default('self.directed', 'true')}",
        "is for directed edges: with directed: false every edge goes both ways already",
        ".reverse",
        "FieldValueForbidden",
    ),
    Rule(
        f"!{or_default('self.optional', 'false')} || !has(self.features) || "
        "!has(self.features.vectorColumn)",
        "needs features.columns: without objects nothing says how long vectors are",
        ".optional",
        "FieldValueForbidden",
    ),
    Rule(
        f"!has(self.ready) || !has(self.ready.minRows) || !({_TEXT})",
        "is for parquet and npy, whose metadata has it; use minBytes",
        ".ready.minRows",
        "FieldValueForbidden",
    ),
    *table_rules("self.format"),
)
