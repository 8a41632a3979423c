"""Appends steps that touch each node alone; see :mod:`embertide.models.builder`."""

from __future__ import annotations

from embertide.models.step_list import StepList
from embertide.program.steps import (
    Activation,
    ActivationKind,
    Affine,
    ColumnStatistic,
    Combine,
    Concat,
    Elementwise,
    GraphNorm,
    HeadDot,
    HeadMean,
    LayerNorm,
    Linear,
    LinearAttend,
    Over,
    RowNormalize,
    RowWise,
    SemanticAttend,
    SizeNorm,
    Statistic,
)
from embertide.program.steps.elementwise import ElementOp


class RowBuilder(StepList):
    """The steps on nodes: what they read is of one node type, and so is what they make."""

    def linear(self, x: str, weight: str, width: int, bias: str | None = None) -> str:
        """x @ weight.T + bias, ``width`` columns."""
        out = self._fresh("linear")
        step = Linear(out=out, layer=self.layer, x=x, weight=weight, bias=bias)
        return self._append(step, width)

    def row_wise(
        self, inputs: tuple[str, ...], lines: tuple[str, ...], params: tuple[str, ...], width: int
    ) -> str:
        """A few lines of torch's operations on each row, ``width`` columns."""
        out = self._fresh("row_wise")
        step = RowWise(out=out, layer=self.layer, inputs=inputs, lines=lines, params=params)
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

    def head_dot(self, x: str, vector: str, heads: int) -> str:
        """One score for each head."""
        out = self._fresh("score")
        step = HeadDot(out=out, layer=self.layer, x=x, vector=vector, heads=heads)
        return self._append(step, heads)

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

    def graph_norm(
        self,
        x: str,
        over: Over,
        *,
        scale: str | None = None,
        shift: str | None = None,
        mean_scale: str | None = None,
        factor: float = 1.0,
        eps: float = 1e-5,
    ) -> str:
        """Normalise by statistics over all nodes."""
        step = GraphNorm(
            out=self._fresh("graph_norm"),
            layer=self.layer,
            x=x,
            over=over,
            scale=scale,
            shift=shift,
            mean_scale=mean_scale,
            factor=factor,
            eps=eps,
        )
        return self._append(step, self.widths[x])

    def column_statistic(
        self, x: str, of: Statistic, correction: int = 0, count: str | None = None
    ) -> str:
        """What each column comes to over all nodes; as many columns."""
        step = ColumnStatistic(
            out=self._fresh(of),
            layer=self.layer,
            x=x,
            of=of,
            correction=correction,
            count=count,
        )
        return self._append(step, self.widths[x])

    def linear_attend(self, q: str, k: str, v: str, heads: int) -> str:
        """Each row of q times the sum over all nodes of outer(k, v); the columns of v."""
        out = self._fresh("linear_attend")
        step = LinearAttend(out=out, layer=self.layer, q=q, k=k, v=v, heads=heads)
        return self._append(step, self.widths[v])

    def size_norm(self, x: str) -> str:
        """Divide by the root of how many nodes there are."""
        step = SizeNorm(out=self._fresh("size_norm"), layer=self.layer, x=x)
        return self._append(step, self.widths[x])

    def semantic_attend(
        self, inputs: tuple[str, ...], weight: str, vector: str, bias: str | None = None
    ) -> str:
        """Weigh tensors by one score each, a mean over all nodes; the columns stay."""
        step = SemanticAttend(
            out=self._fresh("semantic"),
            layer=self.layer,
            inputs=inputs,
            weight=weight,
            vector=vector,
            bias=bias,
        )
        return self._append(step, self.widths[inputs[0]])

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
