"""What the run was made of: inputs, model, settings, software, and how it compared."""

from __future__ import annotations

from typing import Any

from embertide.facts.report.figures import more, section
from embertide.facts.report.markup import Child, Html, definitions, table, tag
from embertide.facts.report.numbers import count, short_count, size, small, some, without_secrets
from embertide.facts.report.run import Run
from embertide.spec.relations import Relation
from embertide.spec.result_names import manifest_results

_LISTED = 200
"""Input objects that are listed; the version's manifest has all."""
_LIBRARIES = {"dgl": "DGL", "pyg": "PyTorch Geometric", "torch": "PyTorch"}
_KINDS = {
    "edges": "edges",
    "features": "features",
    "ids": "ids of the features' rows",
    "nodes": "table of nodes",
    "reference": "reference",
    "scaling": "scaling of the features",
}


def inputs(run: Run) -> Html | None:
    """The objects that were read; None where the manifest lists none."""
    objects: list[dict[str, Any]] = run.manifest.get("inputs") or []
    if not objects:
        return None
    total = sum(item["size"] for item in objects)
    rows: list[list[Child]] = []
    for kind in dict.fromkeys(item["kind"] for item in objects):
        some_of = [item for item in objects if item["kind"] == kind]
        read = sum(item["size"] for item in some_of)
        first = tag("code", without_secrets(some_of[0]["uri"]), class_="uri")
        rows.append([_KINDS.get(kind, kind), first, count(len(some_of)), size(read)])
    shown: list[list[Child]] = [
        [item["kind"], tag("code", without_secrets(item["uri"]), class_="uri"), size(item["size"])]
        for item in objects[:_LISTED]
    ]
    caption = f"The first {_LISTED} of {count(len(objects))} objects"
    if len(objects) <= _LISTED:
        caption = f"All {count(len(objects))} objects" if len(objects) > 1 else "The object"
    return section(
        "inputs",
        "Inputs",
        f"{some(len(objects), 'object')}, {size(total)}. The version's manifest has the ETag of"
        " each.",
        table("Inputs by kind", ["Kind", "First object", "Objects", "Size"], rows, words=2),
        _tables(run),
        more("Every object", table(caption, ["Kind", "Object", "Size"], shown, words=2)),
    )


def _tables(run: Run) -> Html | None:
    """The versions of Delta and Iceberg tables that were read; None without any."""
    read: list[dict[str, Any]] = run.manifest.get("tables") or []
    if not read:
        return None
    rows: list[list[Child]] = [
        [
            item["field"],
            tag("code", without_secrets(item["uri"]), class_="uri"),
            item["format"],
            tag("code", str(item["version"])),
            item["committed"],
        ]
        for item in read
    ]
    return table("Tables", ["Input", "Table", "Format", "Version", "Committed"], rows, words=2)


def graph(run: Run) -> Html | None:
    """Node types and relations, where there are several of either."""
    types, relations = run.report.types, run.report.relations
    if len(types) <= 1 and len(relations) <= 1:
        return None
    rows: list[list[Child]] = [
        [one.name, count(one.nodes), _columns(one.width), _columns(one.output_width)]
        for one in types
    ]
    edges: list[list[Child]] = []
    for of in relations:
        relation = Relation.parse(of.name)
        words = [relation.source, relation.name, relation.destination]
        edges.append([*words, count(of.edges)])
    return section(
        "graph",
        "Graph",
        f"{some(len(types), 'node type')}, {some(len(relations), 'relation')}; what the embeddings"
        " do not need was not read.",
        table("Node types", ["Type", "Nodes", "Features", "Embeddings"], rows, words=1),
        table("Relations", ["From", "Relation", "To", "Edges"], edges, words=3),
    )


def _columns(width: int) -> str:
    return count(width) if width else "none"


def model(run: Run) -> Html:
    """The model, layer by layer, and the comparison with its reference."""
    facts, described = run.report.facts, run.manifest.get("model") or {}
    entries: dict[str, Child] = {
        "Neighbours": _fanout(run.manifest),
    }
    layers: Html | None = None
    if facts is not None:
        entries["Trained with"] = _LIBRARIES.get(facts.library, facts.library)
        entries["Parameters"] = short_count(facts.parameters)
        widths = [facts.input_width, *(layer.width for layer in facts.layers)]
        rows: list[list[Child]] = [
            [str(number + 1), layer.conv, f"{count(widths[number])} → {count(layer.width)}"]
            for number, layer in enumerate(facts.layers)
        ]
        layers = table("Layers", ["Layer", "Convolution", "Columns"], rows, words=2)
    entries["Model"] = _uri(described.get("uri"))
    entries["SHA-256 of its files"] = _code(described.get("digest"))
    facts_list = tag("div", definitions(entries), class_="facts")
    compared = [_reference(name, found) for name, found in run.references.items()]
    return section("model", "Model", None, facts_list, layers, *compared)


def _fanout(manifest: dict[str, Any]) -> str | None:
    fanout = manifest.get("fanout")
    if fanout is None or fanout == "full":
        return None if fanout is None else "all"
    each = ", ".join(map(str, fanout))
    return f"at most {each} of each layer, drawn with seed {manifest.get('seed')}"


def _reference(result: str, found: dict[str, Any]) -> Html:
    """How a result compares; "" where there is one."""
    of_type = f": {result}" if result else ""
    entries: dict[str, Child] = {
        "Compared with": _uri(found["uri"]),
        "Rows beyond the tolerance": f"{count(found['beyond'])} of {count(found['rows'])}",
        "Largest difference": f"{small(found['largest_difference'])}, which is"
        f" {small(found['largest_error'])} of the reference's largest value;"
        f" {small(found['tolerance'])} is allowed",
    }
    worst: list[list[Child]] = [[str(name), small(error)] for name, error in found["worst"]]
    return tag(
        "div",
        tag("h3", f"Comparison with the model's reference{of_type}"),
        tag("div", definitions(entries), class_="facts"),
        more(
            "Rows that differ most",
            table("Rows that differ most", ["Id", "Error, of the largest value"], worst),
        ),
    )


def settings(run: Run) -> Html:
    """The grid, what computed, what was written, and with which software."""
    manifest, grid = run.manifest, run.report.grid
    results = manifest_results(manifest).values()
    parts = [part for result in results for part in result.get("parts") or []]
    entries: dict[str, Child] = {
        "Grid": f"{some(grid.graph, 'graph partition')} × {some(grid.feature, 'feature slice')}",
        **_machine(run),
        **_rows(run),
        "Kernels": run.report.kernels or None,
        "Way of the data": _way(run),
        "Ids": manifest.get("ids"),
        "Output": manifest.get("format")
        and f"{manifest['format']}, {manifest.get('dtype')}, {some(len(parts), 'part')},"
        f" {size(sum(part['size'] + part['ids_size'] for part in parts))}",
    }
    digest: dict[str, Child] = {"SHA-256 of the manifest": _code(run.report.manifest_digest)}
    libraries = {str(name): str(version) for name, version in manifest.get("libraries", {}).items()}
    return section(
        "settings",
        "Settings and software",
        None,
        tag("div", definitions({**entries, **libraries, **digest}), class_="facts"),
        _store(run),
    )


def _store(run: Run) -> Html | None:
    """Requests to object stores; None where there were none."""
    stored = run.report.storage
    if not stored.operations:
        return None
    rows: list[list[Child]] = [
        [name, count(counted.requests), count(counted.retries), count(counted.errors)]
        for name, counted in sorted(stored.operations.items())
    ]
    caption = (
        f"Requests to the object store by all workers: {size(stored.bytes_read)} read,"
        f" {size(stored.bytes_written)} written"
    )
    return table(caption, ["Operation", "Requests", "Retries", "Errors"], rows)


def _machine(run: Run) -> dict[str, Child]:
    """What computed, as far as it is known."""
    facts = run.report.facts
    if facts is None:
        return {}
    return {
        "Device": f"{facts.device}, {some(facts.threads, 'thread')} for each worker",
        "Cores of worker 0's machine": count(facts.cores),
        "Receive buffer": f"{size(facts.group_bytes)}, {facts.depth} in flight at a time",
    }


def _rows(run: Run) -> dict[str, Child]:
    """The type of the rows that were read over edges, and what it does to the embeddings."""
    facts = run.report.facts
    if facts is None:
        return {}
    named: dict[str, Child] = {"Rows read over edges": facts.row_type}
    if facts.row_type == "float32":
        return named
    error = (
        "not measured, since there was no reference to compare with; each value that is read over"
        " edges or travels is within 2⁻⁸ of itself"
    )
    if found := facts.row_error:
        error = (
            f"at most {small(found.largest_difference)}, which is {small(found.largest_error)} of"
            f" the largest value, in {some(found.rows, 'row')} that the model's own forward"
            " computed in float32 for its reference"
        )
    return {**named, f"Error with {facts.row_type}": error}


def _way(run: Run) -> str | None:
    """How messages travelled between workers."""
    if run.alone or not run.workers:
        return None
    others = run.report.grid.workers - 1
    linked = sum(worker.peers_on_host for worker in run.workers)
    if linked == others * len(run.workers):
        return "from memory to memory: all workers are on one host"
    if not linked:
        return "over the network"
    part = linked / (others * len(run.workers))
    return f"{part:.0%} of the pairs from memory to memory on one host, others over the network"


def _code(text: str | None) -> Html | None:
    return tag("code", text, class_="uri") if text else None


def _uri(text: str | None) -> Html | None:
    return _code(without_secrets(text)) if text else None
