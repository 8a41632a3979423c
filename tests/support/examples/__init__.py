"""Models as the examples of PyG and DGL have them, by the example's path.

======  ============================================================
module  what it has
======  ============================================================
case    one example: how it is made, exported and called
pyg     PyG's, on graphs of one node type: convolutions one by one
encode  PyG's: encoders, autoencoders, deep and sampled models
typed   PyG's and DGL's, on graphs of several node types
dgl     DGL's, which are given a graph
kept    DGL's, which keep the graph that they are made with
======  ============================================================
"""
