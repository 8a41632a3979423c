"""When a program's result is the module's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from embertide.program.steps import Program
from embertide.tracing.record.graphs import RandomGraph

TOLERANCE = 1e-9
"""Largest error that is agreement, as a share of the largest value."""


def layer_graphs(program: Program, graph: RandomGraph, weighted: bool) -> list[Any]:
    """The same graph for every layer: by relation."""
    edges = {
        relation: (own.src, own.dst, own.weight if weighted else None, own.features)
        for relation, own in graph.edges.items()
    }
    return [edges] * program.layers


def error_of(actual: Tensor, expected: Any, least: float = 0.0, *, finite: bool = True) -> float:
    """The largest difference as a share of the largest expected value.

    Args:
        least: the share is of this at least.
        finite: NaN and Inf never agree; without, what is expected to be either is not compared.
    """
    if not isinstance(expected, Tensor) or expected.shape[:1] != actual.shape[:1]:
        return float("inf")
    expected = expected.double().reshape(len(expected), -1)
    if expected.shape != actual.shape:
        return float("inf")
    if not finite:
        known = expected.isfinite()
        actual, expected = torch.where(known, actual, 0.0), torch.where(known, expected, 0.0)
    largest = max(largest_of(expected), least, torch.finfo(torch.float64).tiny)
    return float((actual - expected).abs().max().nan_to_num(nan=torch.inf)) / largest


def largest_of(value: Any) -> float:
    """The largest absolute value of a tensor; 0 for NaN, Inf and anything else."""
    if not isinstance(value, Tensor):
        return 0.0
    return float(value.double().abs().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).max())
