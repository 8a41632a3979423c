"""JumpingKnowledge over the outputs of earlier layers (Xu et al., 2018, section 4.1)."""

from __future__ import annotations

from collections.abc import Iterable

from embertide.models.builder import ProgramBuilder
from embertide.models.options.layer import JumpingKnowledge
from embertide.models.weights import Scope

_OF_LSTM = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
_SHAPES = (("gates", "in"), ("gates", "hidden"), ("gates",), ("gates",))


def jumping_knowledge(b: ProgramBuilder, s: Scope, o: JumpingKnowledge, _x: str) -> str:
    """The layers' outputs side by side, the largest of each element, or weighed by an LSTM."""
    parts = tuple(made[b.node_type] for made in b.convolved)
    if o.layers is not None:
        parts = tuple(map(b.output_of, o.layers))
    if o.mode == "cat":
        return b.concat(parts)
    widths = [b.widths[name] for name in parts]
    if all(widths) and len(set(widths)) > 1:
        found = ", ".join(map(str, widths))
        s.weights.differ(f"({o.mode})", f"layers of equal widths  ({s.label})", found)
        # What would follow of other widths hides this.
        return parts[-1] if o.mode == "lstm" else b.maximum(parts)
    return b.maximum(parts) if o.mode == "max" else _recurrent(b, s, parts)


def _recurrent(b: ProgramBuilder, s: Scope, parts: tuple[str, ...]) -> str:
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
    """The LSTM's state behind each layer's row, in order (torch.nn.LSTM).

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
