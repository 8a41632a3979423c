"""Frequency adaptive convolution (Bo et al., 2021, eq. 6).

    out_i = eps x0_i + sum over edges j -> i of tanh(a_l . x_j + a_r . x_i) x_j / sqrt(d_j d_i)

x, x0 and out [N, in].
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.degrees import scale_by_degree
from embertide.models.convs.shared.option_texts import LOOPS, NORMALIZE
from embertide.models.ends import Ends
from embertide.models.known_modules import KnownModule
from embertide.models.layer import Earlier, Layer, Place, Problems
from embertide.models.registry import convolution
from embertide.models.weights import Scope


@convolution("pyg", module=KnownModule(bias="", weight="edge_weight", earlier="x_0"))
class PygFa(Layer):
    """Sums whose signs are learnt: each edge counts tanh of a score of both its ends."""

    weighted = False
    marks = ("att_l.weight",)
    module = "torch_geometric.nn.FAConv"
    conv: Literal["fa"] = Field(description="frequency adaptive convolution")
    x_0: Earlier = Field(
        description="the initial representation: `input` (the features) or the number of the"
        " layer whose output it is (the first is 0)"
    )
    eps: float = Field(default=0.1, description="share of the initial representation")
    normalize: bool = Field(default=True, description=NORMALIZE)
    add_self_loops: bool = Field(default=True, description=f"{LOOPS}; only with `normalize`")
    bias: Literal[False] = Field(default=False, description="the module has none")

    def conflicts(self) -> Problems:
        """The library demands edge weights where it does not normalise, and only there."""
        if self.normalize == self.uses_edge_weight:
            must = "must be true where normalize is false"
            return [
                (("edge_weight",), "must be false beside normalize" if self.normalize else must)
            ]
        return []

    def earlier(self) -> list[tuple[Place, int]]:
        """The initial representation is another layer's output."""
        own: list[tuple[Place, int]] = [(("x_0",), self.x_0)] if isinstance(self.x_0, int) else []
        return [*super().earlier(), *own]

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """FAConv (Bo et al., eq. 6): roots of degrees stand before and behind the sum of messages.

        A message needs one number of each end, its score, beside the source's row.
        """
        columns = s.size("in") or "in"
        scores = [s.take(f"att_{end}.weight", 1, columns) for end in ("l", "r")]
        source, target = (b.head_dot(x.source, name, 1) for name in scores)
        view: dict[str, Any] = {
            "loops": "single" if self.normalize and self.add_self_loops else "keep"
        }
        rows = scale_by_degree(b, x.source, "inverse_root", **view) if self.normalize else x.source
        width = b.widths[x.source] or s.size("in")
        lines = (
            f"a = narrow(s, 1, 0, {width})",
            f"b = narrow(s, 1, {width}, 1)",
            "c = add(b, t)",
            "d = tanh(c)",
            "e = mul(d, w)",
            "out = mul(a, e)",
        )
        weighted = self.uses_edge_weight
        joined = b.concat((rows, source))
        total = b.message(joined, lines, width, target=target, edge_weight=weighted, **view)
        if self.normalize:
            total = scale_by_degree(b, total, "inverse_root", **view)
        return b.combine(b.output_of(self.x_0), total, alpha=self.eps) if self.eps else total
