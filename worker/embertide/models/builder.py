"""Writes a program step by step: fresh names, the width of every tensor, the layer's graph.

Each method appends one step and returns the name of its tensor. Widths are 0 where parameters
that tell them are missing; such a program is never handed out, since the differences are raised
first.
"""

from __future__ import annotations

from typing import Literal

from embertide.kernels.segments import Reduce
from embertide.steps import (
    Activation,
    ActivationKind,
    Affine,
    Aggregate,
    Attend,
    Combine,
    Concat,
    Degree,
    DivideByDegree,
    Elementwise,
    HeadDot,
    HeadMean,
    LayerNorm,
    Linear,
    Loops,
    Message,
    Norm,
    PairAttend,
    Propagate,
    RowNormalize,
    RowWise,
    Step,
)
from embertide.steps.elementwise import ElementOp

INPUT = "x"


class ProgramBuilder:
    """The steps so far, and the outputs of the layers of ``model.yaml``.

    Attributes:
        outputs: each finished layer's tensor.
        convolved: those of the layers that read edges, one for each layer graph.
    """

    def __init__(self, input_width: int) -> None:
        self.steps: list[Step] = []
        self.widths: dict[str, int] = {INPUT: input_width}
        self.outputs: list[str] = []
        self.convolved: list[str] = []
        self._graphs = 0

    @property
    def layer(self) -> int:
        """The layer graph that new steps belong to."""
        return max(0, self._graphs - 1)

    def begin(self, reads_edges: bool) -> None:
        """Start the next layer; one that reads edges has a layer graph of its own."""
        self._graphs += reads_edges

    def finish(self, out: str) -> None:
        """Name the layer's result."""
        self.outputs.append(out)
        if self._graphs > len(self.convolved):
            self.convolved.append(out)

    def output_of(self, earlier: Literal["input"] | int) -> str:
        """The tensor of an earlier layer, or of the features."""
        return INPUT if earlier == "input" else self.outputs[earlier]

    def _fresh(self, kind: str) -> str:
        """A name that tells layer and kind: ``2.linear``, ``2.linear_1``."""
        number = len(self.outputs)
        name, count = f"{number}.{kind}", 0
        while name in self.widths:
            count += 1
            name = f"{number}.{kind}_{count}"
        return name

    def _append(self, step: Step, width: int) -> str:
        self.steps.append(step)
        self.widths[step.out] = width
        return step.out

    def linear(self, x: str, weight: str, width: int, bias: str | None = None) -> str:
        """x @ weight.T + bias, ``width`` columns."""
        out = self._fresh("linear")
        step = Linear(out=out, layer=self.layer, x=x, weight=weight, bias=bias)
        return self._append(step, width)

    def aggregate(
        self,
        x: str,
        *,
        reduce: Literal["sum", "max"] = "sum",
        norm: Norm = "none",
        loops: Loops = "keep",
        loop_weight: float = 1.0,
        edge_weight: bool = False,
    ) -> str:
        """Reduce over in-edges; the columns stay."""
        step = Aggregate(
            out=self._fresh("aggregate"),
            layer=self.layer,
            x=x,
            reduce=reduce,
            norm=norm,
            loops=loops,
            loop_weight=loop_weight,
            edge_weight=edge_weight,
        )
        return self._append(step, self.widths[x])

    def propagate(
        self,
        x: str,
        *,
        times: int,
        alpha: float = 0.0,
        hops: tuple[float, ...] | None = None,
        norm: Norm = "none",
        loops: Loops = "keep",
        loop_weight: float = 1.0,
        edge_weight: bool = False,
    ) -> str:
        """``times`` sums over in-edges, one of the other; the columns stay."""
        step = Propagate(
            out=self._fresh("propagate"),
            layer=self.layer,
            x=x,
            times=times,
            alpha=alpha,
            hops=hops,
            norm=norm,
            loops=loops,
            loop_weight=loop_weight,
            edge_weight=edge_weight,
        )
        return self._append(step, self.widths[x])

    def row_wise(
        self, inputs: tuple[str, ...], lines: tuple[str, ...], params: tuple[str, ...], width: int
    ) -> str:
        """A few lines of torch's operations on each row, ``width`` columns."""
        out = self._fresh("row_wise")
        step = RowWise(out=out, layer=self.layer, inputs=inputs, lines=lines, params=params)
        return self._append(step, width)

    def message(
        self,
        x: str,
        lines: tuple[str, ...],
        width: int,
        *,
        reduce: Reduce = "sum",
        target: str | None = None,
        params: tuple[str, ...] = (),
        loops: Loops = "keep",
        loop_weight: float = 1.0,
        edge_weight: bool = False,
        log_sum: bool = False,
    ) -> str:
        """A few lines of torch's operations on each edge, reduced by row; ``width`` columns."""
        step = Message(
            out=self._fresh("message"),
            layer=self.layer,
            x=x,
            lines=lines,
            reduce=reduce,
            target=target,
            params=params,
            loops=loops,
            loop_weight=loop_weight,
            edge_weight=edge_weight,
            log_sum=log_sum,
        )
        return self._append(step, width)

    def merge_softmax(self, parts: tuple[str, ...], width: int, heads: int) -> str:
        """One softmax over the edges of several messages that have their ``log_sum``.

        Args:
            width: columns of each part without those of its logarithms.
        """
        numbers = range(len(parts))
        lines = [f"v{at} = narrow(x{at}, 1, 0, {width})" for at in numbers]
        lines += [f"l{at} = narrow(x{at}, 1, {width}, {heads})" for at in numbers]
        lines += [
            f"values = stack([{', '.join(f'v{at}' for at in numbers)}], 1)",
            f"logs = stack([{', '.join(f'l{at}' for at in numbers)}], 1)",
            "softmaxed = softmax(logs, 1)",
            "share = unsqueeze(softmaxed, 3)",
            f"apart = reshape(values, [{len(parts)}, {heads}, -1])",
            "weighed = mul(apart, share)",
            "total = sum(weighed, 1)",
            "out = flatten(total)",
        ]
        return self.row_wise(parts, tuple(lines), (), width)

    def degree(
        self,
        of: Literal["in", "out", "weight"] = "in",
        *,
        loops: Loops = "keep",
        loop_weight: float = 1.0,
    ) -> str:
        """How many edges each node has, one column."""
        out = self._fresh("count")
        step = Degree(out=out, layer=self.layer, of=of, loops=loops, loop_weight=loop_weight)
        return self._append(step, 1)

    def divide_by_degree(self, x: str, add: int) -> str:
        """Divide rows by in-degree + ``add``."""
        out = self._fresh("degree")
        step = DivideByDegree(out=out, layer=self.layer, x=x, add=add)
        return self._append(step, self.widths[x])

    def head_dot(self, x: str, vector: str, heads: int) -> str:
        """One score for each head."""
        out = self._fresh("score")
        step = HeadDot(out=out, layer=self.layer, x=x, vector=vector, heads=heads)
        return self._append(step, heads)

    def attend(
        self,
        x: str,
        source: str,
        target: str,
        heads: int,
        *,
        negative_slope: float,
        loops: Loops = "keep",
        edge_weight: bool = False,
    ) -> str:
        """Additive attention over in-edges."""
        step = Attend(
            out=self._fresh("attend"),
            layer=self.layer,
            x=x,
            source=source,
            target=target,
            heads=heads,
            negative_slope=negative_slope,
            loops=loops,
            edge_weight=edge_weight,
        )
        return self._append(step, self.widths[x])

    def pair_attend(
        self,
        x: str,
        query: str,
        heads: int,
        *,
        kind: Literal["gatv2", "dot"],
        key: str | None = None,
        vector: str | None = None,
        negative_slope: float = 0.2,
        scale: float = 1.0,
        loops: Loops = "keep",
    ) -> str:
        """Attention that needs both ends' features; without a key, the values are the keys."""
        step = PairAttend(
            out=self._fresh("attend"),
            layer=self.layer,
            x=x,
            key=x if key is None else key,
            query=query,
            heads=heads,
            kind=kind,
            vector=vector,
            negative_slope=negative_slope,
            scale=scale,
            loops=loops,
        )
        return self._append(step, self.widths[x])

    def head_mean(self, x: str, heads: int) -> str:
        """The mean over heads."""
        out = self._fresh("average")
        width = self.widths[x] // heads if heads else 0
        return self._append(HeadMean(out=out, layer=self.layer, x=x, heads=heads), width)

    def affine(self, x: str, scale: str | None, shift: str | None) -> str:
        """Per column x * scale + shift."""
        out = self._fresh("affine")
        step = Affine(out=out, layer=self.layer, x=x, scale=scale, shift=shift)
        return self._append(step, self.widths[x])

    def layer_norm(self, x: str, scale: str | None, shift: str | None, eps: float) -> str:
        """Normalise each row."""
        out = self._fresh("layer_norm")
        step = LayerNorm(out=out, layer=self.layer, x=x, scale=scale, shift=shift, eps=eps)
        return self._append(step, self.widths[x])

    def activation(
        self, x: str, kind: ActivationKind, slope: float | None = None, weight: str | None = None
    ) -> str:
        """An element-wise function; a slope of None is torch's default."""
        if slope is None:
            slope = 1.0 if kind == "elu" else 0.01
        out = self._fresh(kind)
        step = Activation(out=out, layer=self.layer, x=x, kind=kind, slope=slope, weight=weight)
        return self._append(step, self.widths[x])

    def combine(self, a: str, b: str, *, alpha: float = 1.0, beta: float = 1.0) -> str:
        """alpha * a + beta * b."""
        out = self._fresh("combine")
        step = Combine(out=out, layer=self.layer, a=a, b=b, alpha=alpha, beta=beta)
        return self._append(step, self.widths[a])

    def concat(self, inputs: tuple[str, ...]) -> str:
        """The columns of all inputs side by side; 0 columns where one's are not known."""
        widths = [self.widths[name] for name in inputs]
        step = Concat(out=self._fresh("concat"), layer=self.layer, inputs=inputs)
        return self._append(step, sum(widths) if all(widths) else 0)

    def elementwise(self, inputs: tuple[str, ...], op: ElementOp) -> str:
        """Sum, mean, maximum, minimum or product of all inputs, element by element."""
        step = Elementwise(out=self._fresh(op), layer=self.layer, inputs=inputs, op=op)
        return self._append(step, self.widths[inputs[0]])

    def maximum(self, inputs: tuple[str, ...]) -> str:
        """The largest of all inputs, element by element."""
        return self.elementwise(inputs, "max")

    def row_normalize(self, x: str, eps: float = 1e-12) -> str:
        """Rows of length one."""
        out = self._fresh("normalize")
        step = RowNormalize(out=out, layer=self.layer, x=x, eps=eps)
        return self._append(step, self.widths[x])
