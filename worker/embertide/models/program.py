"""A model as a small program: a list of steps over named node tensors.

Everything that describes a model (``model.yaml`` with DGL's or PyG's weights) ends in a
:class:`Program`; the executor, the planner and the reference know programs only.

Letters: N nodes, H heads, F width per head; every tensor is ``[N, width]`` with heads
concatenated (``H*F`` columns, head-major). The neighbours N(i) of node i are the sources of
its in-edges in the layer graph, with duplicates. Each step belongs to one convolution
layer, and a layer reads that layer's graph.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import torch

Loops = Literal["keep", "single"]
"""``single``: the layer graph with exactly one self-loop per node, as PyG's convolutions make it;
``keep``: as it is. Where edge weights count, an existing loop keeps its weight (of several the
heaviest, so that the order of edges never matters) and a new one gets ``loop_weight``; where
they do not (not asked for, or the graph has none) every edge and loop counts 1, whatever
``loop_weight`` says: PyG does so."""

Norm = Literal["none", "in", "out", "both", "sym_in", "sym_in_weighted"]
"""Normalisation of a sum over in-edges j -> i (degrees count edges of the layer graph, whole):

- ``in``: divide by max(1, in-degree(i)) (also the mean);
- ``out``: divide each x[j] by max(1, out-degree(j));
- ``both``: x[j] by sqrt(max(1, out-degree(j))), result by sqrt(max(1, in-degree(i)));
- ``sym_in``: both ends by sqrt(max(1, in-degree)) (DGL's SGConv);
- ``sym_in_weighted``: both ends by sqrt of the *weighted in-degree* after ``loops``; a degree
  of zero contributes zero (PyG's gcn_norm).
"""

ActivationKind = Literal[
    "relu", "elu", "leaky_relu", "prelu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "softplus"
]


@dataclass(frozen=True, kw_only=True)
class Step:
    """``out`` is a fresh name; ``layer`` counts layer graphs from 0.

    A step that reads no edges belongs to the layer graph before it (the first, if there is none).
    """

    out: str
    layer: int

    def reads(self) -> list[str]:
        """Names of the tensors that the step reads."""
        names = ("x", "a", "b", "source", "target", "key", "query")
        return [getattr(self, f.name) for f in fields(self) if f.name in names]


@dataclass(frozen=True, kw_only=True)
class EdgeStep(Step):
    """A step over the edges of its layer's graph: out[i] from x[j] of the neighbours j in N(i).

    The stored weights w_ij count when ``edge_weight`` is set and the graph has weights; else
    every edge counts 1.
    """

    x: str
    loops: Loops = "keep"
    loop_weight: float = 1.0
    edge_weight: bool = False


@dataclass(frozen=True, kw_only=True)
class Linear(Step):
    """out = x @ params[weight].T (+ params[bias]); weight is [D', D]."""

    x: str
    weight: str
    bias: str | None = None


@dataclass(frozen=True, kw_only=True)
class Aggregate(EdgeStep):
    """out[i] = reduce over j in N(i) of w_ij * x[j], normalised; rows without in-edges are zero.

    ``max`` takes no norm.
    """

    reduce: Literal["sum", "max"] = "sum"
    norm: Norm = "none"


@dataclass(frozen=True, kw_only=True)
class DivideByDegree(Step):
    """out[i] = x[i] / max(1, in-degree(i) + add): DGL's SAGE ``gcn`` aggregator (add=1)."""

    x: str
    add: int = 0


@dataclass(frozen=True, kw_only=True)
class HeadDot(Step):
    """out[n, h] = sum_f x[n, h*F + f] * params[vector][h, f]; out is [N, H]."""

    x: str
    vector: str
    heads: int


@dataclass(frozen=True, kw_only=True)
class Attend(EdgeStep):
    """Additive attention (GAT): out[i,h] = sum_j a_ijh * x[j,h], where
    a_ij. = softmax over j in N(i) of leaky_relu(source[j] + target[i]).

    ``source`` and ``target`` are [N, H] scores. With ``edge_weight`` a_ijh is multiplied by the
    stored weight after the softmax (DGL).
    """

    source: str
    target: str
    heads: int
    negative_slope: float = 0.2


@dataclass(frozen=True, kw_only=True)
class PairAttend(EdgeStep):
    """Attention whose score needs both ends' features, softmax over N(i), then the weighted sum.

    - ``gatv2``: s_ijh = sum_f params[vector][h,f] * leaky_relu(key[j,h,f] + query[i,h,f])
    - ``dot``:   s_ijh = scale * sum_f key[j,h,f] * query[i,h,f]

    ``x`` holds the values [N, H*F'] of the sources.
    """

    key: str
    query: str
    heads: int
    kind: Literal["gatv2", "dot"]
    vector: str | None = None
    negative_slope: float = 0.2
    scale: float = 1.0


@dataclass(frozen=True, kw_only=True)
class HeadMean(Step):
    """[N, H*F] -> [N, F]: the mean over heads."""

    x: str
    heads: int


@dataclass(frozen=True, kw_only=True)
class Affine(Step):
    """out = x * params[scale] + params[shift], per column: a bias, or batch norm in eval mode.

    Batch norm's statistics are folded into scale and shift (in float64) when the model is read.
    """

    x: str
    scale: str | None = None
    shift: str | None = None


@dataclass(frozen=True, kw_only=True)
class LayerNorm(Step):
    """Over each row's columns, with optional scale and shift."""

    x: str
    scale: str | None = None
    shift: str | None = None
    eps: float = 1e-5


@dataclass(frozen=True, kw_only=True)
class Activation(Step):
    """Element-wise; ``slope`` is leaky_relu's negative slope or elu's alpha; ``weight`` prelu's."""

    x: str
    kind: ActivationKind
    slope: float = 0.01
    weight: str | None = None


@dataclass(frozen=True, kw_only=True)
class Combine(Step):
    """out = alpha * a + beta * b (residual links, GIN's (1 + eps) * x + aggregate)."""

    a: str
    b: str
    alpha: float = 1.0
    beta: float = 1.0


@dataclass(frozen=True, kw_only=True)
class RowNormalize(Step):
    """out = x / max(eps, ||x||_2) per row."""

    x: str
    eps: float = 1e-12


@dataclass(frozen=True, kw_only=True)
class Concat(Step):
    """The columns of all ``inputs``, side by side in that order (JumpingKnowledge ``cat``)."""

    inputs: tuple[str, ...]

    def reads(self) -> list[str]:
        """Names of all inputs."""
        return list(self.inputs)


@dataclass(frozen=True, kw_only=True)
class Maximum(Step):
    """The largest of all ``inputs``, element by element (JumpingKnowledge ``max``)."""

    inputs: tuple[str, ...]

    def reads(self) -> list[str]:
        """Names of all inputs."""
        return list(self.inputs)


@dataclass(frozen=True, kw_only=True)
class Program:
    """Steps in order over tensors; ``input`` names the features, ``output`` the embeddings.

    ``widths`` gives the columns of every named tensor; ``params`` are float32 and contiguous.
    ``layers`` is the number of layer graphs; ``outputs`` names the result of each layer of
    ``model.yaml``, also of those that read no edges.
    """

    steps: tuple[Step, ...]
    params: dict[str, torch.Tensor]
    widths: dict[str, int]
    layers: int
    input: str = "x"
    output: str = "out"
    digest: str = ""
    outputs: tuple[str, ...] = ()

    @property
    def input_width(self) -> int:
        """Columns the features must have."""
        return self.widths[self.input]

    @property
    def output_width(self) -> int:
        """Columns of the embeddings."""
        return self.widths[self.output]

    @property
    def sliced_widths(self) -> list[int]:
        """Widths of the tensors whose columns a grid may slice: all but attention's scores."""
        scores = {step.out for step in self.steps if isinstance(step, HeadDot)}
        return [width for name, width in self.widths.items() if name not in scores]
