"""A graph of DGL's whose self-loops a module changes in its own code."""

from __future__ import annotations

from typing import Any, Literal

import torch

from embertide.tracing.dgl.frames import Frame, Frames
from embertide.tracing.record import self_loops
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.traced import plain
from embertide.tracing.record.user_code import here, refuse

Change = Literal["add_self_loop", "remove_self_loop"]
_VIEWS: dict[Change, self_loops.Change] = {
    "add_self_loop": "add_self_loops",
    "remove_self_loop": "remove_self_loops",
}


def changed(
    recording: Recording, relation: str, own: Frame, change: Change, fill: Any = 1.0
) -> Frames:
    """The tensors of a relation's edges with one more self-loop at each node, or without any.

    Args:
        own: those of the edges before.
        fill: the weight of a new one.

    Returns:
        By the name of the changed edges.

    Raises:
        ModelError: the graph has types, tensors of its edges were set, or weights are filled in by
            something else than a number.
    """
    if recording.types.typed:
        raise refuse(
            here(),
            f"{change} is known of a graph with one node type and one edge type; in others, change"
            " the job's edges (selfLoops in the manifest)",
        )
    if own:
        raise refuse(
            here(),
            f"{change} comes after tensors of the edges were set ({', '.join(own)}); change"
            " the graph first",
        )
    before = recording.edges[relation]
    edges = recording.seen(before.view.after(_VIEWS[change]))
    frame = Frame(edges.view.name, {})
    if "edge_weight" in own.job_tensors:
        if type(fill) not in (int, float):
            raise refuse(here(), f"{change} fills in {fill!r}; give a number as fill_data")
        weight = plain(own.job_tensors["edge_weight"])
        if change == "remove_self_loop":
            weight = weight[before.own.src != before.own.dst]
        new = torch.full((len(edges.own.src) - len(weight),), fill, dtype=weight.dtype)
        weights = torch.cat([weight, new])
        job_tensors = {"edge_weight": recording.of_loops("edge_weight", edges.view, weights, fill)}
        frame = Frame(edges.view.name, job_tensors)
    frame.inputs = own.inputs
    return Frames({edges.view.name: frame})
