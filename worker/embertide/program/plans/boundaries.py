"""Where a run may resume: at the first operation of a layer that reads rows of other nodes.

All operations before it are done by then, and leave little: the tensors that later layers read, and
no half-finished sums of relations. A boundary's digest identifies what is computed by then.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from embertide.program.plans.plan import Plan
from embertide.program.steps.op import Op, Reach
from embertide.spec.identity import canonical


@dataclass(frozen=True)
class Boundary:
    """The end of a layer.

    Attributes:
        at: the number of the operation that comes next.
        layer: how many layers are done.
        tensors: those computed before it that later operations read, in order.
    """

    at: int
    layer: int
    tensors: tuple[str, ...]


def boundaries(plan: Plan) -> list[Boundary]:
    """The ends of all layers but the last, which is the result, in order."""
    ends, inputs = [], set(plan.program.inputs.values())
    for layer in range(1, plan.program.layers):
        at = next((at for at in range(len(plan.ops)) if _begins(plan, at, layer)), 0)
        if at and not plan.has_sums_at(at):
            kept = plan.kept_after(plan.phases[at] - 1)
            ends.append(Boundary(at, layer, tuple(name for name in kept if name not in inputs)))
    return ends


def results_of(plan: Plan) -> Boundary:
    """The end of the last layer: all operations are done, and their results are left."""
    names = dict.fromkeys(plan.program.results.values())
    return Boundary(len(plan.ops), plan.program.layers, tuple(names))


def _begins(plan: Plan, at: int, layer: int) -> bool:
    op = plan.ops[at]
    return op.steps[0].layer >= layer and op.reach is not Reach.ROW


@dataclass(frozen=True, eq=False)
class Part:
    """The operations from one end of a layer to the next: within them no operation needs rows of
    other nodes from tensors that the part makes, but for sums of sums.

    Attributes:
        first: the number of the first operation.
        end: the end of the last layer of it.
        starts: the tensors of earlier parts that it or later ones read.
    """

    plan: Plan
    first: int
    end: Boundary
    starts: tuple[str, ...] = ()

    @property
    def ops(self) -> tuple[Op, ...]:
        """The operations."""
        return self.plan.ops[self.first : self.end.at]

    @property
    def is_one_layer(self) -> bool:
        """Whether no layer ends within it."""
        return not any(self.first < end.at < self.end.at for end in boundaries(self.plan))

    @property
    def layer(self) -> int:
        """The number of its last layer, from 0."""
        return self.end.layer - 1

    @property
    def made(self) -> list[str]:
        """The tensors that the part makes, and leaves to later ones or to the results."""
        outs = {op.out for op in self.ops}
        return [name for name in self.end.tensors if name in outs]

    @property
    def freed(self) -> set[str]:
        """The tensors that no operation after the part reads, but for features."""
        frees = {name for op in self.ops for name in op.frees}
        return frees - set(self.plan.program.inputs.values())

    def is_read(self, name: str) -> bool:
        """Whether an operation after the part reads a tensor."""
        later = self.plan.ops[self.end.at :]
        return any(name in step.reads() for op in later for step in op.steps)


def parts_of(plan: Plan, first: int = 0) -> list[Part]:
    """All parts from an operation on with which one begins, in order."""
    parts, at, starts = list[Part](), 0, tuple[str, ...]()
    for end in (*boundaries(plan), results_of(plan)):
        if at >= first:
            parts.append(Part(plan, at, end, starts))
        at, starts = end.at, end.tensors
    return parts


def all_of(plan: Plan, first: int = 0) -> Part:
    """All operations from one on with which a part begins, as one."""
    return replace(parts_of(plan, first)[0], end=results_of(plan))


def boundary_digest(plan: Plan, boundary: Boundary, row_type: str, basis: str = "") -> str:
    """A digest of what is computed up to a boundary: operations, weights, and the type of rows.

    The grid counts only where bits depend on it: rows that are rounded before they travel are
    rounded where slices of columns make them travel.

    Args:
        basis: the rows that they rest on, where these may differ from a full run's.

    Returns:
        32 hexadecimal digits.
    """
    ops = plan.ops[: boundary.at]
    names = {name for op in ops for step in op.steps for name in step.param_names()}
    params = {name: plan.program.params[name].contiguous().numpy() for name in sorted(names)}
    facts = {
        "rows": row_type,
        "slices": plan.grid.feature if row_type != "float32" else 0,
        "layer": boundary.layer,
        "tensors": boundary.tensors,
        "inputs": plan.program.inputs,
        "basis": basis,
        "ops": ops,
        "params": {name: [value.dtype.str, *value.shape] for name, value in params.items()},
    }
    hashed = hashlib.sha256(canonical(facts))
    for value in params.values():
        hashed.update(value.data)
    return hashed.hexdigest()[:32]
