"""Products that only scores are made of are folded into them, exactly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from embertide.engine.planning.traffic import tensor_moves
from embertide.errors import ModelError
from embertide.footprint import GraphSize
from embertide.graph.moves import Landing
from embertide.models.reference import run_typed_reference
from embertide.program.plans.order import narrow_scores
from embertide.program.plans.passes import make_plan
from embertide.program.steps import HeadDot, Linear, Program
from embertide.program.steps.heads import fold_heads
from embertide.program.steps.shapes import Shapes
from embertide.spec.grid import GridShape
from tests.support.plans import in_slices, order_steps, target
from tests.support.sharing_programs import HEADS, additive
from tests.support.typed_world import COUNTS, layer_of, make_edges, make_typed_features


def reference(program: Program) -> dict[str, torch.Tensor]:
    return run_typed_reference(program, [layer_of(make_edges())], make_typed_features(), COUNTS)


def narrowed(program: Program) -> Program:
    return make_plan(program, target(4), [narrow_scores]).program


def kinds(program: Program) -> dict[str, type]:
    return {step.out: type(step) for step in program.steps}


def test_a_vector_folded_into_a_product_gives_the_same_scores() -> None:
    g = torch.Generator().manual_seed(1)
    x, weight, bias, vector = (
        torch.randn(*shape, generator=g, dtype=torch.float64)
        for shape in ((20, 5), (12, 5), (12,), (1, 3, 4))
    )
    made = torch.nn.functional.linear(x, weight, bias).reshape(20, 3, 4)
    folded, shift = fold_heads(vector, weight, bias, heads=3)
    assert shift is not None
    torch.testing.assert_close(
        torch.nn.functional.linear(x, folded, shift), (made * vector).sum(2), rtol=0, atol=1e-12
    )
    assert fold_heads(vector, weight, None, heads=3)[1] is None


def test_targets_are_not_projected_for_their_scores_alone() -> None:
    program = additive()
    narrow = narrowed(program)
    assert "item" in kinds(program)
    assert "item" not in kinds(narrow)
    assert "item" not in narrow.widths
    # Users and tags are summed, too.
    assert kinds(narrow)["user"] is Linear
    scores = [step for step in narrow.steps if isinstance(step, HeadDot) and step.weight]
    assert {(step.x, step.weight, step.heads) for step in scores} == {("item.x", "item.w", HEADS)}
    assert narrowed(narrow) == narrow
    expected = reference(program)
    for name, found in reference(narrow).items():
        torch.testing.assert_close(found, expected[name], rtol=0, atol=1e-9)


def test_what_a_score_needs_lands_with_a_column_for_each_head() -> None:
    """Of a target's features, which lie where they were read, and nothing of their product."""
    size = GraphSize(
        nodes=COUNTS, edges=dict.fromkeys(additive().relations, 100), grid=GridShape.of(2, 2),
        group_bytes=1 << 10, depth=1,
    )  # fmt: skip
    moves = tensor_moves(in_slices(order_steps(additive(), 4), size.grid), size)
    landed = [move for move in moves if isinstance(move, Landing) and move.x == "item.x"]
    assert [(move.width, move.copies) for move in landed] == [(HEADS, 1), (HEADS, 1)]


@pytest.mark.parametrize("keep", ["result", "output", "reader", "wide"])
def test_a_product_that_anything_else_needs_stays(keep: str) -> None:
    program = additive()
    if keep == "result":
        program = replace(program, results=program.results | {"item": "item"})
    elif keep == "output":
        program = replace(program, outputs=("item",))
    elif keep == "reader":
        step = Linear(out="again", layer=0, x="item", weight="item.w")
        widths = program.widths | {"again": program.widths["item"]}
        program = replace(program, steps=(*program.steps, step), widths=widths)
    else:
        # As many scores as columns: nothing would be saved.
        more = [
            HeadDot(out=f"more.{at}", layer=0, x="item", vector="of.v", heads=HEADS)
            for at in range(3)
        ]
        widths = program.widths | {step.out: HEADS for step in more}
        program = replace(program, steps=(*program.steps, *more), widths=widths)
    assert "item" in kinds(narrowed(program))


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ({"bias": "b"}, "bias is that of a weight"),
        ({"weight": "w", "heads": 4}, "6 columns are made, which 4 heads do not divide"),
        ({"weight": "w", "vector": "short"}, "short"),
        ({"weight": "v"}, "v"),
    ],
)
def test_what_does_not_fit_is_refused(step: dict[str, Any], says: str) -> None:
    params = {
        "w": torch.zeros(6, 5), "v": torch.zeros(2, 3), "b": torch.zeros(6),
        "short": torch.zeros(2, 2),
    }  # fmt: skip
    given = {"out": "o", "layer": 0, "x": "x", "vector": "v", "heads": 2} | step
    with pytest.raises(ModelError, match=says):
        HeadDot(**given).width(Shapes({"x": 5 if "weight" in step else 6}, params))


def test_one_head_of_any_number_of_columns() -> None:
    step = HeadDot(out="o", layer=0, x="x", vector="v", heads=1, weight="w")
    shapes = Shapes({"x": 5}, {"w": torch.zeros(3, 5), "v": torch.zeros(1, 3)})
    assert step.width(shapes) == 1
