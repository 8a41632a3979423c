"""DGL with a whole typed graph in memory: RGCN and HGT from its sparse operators.

The modules (``RelGraphConv``, ``HGTConv``) multiply a matrix for every edge; whoever looks at a
profile multiplies once for every node and relation instead, as here, which is several times faster.
In HGT all relations into a type are one bipartite graph, whose sources are the nodes of each
relation one after another; so one softmax goes over all of them.
"""

from __future__ import annotations

from typing import Any

from benchmarks.peers.work import HEADS, LAYERS, Work, import_dgl
from benchmarks.typed_dataset import CONVS, RELATIONS, sizes_of


class TypedWork(Work):
    """The same files, by node type and relation."""

    convs = CONVS


work = TypedWork.from_arguments(__doc__)
with work.stage("import"):
    import numpy as np
    import pyarrow.parquet  # noqa: F401  # counted as imports; used by reading
    import safetensors.torch  # noqa: F401
    import torch
    from torch.nn import functional

    dgl: Any = import_dgl()

SIZES = sizes_of((work.nodes - 1).bit_length())
Graphs = dict[str, Any]


def graph_of(source: Any, destination: Any, sources: int, destinations: int) -> Any:
    """A bipartite graph in CSC, with edges numbered in that order."""
    ends = torch.from_numpy(source), torch.from_numpy(destination)
    many = {"s": sources, "d": destinations}
    graph = dgl.heterograph({("s", "to", "d"): ends}, many, idtype=torch.int32)
    indptr, indices, _ = graph.adj_tensors("csc")
    unnumbered = torch.empty(0, dtype=torch.int32)
    sorted_ends = ("csc", (indptr, indices, unnumbered))
    graph = dgl.heterograph({("s", "to", "d"): sorted_ends}, many, idtype=torch.int32)
    graph = graph.formats(["csc"] if work.conv == "rgcn" else ["coo", "csc"])
    graph.create_formats_()
    return graph


def by_relation() -> Graphs:
    """A graph for each relation."""
    found = {}
    for source, name, destination in RELATIONS:
        with work.stage("read_edges"):
            ends = work.read_pairs(work.data / "edges" / name)
        with work.stage("build"):
            found[name] = graph_of(*ends, SIZES[source], SIZES[destination])
    return found


def by_destination() -> Graphs:
    """A graph for each node type, of all relations into it."""
    found = {}
    for of_type in SIZES:
        parts, first = [], 0
        for source, name, destination in RELATIONS:
            if destination != of_type:
                continue
            with work.stage("read_edges"):
                ends = work.read_pairs(work.data / "edges" / name)
            parts.append((ends[0] + np.int32(first), ends[1]))
            first += SIZES[source]
        with work.stage("build"):
            sources, destinations = (np.concatenate(end) for end in zip(*parts, strict=True))
            found[of_type] = graph_of(sources, destinations, first, SIZES[of_type])
    return found


def rgcn(graphs: Graphs, x: dict[str, Any], weights: dict[str, Any]) -> dict[str, Any]:
    """The node's own product, and that of every relation's mean."""
    out = {name: torch.addmm(weights["bias"], rows, weights["root"]) for name, rows in x.items()}
    for weight, (source, name, destination) in zip(weights["weight"], RELATIONS, strict=True):
        graph = graphs[name]
        mean = dgl.ops.copy_u_sum(graph, x[source])
        mean.div_(graph.in_degrees().clamp(min=1).unsqueeze(1))
        out[destination].addmm_(mean, weight)
    return out


def hgt(graphs: Graphs, x: dict[str, Any], weights: dict[str, Any]) -> dict[str, Any]:
    """Keys and values through each relation's matrices; one softmax over a node's edges."""
    pairs, head = {}, work.width // HEADS
    for name, rows in x.items():
        linear = f"kqv_lin.lins.{name}"
        made = functional.linear(rows, weights[f"{linear}.weight"], weights[f"{linear}.bias"])
        pairs[name] = made.view(-1, 3, HEADS, head)
    out = {}
    for of_type, rows in x.items():
        keys, values = [], []
        for at, (source, name, destination) in enumerate(RELATIONS):
            if destination != of_type:
                continue
            prior = weights["p_rel." + "__".join((source, name, destination))]
            matrix = weights["k_rel.weight"][at :: len(RELATIONS)] * prior.view(-1, 1, 1)
            # Batches are heads: [H, N, F] x [H, F, F].
            keys.append(through(pairs[source][:, 0], matrix * head**-0.5))
            values.append(
                through(pairs[source][:, 2], weights["v_rel.weight"][at :: len(RELATIONS)])
            )
        graph = graphs[of_type]
        scores = dgl.ops.u_dot_v(graph, torch.cat(keys), pairs[of_type][:, 1].contiguous())
        shares = dgl.ops.edge_softmax(graph, scores)
        summed = functional.gelu(dgl.ops.u_mul_e_sum(graph, torch.cat(values), shares).flatten(1))
        linear = f"out_lin.lins.{of_type}"
        made = functional.linear(summed, weights[f"{linear}.weight"], weights[f"{linear}.bias"])
        out[of_type] = torch.lerp(rows, made, weights[f"skip.{of_type}"].sigmoid())
    return out


def through(rows: Any, matrices: Any) -> Any:
    """[N, H, F] rows times [H, F, F]."""
    return torch.bmm(rows.transpose(0, 1), matrices).transpose(0, 1)


def main() -> None:
    """Read, build, infer, write."""
    graphs = by_relation() if work.conv == "rgcn" else by_destination()
    with work.stage("read_features"):
        x = {
            name: torch.from_numpy(work.read_rows(work.data / "features" / name, nodes))
            for name, nodes in SIZES.items()
        }
    layer = rgcn if work.conv == "rgcn" else hgt
    weights = work.weights()
    with work.stage("infer"), torch.no_grad():
        for number in range(LAYERS):
            prefix = f"convs.{number}."
            own = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
            x = layer(graphs, x, own)
            if number < LAYERS - 1:
                for rows in x.values():
                    rows.relu_()
    work.finish(*(rows.numpy() for rows in x.values()))


main()
