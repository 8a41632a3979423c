"""The steps that programs are made of: one file each, found by their names in `base.KINDS`."""

from embertide.primitives.views import Loops
from embertide.steps.activation import Activation, ActivationKind
from embertide.steps.affine import Affine
from embertide.steps.aggregate import Aggregate
from embertide.steps.attend import Attend
from embertide.steps.base import EdgeStep, Leader, Step
from embertide.steps.column_statistic import ColumnStatistic, Statistic
from embertide.steps.combine import Combine, Concat
from embertide.steps.degree import Degree, DivideByDegree
from embertide.steps.elementwise import Elementwise
from embertide.steps.graph_norm import GraphNorm, Over, SizeNorm
from embertide.steps.heads import HeadDot, HeadMean
from embertide.steps.linear import Linear
from embertide.steps.linear_attend import LinearAttend
from embertide.steps.message import Message
from embertide.steps.norms import Norm
from embertide.steps.pair_attend import PairAttend
from embertide.steps.program import Program, WeightsOf
from embertide.steps.propagate import Propagate
from embertide.steps.row_norms import LayerNorm, RowNormalize
from embertide.steps.row_wise import RowWise
from embertide.steps.semantic import SemanticAttend

__all__ = [
    "Activation",
    "ActivationKind",
    "Affine",
    "Aggregate",
    "Attend",
    "ColumnStatistic",
    "Combine",
    "Concat",
    "Degree",
    "DivideByDegree",
    "EdgeStep",
    "Elementwise",
    "GraphNorm",
    "HeadDot",
    "HeadMean",
    "LayerNorm",
    "Leader",
    "Linear",
    "LinearAttend",
    "Loops",
    "Message",
    "Norm",
    "Over",
    "PairAttend",
    "Program",
    "Propagate",
    "RowNormalize",
    "RowWise",
    "SemanticAttend",
    "SizeNorm",
    "Statistic",
    "Step",
    "WeightsOf",
]
