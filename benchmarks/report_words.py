"""The words of docs/performance.md: what the paper shows, and what things are called there."""

from __future__ import annotations

TITLE = "# Performance"
PARTS_TITLE = "# Performance of primitives, of grids and of kernels"

INTRODUCTION = """This page is made by `python -m benchmarks.report` from
`benchmarks/results/*.json`; [benchmarks/README.md](../benchmarks/README.md) says how to measure
again. Figures stand beside those of Deal, section 4. The paper measures on up to 16
machines with 64 cores and 25 Gbit/s Ethernet; here processes share one small machine, so what can
be compared is the direction and the ratio of two things that took turns, not seconds. All numbers
are medians."""

SYSTEMS = {
    "torch_csr": "torch script",
    "dgl_full_graph": "DGL full",
    "dgl_layer_wise": "DGL layers",
    "pyg_layer_wise": "PyG layers",
    "dgl_typed": "DGL",
}

VARIANTS: dict[str, tuple[str, dict[str, str]]] = {
    "gemm": ("GEMM", {"all_reduce": "all-reduce (CAGNET)"}),
    "spmm": (
        "SPMM, layers that share a graph",
        {"graph_exchange": "graph exchange", "two_d": "2-D"},
    ),
    "spmm_with_ids": (
        "SPMM, first use of a graph",
        {"graph_exchange": "graph exchange", "two_d": "2-D"},
    ),
    "spmm_with_edge_values": (
        "SPMM with values on edges",
        {"graph_exchange": "graph exchange", "graph_exchange_table_2": "graph exchange, Table 2"},
    ),
    "overlap": (
        "Groups and pipelining",
        {
            "unpipelined": "groups, not pipelined",
            "one_exchange": "one exchange, unbounded",
            "neither": "neither",
        },
    ),
    "sddmm": ("SDDMM", {"duplicated": "approach (i)"}),
    "features": ("Feature preparation", {"redistribute": "redistribute, then compute"}),
    "features_summed": (
        "Feature preparation, a sum first",
        {"redistribute": "redistribute, then sum"},
    ),
    "construction": ("Graph construction", {"single_reader": "single reader"}),
}

BASELINES = {
    "gemm": "all_reduce",
    "spmm": "graph_exchange",
    "spmm_with_ids": "graph_exchange",
    "spmm_with_edge_values": "graph_exchange_table_2",
    "overlap": "neither",
    "sddmm": "duplicated",
    "features": "redistribute",
    "features_summed": "redistribute",
    "construction": "single_reader",
}
"""Primitive -> the baseline of the paper's figure."""

PAPER = {
    "end_to_end": """**The paper, Fig. 14:** with 50 sampled neighbours Deal is 4.64, 2.28 and
3.25 times as fast as DGI for GCN on three graphs, and 7.70, 2.93 and 3.90 times for GAT.
**Here:** all neighbours, so all systems compute the same embeddings, which are compared; DGL
layer by layer is what DGI automates. *Wall* is the whole command, *work* that less interpreter,
imports and the start of processes. Ratios are to the fastest peer of the same column. *Runs* is
how many the median is of: what takes several times as long as the fastest runs once. *1x2* is one
graph partition and two feature slices. *CPU* is that of all processes and cores, imports included.
The machine is virtual, and its host takes back memory that has been free for some seconds: new
huge pages, which Embertide has for large tensors, are then many times slower (2.4 s a GiB, not
0.05), so seconds depend on what ran before, most of all at scale 22.""",
    "typed": """RGCN and HGT, three layers, on three node types with 2^scale nodes and six
relations with 20 times as many edges. The paper has no such graphs. The script with DGL holds the
whole graph, multiplies once for each node and relation, and uses its sparse operators, since its
modules multiply for each edge. Else all is as above.""",
    "primitives": """Every worker is a process in a network namespace, and reads nothing of
another's memory. Ratios are a baseline's seconds by ours, above 1 where ours is faster; all
numbers, with bytes, messages and memory, are in
[primitives.json](../../benchmarks/results/primitives.json). Eight workers share two cores, which
compute and move the bytes: from 1 Gbit/s on, ratios are of processor time as much as of links.
0.25 Gbit/s for each worker is 1 a core; the paper's 64 cores have 25 Gbit/s, 0.4 a core.""",
    "gemm": """**The paper, Fig. 16:** 1.52 and 1.47 times CAGNET's on average for D = 256 and
1,024, more with more machines. Table 1: M/2 times fewer bytes, M^2 times less memory: 4 times with
M = 8, twice with M = 4, and as many with M = 2, where no time is to be gained. **Here:** from tiles
to tiles, both conversions included.""",
    "spmm": """**The paper, Fig. 17** (Table 2): 4.30, 5.28 and 5.29 times the exchange of the
graph, whose scaling gets worse with machines. Its edges carry D/M values each, which the graph's
exchange has to send. **Here:** edges without values, and the graph is sent once before: what is
left is partial sums against unique rows, which come in groups of 8 MiB, as they do by default.""",
    "spmm_with_ids": """**The paper, Fig. 17** again, with a separate graph for the layer, as
sampling makes: the exchange of ids, or of the graph, is counted.""",
    "spmm_with_edge_values": """**The paper, Fig. 17** again, with values on edges that the layer
has computed, one per head as in GAT with 4 heads. *Graph exchange, Table 2* sends them as the
paper's does, D/M of them an edge.""",
    "overlap": """**The paper, Fig. 19:** grouping gives 2.15 to 3.09 times, pipelining 1.47 to
1.65 times more, together 3.61 to 4.74 times for SPMM. **Here:** *neither* fetches a row for each
non-zero in order of rows with the memory that ours uses; *one exchange* fetches unique rows at
once, which needs a buffer for all of them.""",
    "sddmm": """**The paper, Fig. 18** (Table 3): 1.65, 1.38, 1.15 and 1.00 times approach (i) on
eight machines with 8, 4, 2 and 1 feature partitions; with 1 both are the same.
**Here:** dot products of 4 heads, both from whole rows as the product before leaves them.""",
    "features": """**The paper, Fig. 21:** fused preparation is 1.14 to 1.15 times as fast as
redistributing first. By bytes it is 1 + 2(M - 1)/M * W/(W - 1) times, less the rows' numbers that
both send: the conversions of the product that it spares. With M = 1 there are none: what is left
then is that computing overlaps sending.
**Here:** features in memory in no order, through the first product into tiles.""",
    "features_summed": """**The paper, Fig. 21** again, where the first step is a sum, as of a layer
that aggregates first: rows come from where they were loaded to the partitions that need them, and
none to its owner before. **Here:** from features in memory in no order to sums in tiles; sending
the owners the places of rows, which a run does in any case, and the exchange of ids count with
ours. With one partition (1x8) ours redistributes first, too. With few partitions, or where the link
is not what all wait for, ours takes longer: it needs more processor time, of which each worker has
a quarter of a core.""",
    "construction": """**The paper, Fig. 20:** 7.92, 21.05 and 11.99 times DistDGL's, which uses
one machine, and 2.54 to 3.21 times its own single machine with 4. **Here:** from parquet files to
the CSR of every partition; the single reader uses the same sort, so only distribution is
compared, and one of eight workers alone may have half the machine where eight share it.""",
    "scaling": """**The paper, Fig. 15:** weak scaling keeps 48.2 % (GCN) and 47.9 % (GAT) of the
efficiency from 2 to 16 machines; strong scaling gives 2.28 to 4.98 times for GCN and 2.38 to 5.32
times for GAT, from 2 to 16 machines. **Here:** efficiency is edges per second and worker on the
critical path (the CPU seconds of the busiest worker), by one worker's. Everything is in it, reading
and publishing as well. Workers of one machine read rows where they stand; bytes and messages are
those of a network, and peak memory is what a worker holds beyond its imports.""",
    "kernels": """*Share* is the least a kernel must read and write by its time, as a part of
what the machine reached in the same run: random gathers of 512 bytes for sums over neighbours,
operations for products, else copy bandwidth. Our seconds by theirs: below 1 ours is faster.""",
}
