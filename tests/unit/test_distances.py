"""Bounds of how far rows move, against rows that have moved."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from embertide.engine.stages.infer.moved import Beside, within
from embertide.kernels import distances as kernels
from embertide.kernels import native
from embertide.kernels.csr import Csr
from embertide.kernels.distances import add_at_targets
from embertide.program.steps import Step
from embertide.program.steps.activation import Activation
from embertide.program.steps.affine import Affine
from embertide.program.steps.combine import Combine, Concat
from embertide.program.steps.elementwise import Elementwise
from embertide.program.steps.frontier import Far
from embertide.program.steps.linear import Linear
from embertide.program.steps.reference import ReferenceRun

WIDTH = 5
STEPS: list[Step] = [
    Linear(out="y", layer=0, x="a", weight="w"),
    Affine(out="y", layer=0, x="a", scale="s", shift="s"),
    Affine(out="y", layer=0, x="a", shift="s"),
    *(Activation(out="y", layer=0, x="a", kind=kind, slope=3.0) for kind in
      ("relu", "leaky_relu", "tanh", "sigmoid")),
    Combine(out="y", layer=0, a="a", b="b", alpha=-2.0, beta=0.5),
    Combine(out="y", layer=0, a="a", b="a"),
    Concat(out="y", layer=0, inputs=("a", "b")),
    *(Elementwise(out="y", layer=0, inputs=("a", "b", "a"), op=op) for op in
      ("sum", "mean", "max", "min")),
]  # fmt: skip
UNKNOWN: list[Step] = [
    Activation(out="y", layer=0, x="a", kind="gelu"),
    Elementwise(out="y", layer=0, inputs=("a", "b"), op="product"),
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.kind_name}")
def test_no_row_moves_farther_than_its_bound(step: Step) -> None:
    g = torch.Generator().manual_seed(1)
    params = {
        "w": torch.randn(4, WIDTH, generator=g, dtype=torch.float64),
        "s": torch.randn(WIDTH, generator=g, dtype=torch.float64) * 2,
    }

    def norm(name: str) -> float:
        value = params[name]
        return float(torch.linalg.matrix_norm(value, 2) if value.dim() == 2 else value.abs().max())

    gains, largest = step.gains(norm), 0.0
    assert gains is not None
    for _ in range(200):
        before = {n: torch.randn(8, WIDTH, generator=g, dtype=torch.float64) for n in "ab"}
        moves = {n: torch.randn(8, WIDTH, generator=g, dtype=torch.float64) for n in "ab"}
        after = {n: before[n] + moves[n] for n in "ab"}
        rows = [step.reference(_run(tensors, params)) for tensors in (before, after)]
        bound = torch.stack([moves[n].norm(dim=1) * gain for n, gain in gains]).sum(0)
        share = (rows[1] - rows[0]).norm(dim=1) / bound
        largest = max(largest, float(share.max()))
    assert 0 < largest <= 1 + 1e-12


def _run(tensors: dict[str, torch.Tensor], params: dict[str, torch.Tensor]) -> ReferenceRun:
    return ReferenceRun(params=params, tensors=tensors, graphs=(), nodes={})


@pytest.mark.parametrize("step", UNKNOWN, ids=lambda step: f"{step.kind_name}")
def test_of_other_steps_no_bound_is_known(step: Step) -> None:
    assert step.gains(lambda _: 1.0) is None


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_numbers_of_sources_are_added_up(
    weighted: bool, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "_EDGES", 7)
    if not compiled:
        monkeypatch.setattr(native, "lib", None)
    g = np.random.default_rng(3)
    lengths = g.integers(0, 9, 20)
    indptr = torch.from_numpy(np.concatenate([[0], lengths.cumsum()]))
    cols = torch.from_numpy(g.integers(0, 30, int(lengths.sum())).astype(np.int32))
    weights = torch.from_numpy(g.standard_normal(len(cols)).astype(np.float32))
    values = torch.from_numpy(g.random(30))
    values[::2] = 0
    csr = Csr(0, indptr, cols, weights)
    each = values[cols.long()] * (weights.abs().double() if weighted else 1.0)
    expected = torch.zeros(20, dtype=torch.float64).index_add_(0, csr.row_ids(), each)
    assert torch.allclose(add_at_targets(csr, values, weighted=weighted), expected)


def test_distances_of_some_rows_are_those_of_all() -> None:
    g, count = torch.Generator().manual_seed(4), 40
    every = [torch.rand(count, generator=g, dtype=torch.float64) for _ in range(3)]
    some = list[Far]()
    for number, of in enumerate(every):
        of[torch.rand(count, generator=g) < 0.4 * number] = 0.0
        rows = of.nonzero().squeeze(1)
        some.append(Far(rows, of[rows]))
    total = Far.sum([*some, Far.none()])
    assert torch.allclose(total.of_all(count), torch.stack(every).sum(0))
    assert bool((total.rows.diff() > 0).all())
    assert torch.equal(Far.sum([some[2], some[2]]).by, some[2].by * 2)
    assert torch.equal(some[2].at(torch.arange(count)), every[2])
    assert torch.equal(Far.none().at(torch.arange(3)), torch.zeros(3, dtype=torch.float64))
    within = some[2].within(10, 20)
    assert torch.equal(within.of_all(count)[10:20], every[2][10:20])
    assert int((within.of_all(count) > 0).sum()) == int((every[2][10:20] > 0).sum())
    assert torch.equal(
        some[1].where(every[2] > 0).rows, ((every[1] > 0) & (every[2] > 0)).nonzero()[:, 0]
    )
    assert torch.equal(some[1].times(-2.0).of_all(count), every[1] * -2)


def test_exact_rows_stay_until_they_are_seen_or_computed_again() -> None:
    kept = Beside(torch.tensor([1, 4]), torch.tensor([[1.0, 1.0], [4.0, 4.0]]))
    computed = torch.tensor([0, 1, 2, 3])
    values = torch.tensor([[5.0, 0.0], [0.0, 0.0], [2.0, 2.0], [3.0, 3.0]])
    stale = torch.tensor([True, True, True, False])
    after = kept.after(computed, values, stale, stale & (values != 0).any(1))
    assert after.rows.tolist() == [0, 2, 4]
    assert after.values[:, 0].tolist() == [5.0, 2.0, 4.0]
    some = torch.zeros(3, 2)
    after.put_into(some, torch.tensor([2, 3, 4]))
    assert some[:, 0].tolist() == [2.0, 0.0, 4.0]


def test_no_distance_is_within_the_tolerance_of_a_row_that_is_not_finite() -> None:
    """Sums that are too large for their type may be finite the next day."""
    distance = torch.tensor([0.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    norm = torch.tensor([1.0, 20.0, float("inf"), float("nan")], dtype=torch.float64)
    assert within(distance, 0.1, norm).tolist() == [True, True, False, False]
