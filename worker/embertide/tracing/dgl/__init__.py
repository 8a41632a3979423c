"""What modules and functions of DGL do while they are recorded.

- `graph`, `types`, `frames`, `self_loops`: the graph that records; `homogeneous`: with the nodes of
  all types together; `real_graph`: the same graph as DGL has it.
- `mailbox`: reduce functions of users; `functions`: what changes a graph's edges.
- `convs`: convolutions that are recorded as one operation.
- `edge_convs`, `towers`: modules whose ``forward`` is replaced by an equivalent one.
"""
