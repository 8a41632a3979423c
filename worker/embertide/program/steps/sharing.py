"""Which steps over edges read rows of the same tensors, so that each row travels once for all.

The first of them brings the rows and makes the results of all: whatever the others read has to be
there by then. `program/plans/shared_rows.py` puts steps into an order in which it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from embertide.program.steps.base import EdgeStep, Step

Groups = Mapping[str, tuple[EdgeStep, ...]]
"""Result of a step -> the steps whose rows travel together, itself among them, in order."""


def reads_together(step: Step) -> tuple[object, ...] | None:
    """Equal for steps of a layer that read rows of the same tensors in the same way, if any may."""
    if not isinstance(step, EdgeStep) or not step.relation or step.loops != "keep":
        return None
    return (type(step), step.layer, *step.gathered) if step.shares_rows else None


def find_groups(steps: Sequence[Step]) -> Groups:
    """Every step over edges with those whose rows travel with its own."""
    places = {step.out: at for at, step in enumerate(steps)}
    groups: list[list[EdgeStep]] = []
    by_key: dict[tuple[object, ...], list[list[EdgeStep]]] = {}
    for step in steps:
        if not isinstance(step, EdgeStep):
            continue
        key = reads_together(step)
        alike = [] if key is None else by_key.setdefault(key, [])
        for group in alike:
            if all(places.get(name, -1) < places[group[0].out] for name in step.reads()):
                group.append(step)
                break
        else:
            groups.append([step])
            alike.append(groups[-1])
    return {step.out: tuple(group) for group in groups for step in group}
