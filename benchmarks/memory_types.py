"""A made-up job of two node types and three relations, of any size, for `memory.py`.

python benchmarks/memory.py types@1x1,2x1
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from embertide.models.folder import LayerName
from embertide.models.folder_writing import folder_files
from embertide.program.steps import Aggregate, Elementwise, Linear, Program, Step

WIDTH = 8
COUNTS = {"user": 3 << 20, "item": 1 << 20}
EDGES = {"user:buys:item": 5 << 20, "user:follows:user": 4 << 20}
RELATIONS = (*EDGES, "item:bought_by:user")


def write_types(folder: Path, times: float) -> Path:
    """Write inputs, model and manifest, ``times`` as large; returns the manifest's path."""
    folder.mkdir(parents=True)
    g = np.random.default_rng(0)
    counts = {name: int(count * times) for name, count in COUNTS.items()}
    nodes, edges = [], []
    for name, count in counts.items():
        np.save(folder / f"{name}.npy", g.random((count, WIDTH), np.float32))
        features = {"uri": f"{name}.npy", "format": "npy"}
        nodes.append({"name": name, "features": features})
    for relation, count in EDGES.items():
        source, name, destination = relation.split(":")
        ends = [g.integers(0, counts[end], int(count * times)) for end in (source, destination)]
        np.save(folder / f"{name}.npy", np.stack(ends, 1))
        entry: dict[str, Any] = {"uri": f"{name}.npy", "format": "npy", "name": name}
        edges.append(entry | {"sourceType": source, "destinationType": destination})
    edges[0]["reverse"] = "bought_by"
    _write_model(folder / "model")
    job = {
        "apiVersion": "embertide.dev/v1alpha1",
        "kind": "EmbeddingJob",
        "metadata": {"name": "types"},
        "spec": {
            "input": {"edges": edges, "nodes": nodes},
            "model": {"uri": "model"},
            "output": {"uri": "out"},
        },
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    return folder / "job.yaml"


def _write_model(folder: Path) -> None:
    """A relational graph convolution of two layers: a weight for each relation."""
    steps: list[Step] = []
    current = {name: f"{name}.x" for name in COUNTS}
    for layer in range(2):
        made: dict[str, list[str]] = {name: [] for name in COUNTS}
        for relation in RELATIONS:
            source, name, destination = relation.split(":")
            mean, out = f"{layer}.{name}.mean", f"{layer}.{name}"
            steps += [
                Aggregate(out=mean, layer=layer, x=current[source], norm="in", relation=relation),
                Linear(out=out, layer=layer, x=mean, weight=name),
            ]
            made[destination].append(out)
        for name, parts in made.items():
            own, total = f"{layer}.{name}.own", f"{layer}.{name}"
            steps += [
                Linear(out=own, layer=layer, x=current[name], weight=name),
                Elementwise(out=total, layer=layer, inputs=(*parts, own), op="sum"),
            ]
            current[name] = total
    inputs = {name: f"{name}.x" for name in COUNTS}
    names = [step.out for step in steps]
    weights = [*COUNTS, *(relation.split(":")[1] for relation in RELATIONS)]
    program = Program(
        steps=tuple(steps),
        params={name: torch.rand(WIDTH, WIDTH) / WIDTH for name in weights},
        widths=dict.fromkeys([*inputs.values(), *names], WIDTH),
        layers=2,
        inputs=inputs,
        results=current,
        outputs=("0.item", "1.item"),
    )
    folder.mkdir()
    layers = tuple(LayerName(f"convs.{layer}", "RGCN", True) for layer in range(2))
    for name, data in folder_files(program, layers, "Net", "pyg").in_order():
        if data:
            (folder / name).write_bytes(data)
