"""Functions of torch that no step does: why, and what to do instead."""

from __future__ import annotations

from embertide.tracing.record.traced import Node
from embertide.tracing.record.user_code import refuse

_ORDERS = (
    "puts numbers in order, which no step does; let the module end before it, and order what is"
    " published"
)
_SEQUENCE = (
    "goes over the nodes one after another, but nodes have no order; over each node's layers"
    " JumpingKnowledge('lstm') and nn.GRUCell are known"
)
_ATTENTION = (
    "looks at every pair of rows, which needs the whole graph at once; attention over edges is"
    " known (TransformerConv, GATConv), and torch's scaled_dot_product_attention over tokens that"
    " each node has, [N, tokens, columns]; linear attention over all nodes, q @ (k.T @ v)"
)
_REASONS = {
    **dict.fromkeys(("sort", "argsort", "topk", "kthvalue", "msort"), _ORDERS),
    **dict.fromkeys(("median", "nanmedian", "quantile", "nanquantile", "mode"), _ORDERS),
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu", "conv1d"), _SEQUENCE),
    **dict.fromkeys(("multi_head_attention_forward", "_native_multi_head_attention"), _ATTENTION),
    **dict.fromkeys(
        ("t", "cdist", "pdist", "mT", "T"),
        "makes a matrix with the nodes in both dimensions, which needs the whole graph at once;"
        " sums over edges are known (propagate, torch.spmm(adj, x)), and linear attention over all"
        " nodes, q @ (k.T @ v), where no softmax is taken over pairs of them",
    ),
    "bernoulli": "draws random numbers; draw none in eval mode, or keep them as a buffer",
}


def unsupported(node: Node) -> Exception:
    """The error of a function that has neither a step nor a line."""
    why = _REASONS.get(node.op)
    if why is None:
        why = "is not known here as a step of a program; docs/export.md lists what is"
    return refuse(node.where, f"torch's {node.op} {why}")
