"""What to make up: the size and shape of a graph, its features, its model, and the formats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from embertide.errors import ManifestError

Conv = Literal["gcn", "sage", "gat", "gatv2", "gin", "dotgat", "sg", "tag", "edge_gat"]

MOST_NODES = 1 << 31
"""Labels are scaled in 64-bit arithmetic, which holds the product of two such numbers."""


LEAST_TYPED_NODES = 3
"""One of each type."""


@dataclass(frozen=True, kw_only=True)
class SynthOptions:
    """A made-up job. The same options give the same bytes, whatever the machine.

    ``nodes`` need not be a power of two. ``a`` to ``d`` are RMAT's quadrant probabilities;
    ``permute=False`` keeps its raw labels, where low ids are the hubs. ``rows_per_group`` and
    ``rows_per_file`` shape the files of edges, not the graph. ``hetero`` has nodes of three types
    and edges of six (``hetero.py``), over which the model has convolutions of GraphSAGE.
    """

    kind: Literal["rmat", "uniform"] = "rmat"
    hetero: bool = False
    nodes: int = 1 << 16
    edges: int = 20 << 16
    a: float = 0.57
    b: float = 0.19
    c: float = 0.19
    d: float = 0.05
    permute: bool = True
    ids: Literal["dense", "int64", "string"] = "dense"
    weights: bool = False
    edge_features: int = 0
    edge_format: Literal["parquet", "csv", "npy"] = "parquet"
    feature_format: Literal["parquet", "npy"] = "parquet"
    width: int = 128
    rows_per_group: int = 1 << 20
    rows_per_file: int = 16 << 20
    conv: Conv = "gcn"
    layers: int = 3
    hidden: int = 128
    out: int = 128
    heads: int = 1
    seed: int = 0
    name: str = "synthetic"

    def __post_init__(self) -> None:
        problems = [(field, f"is {value}; {must}") for field, value, must in self._wrong()]
        if problems:
            raise ManifestError(problems, source="synth options")

    def _wrong(self) -> list[tuple[str, object, str]]:
        wrong: list[tuple[str, object, str]] = []
        if not 1 <= self.nodes <= MOST_NODES:
            wrong.append(("nodes", self.nodes, f"must be from 1 to {MOST_NODES}"))
        if self.edge_features < 0:
            wrong.append(("edge_features", self.edge_features, "must be 0 or more"))
        if self.edges < 0:
            wrong.append(("edges", self.edges, "must be 0 or more"))
        for field in (
            "width",
            "layers",
            "hidden",
            "out",
            "heads",
            "rows_per_group",
            "rows_per_file",
        ):
            if getattr(self, field) < 1:
                wrong.append((field, getattr(self, field), "must be at least 1"))
        if self.seed < 0:
            wrong.append(("seed", self.seed, "must be 0 or more"))
        quadrants = (self.a, self.b, self.c, self.d)
        if min(quadrants) < 0 or abs(sum(quadrants) - 1) > 1e-9:
            wrong.append(("a, b, c, d", quadrants, "must be 0 or more and add up to 1"))
        if self.hetero and self.conv != "sage":
            wrong.append(("conv", self.conv, "must be sage with hetero"))
        if self.hetero and self.nodes < LEAST_TYPED_NODES:
            wrong.append(("nodes", self.nodes, f"must be at least {LEAST_TYPED_NODES} with hetero"))
        if self.ids == "string" and self.edge_format == "npy":
            wrong.append(("edge_format", "npy", "holds numbers; string ids need parquet or csv"))
        return wrong
