"""Features and node ids: each rank reads its share and keeps the rows that it read.

Then each node's location, the rank and row that hold its features, is sent to the node's owner
(Deal, section 3.5, Fig. 13), which is also where missing and duplicate rows are found. A process
that needs some nodes alone reads their rows, once it knows which these are.
"""

from __future__ import annotations

from embertide.engine.stages.features.load import RawFeatures
from embertide.engine.stages.features.locate import locate_features
from embertide.engine.stages.features.nodes import (
    LoadedNodes,
    load_nodes,
    loaded_features,
    read_rows,
)
from embertide.engine.stages.features.some import read_some_features

__all__ = [
    "LoadedNodes",
    "RawFeatures",
    "load_nodes",
    "loaded_features",
    "locate_features",
    "read_rows",
    "read_some_features",
]
