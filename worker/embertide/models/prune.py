"""A program without what its results do not need."""

from __future__ import annotations

from dataclasses import replace

from embertide.program.steps import Program, Step


def prune(program: Program) -> Program:
    """Only steps that the results need, the features that these read, and their parameters.

    A layer of which nothing is left has the output of the one before it.
    """
    steps = _needed(program)
    read = {name for step in steps for name in step.reads()} | set(program.results.values())
    made = {step.out for step in steps} | read
    outputs: list[str] = []
    for name in program.outputs:
        outputs.append(name if name in made else _last_of_layer(program, steps, name, outputs))
    params = {name for step in steps for name in step.param_names()}
    return replace(
        program,
        steps=steps,
        params={name: tensor for name, tensor in program.params.items() if name in params},
        widths={name: width for name, width in program.widths.items() if name in made},
        inputs={of_type: name for of_type, name in program.inputs.items() if name in read},
        outputs=tuple(outputs),
    )


def _needed(program: Program) -> tuple[Step, ...]:
    """The steps that lead to the results, in order."""
    wanted = set(program.results.values())
    kept: list[Step] = []
    for step in reversed(program.steps):
        if step.out in wanted:
            kept.append(step)
            wanted.update(step.reads())
    return tuple(reversed(kept))


def _last_of_layer(
    program: Program, steps: tuple[Step, ...], output: str, before: list[str]
) -> str:
    """The last step that is left up to the one that made a layer's output."""
    names = [step.out for step in program.steps]
    until = set(names[: names.index(output) + 1]) if output in names else set()
    left = [step.out for step in steps if step.out in until]
    return left[-1] if left else (before[-1] if before else next(iter(program.inputs.values())))
