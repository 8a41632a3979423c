"""Jobs for the custom resource definition: what it takes, what it refuses and what it says.

Data only. The unit tests hold it against pydantic, the cluster tests against a real API server,
so that both sides are known to agree.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import yaml

Job = dict[str, Any]

BASE: Job = yaml.safe_load("""\
apiVersion: embertide.dev/v1alpha1
kind: EmbeddingJob
metadata: {name: products}
spec:
  input:
    edges:
      - {uri: s3://shop/edges/dt=2026-11-20/, format: parquet, columns: {source: a, destination: b}}
    nodes:
      - {ids: string, features: {uri: s3://shop/features/, idColumn: id, vectorColumn: x}}
  model: {uri: s3://shop/models/gcn-7/}
  output: {uri: s3://shop/embeddings/products}
""")
"""A small job that is taken; the cases below change it."""


class _Absent:
    """Stands for taking a field away."""


ABSENT = _Absent()


@dataclass(frozen=True)
class Case:
    """A job like another one but for some fields.

    Attributes:
        changes: dotted paths, where numbers index lists, with their new values.
        message: part of what the API server says; "" where the job is taken.
    """

    name: str
    changes: dict[str, Any]
    message: str = ""

    def mutate(self, job: Job) -> Job:
        """The job with the changes; the one given stays as it is."""
        job = copy.deepcopy(job)
        for path, value in self.changes.items():
            _put(job, path.split("."), value)
        return job


def _put(job: Job, path: list[str], value: Any) -> None:
    here: Any = job
    *parents, last = path
    for part in parents:
        here = here[int(part)] if part.isdigit() else here.setdefault(part, {})
    key: Any = int(last) if last.isdigit() else last
    if value is ABSENT:
        del here[key]
    else:
        here[key] = copy.deepcopy(value)


EDGE, NODE = "spec.input.edges.0", "spec.input.nodes.0"
SCALING = f"{NODE}.features.scaling"
NPY = {"uri": "s3://shop/x.npy", "format": "npy"}
INT_NPY = {f"{NODE}.ids": "int64", f"{EDGE}.format": "npy", f"{EDGE}.columns": ABSENT}
PLAIN_EDGE = {"uri": "s3://shop/e", "format": "csv"}
MANY = [f"s3://shop/part-{number}/" for number in range(16)]
SEVERAL = {"uris": ["s3://shop/e/", "s3://other/e*/"], "format": "csv"}
WINDOW = {"last": "7d", "of": "dt=%Y-%m-%d", "until": "2026-11-22", "missingDays": "allow"}


def a_node(name: str, uri: str = "s3://shop/x") -> Job:
    return {"name": name, "features": {"uri": uri, "vectorColumn": "x"}}


TAKEN = (
    Case("as it is", {}),
    Case("a name as long as may be", {"metadata.name": "p" * 52}),
    Case(
        "paths of one machine",
        {f"{EDGE}.uri": "/data/edges", "spec.model.uri": "file:///data/model"},
    ),
    Case("a pattern", {f"{EDGE}.uri": "s3://shop/edges/dt=2026-11-*/"}),
    Case("several places", {EDGE: SEVERAL}),
    Case("several places of features", {f"{NODE}.features": {"uris": MANY, "vectorColumn": "x"}}),
    Case("a window", {f"{EDGE}.window": WINDOW}),
    Case("a window of a table", {f"{NODE}.table": {"uri": "s3://shop/nodes", "window": WINDOW}}),
    Case("vectors and columns", {f"{NODE}.features.columns": ["a"]}),
    Case(
        "vectors and columns of edges",
        {f"{EDGE}.features": {"columns": ["p"], "vectorColumn": "x"}},
    ),
    Case(
        "an array of an npz",
        INT_NPY
        | {f"{EDGE}.key": "edge_index"}
        | {f"{NODE}.features": NPY | {"idsUri": "s3://shop/i.npy", "key": "x"}},
    ),
    Case("a history of features", {f"{NODE}.features.latestBy": "at"}),
    Case("relations in one input", {f"{EDGE}.where": {"column": "type", "equals": "BUYS"}}),
    Case("relations by number", {f"{EDGE}.where": {"column": "type", "equals": 3}}),
    Case("edges to unknown nodes", {f"{EDGE}.unknownNodes": {"action": "drop", "maxShare": "1%"}}),
    Case(
        "an optional edge type beside another",
        {
            "spec.input.edges": [
                PLAIN_EDGE,
                PLAIN_EDGE | {"name": "b", "optional": True, "ready": {}, "minEdges": 3},
            ]
        },
    ),
    Case(
        "scratch folders with dots",
        {"spec.workers": {"scratch": "/.cache/..data/a..b/./.../c.d/"}},
    ),
    Case("new nodes", {NODE: {"count": 7, "missing": "mean"}}),
    Case("a delta with its default", {"spec.output.delta": {}}),
    Case("a delta of every bit", {"spec.output.delta": {"tolerance": 0}}),
    Case("a gate with its defaults", {"spec.output.gate": {}}),
    Case(
        "a gate with all bounds",
        {
            "spec.output.gate": {
                "mode": "warn",
                "maxRemovedRows": "0%",
                "maxNewRows": "100%",
                "maxEdgeChange": "12.5%",
                "maxDroppedEdges": "5%",
                "maxZeroRows": "1%",
                "maxDuplicateRows": "5%",
                "minCosine": 0.95,
                "minOverlap": "70%",
                "maxReferenceError": 0.001,
                "maxInputAge": "26h",
            }
        },
    ),
    Case("a cosine that is a whole number", {"spec.output.gate": {"minCosine": -1}}),
    Case("no comparison", {"spec.output.compare": False}),
    Case("new nodes with features", {f"{NODE}.missing": "zeros"}),
    Case("old bucket names", {"spec.output.uri": "s3://Old_Bucket.1"}),
    Case("csv with a delimiter", {f"{EDGE}.format": "csv", f"{EDGE}.delimiter": ";"}),
    Case(
        "csv without header, default columns",
        {EDGE: PLAIN_EDGE | {"header": False, "delimiter": "|"}},
    ),
    Case(
        "tsv without header, columns by index",
        {
            EDGE: {
                "uri": "s3://shop/e",
                "format": "tsv",
                "header": False,
                "columns": {"source": 2, "destination": 0, "weight": 1},
            }
        },
    ),
    Case("npy edges", INT_NPY),
    Case("a Delta table", {f"{EDGE}.format": "delta", f"{EDGE}.asOf": {"version": 0}}),
    Case(
        "a Delta table of that time",
        {f"{EDGE}.format": "delta", f"{EDGE}.asOf": {"timestamp": "2026-11-25T01:02:03.5+01:00"}},
    ),
    Case(
        "a snapshot of Iceberg",
        {f"{EDGE}.format": "iceberg", f"{EDGE}.asOf": {"version": 2**63 - 1}},
    ),
    Case(
        "a tag of features",
        {f"{NODE}.features.format": "iceberg", f"{NODE}.features.asOf": {"tag": "nightly"}},
    ),
    Case(
        "a new version of a branch",
        {f"{EDGE}.format": "iceberg", f"{EDGE}.asOf": {"branch": "audit"}}
        | {f"{EDGE}.ready": {"newVersion": True}},
    ),
    Case(
        "vectors of edges in a table",
        {f"{EDGE}.format": "delta"} | {f"{EDGE}.features": {"vectorColumn": "x"}},
    ),
    Case("features of edges", {f"{EDGE}.features": {"columns": ["price", "age"]}}),
    Case("vectors of edges", {f"{EDGE}.features": {"vectorColumn": "x"}}),
    Case("vectors of edges in csv", {EDGE: PLAIN_EDGE | {"features": {"vectorColumn": "x"}}}),
    Case("a pattern of names", {f"{EDGE}.include": "*.parquet", f"{NODE}.features.include": "x?"}),
    Case(
        "a dialect",
        {
            EDGE: PLAIN_EDGE
            | {
                "delimiter": ";",
                "dialect": {
                    "quote": "'",
                    "escape": "\\",
                    "comment": "//",
                    "encoding": "utf-16",
                    "decimal": ",",
                },
            }
        },
    ),
    Case("some nodes", {"spec.inference.targets": {"ids": ["a", "b"]}}),
    Case(
        "the nodes of a table",
        {"spec.inference.targets": {"table": {"uri": "s3://shop/wanted", "format": "tsv"}}},
    ),
    Case(
        "the nodes of a table without names",
        {
            "spec.inference.targets": {
                "nodeType": "node",
                "table": {"uri": "s3://shop/w", "format": "csv", "header": False, "idColumn": 1},
            }
        },
    ),
    Case("no quotes", {EDGE: PLAIN_EDGE | {"dialect": {"quote": "", "escape": ""}}}),
    Case("a usual dialect of tsv", {EDGE: PLAIN_EDGE | {"format": "tsv", "dialect": {}}}),
    Case(
        "a weight that is a feature, too",
        {f"{EDGE}.columns.weight": "p", f"{EDGE}.features": {"columns": ["p", "q"]}},
    ),
    Case("features of npy edges", INT_NPY | {f"{EDGE}.features": {"columns": [2, 3]}}),
    Case("npy features in the order of dense ids", {NODE: {"count": 7, "features": NPY}}),
    Case(
        "npy features with ids",
        {NODE: {"ids": "string", "features": NPY | {"idsUri": "s3://shop/ids.npy"}}},
    ),
    Case(
        "rows in the order of dense ids",
        {f"{NODE}.ids": "dense", f"{NODE}.features.idColumn": ""},
    ),
    Case(
        "features in columns, a table of nodes",
        {
            f"{NODE}.table": {"uri": "s3://shop/nodes/"},
            f"{NODE}.features": {"uri": "s3://shop/features/", "columns": ["b", "a"]},
        },
    ),
    Case(
        "columns by pattern, scaled",
        {
            f"{NODE}.features": {
                "uri": "s3://shop/features/",
                "columns": ["f*", "age"],
                "scaling": {"mean": [0, -1.5], "scale": [1, 0.25]},
            },
        },
    ),
    Case("scaled by an object's numbers", {SCALING: {"uri": "s3://shop/scaler.json"}}),
    Case("scaled without means", {SCALING: {"scale": [0.5]}}),
    Case(
        "objects in subfolders",
        {
            f"{EDGE}.recursive": True,
            f"{NODE}.features.recursive": True,
            f"{NODE}.table": {"uri": "s3://shop/nodes/", "recursive": True},
        },
    ),
    Case(
        "inputs that are waited for",
        {
            f"{EDGE}.ready": {"object": "_SUCCESS", "settled": "10m", "within": "2h"},
            f"{EDGE}.minEdges": 1000,
            f"{NODE}.features.ready": {"object": "s3://shop/marks/x", "minRows": 1, "minBytes": 9},
            f"{NODE}.table": {"uri": "s3://shop/nodes/", "ready": {"minObjects": 4}},
            f"{NODE}.minNodes": 10,
            "spec.input.maxShrink": "7.5%",
        },
    ),
    Case("an input that has to be there", {f"{EDGE}.ready": {}}),
    Case("weights of one", {f"{EDGE}.weights": "ones"}),
    Case("undirected, weighted", {f"{EDGE}.directed": False, f"{EDGE}.columns.weight": "w"}),
    Case(
        "several types",
        {
            "spec.input.nodes": [a_node("user"), a_node("item")],
            "spec.input.edges": [
                PLAIN_EDGE | {"name": "buys", "sourceType": "user", "destinationType": "item"},
                PLAIN_EDGE | {"name": "sold", "sourceType": "item", "destinationType": "user"},
            ],
        },
    ),
    Case(
        "one name between several types, a reverse, and a type without features",
        {
            "spec.input.nodes": [a_node("user"), {"name": "item", "count": 3}],
            "spec.input.edges": [
                PLAIN_EDGE | {"sourceType": "user", "destinationType": "item", "reverse": "back"},
                PLAIN_EDGE
                | {"sourceType": "item", "destinationType": "item", "selfLoops": "addToAll"},
            ],
        },
    ),
    Case(
        "reverses of one name between other types",
        {
            "spec.input.nodes": [a_node("user"), a_node("item"), a_node("tag")],
            "spec.input.edges": [
                PLAIN_EDGE | {"sourceType": "user", "destinationType": "item", "reverse": "back"},
                PLAIN_EDGE | {"sourceType": "item", "destinationType": "tag", "reverse": "back"},
            ],
        },
    ),
    Case(
        "sampled, on a grid", {"spec.inference.fanout": [50, 25], "spec.workers.grid": {"graph": 4}}
    ),
    Case(
        "what is optional may be null",
        {
            "spec.activeDeadlineSeconds": None,
            "spec.storage.region": None,
            "spec.workers": {"count": None},
        },
    ),
    Case(
        "as many workers as nodes",
        {"spec.input.nodes": [{"count": 7}], "spec.workers": {"count": 7}},
    ),
    Case(
        "all of the cluster's fields",
        {
            "spec.workers": {
                "grid": {"graph": 4, "feature": 2},
                "count": 8,
                "device": "cuda",
                "image": "registry.example/embertide:1",
                "resources": {"limits": {"memory": "8Gi", "nvidia.com/gpu": 1}},
                "serviceAccountName": "reader",
                "podTemplate": {"spec": {"nodeSelector": {"gpu": "h200"}}},
            },
            "spec.storage": {
                "endpointUrl": "https://minio.example:9000",
                "region": "eu-1",
                "pathStyle": True,
                "credentialsSecret": "s3",
                "maxAttempts": 9,
                "connectTimeoutSeconds": 2.5,
            },
            "spec.operatorClass": "gpu-pool",
            "spec.suspend": True,
            "spec.backoffLimit": 0,
            "spec.activeDeadlineSeconds": 21600,
            "spec.preRunningDeadlineSeconds": 60,
            "spec.progressDeadlineSeconds": 300,
            "spec.ttlSecondsAfterFinished": 0,
        },
    ),
    Case(
        "several stores with rules",
        {
            "spec.storage": {
                "encryption": {"algorithm": "aws:kms", "keyId": "alias/x", "bucketKey": True},
                "checksums": "always",
                "profile": "here",
                "stores": [
                    {"prefix": "s3://public/", "anonymous": True, "region": "eu-1"},
                    {"prefix": "s3://lake/raw", "credentialsSecret": "lake", "requesterPays": True},
                ],
            },
            "spec.input.newObjects": "ignore",
        },
    ),
    Case("an index", {"spec.push": {"uri": "postgresql://shop@db:5432/shop?sslmode=require"}}),
    Case(
        "an index with all that can be set",
        {
            "spec.push": {
                "uri": "qdrant+https://qdrant:6333",
                "name": "products",
                "nodeType": "node",
                "result": "embedding",
                "metric": "ip",
                "vectors": "float16",
                "normalize": True,
                "searchIndex": False,
                "rows": "all",
                "keepVersions": 1,
                "credentialsSecret": "index",
                "image": "registry.example/embertide-qdrant:1",
                "resources": {"limits": {"memory": "2Gi"}},
                "backoffLimit": 0,
                "activeDeadlineSeconds": 3600,
            },
        },
    ),
    Case("an output beside an input", {"spec.output.uri": "s3://shop/features-new"}),
    Case("an output in another bucket", {"spec.output.uri": "s3://other/features"}),
)
"""Changes to ``BASE`` that give a job which both sides take, and read alike."""
