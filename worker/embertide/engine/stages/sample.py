"""Layer graphs: k in-neighbours per node and layer, without replacement.

Deal samples column-wise (section 3.2): one-hop graphs of all nodes, one per layer, from one
graph structure. The choice is made by a counter-based generator keyed by (seed, layer, node
id), and the candidates of a row are in an order that no grid changes, so the sample is the
same on every grid and on every run.
"""

from __future__ import annotations

from embertide.kernels.csr import Csr
from embertide.kernels.hashing import Words
from embertide.kernels.sample import sample_rows


def sample_layer(sub_range: Csr, keys: Words, fanout: int, seed: int, layer: int) -> Csr:
    """Keep ``fanout`` in-edges of every row of our sub-range that has more.

    Args:
        keys: [rows] a stable 64-bit key of each row's node.
    """
    return sample_rows(sub_range, keys, fanout, seed, layer)
