"""Jobs that types and bounds of the custom resource definition refuse."""

from __future__ import annotations

from tests.support.crd_cases import (
    ABSENT,
    EDGE,
    INT_NPY,
    MANY,
    NODE,
    PLAIN_EDGE,
    SCALING,
    SEVERAL,
    Case,
)


def _pushed(**fields: object) -> dict[str, object]:
    """A job with an index."""
    return {"spec.push": {"uri": "qdrant+https://qdrant:6333", **fields}}


BOUNDS = (
    Case("no spec", {"spec": ABSENT}, "spec"),
    Case("no output", {"spec.output": ABSENT}, "spec.output"),
    Case("an unknown field", {"spec.backofLimit": 3}, 'unknown field "spec.backofLimit"'),
    Case("an unknown inner field", {f"{EDGE}.formt": "csv"}, "formt"),
    Case("a table as the output", {"spec.output.format": "delta"}, 'supported values: "parquet"'),
    Case("an unknown format", {f"{EDGE}.format": "orc"}, 'supported values: "parquet"'),
    Case("a number in quotes", {"spec.backoffLimit": "3"}, "spec.backoffLimit"),
    Case("no edges at least", {f"{EDGE}.minEdges": 0}, "greater than or equal to 1"),
    Case(
        "a version below 0",
        {f"{EDGE}.format": "delta", f"{EDGE}.asOf": {"version": -1}},
        "greater than or equal to 0",
    ),
    Case("no nodes at least", {f"{NODE}.minNodes": 0}, "greater than or equal to 1"),
    Case("no objects at least", {f"{EDGE}.ready": {"minObjects": 0}}, "greater than or equal to 1"),
    Case("a marker without a name", {f"{EDGE}.ready": {"object": ""}}, "ready.object"),
    Case("an unknown condition", {f"{EDGE}.ready": {"objct": "_SUCCESS"}}, "objct"),
    Case("no targets", {"spec.inference.targets": {"ids": []}}, "should have at least 1 item"),
    Case(
        "too many targets",
        {"spec.inference.targets": {"ids": ["a"] * 1001}},
        "must have at most 1000 items",
    ),
    Case("no edges", {"spec.input.edges": []}, "should have at least 1 item"),
    Case(
        "too many edge types", {"spec.input.edges": [PLAIN_EDGE] * 65}, "must have at most 64 items"
    ),
    Case("a type's name with a space", {f"{EDGE}.name": "a b"}, "should match"),
    Case("a place twice", {EDGE: SEVERAL | {"uris": ["s3://a/b", "s3://a/b"]}}, "Duplicate value"),
    Case(
        "too many places", {EDGE: SEVERAL | {"uris": [*MANY, "s3://a/b"]}}, "must have at most 16"
    ),
    Case("a long uri", {"spec.model.uri": "s3://shop/" + "m" * 2048}, "may not be more than 2048"),
    Case(
        "a long delimiter",
        {f"{EDGE}.format": "csv", f"{EDGE}.delimiter": ";;"},
        "may not be more than 1",
    ),
    Case(
        "a long quote",
        {EDGE: PLAIN_EDGE | {"dialect": {"quote": "''"}}},
        "may not be more than 1",
    ),
    Case(
        "a long comment",
        {EDGE: PLAIN_EDGE | {"dialect": {"comment": "###"}}},
        "may not be more than 2",
    ),
    Case(
        "an unknown encoding",
        {EDGE: PLAIN_EDGE | {"dialect": {"encoding": "utf-7"}}},
        'supported values: "utf-8"',
    ),
    Case(
        "a long scratch folder",
        {"spec.workers": {"scratch": "/" + "s" * 1024}},
        "may not be more than 1024",
    ),
    Case("no pattern", {f"{EDGE}.include": ""}, "should be at least 1 chars"),
    Case("a negative index", {f"{EDGE}.columns.source": -1}, "greater than or equal to 0"),
    Case("a column without name", {f"{EDGE}.columns.source": ""}, "should be at least 1 chars"),
    Case(
        "a column that is true",
        {f"{EDGE}.columns.source": True},
        "spec.input.edges[0].columns.source",
    ),
    Case(
        "a column twice",
        {f"{NODE}.features": {"uri": "s3://shop/x", "columns": ["a", "b", "a"]}},
        "Duplicate value",
    ),
    Case("a scale of zero", {SCALING: {"scale": [1, 0]}}, "greater than 0"),
    Case("a mean in words", {SCALING: {"mean": ["0"]}}, "scaling.mean[0]"),
    Case("no means", {SCALING: {"mean": []}}, "should have at least 1 items"),
    Case(
        "a feature of edges twice",
        {f"{EDGE}.features": {"columns": ["p", "q", "p"]}},
        "Duplicate value",
    ),
    Case(
        "an index of a feature twice",
        INT_NPY | {f"{EDGE}.features": {"columns": [2, 3, 2]}},
        "Duplicate value",
    ),
    Case(
        "features of edges of no column",
        {f"{EDGE}.features": {"columns": []}},
        "features.columns in body should have at least 1 items",
    ),
    Case(
        "too many features of edges",
        {f"{EDGE}.features": {"columns": [f"f{k}" for k in range(257)]}},
        "must have at most 256 items",
    ),
    Case(
        "a feature of edges with a negative index",
        INT_NPY | {f"{EDGE}.features": {"columns": [-2]}},
        "features.columns[0] in body should be greater than or equal to 0",
    ),
    Case(
        "vectors of edges without a name",
        {f"{EDGE}.features": {"vectorColumn": ""}},
        "features.vectorColumn in body should be at least 1 chars",
    ),
    Case(
        "features of edges scaled",
        {f"{EDGE}.features": {"columns": ["p"], "scaling": {"scale": [2]}}},
        'unknown field "spec.input.edges[0].features.scaling"',
    ),
    Case("a reverse with a space", {f"{EDGE}.reverse": "bought by"}, "edges[0].reverse in body"),
    Case(
        "a type with a colon, which relations are written with",
        {f"{NODE}.name": "shop:user"},
        "nodes[0].name in body should match",
    ),
    Case("embeddings of no type", {"spec.output.nodeTypes": []}, "should have at least 1 items"),
    Case(
        "embeddings of too many types",
        {"spec.output.nodeTypes": [f"t{k}" for k in range(65)]},
        "spec.output.nodeTypes: Too many: 65: must have at most 64 items",
    ),
    Case(
        "one type's embeddings, not in a list",
        {"spec.output.nodeTypes": "node"},
        "nodeTypes in body must be of type array",
    ),
    Case("no result", {"spec.output.results": []}, "should have at least 1 items"),
    Case(
        "a result outside of its version",
        {"spec.output.results": ["../logits"]},
        "results[0] in body should match",
    ),
    Case(
        "too many results",
        {"spec.output.results": [f"r{k}" for k in range(65)]},
        "spec.output.results: Too many: 65: must have at most 64 items",
    ),
    Case("recursive in words", {f"{EDGE}.recursive": "yes"}, "recursive"),
    Case("fanout misspelt", {"spec.inference.fanout": "ful"}, "should match '^full$'"),
    Case("fanout of no neighbours", {"spec.inference.fanout": [5, 0]}, "fanout[1]"),
    Case("fanout of no layer", {"spec.inference.fanout": []}, "should have at least 1 items"),
    Case("a grid of none", {"spec.workers.grid": {"graph": 0}}, "spec.workers.grid.graph"),
    *(
        Case(
            f"{number} partitions",
            {"spec.workers.grid": {axis: number}},
            f"spec.workers.grid.{axis} in body should be less than or equal to 1024",
        )
        for axis, number in (("graph", 1025), ("feature", 2**63 - 1))
    ),
    Case("memory without a unit", {"spec.workers.memory": "2048"}, "spec.workers.memory"),
    Case("too many workers", {"spec.workers.count": 1025}, "should be less than or equal to 1024"),
    Case("a grid in words", {"spec.workers.grid": "2x2"}, "should match '^auto$'"),
    Case("a negative seed", {"spec.inference.seed": -1}, "greater than or equal to 0"),
    Case(
        "another mode of a gate", {"spec.output.gate": {"mode": "stop"}}, 'supported values: "warn"'
    ),
    Case(
        "a tolerance below 0",
        {"spec.output.delta": {"tolerance": -1}},
        "greater than or equal to 0",
    ),
    Case("a cosine above 1", {"spec.output.gate": {"minCosine": 1.5}}, "less than or equal to 1"),
    Case(
        "a tolerance below 0",
        {"spec.output.delta": {"tolerance": -1}},
        "greater than or equal to 0",
    ),
    Case(
        "a tolerance without end",
        {"spec.output.delta": {"tolerance": 10**19}},
        "less than or equal to 1",
    ),
    Case(
        "no error at all",
        {"spec.output.gate": {"maxReferenceError": 0}},
        "should be greater than 0",
    ),
    Case("no version kept", {"spec.output.keepVersions": 0}, "greater than or equal to 1"),
    Case("no time to connect", {"spec.storage.connectTimeoutSeconds": 0}, "greater than 0"),
    Case("an endpoint without scheme", {"spec.storage.endpointUrl": "minio:9000"}, "should match"),
    Case(
        "a prefix of files",
        {"spec.storage": {"stores": [{"prefix": "file:///a"}]}},
        "spec.storage.stores[0].prefix",
    ),
    Case("no version kept in the index", _pushed(keepVersions=0), "greater than or equal to 1"),
    Case("an index's name in capitals", _pushed(name="Products"), "should match"),
    Case("no time to push", _pushed(activeDeadlineSeconds=0), "greater than or equal to 1"),
    Case("fewer retries than none", _pushed(backoffLimit=-1), "greater than or equal to 0"),
    Case("a secret in capitals", {"spec.storage.credentialsSecret": "S3"}, "should match"),
    Case("a controller without a domain", {"spec.managedBy": "multikueue"}, "should match"),
    Case("no time to start", {"spec.preRunningDeadlineSeconds": 0}, "greater than or equal to 1"),
    Case("a class in capitals", {"spec.operatorClass": "GPU"}, "should match"),
    Case(
        "a service account in capitals",
        {"spec.workers.serviceAccountName": "Reader"},
        "should match",
    ),
)
"""Changes to ``BASE`` that types and bounds refuse; the messages are the API server's own."""
