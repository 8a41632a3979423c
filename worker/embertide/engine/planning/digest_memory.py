"""Digests of rows: how large they are, and what a worker takes to make and compare them."""

from __future__ import annotations

from embertide.footprint import FLOAT_BYTES, GraphSize
from embertide.program.plans.degrees import kinds_read
from embertide.program.plans.plan import Plan
from embertide.spec.relations import ends_of

DIGEST_BYTES = 16
_DEGREE_BYTES = 8
_COMPARED_BYTES = DIGEST_BYTES + 4 * 8
"""A node that was there: its digest, the first half of it, its place when sorted, and as before."""
_DIGESTED_EDGES = 1 << 18
_EDGE_BYTES = 2 * DIGEST_BYTES
"""An edge while its row is digested: its source, the dense id that this had, a row of bytes."""


def digest_bytes(plan: Plan, size: GraphSize) -> int:
    """Bytes of what is kept of each node: digests of its id, its features and its in-edges of each
    relation, and the degrees that the program multiplies neighbours' rows by."""
    program = plan.program
    counted = {
        step.own_edges.relation
        for step in program.steps
        if step.own_edges is not None and any(end == "out" for end, _ in step.degrees_read)
    }
    out = sum(size.nodes[ends_of(name)[0]] for name in counted)
    kinds = kinds_read(program, dict.fromkeys(program.relations, True))
    factors = sum(size.nodes[kind.node_type] for kind in kinds)
    with_features = sum(size.nodes[of] for of in program.inputs)
    in_edges = sum(size.nodes[ends_of(name)[1]] for name in program.relations)
    digests = DIGEST_BYTES * (sum(_nodes(plan, size)) + with_features + in_edges)
    return digests + _DEGREE_BYTES * out + FLOAT_BYTES * factors


def digest_memory(plan: Plan, size: GraphSize) -> float:
    """Bytes of a worker beside the graph, at the peak of making and comparing digests."""
    nodes = _nodes(plan, size)
    own = digest_bytes(plan, size) / size.grid.workers
    edges = max((size.edges[name] for name in plan.program.relations), default=0)
    digesting = min(_DIGESTED_EDGES, edges / size.grid.workers) * _EDGE_BYTES
    comparing = max(nodes) * _COMPARED_BYTES
    return own + sum(nodes) * 8 + max(digesting, comparing)


def _nodes(plan: Plan, size: GraphSize) -> list[int]:
    """Nodes of each type of the program."""
    return [size.nodes[of] for of in dict.fromkeys(plan.program.types.values())]
