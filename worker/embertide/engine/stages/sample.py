"""Layer graphs: k in-neighbours per node and layer, without replacement.

Deal samples column-wise (section 3.2): one-hop graphs of all nodes, one per layer, from one
graph structure. The choice is made by a counter-based generator keyed by (seed, layer, node
id), and the candidates of a row are in an order that no grid changes, so the sample is the
same on every grid and on every run. Of a graph on disk it is drawn part by part, and written
there.
"""

from __future__ import annotations

from embertide.kernels.csr import Csr
from embertide.kernels.hashing import Words
from embertide.kernels.sample import sample_rows
from embertide.kernels.spilled_csr import AnyCsr


def sample_layer(sub_range: AnyCsr, keys: Words, fanout: int, seed: int, layer: int) -> AnyCsr:
    """Keep ``fanout`` in-edges of every row of our sub-range that has more.

    Args:
        keys: [rows] a stable 64-bit key of each row's node.

    Raises:
        StorageError: the disk of a graph that is there has no room, or cannot be read or written.
    """

    def sample(part: Csr) -> Csr:
        first = part.first - sub_range.first
        return sample_rows(part, keys[first : first + part.rows], fanout, seed, layer)

    return sub_range.rewritten(sample)
