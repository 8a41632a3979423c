"""Recording what ``forward`` does: tensors that remember the operation that made them.

- `tape`, `traced`, `operations`: the recorded operations; what may be asked of a recorded tensor.
- `recording`: one run on one graph; `edges`, `edge_ends`, `scatter`, `self_loops`, `adjacency`:
  rows taken to edges and summed at nodes.
- `arguments`, `roles`, `tables`, `constants`, `counts`: what a tensor or number is.
- `decomposed`, `node_statistics`: functions recorded by other ones; statistics over all nodes.
- `graphs`, `trials`, `precision`: the random graphs, and the numbers that a module computes with.
- `scopes`, `user_code`: which module, and which line of the user's code, does something.
"""
