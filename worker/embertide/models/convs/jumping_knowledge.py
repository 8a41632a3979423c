"""JumpingKnowledge over the outputs of earlier layers (Xu et al., 2018, section 4.1).

Of L layers [N, D] the columns side by side, [N, L*D], the largest of each element, or the sum by
shares that an LSTM over the layers gives, [N, D].
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field, field_validator

from embertide.models.builder import ProgramBuilder
from embertide.models.ends import Ends
from embertide.models.layer import Layer, Place, Problems
from embertide.models.registry import convolution
from embertide.models.weights import Scope

_OF_LSTM = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")


_SHAPES = (("gates", "in"), ("gates", "hidden"), ("gates",), ("gates",))


@convolution("dgl", "pyg")
class JumpingKnowledge(Layer):
    """The outputs of several layers, joined; a final Linear is a `linear` layer after it."""

    reads_edges = False
    module = "torch_geometric.nn.JumpingKnowledge, dgl.nn.JumpingKnowledge"
    conv: Literal["jumping_knowledge"] = Field(description="joins the outputs of earlier layers")
    mode: Literal["cat", "max", "lstm"] = Field(
        description="`cat` puts their columns side by side, `max` takes the largest of each"
        " element, `lstm` weighs them by an LSTM over the layers of each node; the last two are"
        " of equal widths"
    )
    layers: tuple[Literal["input"] | int, ...] | None = Field(
        default=None,
        strict=False,
        description="numbers of the layers (the first is 0), in order, or `input` for the"
        " features; without it, all earlier layers that read edges",
    )
    bias: Literal[False] = Field(default=False, description="that of `lstm` is always there")

    def stores_parameters(self) -> bool:
        """With ``lstm`` alone."""
        return self.mode == "lstm"

    def conflicts(self) -> Problems:
        """A prefix of what stores nothing, or none of an LSTM's."""
        stores = self.stores_parameters()
        if self.prefix is not None and not stores:
            return [(("prefix",), f"mode: {self.mode} has no parameters; remove it")]
        if self.prefix is None and stores:
            return [(("prefix",), "is required: name of the module with the LSTM in the weights")]
        return []

    def earlier(self) -> list[tuple[Place, int]]:
        """The layers that it joins."""
        joined = enumerate(self.layers or ())
        places: list[tuple[Place, int]] = [
            (("layers", place), one) for place, one in joined if isinstance(one, int)
        ]
        return [*super().earlier(), *places]

    @field_validator("layers", mode="before")
    @classmethod
    def _check_layers(cls, value: Any) -> Any:
        fits = isinstance(value, list) and value
        if fits and all(one == "input" or (type(one) is int and one >= 0) for one in value):
            return tuple(value)
        raise ValueError(f"is {value!r}; must list numbers of earlier layers, or input")

    def no_edge_weights(self) -> str:
        """It reads no edges."""
        return "jumping_knowledge reads no edges"

    def steps(self, b: ProgramBuilder, s: Scope, _x: Ends) -> str:
        """The layers' outputs side by side, the largest of each element, or weighed by an LSTM."""
        parts = tuple(made[b.node_type] for made in b.convolved)
        if self.layers is not None:
            parts = tuple(map(b.output_of, self.layers))
        if self.mode == "cat":
            return b.concat(parts)
        widths = [b.widths[name] for name in parts]
        if all(widths) and len(set(widths)) > 1:
            found = ", ".join(map(str, widths))
            s.weights.differ(f"({self.mode})", f"layers of equal widths  ({s.label})", found)
            # What would follow of other widths hides this.
            return parts[-1] if self.mode == "lstm" else b.maximum(parts)
        return b.maximum(parts) if self.mode == "max" else weigh_by_lstm(b, s, parts)


def weigh_by_lstm(b: ProgramBuilder, s: Scope, parts: tuple[str, ...]) -> str:
    """An LSTM in both directions gives each layer of a node its share."""
    names = [
        s.take(f"lstm.{name}{direction}", *shape)
        for direction in ("", "_reverse")
        for name, shape in zip(_OF_LSTM, _SHAPES, strict=True)
    ]
    names += [s.take("att.weight", 1, "both"), s.take("att.bias", 1)]
    lines = _lines(len(parts), s.size("hidden"))
    return b.row_wise(parts, tuple(lines), tuple(names), b.widths[parts[0]])


def _lines(layers: int, hidden: int) -> list[str]:
    """Both directions, a score for each layer, and the sum of layers by their shares."""
    lines = [
        *_states("a", range(layers), hidden, 0),
        *_states("b", range(layers - 1, -1, -1), hidden, 4),
    ]
    for at in range(layers):
        lines.append(f"both{at} = cat([a{at}, b{at}], 1)")
        lines.append(f"score{at} = linear(both{at}, p8, p9)")
    scores = ", ".join(f"score{at}" for at in range(layers))
    lines += [f"scores = cat([{scores}], 1)", "shares = softmax(scores, 1)"]
    for at in range(layers):
        lines.append(f"share{at} = narrow(shares, 1, {at}, 1)")
        lines.append(f"own{at} = mul(x{at}, share{at})")
    lines.append("total0 = mul(own0, 1.0)")
    lines += [f"total{at} = add(total{at - 1}, own{at})" for at in range(1, layers)]
    return [*lines[:-1], lines[-1].replace(f"total{layers - 1}", "out", 1)]


def _states(name: str, order: Iterable[int], hidden: int, first: int) -> list[str]:
    """The LSTM's state after each layer's row, in order (torch.nn.LSTM).

    Args:
        first: number of the direction's first parameter.
    """
    lines, before = list[str](), ""
    for at in order:
        now = f"{name}{at}"
        lines.append(f"{now}_x = linear(x{at}, p{first}, p{first + 2})")
        if before:
            lines.append(f"{now}_h = linear({before}, p{first + 1}, p{first + 3})")
        lines.append(f"{now}_g = add({now}_x, {f'{now}_h' if before else f'p{first + 3}'})")
        for place, gate in enumerate(("enter", "keep", "value", "leave")):
            function = "tanh" if gate == "value" else "sigmoid"
            lines.append(f"{now}_{gate[0]}g = narrow({now}_g, 1, {place * hidden}, {hidden})")
            lines.append(f"{now}_{gate} = {function}({now}_{gate[0]}g)")
        lines.append(f"{now}_new = mul({now}_enter, {now}_value)")
        if before:
            lines.append(f"{now}_old = mul({now}_keep, {before}_cell)")
            lines.append(f"{now}_cell = add({now}_old, {now}_new)")
        else:
            lines.append(f"{now}_cell = mul({now}_new, 1.0)")
        lines.append(f"{now}_shown = tanh({now}_cell)")
        lines.append(f"{now} = mul({now}_leave, {now}_shown)")
        before = now
    return lines
