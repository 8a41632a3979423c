"""Features and node ids: each rank reads its share and keeps the rows that it read.

Then each node's location, the rank and row that hold its features, is sent to the node's owner
(Deal, section 3.5, Fig. 13), which is also where missing and duplicate rows are found.
"""

from __future__ import annotations

from embertide.stages.features.load import RawFeatures
from embertide.stages.features.locate import locate_features
from embertide.stages.features.nodes import LoadedNodes, load_nodes, loaded_features

__all__ = ["LoadedNodes", "RawFeatures", "load_nodes", "loaded_features", "locate_features"]
