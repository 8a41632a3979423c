"""Rows of every layer computed a second time, slowly and in float64, while a run goes on.

===========  ==============================================================================
module       what it does
===========  ==============================================================================
draw         which rows of a phase, by a hash
row_edges    their in-edges, from the rows that the csr stage made; out-degrees of some nodes
recompute    units of a phase, the rows that they read, and the float64 references of their steps
judge        how far the run's rows are from it, how far they may be, where float32 overflows
checker      all of it beside the layers, and the result of all ranks
===========  ==============================================================================

Each phase is checked alone, from the run's own rows of the phase before: one hop, whatever the
number of layers is.
"""
