"""A program as the folder of a model, as if it had been exported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from embertide.models.folder import LayerName
from embertide.models.folder_writing import StoredTable, folder_files
from embertide.program.steps import Program


def write_program(
    folder: Path, program: Program, tables: Mapping[str, Tensor] | None = None
) -> None:
    """Write it; the result of each layer is that of its last step.

    Args:
        tables: node type -> what its input has without features.
    """
    folder.mkdir(parents=True)
    outs = {step.layer: step.out for step in program.steps}
    layers = tuple(LayerName(f"convs.{layer}", "Layer", True) for layer in outs)
    named = replace(program, outputs=tuple(outs.values()))
    stored = {kind: [StoredTable(table)] for kind, table in (tables or {}).items()}
    for name, data in folder_files(named, layers, "Net", "pyg", stored).in_order():
        if data:
            (folder / name).write_bytes(data)
