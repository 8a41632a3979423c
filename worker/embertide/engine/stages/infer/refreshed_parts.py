"""The parts of a plan between ends of layers of which all rows were kept by an earlier run."""

from __future__ import annotations

from dataclasses import dataclass

from embertide.engine.stages.infer.doubt import agree
from embertide.engine.stages.infer.taking_over import Refreshing
from embertide.io.versions.layers.seals import Damaged, Seal
from embertide.program.plans.boundaries import Boundary, boundaries, boundary_digest, results_of
from embertide.program.plans.plan import Plan
from embertide.program.steps.execution import Execution
from embertide.program.steps.run import Run

OTHER_WAY = (
    "layer {layer} was kept by {by}, which computed it in another way than version {version}: on"
    " another grid, or with other kernels"
)


@dataclass(frozen=True)
class RefreshedPart:
    """The operations from one end of a layer to the next.

    Attributes:
        first: the number of its first operation.
        end: the end of the last layer of it.
        seal: what was kept of the rows there.
    """

    plan: Plan
    first: int
    end: Boundary
    seal: Seal

    @property
    def ops(self) -> tuple[Run, ...]:
        """The operations."""
        return self.plan.ops[self.first : self.end.at]

    @property
    def made(self) -> list[str]:
        """The tensors that the part makes, and leaves to later ones or to the results."""
        outs = {op.out for op in self.ops}
        return [name for name in self.end.tensors if name in outs]

    def is_read(self, name: str) -> bool:
        """Whether an operation after the part reads a tensor."""
        later = self.plan.ops[self.end.at :]
        return any(name in step.reads() for op in later for step in op.steps)


def find_parts(
    plan: Plan, whole: Execution, row_type: str, refreshing: Refreshing
) -> list[RefreshedPart]:
    """All parts, in order. Collective: every rank must call.

    Raises:
        Doubt: an end of a layer was not kept, or in another way.
    """
    parts, first, why = list[RefreshedPart](), 0, ""
    for end in (*boundaries(plan), results_of(plan)):
        name = boundary_digest(plan, end, row_type, refreshing.basis)
        try:
            seal = refreshing.store.sealed(name)
            if seal is None:
                why = why or f"layer {end.layer} was not kept"
                continue
            _check(seal, whole, refreshing)
        except Damaged as error:
            why = why or str(error)
            continue
        parts.append(RefreshedPart(plan, first, end, seal))
        first = end.at
    agree(whole.exchange, why)
    return parts


def _check(seal: Seal, whole: Execution, refreshing: Refreshing) -> None:
    """Refuse rows that were computed, or are multiplied by factors, in another way than this
    run's."""
    store = refreshing.store
    if seal.how != refreshing.how:
        # An attempt of the same inputs, on another grid, has kept it before that version could.
        raise Damaged(OTHER_WAY.format(layer=seal.layer, by=seal.version, version=store.version))
    for tensor in seal.tensors:
        known = tensor.name in whole.program.widths
        if not known or tensor.scaled != (tensor.name in whole.scaled):
            raise Damaged(f"{store.uri}: {tensor.name} was kept in another way")
