"""Programs over several node types, for the graph of `typed_world`."""

from __future__ import annotations

import torch

from embertide.program.steps import (
    Activation,
    Aggregate,
    Attend,
    ColumnStatistic,
    Concat,
    Degree,
    Elementwise,
    GraphNorm,
    HeadDot,
    Linear,
    Message,
    PairAttend,
    Program,
    Propagate,
    SemanticAttend,
    Step,
)
from tests.support.typed_world import EDGE_FEATURES, WIDTHS

INPUTS = {"user": "user.x", "item": "item.x", "tag": "tag.x"}
HIDDEN, OUT = 6, 4
BUYS, BOUGHT_BY = "user:buys:item", "item:bought_by:user"
FOLLOWS, NEVER = "user:follows:user", "tag:never:user"
HAS, OF = "item:has:tag", "tag:of:item"


def _weights(shapes: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(5)
    return {name: torch.randn(shape, generator=g) / 2 for name, shape in shapes.items()}


def program(
    steps: list[Step],
    shapes: dict[str, tuple[int, ...]],
    widths: dict[str, int],
    results: dict[str, str],
    layers: int,
) -> Program:
    given = {INPUTS[name]: width for name, width in WIDTHS.items()}
    read = {name for step in steps for name in step.reads()}
    return Program(
        steps=tuple(steps),
        params=_weights(shapes),
        widths=given | widths,
        layers=layers,
        inputs={of_type: name for of_type, name in INPUTS.items() if name in read},
        results=results,
    )


def relational() -> Program:
    """A relational graph convolution, twice: a weight for each relation, a self-loop's weight."""
    steps: list[Step] = []
    shapes: dict[str, tuple[int, ...]] = {}
    widths: dict[str, int] = {}
    current, sizes = dict(INPUTS), dict(WIDTHS)
    for layer in range(2):
        into: dict[str, list[str]] = {"user": [], "item": [], "tag": []}
        for relation, norm in (
            (BUYS, "in"), (BOUGHT_BY, "both"), (FOLLOWS, "in"), (NEVER, "in"), (HAS, "none"),
            (OF, "out"),
        ):  # fmt: skip
            source, name, destination = relation.split(":")
            mean, made, weight = (f"{layer}.{name}.{part}" for part in ("mean", "out", "weight"))
            weighted = layer == 1 and name == "buys"
            steps += [
                Aggregate(
                    out=mean, layer=layer, x=current[source], norm=norm, relation=relation,
                    edge_weight=weighted,
                ),
                Linear(out=made, layer=layer, x=mean, weight=weight),
            ]  # fmt: skip
            shapes[weight] = (HIDDEN, sizes[source])
            widths |= {mean: sizes[source], made: HIDDEN}
            into[destination].append(made)
        for of_type, parts in into.items():
            own, total, lit = (f"{layer}.{of_type}.{part}" for part in ("own", "sum", "lit"))
            shapes[f"{own}.weight"] = (HIDDEN, sizes[of_type])
            steps += [
                Linear(out=own, layer=layer, x=current[of_type], weight=f"{own}.weight"),
                Elementwise(out=total, layer=layer, inputs=(*parts, own), op="sum"),
                Activation(out=lit, layer=layer, x=total, kind="elu", slope=1.0),
            ]
            widths |= dict.fromkeys((own, total, lit), HIDDEN)
            current[of_type] = lit
        sizes = dict.fromkeys(sizes, HIDDEN)
    return program(steps, shapes, widths, current, 2)


def attending() -> Program:
    """Additive and pair attention over the edges between two types, in both directions."""
    heads, width = 2, 2 * OUT
    shapes = {
        "u": (width, WIDTHS["user"]), "i": (width, WIDTHS["item"]),
        "left": (heads, OUT), "right": (heads, OUT),
    }  # fmt: skip
    steps: list[Step] = [
        Linear(out="hu", layer=0, x="user.x", weight="u"),
        Linear(out="hi", layer=0, x="item.x", weight="i"),
        HeadDot(out="su", layer=0, x="hu", vector="left", heads=heads),
        HeadDot(out="si", layer=0, x="hi", vector="right", heads=heads),
        Attend(
            out="to_item", layer=0, x="hu", source="su", target="si", heads=heads, relation=BUYS
        ),
        PairAttend(
            out="to_user", layer=0, x="hi", key="hi", query="hu", heads=heads, kind="dot",
            scale=0.5, relation=BOUGHT_BY, edge_weight=True,
        ),
        Aggregate(out="most", layer=0, x="to_item", reduce="max", relation=HAS),
    ]  # fmt: skip
    widths = dict.fromkeys(("hu", "hi", "to_item", "to_user", "most"), width)
    widths |= {"su": heads, "si": heads}
    return program(steps, shapes, widths, {"item": "to_item", "user": "to_user", "tag": "most"}, 1)


def sharing() -> Program:
    """Two relations sum rows of one tensor, which is a product or features as they were read."""
    steps: list[Step] = [
        Linear(out="h", layer=0, x="user.x", weight="w"),
        Aggregate(out="items", layer=0, x="h", norm="in", relation=BUYS, edge_weight=True),
        Activation(out="lit", layer=0, x="items", kind="relu"),
        Aggregate(out="users", layer=0, x="h", relation=FOLLOWS, reduce="max"),
        Aggregate(out="other", layer=1, x="users", norm="none", relation=FOLLOWS),
        Aggregate(out="last", layer=1, x="users", norm="out", relation=BUYS),
        Linear(out="end", layer=1, x="last", weight="v"),
        Elementwise(out="both", layer=1, inputs=("lit", "end"), op="sum"),
    ]
    widths = dict.fromkeys(("h", "items", "lit", "users", "other", "last", "end", "both"), HIDDEN)
    shapes = {"w": (HIDDEN, WIDTHS["user"]), "v": (HIDDEN, HIDDEN)}
    return program(steps, shapes, widths, {"item": "both", "user": "other"}, 2)


def from_files() -> Program:
    """Sums over features that lie where they were read; one type alone gets embeddings."""
    steps: list[Step] = [
        Aggregate(out="s", layer=0, x="user.x", norm="out", relation=BUYS, edge_weight=True),
        Aggregate(out="t", layer=0, x="s", norm="in", relation=HAS),
    ]
    return program(steps, {}, {"s": WIDTHS["user"], "t": WIDTHS["user"]}, {"tag": "t"}, 1)


def carrying() -> Program:
    """Messages of an edge type and of its reverse, which have the same features."""
    lines = ("moved = linear(e, p0)", "both = mul(s, w)", "out = add(both, moved)")
    steps: list[Step] = [
        Message(
            out=f"{of_type}.m", layer=0, x=INPUTS[source], relation=relation, lines=lines,
            params=(f"w.{source}",), edge_weight=True, edge_features=EDGE_FEATURES,
        )
        for of_type, source, relation in (("item", "user", BUYS), ("user", "item", BOUGHT_BY))
    ]  # fmt: skip
    shapes = {f"w.{name}": (WIDTHS[name], EDGE_FEATURES) for name in ("user", "item")}
    widths = {"item.m": WIDTHS["user"], "user.m": WIDTHS["item"]}
    return program(steps, shapes, widths, {"item": "item.m", "user": "user.m"}, layers=1)


def carrying_on() -> Program:
    """The same, and sums of what came of it over a second list of edges, and over a third."""
    first = carrying()
    steps = [
        *first.steps,
        Aggregate(out="user.sum", layer=1, x="user.m", norm="in", relation=FOLLOWS),
        Aggregate(out="tag.sum", layer=1, x="item.m", norm="none", relation=HAS),
    ]
    shapes = {name: tuple(values.shape) for name, values in first.params.items()}
    widths = {"item.m": WIDTHS["user"], "user.m": WIDTHS["item"]}
    widths |= {"user.sum": widths["user.m"], "tag.sum": widths["item.m"]}
    return program(
        steps, shapes, widths, {"item": "item.m", "user": "user.sum", "tag": "tag.sum"}, layers=2
    )


def normed() -> Program:
    """Statistics over the nodes of a type, of which some workers own none; one tensor or more."""
    shapes = {"t": (HIDDEN, WIDTHS["tag"]), "i": (HIDDEN, WIDTHS["item"]),
              "w": (3, HIDDEN), "b": (3,), "q": (3,)}  # fmt: skip
    steps: list[Step] = [
        Linear(out="tags", layer=0, x="tag.x", weight="t"),
        GraphNorm(out="even", layer=0, x="tags", over="columns"),
        Linear(out="h", layer=0, x="item.x", weight="i"),
        Aggregate(out="most", layer=0, x="h", reduce="max", relation=HAS),
        GraphNorm(out="short", layer=0, x="most", over="rows", factor=3.0),
        SemanticAttend(
            out="both", layer=0, inputs=("even", "short"), weight="w", bias="b", vector="q"
        ),
        GraphNorm(out="items", layer=0, x="h", over="all"),
    ]
    names = ("tags", "even", "h", "most", "short", "both", "items")
    return program(steps, shapes, dict.fromkeys(names, HIDDEN), {"tag": "both", "item": "items"}, 1)


def scaled() -> Program:
    """Weights divided by the largest of their relation, before they weigh messages."""
    weigh = ("share = div(w, t)", "out = mul(s, share)")
    steps: list[Step] = [
        Message(
            out="most", layer=0, x="user.x", relation=BUYS, lines=("out = reshape(w, [1])",),
            reduce="max", edge_weight=True,
        ),
        Degree(out="count", layer=0, relation=BUYS),
        ColumnStatistic(out="largest", layer=0, x="most", of="max", count="count"),
        Message(
            out="item.m", layer=0, x="user.x", relation=BUYS, lines=weigh, target="largest",
            edge_weight=True,
        ),
        Aggregate(out="out", layer=0, x="item.m", norm="none", relation=HAS),
    ]  # fmt: skip
    widths = {"most": 1, "count": 1, "largest": 1, "item.m": WIDTHS["user"], "out": WIDTHS["user"]}
    return program(steps, {}, widths, {"tag": "out", "item": "item.m"}, 1)


def looped() -> Program:
    """Sums and attention over one list of edges with other self-loops and degrees of all kinds,
    and over lists between two types."""
    heads, width = 2, 2 * OUT
    shapes = {"u": (width, WIDTHS["user"]), "i": (width, WIDTHS["item"]),
              "left": (heads, OUT), "right": (heads, OUT)}  # fmt: skip
    around = {"layer": 0, "relation": FOLLOWS}
    steps: list[Step] = [
        Linear(out="hu", layer=0, x="user.x", weight="u"),
        Linear(out="hi", layer=0, x="item.x", weight="i"),
        HeadDot(out="su", layer=0, x="hu", vector="left", heads=heads),
        HeadDot(out="tu", layer=0, x="hu", vector="right", heads=heads),
        HeadDot(out="ti", layer=0, x="hi", vector="right", heads=heads),
        Aggregate(out="gcn", x="hu", norm="sym_in", loops="single", **around),
        Attend(
            out="gat", x="hu", source="su", target="tu", heads=heads, loops="replace", **around
        ),
        Propagate(out="far", x="gcn", times=3, norm="both", alpha=0.2, loops="more", **around),
        Aggregate(out="bare", x="hu", norm="out", loops="none", **around),
        Degree(out="count", of="out", **around),
        Attend(
            out="seen", layer=0, x="hu", source="su", target="ti", heads=heads, relation=BUYS,
            edge_weight=True,
        ),
        Aggregate(
            out="even", layer=0, x="hu", norm="both_weighted", edge_weight=True, relation=BUYS
        ),
        Aggregate(
            out="back", layer=1, x="seen", norm="out_weighted", edge_weight=True,
            relation=BOUGHT_BY,
        ),
        Aggregate(out="again", layer=1, x="gat", norm="out", relation=FOLLOWS),
        Concat(out="users", layer=1, inputs=("far", "bare", "count", "back", "again")),
        Elementwise(out="items", layer=1, inputs=("seen", "even"), op="sum"),
    ]  # fmt: skip
    widths = dict.fromkeys(
        ("hu", "hi", "gcn", "gat", "far", "bare", "seen", "even", "back", "again", "items"), width
    )
    widths |= {"su": heads, "tu": heads, "ti": heads, "count": 1, "users": 4 * width + 1}
    return program(steps, shapes, widths, {"item": "items", "user": "users"}, 2)
