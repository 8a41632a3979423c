"""From recorded operations to the steps of a program.

- `lowering`: the program so far, node after node.
- `functions`: which step each function of torch becomes; `arithmetic`, `layers`, `graph_norms`.
- `convs`, `whole_layers`: a convolution, or a layer over several relations, that was recorded as
  one operation.
- `edge_sums`: sums over edges; `products`, `attention`, `merged_softmax`, `message_lines`.
- `row_wise`, `lines`, `line_layers`, `line_names`: what no step is for, as lines of
  operations on rows.
"""
