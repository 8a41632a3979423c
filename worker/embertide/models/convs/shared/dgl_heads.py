"""What DGL's attentions have in common: heads, projections of both ends, the residual."""

from __future__ import annotations

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.ends import Ends
from embertide.models.known_modules import Read
from embertide.models.layer import Layer
from embertide.models.weights import Scope


class DglHeads(Layer):
    """DGL's attention gives [N, heads, width]: the model joins the heads or averages them."""

    num_heads: int | None = Field(
        default=None, ge=1, description="checked against the weights, which show it"
    )
    concat: bool = Field(
        default=True,
        description="heads side by side, as `.flatten(1)` does; false averages them, as"
        " `.mean(1)` does, before what follows unless `order` says where",
    )

    def averages_after(self) -> bool:
        """Averaging is the model's, so it may stand before or after the activation."""
        return not self.concat


ATTENTION: dict[str, Read] = {
    "negative_slope": lambda m: m.leaky_relu.negative_slope,
    "residual": lambda m: m.res_fc is not None,
}
"""How two options are read from an attention's module."""


def bind_heads(s: Scope, o: DglHeads) -> None:
    """Compare the heads, where they are given, with the weights."""
    if o.num_heads is not None:
        s.agree("heads", o.num_heads)


def both_ends(b: ProgramBuilder, s: Scope, x: Ends) -> tuple[str, str]:
    """Both ends projected: by ``fc``, or by one each where the module was made for a pair."""
    if s.has("fc_src.weight"):
        names, size = ("fc_src.weight", "fc_dst.weight"), x.own
    else:
        names, size = ("fc.weight", "fc.weight"), "in"
    h = b.linear(x.source, s.take(names[0], "out", "in"), s.size("out"))
    if x.within and names[0] == names[1]:
        return h, h
    return h, b.linear(x.target, s.take(names[1], "out", size), s.size("out"))


def residual(
    b: ProgramBuilder,
    s: Scope,
    x: Ends,
    out: str,
    *,
    projected: bool,
    inner: str | None = None,
    bias: str | None = None,
) -> str:
    """Add x, projected where its width differs; the bias goes with the projection.

    ``inner`` names a bias that is stored with the projection, ``bias`` one that has been taken.
    """
    if not projected:
        total = b.combine(x.target, out)
        return total if bias is None else b.affine(total, None, bias)
    weight = s.take("res_fc.weight", "out", x.own)
    taken = bias if inner is None else s.take(inner, "out")
    return b.combine(b.linear(x.target, weight, s.size("out"), taken), out)
