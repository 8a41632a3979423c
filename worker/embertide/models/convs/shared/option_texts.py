"""Descriptions and refusals of options that several convolutions have."""

from __future__ import annotations

LOOPS = (
    "one self-loop for every node, in place of those the graph has; where edge weights count, one "
    "that exists keeps its weight, of several the largest (PyG: that of the last one)"
)
"""What the option ``add_self_loops`` does."""


SLOPE = "negative slope of the leaky_relu on the scores"
AGGR = "how neighbours are joined; `add` is `sum`"
NORMALIZE = "divide by the roots of both ends' degrees"
EDGE_DIM = "features of each edge, which the module's forward is given as edge_attr"
ORDERED = "it depends on the order of the edges, and a graph has none"


REFUSED_AGGR = {
    "aggr": {
        "lstm": ORDERED,
        "gru": ORDERED,
        **dict.fromkeys(
            ("median", "quantile", "mul", "softmax", "powermean", "sort"), "it is not supported"
        ),
    }
}
"""Values of PyG's option ``aggr`` that no step has -> why."""
