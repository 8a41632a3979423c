"""Recording what ``forward`` does: tensors that remember the operation that made them.

- `tape`, `traced`, `protocols`, `operations`: the recorded operations; what may be asked of a
  recorded tensor.
- `recording`: one run on one graph; `edges`, `edge_ends`, `scatter`, `self_loops`, `adjacency`:
  rows taken to edges and summed at nodes.
- `arguments`, `roles`, `tables`, `constants`, `counts`: what a tensor or number is.
- `decomposed`, `recurrent`: functions and layers recorded by other ones.
- `over_all`, `node_statistics`: statistics over all nodes or edges.
- `linear_attention`: products over all nodes; `turned`: rows whose nodes are not in front;
  `one_graph`: the numbers of graphs, where all nodes are of one.
- `graphs`, `trials`, `precision`: the random graphs, and the numbers that a module computes with.
- `own_forward`: what a module gives for plain tensors.
- `scopes`, `user_code`: which module, and which line of the user's code, does something.
"""
