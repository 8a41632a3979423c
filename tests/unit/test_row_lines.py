"""Lines of torch operations: what they compute, what they may not do, what they may not say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from embertide.errors import InputError, ModelError
from embertide.kernels.heads import scaled
from embertide.program.steps import Message, RowWise
from embertide.program.steps.ops import FUNCTIONS, run, shapes_of, width_of
from embertide.program.steps.shapes import Shapes
from tests.support.expected import Expected, inputs

ROWS = {"x0": 6, "x1": 4}
PARAMS = {"p0": torch.ones(5, 6), "p1": torch.ones(3, 4), "p2": torch.ones(2, 3, 3)}


def width(*lines: str) -> int:
    return width_of(shapes_of(lines, ROWS, PARAMS))


CASES = inputs("lines.txt")


@pytest.mark.parametrize("name", CASES)
def test_widths_follow_from_lines_or_these_are_refused(name: str, expected: Expected) -> None:
    """Rows never mix, and a bad line is quoted."""
    try:
        found = f"{width(*CASES[name].splitlines())} columns"
    except ModelError as error:
        found = str(error)
    expected.check("lines.txt", name, f"{CASES[name]}--\n{found}", CASES)


def test_a_line_of_more_than_1000_characters_is_refused() -> None:
    with pytest.raises(ModelError, match="longer than 1000 characters"):
        width("out = exp(" + "x" * 2000 + ")")


class OnCpu(TorchFunctionMode):
    """Refuses tensors elsewhere."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        assert not isinstance(made, torch.Tensor) or made.device.type == "cpu"
        return made


def test_widths_are_found_without_the_compiler_of_torch() -> None:
    """With the first operation on "meta" torch imports it: seconds, and 80 MiB of each worker."""
    with OnCpu():
        assert width("h = mul(x0, 0.5)", "out = linear(h, p0)") == 5


def test_lines_compute_what_torch_does() -> None:
    g = torch.Generator().manual_seed(1)
    x = torch.randn(7, 6, generator=g, dtype=torch.float64)
    lines = ("h = reshape(x, [2, 3])", "a = softmax(h, dim=2)", "b = mul(a, -2)", "out = sum(b, 1)")
    expected = (torch.softmax(x.reshape(7, 2, 3), 2) * -2).sum(1)
    torch.testing.assert_close(run(lines, {"x": x})["out"], expected)


@pytest.mark.parametrize("sizes", ["[2, -1]", "[-1]", "[2, 3, -1]"])
def test_a_worker_without_rows_reshapes_none(sizes: str) -> None:
    """Some own no nodes of a type, and a relation may have no edges."""
    lines = (f"out = reshape(x, {sizes})",)
    some, none = (run(lines, {"x": torch.zeros(rows, 6)})["out"] for rows in (4, 0))
    assert none.shape == (0, *some.shape[1:])


def test_heads_of_no_values_are_scaled() -> None:
    assert scaled(torch.zeros(0, 6), torch.zeros(0, 2)).shape == (0, 6)


def test_a_step_says_what_its_lines_lack() -> None:
    shapes = Shapes({"x": 6}, {"w": torch.ones(5, 6)})
    one = RowWise(out="y", layer=0, inputs=("x",), params=("w",), lines=("out = linear(x0, p0)",))
    assert one.width(shapes) == 5
    assert (one.reads(), one.param_names()) == (["x"], ["w"])
    scored = Message(out="y", layer=0, x="x", lines=("out = exp(s)",), reduce="softmax")
    with pytest.raises(ModelError, match="no line makes 'score'"):
        scored.width(shapes)
    heads = ("out = exp(s)", "score = narrow(s, 1, 0, 4)")
    with pytest.raises(ModelError, match="4 heads of score do not divide"):
        Message(out="y", layer=0, x="x", lines=heads, reduce="softmax").width(shapes)


@pytest.mark.parametrize(("rows", "shown"), [([0, 3], "3"), ([2, -1], "-1")])
def test_rows_of_a_parameter_that_are_not_there(rows: list[int], shown: str) -> None:
    with pytest.raises(InputError, match=f"a category is {shown}, but the model knows 0 to 2;"):
        FUNCTIONS["take"](torch.zeros(3, 2), torch.tensor(rows, dtype=torch.float32))
