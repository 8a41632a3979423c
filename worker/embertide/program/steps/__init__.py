"""The steps that programs are made of: one file each, found by their names in `base.KINDS`."""

from embertide.graph.views import Loops
from embertide.program.steps.activation import Activation, ActivationKind
from embertide.program.steps.affine import Affine
from embertide.program.steps.aggregate import Aggregate
from embertide.program.steps.attend import Attend
from embertide.program.steps.base import EdgeStep, Leader, Step
from embertide.program.steps.column_statistic import ColumnStatistic, Statistic
from embertide.program.steps.combine import Combine, Concat
from embertide.program.steps.degree import Degree, DivideByDegree
from embertide.program.steps.elementwise import Elementwise
from embertide.program.steps.graph_norm import GraphNorm, Over, SizeNorm
from embertide.program.steps.heads import HeadDot, HeadMean
from embertide.program.steps.linear import Linear
from embertide.program.steps.linear_attend import LinearAttend
from embertide.program.steps.message import Message
from embertide.program.steps.norms import Norm
from embertide.program.steps.pair_attend import PairAttend
from embertide.program.steps.program import Program, WeightsOf
from embertide.program.steps.propagate import Propagate
from embertide.program.steps.row_norms import LayerNorm, RowNormalize
from embertide.program.steps.row_wise import RowWise
from embertide.program.steps.semantic import SemanticAttend

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
