"""Lines of torch operations: what they compute, what they may not do, what they may not say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from embertide.errors import ModelError
from embertide.kernels.heads import scaled
from embertide.steps import Message, RowWise
from embertide.steps.ops import run, shapes_of, width_of
from embertide.steps.shapes import Shapes

ROWS = {"x0": 6, "x1": 4}
PARAMS = {"p0": torch.ones(5, 6), "p1": torch.ones(3, 4), "p2": torch.ones(2, 3, 3)}


def width(*lines: str) -> int:
    return width_of(shapes_of(lines, ROWS, PARAMS))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("out = linear(x0, p0)",), 5),
        (("h = reshape(x0, [2, -1])", "out = amax(h, 1)"), 3),
        (("h = reshape(x0, (2, 3))", "e = einsum('nhf,hfg->nhg', h, p2)", "out = flatten(e)"), 6),
        (("a = cat([x0, x1], dim=-1)", "out = narrow(a, 1, 2, 7)"), 7),
        (("a = mean(x0, 1, keepdim=True)", "out = expand(a, [9])"), 9),
        (("a = repeat(p1, x0)", "b = select(a, 1, 2)", "out = add(b, x1)"), 4),
        (("a = gt(x0, -0.5)", "out = where(a, x0, 0.0)"), 6),
        (("a = stack([x1, x1], 2)", "b = select(a, 2, 1)", "out = maximum(b, 0)"), 4),
    ],
)
def test_widths_follow_from_the_lines(lines: tuple[str, ...], expected: int) -> None:
    assert width(*lines) == expected


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


@pytest.mark.parametrize(
    "line",
    [
        "out = sum(x0, 0)",
        "out = softmax(x0, -2)",
        "out = linear(x0, x0)",
        "out = einsum('nf,mf->nm', x0, x0)",
        "out = einsum('nf,ng->fg', x0, x1)",
        "out = einsum('...f,...f->...', x0, x0)",
        "out = transpose(x0, 0, 1)",
        "out = add(x0, p1)",
        "out = cat([x0, x0], 0)",
        "out = narrow(x0, 0, 0, 1)",
        "out = unsqueeze(x0, 0)",
        "out = stack([x0, x0], 0)",
        "out = unsqueeze(x0, 1)",
        "out = same(p1)",
    ],
)
def test_rows_never_mix(line: str) -> None:
    with pytest.raises(ModelError):
        width(line)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("import os", "no line of the form"),
        ("out = x0.exp()", "no line of the form"),
        ("out = exp(tanh(x0))", "no line of the form"),
        ("out = exp(*x0)", "no line of the form"),
        ("out, b = exp(x0)", "no line of the form"),
        ("out = exp(x0", "no line of the form"),
        ("out = add(x0, [i for i in x0])", "no line of the form"),
        ("out = __import__('os')", "no operation '__import__'"),
        ("out = load('x')", "no operation 'load'"),
        ("out = exp(x9)", "reads 'x9', which nothing before it makes"),
        ("x0 = exp(x0)", "which is there already"),
        ("out = exp(x0, x1, x0)", "does not fit"),
        ("out = linear(x1, p0)", "does not fit"),
        ("other = exp(x0)", "no line makes 'out'"),
        ("out = reshape(x0, [2, 3])", "must have one dimension"),
        ("out = gt(x0, 0.0)", "must be numbers"),
        ("out = exp(" + "x" * 2000 + ")", "longer than 1000 characters"),
    ],
)
def test_a_bad_line_is_quoted(line: str, says: str) -> None:
    with pytest.raises(ModelError, match=says) as caught:
        width(line)
    assert says.startswith(("no line makes", "must", "longer")) or line in str(caught.value)


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
