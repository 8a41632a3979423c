"""What a run takes over of an earlier one: its kept rows, and what has changed since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from embertide.io.versions.layers.store import LayerStore
from embertide.program.plans.dirty import Changes
from embertide.program.plans.wanted import Rows


@dataclass(frozen=True, kw_only=True)
class Refreshing:
    """What a run takes over.

    Attributes:
        store: of the key under which the earlier run has kept its layers.
        how: a digest of how it has computed its rows, and how this run does.
        basis: what these rest on, as their names have it; "" where they are those of full runs.
        next_basis: the same of the layers that this run keeps.
        before: node type -> [N] int64, the dense id that each node had then; -1: it is new.
        changes: what differs from the earlier run's inputs.
        reached: tensor -> [N] bool, the rows that changes may reach.
        all_edges: that a run of all rows goes over.
        tolerance: the largest move of a row, relative to its norm, that its dependents do not see.
        max_error: the largest error of the results that were measured, relative to a row's norm.
        seed: decides which unchanged rows are computed too, and which results are measured.
    """

    store: LayerStore
    how: str = ""
    basis: str = ""
    next_basis: str = ""
    before: Mapping[str, torch.Tensor]
    changes: Changes
    reached: Mapping[str, Rows]
    all_edges: int
    tolerance: float = 0.0
    max_error: float = 0.0
    seed: int
