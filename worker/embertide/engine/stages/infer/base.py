"""The base: the version whose kept rows a run goes on from, and what has changed since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from embertide.graph.exchange import Exchange
from embertide.io.versions.layers.seals import Damaged, Seal
from embertide.io.versions.layers.store import LayerStore
from embertide.program.plans.boundaries import Part, boundary_digest, parts_of
from embertide.program.plans.plan import Plan
from embertide.program.steps.execution import Execution
from embertide.program.steps.frontier import Changes, Rows

OTHER_WAY = (
    "layer {layer} was kept by {by}, which computed it in another way than version {version}: on"
    " another grid, or with other kernels"
)


class Doubt(Exception):
    """The base's rows cannot be used, or may not be right; the message says why.

    Raised on all ranks alike.
    """


def agree(exchange: Exchange, why: str) -> None:
    """Go on where no rank has a reason not to. Collective: every rank must call.

    Raises:
        Doubt: any rank has.
    """
    reasons = [reason for reason in exchange.all_objects(why) if reason]
    if reasons:
        raise Doubt(reasons[0])


@dataclass(frozen=True, kw_only=True)
class Refreshing:
    """What a run takes over of its base.

    Attributes:
        store: of the key under which the base has kept its layers.
        how: a digest of how it has computed its rows, and how this run does.
        basis: what these rest on, as their names have it; "" where they are those of full runs.
        next_basis: the same of the layers that this run keeps.
        before: node type -> [N] int64, the dense id that each node had then; -1: it is new.
        changes: what differs from the base's inputs.
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


def find_parts(plan: Plan, whole: Execution, row_type: str, base: Refreshing) -> dict[Part, Seal]:
    """All parts, in order, with what was kept where each ends. Collective: every rank must call.

    Raises:
        Doubt: an end of a layer was not kept, or in another way.
    """
    parts, why = dict[Part, Seal](), ""
    for part in parts_of(plan):
        name = boundary_digest(plan, part.end, row_type, base.basis)
        try:
            seal = base.store.sealed(name)
            if seal is None:
                why = why or f"layer {part.end.layer} was not kept"
                continue
            _check(seal, whole, base)
        except Damaged as error:
            why = why or str(error)
            continue
        parts[part] = seal
    agree(whole.exchange, why)
    return parts


def _check(seal: Seal, whole: Execution, base: Refreshing) -> None:
    """Refuse rows that were computed, or are multiplied by factors, in another way than this
    run's."""
    store = base.store
    if seal.how != base.how:
        # An attempt of the same inputs, on another grid, has kept it before that version could.
        raise Damaged(OTHER_WAY.format(layer=seal.layer, by=seal.version, version=store.version))
    for tensor in seal.tensors:
        known = tensor.name in whole.program.widths
        if not known or tensor.scaled != (tensor.name in whole.scaled):
            raise Damaged(f"{store.uri}: {tensor.name} was kept in another way")
