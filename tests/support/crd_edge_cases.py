"""Edges that a rule of the custom resource definition refuses."""

from __future__ import annotations

from tests.support.crd_cases import (
    ABSENT,
    EDGE,
    INT_NPY,
    MANY,
    NODE,
    NPY,
    PLAIN_EDGE,
    SEVERAL,
    WINDOW,
    Case,
    a_node,
)

_BY_NAME = "must be column names, since parquet, and csv and tsv with a header, have them"
_BY_INDEX = "must be 0-based indexes, since npy, and csv and tsv with header: false"
_DIFFERENT = "source, destination and weight must be different columns"
_DELIMITER = "must be one ASCII character that does not end a line or quote"

EDGE_RULES = (
    # Edges.
    Case("an index in parquet", {f"{EDGE}.columns.source": 0}, _BY_NAME),
    Case("an index beside a header", {EDGE: PLAIN_EDGE | {"columns": {"weight": 2}}}, _BY_NAME),
    Case("a name in npy", INT_NPY | {f"{EDGE}.columns": {"source": "a"}}, _BY_INDEX),
    Case(
        "a name without a header",
        {EDGE: PLAIN_EDGE | {"header": False, "columns": {"weight": "w"}}},
        _BY_INDEX,
    ),
    Case("source is destination", {f"{EDGE}.columns": {"source": "dst"}}, _DIFFERENT),
    Case("weight is source", {f"{EDGE}.columns.weight": "a"}, _DIFFERENT),
    Case("weight is source by default", INT_NPY | {f"{EDGE}.columns": {"weight": 0}}, _DIFFERENT),
    Case("parquet without header", {f"{EDGE}.header": False}, "only csv and tsv can lack a header"),
    Case("parquet with delimiter", {f"{EDGE}.delimiter": ";"}, "only format csv has a delimiter"),
    *(
        Case(
            f"the delimiter {mark!r}",
            {f"{EDGE}.format": "csv", f"{EDGE}.delimiter": mark},
            _DELIMITER,
        )
        for mark in ("\n", "\r", '"', "\0", "\u0080", "\u00a6")
    ),
    Case(
        "parquet with a dialect",
        {f"{EDGE}.dialect": {"comment": "#"}},
        "only csv and tsv have a dialect; omit it",
    ),
    *(
        Case(
            f"{field} {mark!r}",
            {EDGE: PLAIN_EDGE | {"dialect": {field: mark}}},
            "must be of ASCII characters that end no line, or empty for none",
        )
        for field in ("quote", "escape", "comment")
        for mark in ("\n", "\0", "\u0080")
    ),
    Case(
        "an escape that is the quote",
        {EDGE: PLAIN_EDGE | {"dialect": {"escape": '"'}}},
        "must be another character than quote",
    ),
    *(
        Case(
            f"a delimiter that is the {field}",
            {EDGE: PLAIN_EDGE | {"delimiter": mark, "dialect": {field: mark}}},
            "quote, escape, comment and decimal must differ from the delimiter",
        )
        for field, mark in {"quote": "'", "escape": "|", "comment": "#", "decimal": ","}.items()
    ),
    Case(
        "a decimal comma beside the usual delimiter",
        {EDGE: PLAIN_EDGE | {"dialect": {"decimal": ","}}},
        "quote, escape, comment and decimal must differ from the delimiter",
    ),
    Case(
        "a pattern of paths",
        {f"{EDGE}.include": "dt=*/a.parquet"},
        "is matched with names, not with paths; it must have no /",
    ),
    Case(
        "undirected between two types",
        {
            "spec.input.nodes": [a_node("user"), a_node("item")],
            EDGE: PLAIN_EDGE | {"sourceType": "user", "destinationType": "item", "directed": False},
        },
        "edges between two node types have a direction",
    ),
    Case(
        "self-loops added to nodes that are not named",
        {f"{EDGE}.selfLoops": "add"},
        "must be keep, remove, addToAll (one more at every node, as add_self_loop of DGL",
    ),
    Case(
        "self-loops between two types",
        {
            "spec.input.nodes": [a_node("user"), a_node("item")],
            EDGE: PLAIN_EDGE
            | {"sourceType": "user", "destinationType": "item"}
            | {"selfLoops": "addToAll"},
        },
        "edges between two node types have no self-loops",
    ),
    Case(
        "a reverse of undirected edges",
        {EDGE: PLAIN_EDGE | {"directed": False, "reverse": "back"}},
        "is for directed edges: with directed: false every edge goes both ways already",
    ),
    Case(
        "weights of one beside a column of them",
        {f"{EDGE}.weights": "ones", f"{EDGE}.columns.weight": "w"},
        "cannot be given beside columns.weight; keep one of the two",
    ),
    # Features of edges.
    Case("no feature columns", {f"{EDGE}.features": {}}, "is empty; give columns, a list of"),
    Case(
        "an index of a feature in parquet",
        {f"{EDGE}.features": {"columns": ["p", 3]}},
        "of edges must be names, since parquet",
    ),
    Case(
        "a feature's name in npy",
        INT_NPY | {f"{EDGE}.features": {"columns": ["p"]}},
        "of edges must be 0-based indexes, since npy",
    ),
    Case(
        "vectors in csv without a header",
        {EDGE: PLAIN_EDGE | {"header": False, "features": {"vectorColumn": "x"}}},
        "of edges is for parquet, and csv and tsv with a header; give columns",
    ),
    *(
        Case(f"a feature of edges that is {name}", changes, "cannot be their source or destination")
        for name, changes in {
            "the source": {f"{EDGE}.features": {"columns": ["p", "a"]}},
            "the destination by default": {EDGE: PLAIN_EDGE | {"features": {"columns": ["dst"]}}},
            "the source by index": INT_NPY | {f"{EDGE}.features": {"columns": [2, 0]}},
            "the destination, of vectors": {f"{EDGE}.features": {"vectorColumn": "b"}},
        }.items()
    ),
    # Places.
    Case("no place", {f"{EDGE}.uri": ABSENT}, "or uris is required, and not both"),
    Case("two ways to name a place", {f"{EDGE}.uris": MANY}, "or uris is required, and not both"),
    Case(
        "no place of features",
        {f"{NODE}.features.uri": ABSENT},
        "features.uri: Required value: or uris is required",
    ),
    Case("no place of a table", {f"{NODE}.table": {}}, "table.uri: Required value: or uris"),
    Case(
        "a window of several places",
        {EDGE: SEVERAL | {"window": WINDOW}},
        "is for uri, the folder that its days are in; omit uris",
    ),
    Case(
        "a window of a pattern",
        {f"{EDGE}.uri": "s3://shop/e*/", f"{EDGE}.window": WINDOW},
        "needs a uri without *, ? and [",
    ),
    Case(
        "a window without an end",
        {f"{EDGE}.window": {"last": "7d", "of": "dt=%Y-%m-%d"}},
        "window.until: Required value: is required: the last day of the window",
    ),
    Case(
        "a window until no day",
        {f"{EDGE}.window": WINDOW | {"until": "yesterday"}},
        "must be a day, such as 2026-11-22",
    ),
    Case(
        "a window of absolute paths",
        {f"{EDGE}.window": WINDOW | {"of": "/dt=%Y-%m-%d"}},
        "must be the name of a day's folder below uri",
    ),
    Case(
        "ids beside a pattern",
        INT_NPY | {f"{NODE}.features": NPY | {"uri": "s3://shop/x*/", "idsUri": "s3://shop/ids"}},
        "goes with one uri, without a pattern or window",
    ),
    Case(
        "a relation by a column's number in parquet",
        {f"{EDGE}.where": {"column": 2, "equals": "BUYS"}},
        "must be a column name, or a 0-based index for npy and for csv and tsv with header: false",
    ),
    Case(
        "a relation by a column's name in npy",
        INT_NPY | {f"{EDGE}.where": {"column": "type", "equals": 1}},
        "must be a column name, or a 0-based index for npy and for csv and tsv with header: false",
    ),
    Case(
        "a key of parquet",
        {f"{EDGE}.key": "x"},
        "only format npy has keys, of arrays in an npz or tensors in a file of torch; omit it",
    ),
    Case(
        "a key of features in parquet",
        {f"{NODE}.features.key": "x"},
        "only format npy has keys, of arrays in an npz or tensors in a file of torch; omit it",
    ),
    # What may be missing.
    Case(
        "a share of refused edges",
        {f"{EDGE}.unknownNodes": {"maxShare": "1%"}},
        "unknownNodes.maxShare: Forbidden: is for action: drop; omit it",
    ),
    Case(
        "an optional edge type alone",
        {f"{EDGE}.optional": True},
        "one edge type at least must not be optional",
    ),
    Case(
        "vectors of optional edges",
        {f"{EDGE}.optional": True, f"{EDGE}.features": {"vectorColumn": "v"}},
        "needs features.columns: without objects nothing says how long vectors are",
    ),
    Case(
        "what new nodes of a table get",
        {NODE: {"ids": "int64", "table": {"uri": "s3://shop/nodes/"}, "missing": "zeros"}},
        "is for nodes that a table of the model has no row of: give their count, or features",
    ),
)
