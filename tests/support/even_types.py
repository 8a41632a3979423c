"""A job of three node types whose edges are drawn evenly, and a model with every kind of step over
edges: what it sends is close to what is expected of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml

from embertide.program.steps import (
    Aggregate,
    Attend,
    Concat,
    Elementwise,
    HeadDot,
    Linear,
    Message,
    PairAttend,
    Program,
    Step,
)
from tests.support.program_files import write_program

COUNTS = {"author": 1536, "paper": 1024, "topic": 512}
WIDTHS = {"author": 12, "paper": 8}
"""Of the features; topics have none."""
EDGES = {"author:wrote:paper": 12000, "author:knows:author": 12000, "paper:of:topic": 30000}
WROTE, KNOWS, OF = EDGES
WRITTEN = "paper:written_by:author"
HIDDEN, HEADS = 16, 4


def write_even_types(folder: Path) -> Path:
    """Write the job's files; returns the path of its manifest."""
    g = np.random.default_rng(4)
    edges, nodes = [], []
    for relation, count in EDGES.items():
        source, name, destination = relation.split(":")
        columns: dict[str, Any] = {
            "src": g.integers(0, COUNTS[source], count),
            "dst": g.integers(0, COUNTS[destination], count),
        }
        if relation == WROTE:
            columns["w"] = g.random(count)
        pq.write_table(pa.table(columns), folder / f"{name}.parquet", row_group_size=1000)
        edges.append(
            {
                "name": name, "sourceType": source, "destinationType": destination,
                "uri": f"{name}.parquet", "format": "parquet",
            }
        )  # fmt: skip
    edges[0] |= {"columns": {"weight": "w"}, "reverse": "written_by"}
    for name, count in COUNTS.items():
        entry: dict[str, Any] = {"name": name, "count": count}
        if name in WIDTHS:
            np.save(folder / f"{name}.npy", g.random((count, WIDTHS[name]), np.float32))
            entry["features"] = {"uri": f"{name}.npy", "format": "npy"}
        nodes.append(entry)
    write_program(folder / "model", every_step())
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


def every_step() -> Program:
    """Sums, both attentions and messages, each over one relation and over several that share rows;
    sums of features as they were read."""
    paper = {"x": "made", "source": "left", "heads": HEADS, "layer": 1}
    author = {"x": "friends", "key": "friends", "heads": HEADS, "kind": "dot", "layer": 1}
    steps: list[Step] = [
        Aggregate(out="read", layer=0, x="author.x", norm="out", relation=WROTE),
        Aggregate(out="written", layer=0, x="paper.x", relation=WRITTEN, norm="in"),
        Aggregate(out="of", layer=0, x="paper.x", relation=OF, reduce="max"),
        Linear(out="a", layer=0, x="author.x", weight="a.w"),
        Linear(out="p", layer=0, x="paper.x", weight="p.w"),
        Linear(out="t", layer=0, x="of", weight="p.w"),
        Linear(out="w", layer=0, x="written", weight="p.w"),
        Aggregate(out="friends", layer=0, x="a", norm="in", relation=KNOWS),
        Aggregate(out="works", layer=0, x="a", relation=WROTE, edge_weight=True),
        Linear(out="made", layer=0, x="works", weight="made.w"),
        Aggregate(out="topics", layer=0, x="p", reduce="max", relation=OF),
        HeadDot(out="p.s", layer=0, x="p", vector="v", heads=HEADS),
        HeadDot(out="t.s", layer=0, x="t", vector="v", heads=HEADS),
        Attend(
            out="first", layer=0, x="p", source="p.s", target="t.s", heads=HEADS, relation=OF
        ),
        PairAttend(
            out="pair", layer=0, x="a", key="a", query="p", heads=HEADS, kind="dot",
            relation=WROTE,
        ),
        Message(
            out="one", layer=0, x="p", target="w", lines=("out = add(s, t)",), relation=WRITTEN
        ),
        HeadDot(out="left", layer=1, x="made", vector="v", heads=HEADS),
        HeadDot(out="right", layer=1, x="friends", vector="v", heads=HEADS),
        Attend(out="seen", target="right", relation=WRITTEN, **paper),
        HeadDot(out="top", layer=1, x="topics", vector="v", heads=HEADS),
        Attend(out="shown", target="top", relation=OF, **paper),
        PairAttend(out="near", query="p", relation=WROTE, **author),
        PairAttend(out="close", query="one", relation=KNOWS, log_sum=True, **author),
        Message(
            out="said", layer=1, x="made", target="topics", reduce="mean",
            lines=("out = relu(s)",), relation=OF,
        ),
        Message(out="heard", layer=1, x="made", reduce="std", lines=("out = abs(s)",),
                relation=WRITTEN),
        Aggregate(out="both", layer=1, x="friends", norm="both", relation=WROTE),
        Elementwise(out="papers", layer=1, inputs=("near", "both", "pair"), op="sum"),
        Concat(out="authors", layer=1, inputs=("seen", "close", "heard")),
        Concat(out="all", layer=1, inputs=("said", "shown", "first")),
    ]  # fmt: skip
    g = torch.Generator().manual_seed(2)
    shapes = {
        "a.w": (HIDDEN, 12), "p.w": (HIDDEN, 8), "made.w": (HIDDEN, HIDDEN),
        "v": (HEADS, HIDDEN // HEADS),
    }  # fmt: skip
    widths = {"author.x": 12, "paper.x": 8, "read": 12, "written": 8, "of": 8}
    widths |= dict.fromkeys(("left", "right", "top", "p.s", "t.s"), HEADS)
    widths |= {"close": HIDDEN + HEADS, "authors": 3 * HIDDEN + HEADS, "all": 3 * HIDDEN}
    return Program(
        steps=tuple(steps),
        params={name: torch.randn(shape, generator=g) / 3 for name, shape in shapes.items()},
        widths=widths | {s.out: HIDDEN for s in steps if s.out not in widths},
        layers=2,
        inputs={"author": "author.x", "paper": "paper.x"},
        results={"author": "authors", "paper": "papers", "topic": "all"},
    )
