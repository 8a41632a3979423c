"""From a trained module to a folder that workers read: record, lower, write, prove.

``forward`` runs on a small random graph on the user's machine. What it does is recorded, written
as the steps of a program, read back, and compared with the module's own result. Workers read the
folder alone.

Where to read:

- `export`: the whole way from a module to a folder, in one function; start here.
- `load`: the user's file, class and weights.
- `graph_types`: the node types and relations that a user names; `table_rows`: the rows of embedding
  tables, and their ids; `sample`, `sample_files`: what real tensors, or a job, show of the graph.
- `explanation`: what was understood of a module, also where it is refused.
- `forward`: calls ``forward`` on a random graph, as it is or recorded.
- `record`: tensors that remember how they were computed, and the random graphs.
- `pyg`, `dgl`, `typed`: what modules of PyG and DGL, and modules over several node types, do while
  they are recorded.
- `lower`: recorded operations become steps.
- `prove`: the program gives what the module gives.

Imports run one way: `export` over `prove` over `forward` and `lower`, which do not know each other;
`forward` over `typed` over `pyg` and `dgl`; all over `record`.
"""
