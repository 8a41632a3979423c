"""Layers whose weights are numbered by relation or node type: RGCN, HGT, HAN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field
from torch import Tensor

from embertide.models.options.hetero import Relations, SeveralTypes
from embertide.models.options.layer import Problems
from embertide.spec.relations import Relation


class Relational(SeveralTypes):
    """A sum over all relations, each with its own weight, and the node itself."""

    conv: Literal["rgcn"] = Field(description="relational graph convolution")

    @property
    def rooted(self) -> bool:
        """Whether the node itself counts."""
        raise NotImplementedError

    def wants(self, relation: Relation) -> list[str]:
        """The target counts as the node itself alone."""
        both = super().wants(relation)
        return both if self.rooted else both[:1]

    def makes(self, listed: Relations, have: set[str]) -> set[str]:
        """Where the node itself counts, of every type."""
        return super().makes(listed, have) | (have if self.rooted else set())


class PygRgcn(Relational):
    """A sum over all relations, each with its own weight, and the node itself.

    Weights are numbered in the order of `relations`; of a basis or block decomposition the
    weights themselves show the number.
    """

    marks = ("weight [relations, in, out]",)
    module = "torch_geometric.nn.RGCNConv, torch_geometric.nn.FastRGCNConv"
    aggr: Literal["mean", "add", "sum", "max"] = Field(
        default="mean", description="how the neighbours of one relation are joined; `add` is `sum`"
    )
    root_weight: bool = Field(default=True, description="adds the node itself (root)")

    def found_in(self, names: Mapping[str, Tensor]) -> set[str]:
        """By its weight, a stack of matrices or of blocks."""
        found = {name for name, tensor in names.items() if tensor.dim() in (3, 4)}
        return {
            name.removesuffix("weight").removesuffix(".")
            for name in found
            if name == "weight" or name.endswith(".weight")
        }

    @property
    def rooted(self) -> bool:
        """By its ``root``."""
        return self.root_weight


class DglRgcn(Relational):
    """A sum over all relations, each with its own weight, and the node itself.

    Weights are numbered in the order of `relations`.
    """

    marks = ("linear_r.W",)
    module = "dgl.nn.RelGraphConv"
    regularizer: Literal["basis", "bdd"] | None = Field(
        default=None,
        description="decomposition of the weights: sums of bases, or blocks on the diagonal",
    )
    num_bases: int | None = Field(
        default=None, ge=1, description="of `bdd` the number of blocks, which no weights show"
    )
    self_loop: bool = Field(default=True, description="adds the node itself (loop_weight)")
    norm_inside: bool = Field(
        default=False,
        description="the module was made with layer_norm=True: a norm before bias and node",
    )
    norm: Literal["none", "relation", "all"] = Field(
        default="none",
        description="what the forward was given as `norm`: nothing; one over the in-degree within"
        " the edge's relation (means); one over that of all relations, as dgl.norm_by_dst gives it",
    )

    @property
    def rooted(self) -> bool:
        """By its ``loop_weight``."""
        return self.self_loop

    def conflicts(self) -> Problems:
        """Blocks are counted, and nothing else is."""
        blocks = self.regularizer == "bdd"
        if blocks and self.num_bases is None:
            return [(("num_bases",), "is required with regularizer: bdd")]
        if not blocks and self.num_bases is not None:
            return [(("num_bases",), "is told by the weights; remove it")]
        return []


class PygHgt(SeveralTypes):
    """Attention with one softmax over the edges of all relations, and weights by node type.

    It needs the features of all node types that `relations` name.
    """

    marks = ("k_rel.weight",)
    module = "torch_geometric.nn.HGTConv"
    conv: Literal["hgt"] = Field(description="heterogeneous graph transformer")
    bias: Literal[True] = Field(default=True, description="the module has them")


class DglHgt(SeveralTypes):
    """Attention with one softmax over the edges of all relations, and weights by node type.

    Weights are numbered in the order of `types` and of `relations`.
    """

    marks = ("linear_a.W",)
    module = "dgl.nn.HGTConv"
    conv: Literal["hgt"] = Field(description="heterogeneous graph transformer")
    bias: Literal[False] = Field(default=False, description="the module has none")
    use_norm: bool = Field(default=False, description="a layer norm in the module (norm)")

    def makes(self, listed: Relations, have: set[str]) -> set[str]:
        """Of every type, by its gate."""
        return super().makes(listed, have) | have


class PygHan(SeveralTypes):
    """Attention within each relation, then over the relations that lead to a type.

    The second has one share for each relation, by a mean over all nodes of the destination type.
    """

    marks = ("k_lin.weight",)
    module = "torch_geometric.nn.HANConv"
    conv: Literal["han"] = Field(description="heterogeneous graph attention")
    negative_slope: float = Field(
        default=0.2, description="negative slope of the leaky_relu on the scores"
    )
    bias: Literal[True] = Field(default=True, description="the module has them")
