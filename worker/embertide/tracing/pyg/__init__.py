"""What modules and functions of PyG do while they are recorded.

- `convs`: convolutions that are recorded as one operation; `graph_norms`: norms over all nodes.
- `propagation`, `aggregations`: messages of any other convolution.
- `functions`: self-loops, degrees, sums and softmax over edges; `computed_weights`: GCN's norm.
- `filters`, `degree_convs`, `jumping`, `global_attention`: modules whose ``forward`` is replaced by
  an equivalent one.
"""
