"""A program as the folder of a model, as if it had been exported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from embertide.models.folder import LayerName, folder_files
from embertide.steps import Program


def write_program(folder: Path, program: Program) -> None:
    """Write it; the result of each layer is that of its last step."""
    folder.mkdir(parents=True)
    outs = {step.layer: step.out for step in program.steps}
    layers = tuple(LayerName(f"convs.{layer}", "Layer", True) for layer in outs)
    named = replace(program, outputs=tuple(outs.values()))
    for name, data in folder_files(named, layers, "Net", "pyg").in_order():
        if data:
            (folder / name).write_bytes(data)
