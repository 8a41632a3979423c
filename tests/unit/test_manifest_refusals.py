"""Manifests that are refused: all problems at once, each with path, value and what is allowed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from embertide.errors import ManifestError
from embertide.spec import load_manifest
from tests.support.manifests import EXAMPLE, only_problem, problems_of, put


def test_all_problems_come_at_once_with_their_lines() -> None:
    text = (
        EXAMPLE.replace("fanout: full", "fanout: [5, 0, x]")
        .replace("seed: 0}", "seed: -1}")
        .replace("dtype: float32", "dtype: float3")
        .replace("suspend: false", "suspend: 1\n  backofLimit: 3")
        .replace("format: parquet, columns", "formt: parquet, columns")
    )
    with pytest.raises(ManifestError) as caught:
        load_manifest(text)
    assert sorted(path for path, _ in caught.value.problems) == [
        "spec.backofLimit",
        "spec.inference.fanout[1]",
        "spec.inference.fanout[2]",
        "spec.inference.seed",
        "spec.input.edges[0].format",
        "spec.input.edges[0].formt",
        "spec.output.dtype",
        "spec.suspend",
    ]
    said = dict(caught.value.problems)
    assert said["spec.output.dtype"] == (
        "is 'float3'; allowed: float32, float16 (did you mean 'float32'?) (line 12)"
    )
    assert said["spec.inference.seed"] == "is -1; must be at least 0 (line 11)"
    assert said["spec.input.edges[0].format"].startswith("is required: Format of all objects")
    assert "did you mean 'format'?" in said["spec.input.edges[0].formt"]
    assert "(line 7)" in said["spec.input.edges[0].formt"]
    assert str(caught.value).startswith("manifest has 8 problems:\n")


def test_an_overlap_is_reported_beside_other_problems(example: dict[str, Any]) -> None:
    data = put(put(example, "spec.output.uri", "s3://shop/features"), "spec.backoffLimit", -1)
    assert set(problems_of(data)) == {"spec.output.uri", "spec.backoffLimit"}


@pytest.mark.parametrize(
    ("path", "value", "where", "says"),
    [
        ("apiVersion", "embertide.dev/v1", "apiVersion", "must be 'embertide.dev/v1alpha1'"),
        ("kind", "EmbedingJob", "kind", "must be 'EmbeddingJob'"),
        ("metadata.name", "Products", "metadata.name", "is 'Products'; must be text that matches"),
        ("metadata.name", "p" * 53, "metadata.name", "at most 52 characters"),
        ("metadata.lables", {}, "metadata.lables", "did you mean 'labels'?"),
        ("metadata.labels", {"a": 1}, "metadata.labels.a", "is 1; must be text"),
        ("spec", None, "spec", "is None; must be a mapping"),
        ("spec.input.edges", [], "spec.input.edges", "must have at least 1 item"),
        ("spec.input.edges", {}, "spec.input.edges", "is {}; must be a list"),
        (
            "spec.input.edges.0.format",
            "orc",
            "spec.input.edges[0].format",
            "parquet, csv, tsv, npy",
        ),
        ("spec.input.edges.0.directed", "no", "spec.input.edges[0].directed", "true or false"),
        (
            "spec.input.edges.0.selfLoops",
            "drop",
            "spec.input.edges[0].selfLoops",
            "allowed: keep, remove, addToAll, addRemaining, replace",
        ),
        (
            "spec.input.edges.0.selfLoops",
            "add",
            "spec.input.edges[0].selfLoops",
            "is 'add', which does not say to which nodes; write addToAll (one more at every node,"
            " as add_self_loop of DGL and add_self_loops of PyG), addRemaining (exactly one at"
            " every node, as add_remaining_self_loops of PyG) or replace (remove all, then add one"
            " to every node)",
        ),
        ("spec.input.edges.0.duplicates", 1, "spec.input.edges[0].duplicates", "keep, remove"),
        ("spec.input.nodes.0.ids", "uuid", "spec.input.nodes[0].ids", "dense, int64, string"),
        ("spec.inference.fanout", "ful", "spec.inference.fanout", "is 'ful'; must be 'full', or a"),
        ("spec.inference.fanout", 50, "spec.inference.fanout", "is 50; must be 'full', or a list"),
        ("spec.inference.fanout", [], "spec.inference.fanout", "must have at least 1 item"),
        ("spec.inference.fanout", [True], "spec.inference.fanout[0]", "must be a whole number"),
        ("spec.inference.seed", "0", "spec.inference.seed", "is '0'; must be a whole number"),
        ("spec.inference.seed", 0.5, "spec.inference.seed", "is 0.5; must be a whole number"),
        ("spec.inference.seed", 2**63, "spec.inference.seed", "at most 9223372036854775807"),
        ("spec.inference.groupBytes", 1, "spec.inference.groupBytes", "at least 4096"),
        ("spec.inference.depth", 0, "spec.inference.depth", "at least 1"),
        ("spec.inference.checkedRows", -1, "spec.inference.checkedRows", "at least 0"),
        ("spec.output.keepVersions", 0, "spec.output.keepVersions", "is 0; must be at least 1"),
        ("spec.output.format", "csv", "spec.output.format", "allowed: parquet, npy"),
        ("spec.workers.grid", "2x2", "spec.workers.grid", "like {graph: 4, feature: 2}"),
        ("spec.workers.grid", {"graph": 0}, "spec.workers.grid.graph", "must be at least 1"),
        ("spec.workers.grid", {"grap": 1}, "spec.workers.grid.grap", "did you mean 'graph'?"),
        ("spec.workers.device", "gpu", "spec.workers.device", "allowed: cpu, cuda"),
        ("spec.workers.resources", 3, "spec.workers.resources", "must be a mapping"),
        (
            "spec.output.delta",
            True,
            "spec.output.delta",
            "is True; must be a mapping, {} for the defaults, or with some of tolerance",
        ),
        ("spec.refresh", "auto", "spec.refresh", "a mapping, {} for the defaults, or with some of"),
        ("spec.model", "s3://b/m", "spec.model", "must be a mapping with uri"),
        (
            "spec.input.edges.0",
            "edges/",
            "spec.input.edges[0]",
            "is 'edges/'; must be a mapping with format, and with some of uri, ",
        ),
        ("spec.storage.endpointUrl", "minio:9000", "spec.storage.endpointUrl", "https?"),
        (
            "spec.storage.connectTimeoutSeconds",
            0,
            "spec.storage.connectTimeoutSeconds",
            "more than",
        ),
        ("spec.storage.accessKey", "k", "spec.storage.accessKey", "unknown field"),
        ("spec.activeDeadlineSeconds", 0, "spec.activeDeadlineSeconds", "at least 1"),
        ("spec.ttlSecondsAfterFinished", -1, "spec.ttlSecondsAfterFinished", "at least 0"),
    ],
)
def test_one_wrong_value(
    example: dict[str, Any], path: str, value: Any, where: str, says: str
) -> None:
    found, message = only_problem(put(example, path, value))
    assert found == where
    assert says in message


def scaled(**scaling: Any) -> dict[str, Any]:
    """Fields of a node type whose features have this scaling."""
    return {"features": {"uri": "/x", "vectorColumn": "v", "scaling": scaling}}


@pytest.mark.parametrize(
    ("edge", "where", "says"),
    [
        ({"format": "npy", "columns": {"source": "a"}}, "columns.source", "'a'; must be a 0-based"),
        ({"columns": {"source": 0}}, "columns.source", "is 0; must be a column name in parquet"),
        ({"format": "csv", "columns": {"weight": 2}}, "columns.weight", "is 2; must be a column"),
        (
            {"format": "csv", "header": False, "columns": {"source": "src"}},
            "columns.source",
            "must be a 0-based index in csv without header",
        ),
        ({"columns": {"source": "dst"}}, "columns.destination", "the same as columns.source"),
        ({"columns": {"source": ""}}, "columns.source", "at least 1 character"),
        ({"columns": {"source": 1.5}}, "columns.source", "must be a column name, or a 0-based"),
        ({"format": "npy", "columns": {"source": -1}}, "columns.source", "is -1; must be at least"),
        ({"header": False}, "header", "only csv and tsv lack one, not parquet"),
        ({"delimiter": ";"}, "delimiter", "only format csv has a delimiter, not parquet"),
        ({"format": "csv", "delimiter": ";;"}, "delimiter", "at most 1 character"),
        ({"format": "csv", "delimiter": "\n"}, "delimiter", "must not end a line or quote"),
        ({"sourceType": "user"}, "sourceType", "is 'user'; must be the name of a node type: node"),
        ({"destinationType": "u"}, "destinationType", "must be the name of a node type: node"),
        ({"name": "a b"}, "name", "is 'a b'; must be text that matches"),
    ],
)
def test_edges_fit_together(
    example: dict[str, Any], edge: dict[str, Any], where: str, says: str
) -> None:
    data = put(example, "spec.input.nodes.0.ids", "int64")
    plain = {"uri": "s3://shop/edges", "format": "parquet"}
    path, message = only_problem(put(data, "spec.input.edges.0", plain | edge))
    assert path == "spec.input.edges[0]." + where
    assert says in message


@pytest.mark.parametrize(
    ("node", "where", "says"),
    [
        ({"ids": "string", "count": 3}, "count", "is 3; only ids: dense has it, not string"),
        ({"count": 0}, "count", "at least 1"),
        ({"features": None}, "features", "is required unless count (ids: dense) or table says"),
        ({"table": {"uri": "/t"}}, "table", "is not for ids: dense"),
        ({"features": {"uri": "/x"}}, "features.vectorColumn", "give columns, a list of numeric"),
        ({"features": {"uri": "/x", "columns": []}}, "features.columns", "at least 1 item"),
        ({"features": {"uri": "/x", "columns": ["a", "b", "a"]}}, "features.columns",
         "names a more than once"),
        (scaled(), "features.scaling", "is empty; give mean, scale or both, or the uri"),
        (scaled(mean=[1], uri="/s"), "features.scaling.uri", "cannot be combined with mean; give"),
        (scaled(mean=[1, 2], scale=[1]), "features.scaling.scale", "has 1 values, but mean has 2"),
        (scaled(scale=[1, 0]), "features.scaling.scale[1]", "is 0; must be more than 0"),
        (scaled(scale=[-1.0]), "features.scaling.scale[0]", "is -1.0; must be more than 0"),
        (scaled(scale=[float("inf")]), "features.scaling.scale[0]", "must be a finite number"),
        (scaled(mean=[float("nan")]), "features.scaling.mean[0]", "must be a finite number"),
        (scaled(mean=[True]), "features.scaling.mean[0]", "is True; must be a number"),
        ({"features": {"uri": "/x", "vectorColumn": "v", "idsUri": "/i"}}, "features.idsUri",
         "is for format npy; with parquet use idColumn"),
        ({"features": {"uri": "/x", "format": "npy", "vectorColumn": "v"}}, "features.vectorColumn",
         "npy has no columns"),
        ({"features": {"uri": "/x", "format": "npy", "idColumn": "v"}}, "features.idColumn",
         "npy has no columns"),
        ({"ids": "int64", "features": {"uri": "/x", "format": "npy"}}, "features.idsUri",
         "is required with ids: int64"),
        ({"ids": "int64", "features": {"uri": "/x", "vectorColumn": "v", "idColumn": None}},
         "features.idColumn", "is required with ids: int64"),
    ],
)  # fmt: skip
def test_nodes_fit_together(
    example: dict[str, Any], node: dict[str, Any], where: str, says: str
) -> None:
    plain = {"ids": "dense", "features": {"uri": "/x", "vectorColumn": "v"}}
    path, message = only_problem(put(example, "spec.input.nodes.0", plain | node))
    assert path == "spec.input.nodes[0]." + where
    assert says in message


def test_two_problems_of_one_object_both_show(example: dict[str, Any]) -> None:
    node = {"ids": "string", "count": 3, "features": {"uri": "/x", "format": "npy"}}
    assert set(problems_of(put(example, "spec.input.nodes.0", node))) == {
        "spec.input.nodes[0].count",
        "spec.input.nodes[0].features.idsUri",
    }


def test_names_are_unique(example: dict[str, Any]) -> None:
    data = copy.deepcopy(example)
    data["spec"]["input"]["edges"] *= 2
    data["spec"]["input"]["nodes"] *= 3
    said = problems_of(data)
    assert set(said) == {
        "spec.input.edges[1].name",
        "spec.input.nodes[1].name",
        "spec.input.nodes[2].name",
    }
    assert "is 'edge', the same as edges[0].name" in said["spec.input.edges[1].name"]


def test_npy_edges_cannot_hold_string_ids(example: dict[str, Any]) -> None:
    data = put(example, "spec.input.edges.0", {"uri": "s3://b/e", "format": "npy"})
    path, message = only_problem(data)
    assert path == "spec.input.edges[0].format"
    assert "has string ids; use parquet, csv or tsv" in message


def test_edges_between_two_types_have_a_direction(example: dict[str, Any]) -> None:
    x = {"uri": "s3://b/x", "vectorColumn": "x"}
    data = put(example, "spec.input.nodes", [{"name": n, "features": x} for n in ("a", "b")])
    edge = {"uri": "s3://b/e", "format": "csv", "sourceType": "a", "destinationType": "b"}
    path, message = only_problem(put(data, "spec.input.edges.0", edge | {"directed": False}))
    assert path == "spec.input.edges[0].directed"
    assert "between two node types have a direction" in message


def test_a_relation_is_named_once(example: dict[str, Any]) -> None:
    x = {"uri": "s3://b/x", "vectorColumn": "x"}
    data = put(example, "spec.input.nodes", [{"name": n, "features": x} for n in ("a", "b")])
    edge = {"uri": "s3://b/e", "format": "csv", "sourceType": "a", "destinationType": "b"}
    back = edge | {"sourceType": "b", "destinationType": "a", "name": "back"}
    edges = [edge | {"reverse": "back"}, back]
    path, message = only_problem(put(data, "spec.input.edges", edges))
    assert path == "spec.input.edges[1].name"
    assert "is 'back', the same as edges[0].reverse from 'b' to 'a'" in message
    loops = edge | {"selfLoops": "remove"}
    path, message = only_problem(put(data, "spec.input.edges", [loops]))
    assert path == "spec.input.edges[0].selfLoops"
    assert "between two node types have no self-loops" in message
    around = {"uri": "s3://b/e", "format": "csv", "directed": False, "reverse": "back"}
    ends = {"sourceType": "a", "destinationType": "a"}
    path, message = only_problem(put(data, "spec.input.edges", [around | ends]))
    assert path == "spec.input.edges[0].reverse"
    assert "every edge goes both ways already" in message


def test_grid_and_count_agree(example: dict[str, Any]) -> None:
    workers = {"grid": {"graph": 2, "feature": 3}, "count": 6}
    assert load_manifest(yaml.safe_dump(put(example, "spec.workers", workers))).spec.workers.count
    path, message = only_problem(put(example, "spec.workers", workers | {"count": 4}))
    assert path == "spec.workers.count"
    assert "is 4; the grid 2x3 has 6 workers" in message


# The output is kept apart from the inputs


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("s3://shop/features", "is also spec.input.nodes[0].features.uri ('s3://shop/features/')"),
        ("s3://shop/features/new", "lies inside spec.input.nodes[0].features.uri"),
        ("s3://shop/edges", "contains spec.input.edges[0].uri"),
        ("s3://shop/models/gcn-7/out/", "lies inside spec.model.uri"),
    ],
)
def test_output_and_input_are_apart(example: dict[str, Any], output: str, says: str) -> None:
    path, message = only_problem(put(example, "spec.output.uri", output))
    assert path == "spec.output.uri"
    assert says in message
    assert "needs a prefix of its own" in message


def test_neighbouring_names_are_apart(example: dict[str, Any]) -> None:
    for output in ("s3://shop/features-out", "s3://other/features", "file:///shop/features"):
        load_manifest(yaml.safe_dump(put(example, "spec.output.uri", output)))


def test_dots_do_not_hide_an_overlap(example: dict[str, Any]) -> None:
    data = put(example, "spec.input.edges.0.uri", "/data/edges")
    path, message = only_problem(put(data, "spec.output.uri", "/data/out/../edges/new"))
    assert path == "spec.output.uri"
    assert "lies inside spec.input.edges[0].uri" in message


@pytest.mark.parametrize("workers", [{"grid": {"graph": 4, "feature": 2}}, {"count": 8}])
def test_more_workers_than_nodes(example: dict[str, Any], workers: dict[str, Any]) -> None:
    """Where counts say how many nodes there are, nothing has to be read to see it."""
    data = put(put(example, "spec.workers", workers), "spec.input.nodes", [{"count": 7}])
    (message,) = (text for _, text in problems_of(data).items())
    assert "the largest node type has only 7 nodes (count): use at most 7 workers" in message
