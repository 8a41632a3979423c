"""Jobs with ``inference.targets`` that a rule of the custom resource definition refuses."""

from __future__ import annotations

from typing import Any

from tests.support.crd_cases import Case

TARGETS = "spec.inference.targets"
_TABLE = {"uri": "s3://bucket/wanted", "format": "parquet"}
_SOME = {TARGETS: {"ids": ["a"]}}


def _table(**fields: Any) -> dict[str, Any]:
    return {TARGETS: {"table": _TABLE | fields}}


TARGET_RULES = (
    Case("targets of nothing", {TARGETS: {}}, "or table is required, and not both"),
    Case(
        "targets in two places",
        {TARGETS: {"ids": ["a"], "table": _TABLE}},
        "or table is required, and not both",
    ),
    Case(
        "targets within the output",
        {**_table(uri="s3://bucket/out/wanted"), "spec.output.uri": "s3://bucket/out"},
        "it is, contains or lies inside the uri of spec.inference.targets",
    ),
    Case(
        "an output for targets",
        {"spec.output.uri": "s3://bucket/out/_targets/"},
        "must not end with _targets",
    ),
    Case("targets by the number of a column", _table(idColumn=0), "must be a column name"),
    Case(
        "targets by a name without names",
        _table(format="csv", header=False, idColumn="id"),
        "must be a 0-based index",
    ),
    Case("targets with no header", _table(header=False), "only csv and tsv can lack a header"),
    Case("targets with a delimiter", _table(delimiter=";"), "only format csv has a delimiter"),
    Case(
        "targets of a line's end",
        _table(format="csv", delimiter="\n"),
        "must be one ASCII character that does not end a line or quote",
    ),
    Case("targets with a dialect", _table(dialect={}), "only csv and tsv have a dialect"),
    Case(
        "targets with a quote for a delimiter",
        _table(format="csv", delimiter=";", dialect={"quote": ";"}),
        "must differ from the delimiter",
    ),
    Case(
        "rows of text to wait for",
        _table(format="csv", ready={"minRows": 3}),
        "is for parquet and npy, whose metadata has it; use minBytes",
    ),
    Case("targets as of a version", _table(asOf={"version": 3}), "whose tables have versions"),
    Case("targets by no place", {TARGETS: {"table": {"format": "npy"}}}, "or uris is required"),
    Case("targets and an index", {**_SOME, "spec.push": {"uri": "lancedb+s3://shop/lance"}},
         "cannot be combined with inference.targets, since an index"),
    Case(
        "targets and pairs",
        {**_SOME, "spec.input.pairs": {"uri": "s3://bucket/pairs", "format": "parquet"}},
        "cannot be combined with inference.targets, since pairs",
    ),
    Case("targets that are kept", {**_SOME, "spec.refresh.keep": True},
         "must not be true with inference.targets"),
    Case("targets taken over", {**_SOME, "spec.refresh.mode": "incremental"},
         "must not be incremental with inference.targets"),
    Case("targets that resume", {**_SOME, "spec.refresh.resume": "always"},
         "must not be always with inference.targets"),
)  # fmt: skip
