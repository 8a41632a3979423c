"""GIN for both libraries: (1 + eps) * x + the aggregate, then a function of linear layers.

The function is the user's own module, so ``mlp`` lists what is in it, in order. Modules stand
under DGL's ``apply_func`` or PyG's ``nn``; their names are the numbers of a Sequential,
``lins.0`` and ``norms.0.module`` of PyG's MLP, ``linears.0`` or whatever the list says.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.models.after import activation, batch_norm, layer_norm
from embertide.models.builder import ProgramBuilder
from embertide.models.ends import Ends
from embertide.models.layer import Layer
from embertide.models.parts import Mlp, MlpModule, NormOptions
from embertide.models.prefixes import KINDS, Kind, modules_of, numbers_of, stored_norm
from embertide.models.weights import Scope

GIN = "(1 + eps) times the node plus its neighbours, then a function of linear layers"


class Gin(Layer):
    """GIN's function: a single linear layer unless ``mlp`` lists its modules in order."""

    marks = ("eps",)
    bias: Literal[True] = Field(
        default=True, description="the function's linear layers say it themselves, in `mlp`"
    )
    eps: float | None = Field(
        default=None, description="replaces the stored eps; without it, the weights have it"
    )
    mlp: Mlp | None = Field(
        default=None,
        description="the function's modules in order; without it, it is a single Linear",
    )


def finish_gin(b: ProgramBuilder, s: Scope, o: Gin, x: Ends, total: str, function: str) -> str:
    """What follows the aggregate: the node itself, then the user's module."""
    eps = o.eps
    s.pass_over("eps")
    if eps is None:
        stored = s.raw("eps", 1)
        eps = 0.0 if stored is None else float(stored[0])
    h = b.combine(x.target, total, alpha=1.0 + eps) if x.target else total
    inner = s.at(s.name(function))
    h = _linear(b, inner, h, "", True) if o.mlp is None else _modules(b, inner, o.mlp, h)
    if b.widths[h]:
        s.agree("out", b.widths[h])
    return h


class _Names:
    """The modules in the weights, by kind, in the order of the numbers in their names."""

    def __init__(self, s: Scope) -> None:
        self._scope = s
        self._left: dict[Kind, list[str]] = {kind: modules_of(kind, s) for kind in KINDS}

    def take(self, kind: Kind, given: str, place: int) -> str:
        """The given name, or the next module of this kind; ``place`` as in a Sequential."""
        left = self._left[kind]
        if given:
            return given
        numbers = [numbers_of(name) for name in left]
        if len(set(numbers)) < len(numbers):
            expected = f"mlp with names: {{{kind}: <name>}}  ({self._scope.label})"
            self._scope.weights.differ(self._scope.prefix, expected, ", ".join(left))
        return left.pop(0) if left else str(place)


def _modules(b: ProgramBuilder, s: Scope, mlp: list[MlpModule], h: str) -> str:
    """The listed modules in order; those without a name take the next one of their kind."""
    names = _Names(s)
    for place, module in enumerate(mlp):
        options = NormOptions(eps=module.eps, affine=module.affine)
        if module.linear is not None:
            h = _linear(b, s, h, names.take("linear", module.linear, place), module.bias)
        elif module.batch_norm is not None:
            name = s.name(names.take("batch_norm", module.batch_norm, place))
            h = batch_norm(b, s.at(stored_norm(name, s.weights.found)), options, h)
        elif module.layer_norm is not None:
            name = names.take("layer_norm", module.layer_norm, place)
            h = layer_norm(b, s.at(s.name(name)), options, h)
        elif module.activation is not None:
            h = activation(b, s, module.activation, h)
    return h


def _linear(b: ProgramBuilder, s: Scope, h: str, name: str, bias: bool) -> str:
    columns = b.widths[h]
    inner = Scope(s.weights, s.name(name) if name else s.prefix, s.label, {})
    if columns:
        inner.sizes["in"] = columns
    weight = inner.take("weight", "out", "in")
    shift = inner.take("bias", "out") if bias else None
    s.sizes.setdefault("in", inner.size("in"))
    return b.linear(h, weight, inner.size("out"), shift)
