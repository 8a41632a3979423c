"""Which function writes the steps of which layer over several relations.

Every function takes the builder, the layer's parameters, its options, the tensor of each node type
and the types and relations of the model, and returns the results of each destination type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from embertide.models.builder import ProgramBuilder
from embertide.models.convs import han, hetero, hgt, rgcn
from embertide.models.node_types import NodeTypes
from embertide.models.options import hetero as hetero_options
from embertide.models.options import relational
from embertide.models.weights import Scope

Tensors = dict[str, str]

TYPED_CONVS: dict[
    type[hetero_options.SeveralTypes],
    Callable[[ProgramBuilder, Scope, Any, Tensors, NodeTypes], Tensors],
] = {
    hetero_options.PygHetero: hetero.pyg_hetero,
    hetero_options.DglHetero: hetero.dgl_hetero,
    relational.PygRgcn: rgcn.pyg_rgcn,
    relational.DglRgcn: rgcn.dgl_rgcn,
    relational.PygHgt: hgt.pyg_hgt,
    relational.DglHgt: hgt.dgl_hgt,
    relational.PygHan: han.pyg_han,
}
