"""Jobs that a rule of the custom resource definition refuses; every rule is here."""

from __future__ import annotations

from tests.support.crd_bound_cases import BOUNDS
from tests.support.crd_cases import (
    ABSENT,
    EDGE,
    NODE,
    NPY,
    PLAIN_EDGE,
    SCALING,
    TAKEN,
    Case,
    a_node,
)
from tests.support.crd_edge_cases import EDGE_RULES
from tests.support.crd_target_cases import TARGET_RULES

_URI = "must be s3://bucket/path, file:///absolute/path or /absolute/path"
_DURATION = "must be a whole number above 0 and a unit (s, m, h or d), such as 26h"
_NO_COLUMNS = "npy has no columns; omit it (idsUri gives the ids)"
_MARKER = "must be a name below uri, such as _SUCCESS, or an s3:// or file:/// URI"
_NO_NEWER = "is for formats delta and iceberg without a fixed asOf"
_NO_VERSIONS = "is for formats delta and iceberg, whose tables have versions; omit it"
_ONE_VERSION = "must be one of version, timestamp, tag and branch"
_TIME = "must be a time with its zone in quotes, such as '2026-11-25T00:00:00Z'"
DELTA = {f"{EDGE}.format": "delta"}
_PERCENT = "must be a percentage from 0% to below 100%, such as 10%"
_FOLDER = "must be an absolute path without colons and without .. as a folder, such as /mnt/nvme"
_SHARE = "must be a percentage from 0% to 100%, such as 10%"
_APART = "must be a prefix of its own: it is, contains or lies inside "

BUYS = {"name": "buys", "sourceType": "user", "destinationType": "item"}
SOLD = {"name": "sold", "sourceType": "item", "destinationType": "user"}
FOLLOWS = {"name": "follows", "sourceType": "user", "destinationType": "user"}

PAIRS = {"uri": "s3://bucket/pairs", "format": "parquet"}

RULES = (
    *EDGE_RULES,
    *TARGET_RULES,
    Case("a name too long for its pods", {"metadata.name": "p" * 53}, "at most 52 characters"),
    Case("a name with a dot", {"metadata.name": "pro.ducts"}, "lower-case letters, digits and '-'"),
    Case("a name with a digit first", {"metadata.name": "7products"}, "begin with a letter"),
    # Locations.
    Case("a relative path", {"spec.output.uri": "out"}, _URI),
    Case("an empty uri", {"spec.model.uri": ""}, _URI),
    Case("another store", {f"{EDGE}.uri": "gs://shop/edges"}, _URI),
    Case("no bucket", {f"{NODE}.features.uri": "s3:///features"}, _URI),
    Case("a file on another host", {"spec.model.uri": "file://host/model"}, _URI),
    Case("a bucket's name with a line break", {"spec.model.uri": "s3://models\n/7"}, _URI),
    Case("a home", {"spec.model.uri": "~/model"}, _URI),
    Case("a space behind a uri", {"spec.model.uri": "s3://shop/m "}, "no spaces around it"),
    # Stores.
    Case(
        "a key for no signature",
        {"spec.storage": {"anonymous": True, "credentialsSecret": "s3"}},
        "must not be set beside anonymous: true",
    ),
    Case(
        "a profile for no signature",
        {"spec.storage": {"stores": [{"prefix": "s3://a", "anonymous": True, "profile": "p"}]}},
        "must not be set beside anonymous: true",
    ),
    Case(
        "a prefix twice",
        {"spec.storage": {"stores": [{"prefix": "s3://a"}, {"prefix": "s3://a"}]}},
        "prefixes must be unique",
    ),
    Case(
        "a key without KMS",
        {"spec.storage": {"encryption": {"algorithm": "AES256", "keyId": "k"}}},
        "keyId and bucketKey need algorithm: aws:kms or aws:kms:dsse",
    ),
    # Freshness.
    Case("a number of hours", {"spec.freshness": {"maxAge": "26"}}, _DURATION),
    Case("an age of nothing", {"spec.freshness": {"maxAge": "0h"}}, _DURATION),
    # Inputs that are waited for, and how much they must be.
    Case("a time to wait in words", {f"{EDGE}.ready": {"within": "2 hours"}}, _DURATION),
    Case("settled for a number", {f"{EDGE}.ready": {"settled": "10"}}, _DURATION),
    Case("an absolute marker", {f"{EDGE}.ready": {"object": "/_SUCCESS"}}, _MARKER),
    Case("a marker elsewhere", {f"{EDGE}.ready": {"object": "gs://shop/_SUCCESS"}}, _MARKER),
    Case("a marker with a space", {f"{EDGE}.ready": {"object": "_SUCCESS "}}, _MARKER),
    Case(
        "rows of csv",
        {EDGE: PLAIN_EDGE | {"ready": {"minRows": 5}}},
        "is for parquet and npy, whose metadata has it; use minBytes",
    ),
    Case("a new version of a folder", {f"{EDGE}.ready": {"newVersion": True}}, _NO_NEWER),
    Case(
        "a new version of a version",
        DELTA | {f"{EDGE}.asOf": {"version": 3}, f"{EDGE}.ready": {"newVersion": True}},
        _NO_NEWER,
    ),
    Case("a shrink without a sign", {"spec.input.maxShrink": "10"}, _PERCENT),
    Case("a shrink to nothing", {"spec.input.maxShrink": "100%"}, _PERCENT),
    # Tables.
    Case("a version of a folder", {f"{EDGE}.asOf": {"version": 3}}, _NO_VERSIONS),
    Case("a version of features", {f"{NODE}.features.asOf": {"version": 3}}, _NO_VERSIONS),
    Case(
        "a version of nodes",
        {f"{NODE}.table": {"uri": "s3://shop/nodes/", "asOf": {"version": 3}}},
        _NO_VERSIONS,
    ),
    Case("no version", DELTA | {f"{EDGE}.asOf": {}}, _ONE_VERSION),
    Case(
        "two versions",
        DELTA | {f"{EDGE}.asOf": {"version": 3, "timestamp": "2026-11-25T00:00:00Z"}},
        _ONE_VERSION,
    ),
    Case("a local time", DELTA | {f"{EDGE}.asOf": {"timestamp": "2026-11-25T00:00:00"}}, _TIME),
    Case("a day", DELTA | {f"{EDGE}.asOf": {"timestamp": "2026-11-25"}}, _TIME),
    Case("a tag of Delta", DELTA | {f"{EDGE}.asOf": {"tag": "nightly"}}, "tags and branches are"),
    Case(
        "a branch of Delta",
        {f"{NODE}.features.format": "delta", f"{NODE}.features.asOf": {"branch": "audit"}},
        "tags and branches are Iceberg's",
    ),
    Case("tables by a pattern", DELTA | {f"{EDGE}.uri": "s3://lake/*/"}, "is the table alone"),
    Case(
        "a window of tables",
        DELTA | {f"{EDGE}.window": {"last": "2d", "of": "dt=%Y-%m-%d", "until": "2026-11-22"}},
        "is the table alone",
    ),
    Case("names in a table", DELTA | {f"{EDGE}.include": "*.parquet"}, "metadata lists their"),
    Case("subfolders of a table", DELTA | {f"{EDGE}.recursive": True}, "metadata lists their"),
    Case(
        "rows of a table by number",
        {
            NODE: {
                "features": {"uri": "s3://shop/f/", "format": "iceberg", "idColumn": ""}
                | {"vectorColumn": "x"}
            }
        },
        "is required with a table, whose rows have no order",
    ),
    # Edges and nodes together.
    Case(
        "two edge types of one name",
        {"spec.input.edges": [PLAIN_EDGE, PLAIN_EDGE | {"uri": "s3://shop/f"}]},
        "spec.input.edges: Invalid value: names must be unique between the same two node types",
    ),
    *(
        Case(
            f"a reverse called like {name}",
            {
                "spec.input.nodes": [a_node("user"), a_node("item")],
                "spec.input.edges": [PLAIN_EDGE | BUYS | first, PLAIN_EDGE | second],
            },
            "every reverse must have a name of its own",
        )
        for name, first, second in (
            ("an edge type", {"reverse": "sold"}, SOLD),
            ("another's reverse", {"reverse": "back"}, BUYS | {"name": "sees", "reverse": "back"}),
            ("its own edge type", {}, FOLLOWS | {"reverse": "follows"}),
        )
    ),
    Case(
        "two node types of one name",
        {"spec.input.nodes": [a_node("node"), a_node("node")]},
        "spec.input.nodes: Invalid value: names must be unique",
    ),
    Case("an unknown source", {f"{EDGE}.sourceType": "user"}, "every sourceType must be the name"),
    Case(
        "an unknown destination",
        {f"{EDGE}.destinationType": "user"},
        "every destinationType must be the name of a node type in spec.input.nodes",
    ),
    Case(
        "npy edges with string ids",
        {f"{EDGE}.format": "npy", f"{EDGE}.columns": ABSENT},
        "npy holds numbers, and cannot hold string ids; use parquet, csv or tsv",
    ),
    # Nodes.
    Case("neither features nor nodes", {f"{NODE}.features": ABSENT}, "is required unless count"),
    Case(
        "more workers than nodes",
        {"spec.input.nodes": [{"count": 7}], "spec.workers": {"count": 8}},
        "must be at most the number of nodes of the largest node type",
    ),
    *(
        Case(f"a scratch folder {what}", {"spec.workers": {"scratch": folder}}, _FOLDER)
        for what, folder in (
            ("that is relative", "mnt/nvme"),
            ("with a colon", "/mnt/nvme:0"),
            ("above others", "/mnt/../nvme"),
            ("that ends above", "/mnt/.."),
            ("without a name", ""),
        )
    ),
    Case("a count of strings", {f"{NODE}.count": 7}, "only ids: dense has a count"),
    Case(
        "a table of dense ids",
        {f"{NODE}.ids": "dense", f"{NODE}.table": {"uri": "s3://shop/nodes"}},
        "is not for ids: dense",
    ),
    Case(
        "strings without a column of ids",
        {f"{NODE}.features.idColumn": ""},
        "is required unless ids are dense",
    ),
    Case(
        "npy features without ids",
        {f"{NODE}.features": NPY},
        "is required with npy unless ids are dense",
    ),
    *(
        Case(
            f"npy features with {column}",
            {NODE: {"features": NPY | {column: value}}},
            f"features.{column}: Forbidden: {_NO_COLUMNS}",
        )
        for column, value in {
            "idColumn": "id",
            "vectorColumn": "x",
            "columns": ["x"],
            "latestBy": "t",
        }.items()
    ),
    Case(
        "parquet features without columns",
        {f"{NODE}.features.vectorColumn": ABSENT},
        "is required unless format is npy: name the column that holds the vectors",
    ),
    Case(
        "a history of rows without ids",
        {f"{NODE}.ids": "dense", f"{NODE}.features.idColumn": "", f"{NODE}.features.latestBy": "t"},
        "needs idColumn: rows without ids are those of different nodes",
    ),
    Case(
        "idsUri with parquet",
        {f"{NODE}.features.idsUri": "s3://shop/ids"},
        "is for format npy; with parquet use idColumn",
    ),
    Case("a scaling of nothing", {SCALING: {}}, "is empty; give mean, scale or both"),
    *(
        Case(
            f"a scaling's uri beside {name}",
            {SCALING: {"uri": "s3://shop/scaler.npz", name: [1.0]}},
            "cannot be combined with mean and scale; give either",
        )
        for name in ("mean", "scale")
    ),
    Case(
        "more means than scales",
        {SCALING: {"mean": [0.5, 1], "scale": [2]}},
        "must have as many values as mean, one for each feature",
    ),
    # The output.
    Case(
        "output is edges",
        {"spec.output.uri": "s3://shop/edges/dt=2026-11-20"},
        f"{_APART}the uri of spec.input.edges",
    ),
    Case(
        "output holds edges",
        {"spec.output.uri": "s3://shop/edges/"},
        f"{_APART}the uri of spec.input.edges",
    ),
    Case(
        "output is in features",
        {"spec.output.uri": "s3://shop//features/new"},
        f"{_APART}the uri of features",
    ),
    Case(
        "output holds ids",
        {
            NODE: {"ids": "string", "features": NPY | {"idsUri": "/data/out/ids.npy"}},
            "spec.output.uri": "file:///data/out",
        },
        f"{_APART}the idsUri of features",
    ),
    Case(
        "output holds a scaling",
        {SCALING: {"uri": "/data/out/scaler.npz"}, "spec.output.uri": "/data/out"},
        f"{_APART}the uri of a scaling",
    ),
    Case(
        "output is in a table",
        {f"{NODE}.table": {"uri": "file:///data/nodes"}, "spec.output.uri": "/data/nodes//out/"},
        f"{_APART}the uri of a table",
    ),
    Case(
        "the embeddings of an unknown type",
        {"spec.output.nodeTypes": ["user"]},
        "every one must be the name of a node type",
    ),
    Case(
        "a type's embeddings twice",
        {"spec.output.nodeTypes": ["node", "node"]},
        "must name each node type once",
    ),
    Case(
        "pairs within the output",
        {
            "spec.input.pairs": PAIRS | {"uri": "s3://bucket/out/pairs"},
            "spec.output.uri": "s3://bucket/out",
        },
        _APART + "the uri of spec.input.pairs",
    ),
    Case(
        "pairs from an unknown type",
        {"spec.input.pairs": PAIRS | {"sourceType": "user"}},
        "sourceType must be the name of a node type in spec.input.nodes",
    ),
    Case(
        "pairs to an unknown type",
        {"spec.input.pairs": PAIRS | {"destinationType": "user"}},
        "destinationType must be the name of a node type in spec.input.nodes",
    ),
    Case(
        "pairs of one column",
        {"spec.input.pairs": PAIRS | {"columns": {"source": "a", "destination": "a"}}},
        "source and destination must be different columns",
    ),
    Case(
        "pairs by numbers of columns",
        {"spec.input.pairs": PAIRS | {"columns": {"source": 0, "destination": 1}}},
        "must be column names, since parquet",
    ),
    Case(
        "a result twice",
        {"spec.output.results": ["hidden", "logits", "hidden"]},
        "must name each result once",
    ),
    Case(
        "a gate without a comparison",
        {"spec.output.gate": {}, "spec.output.compare": False},
        "must be true where gate is set",
    ),
    Case(
        "a delta without a comparison",
        {"spec.output.delta": {}, "spec.output.compare": False},
        "must be true where delta is set",
    ),
    Case("more than all rows", {"spec.output.gate": {"maxNewRows": "101%"}}, _SHARE),
    Case("a share of none", {"spec.output.gate": {"minOverlap": "half"}}, _SHARE),
    Case(
        "an index of another kind",
        {"spec.push": {"uri": "redis://cache/0"}},
        "must be postgresql://USER@HOST/DB",
    ),
    Case(
        "an index with a password",
        {"spec.push": {"uri": "postgresql://shop:hunter2@db/shop"}},
        "must have no password, key or token in it",
    ),
    Case(
        "an index with a key",
        {"spec.push": {"uri": "qdrant+https://q:6333/?API_KEY=hunter2"}},
        "must have no password, key or token in it",
    ),
    Case(
        "a secret for an index in S3",
        {"spec.push": {"uri": "lancedb+s3://shop/lance", "credentialsSecret": "s3"}},
        "must not be set for LanceDB",
    ),
    Case(
        "a bound of errors without a tolerance",
        {"spec.refresh": {"maxError": 0.1}},
        "omit it, or set refresh.tolerance above 0",
    ),
    Case(
        "a bound of errors with a tolerance of none",
        {"spec.refresh": {"tolerance": 0, "maxError": 0.1}},
        "has no effect without a tolerance",
    ),
    Case(
        "memory of a GPU on a CPU",
        {"spec.workers": {"deviceMemory": "8GiB"}},
        "has no effect with device: cpu",
    ),
    Case(
        "output is a bucket",
        {"spec.model.uri": "s3://models/7", "spec.output.uri": "s3://models"},
        f"{_APART}spec.model.uri",
    ),
)
"""Changes to ``BASE`` that are refused, with part of the rule's message."""

CASES = (*TAKEN, *RULES, *BOUNDS)
"""All that can be tried on a new job; those that are taken have no message."""
