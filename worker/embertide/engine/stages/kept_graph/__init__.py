"""The graph of a relation, kept beside a version's layers: no edge is read where none has changed.

=========  ====================================================================
module     what it does
=========  ====================================================================
form       what is kept of a graph, and of the edges that it was built from
keeping    writes our rows of a graph, and seals those of all ranks
restoring  finds a graph that was kept, and reads our rows of it
=========  ====================================================================

Rows are by dense id, so any grid reads what another one has written; which worker owns which rows
follows from the histogram of destinations, which is kept too, so that it is as if edges were read.
"""

from embertide.engine.stages.kept_graph.form import PRIMITIVE, ReadEdges
from embertide.engine.stages.kept_graph.keeping import refer_to, seal_graph, write_graph
from embertide.engine.stages.kept_graph.restoring import SealedGraph, open_graph

__all__ = [
    "PRIMITIVE",
    "ReadEdges",
    "SealedGraph",
    "open_graph",
    "refer_to",
    "seal_graph",
    "write_graph",
]
