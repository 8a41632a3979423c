"""Programs for the graph of `typed_world` in which several relations read rows of one tensor.

One of those relations has no edges, and what they need beside the rows is written late.
"""

from __future__ import annotations

from embertide.program.steps import (
    Aggregate,
    Attend,
    Concat,
    HeadDot,
    Linear,
    Message,
    PairAttend,
    Program,
    Step,
)
from tests.support.typed_programs import BUYS, FOLLOWS, NEVER, OF, program
from tests.support.typed_world import EDGE_FEATURES, WIDTHS

HEADS, WIDTH = 2, 6
NAMES = {BUYS: "buys", FOLLOWS: "follows", OF: "of", NEVER: "never"}


def _product(of_type: str, out: str) -> Linear:
    return Linear(out=out, layer=0, x=f"{of_type}.x", weight=f"{of_type}.w")


def _program(steps: list[Step], widths: dict[str, int], item: str, user: str) -> Program:
    """Widths are ``WIDTH`` where none is given; each type has a product and vectors of heads."""
    shapes: dict[str, tuple[int, ...]] = {f"{name}.w": (WIDTH, of) for name, of in WIDTHS.items()}
    shapes |= {f"{name}.v": (HEADS, WIDTH // HEADS) for name in NAMES.values()}
    shapes |= {"e.w": (WIDTH, EDGE_FEATURES)}
    read = {name for step in steps for name in step.param_names()}
    found = {step.out: widths.get(step.out, WIDTH) for step in steps}
    kept = {name: shape for name, shape in shapes.items() if name in read}
    return program(steps, kept, found, {"item": item, "user": user}, 1)


def additive() -> Program:
    """Attention over two relations of users, and over two of tags, each with scores of its own."""
    steps: list[Step] = [_product(name, name) for name in ("user", "tag", "item")]
    scores = []
    for relation, name in NAMES.items():
        source, _, target = relation.split(":")
        ends = {end: f"{name}.{end}" for end in ("source", "target")}
        scores += list(ends.values())
        steps += [
            HeadDot(out=ends["source"], layer=0, x=source, vector=f"{name}.v", heads=HEADS),
            HeadDot(out=ends["target"], layer=0, x=target, vector=f"{name}.v", heads=HEADS),
            Attend(
                out=name, layer=0, x=source, **ends, heads=HEADS, relation=relation,
                edge_weight=relation == BUYS,
            ),
        ]  # fmt: skip
    steps += [
        Concat(out="items", layer=0, inputs=("buys", "of")),
        Concat(out="users", layer=0, inputs=("follows", "never")),
    ]
    joined = {"items": 2 * WIDTH, "users": 2 * WIDTH}
    return _program(steps, joined | dict.fromkeys(scores, HEADS), "items", "users")


def pairs() -> Program:
    """Scores of both kinds over the same keys; one softmax of users goes on over another group."""
    dots = {"layer": 0, "heads": HEADS, "kind": "dot", "scale": 0.7}
    users, tags = {"x": "user", "key": "user"}, {"x": "tag", "key": "tag"}
    steps: list[Step] = [
        *(_product(name, name) for name in ("user", "tag", "item")),
        PairAttend(
            out="of", layer=0, heads=HEADS, kind="gatv2", vector="of.v", query="item",
            relation=OF, **tags,
        ),
        PairAttend(out="buys", query="item", relation=BUYS, edge_weight=True, **dots, **users),
        _product("user", "asked"),
        PairAttend(
            out="part", query="asked", relation=FOLLOWS, log_sum=True, **dots, **users
        ),
        PairAttend(out="never", query="user", before="part", relation=NEVER, **dots, **tags),
        Concat(out="items", layer=0, inputs=("of", "buys")),
    ]  # fmt: skip
    return _program(steps, {"items": 2 * WIDTH, "part": WIDTH + HEADS}, "items", "never")


def messages() -> Program:
    """Messages of users with features of edges, with targets, with a softmax; and of tags."""
    steps: list[Step] = [
        *(_product(name, name) for name in ("user", "tag")),
        Message(
            out="buys", layer=0, x="user", relation=BUYS, params=("e.w",), edge_weight=True,
            lines=("moved = linear(e, p0)", "sum = add(s, moved)", "out = mul(sum, w)"),
            edge_features=EDGE_FEATURES, reduce="mean",
        ),
        _product("user", "asked"),
        Message(
            out="follows", layer=0, x="user", target="asked", relation=FOLLOWS, reduce="softmax",
            lines=("out = same(s)", "both = mul(s, t)", "score = narrow(both, 1, 0, 3)"),
        ),
        Message(
            out="of", layer=0, x="tag", relation=OF, reduce="std", lines=("out = square(s)",)
        ),
        Message(
            out="never", layer=0, x="tag", relation=NEVER, reduce="max", lines=("out = abs(s)",)
        ),
        Concat(out="items", layer=0, inputs=("buys", "of")),
        Concat(out="users", layer=0, inputs=("follows", "never")),
    ]  # fmt: skip
    return _program(steps, {"items": 2 * WIDTH, "users": 2 * WIDTH}, "items", "users")


def read() -> Program:
    """Sums of features as they were read, over two relations of users and two of tags."""
    sums = {"layer": 0, "norm": "in"}
    steps: list[Step] = [
        Aggregate(out="buys", x="user.x", relation=BUYS, edge_weight=True, **sums),
        Aggregate(out="follows", layer=0, x="user.x", relation=FOLLOWS, reduce="max"),
        Linear(out="lit", layer=0, x="follows", weight="user.w"),
        Aggregate(out="of", x="tag.x", relation=OF, **sums),
        Aggregate(out="never", x="tag.x", relation=NEVER, **sums),
        Concat(out="items", layer=0, inputs=("buys", "of")),
        Concat(out="users", layer=0, inputs=("lit", "never")),
    ]
    both, tags = WIDTHS["user"] + WIDTHS["tag"], WIDTHS["tag"]
    widths = {"buys": WIDTHS["user"], "follows": WIDTHS["user"], "of": tags, "never": tags}
    return _program(steps, widths | {"items": both, "users": WIDTH + tags}, "items", "users")
