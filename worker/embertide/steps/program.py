"""A model as a small program: a list of steps over named node tensors.

Everything that describes a model ends in a :class:`Program`; the executor, the planner and the
reference know programs only, and what a step does is asked of the step.

Letters: N nodes, H heads, F width per head; every tensor is ``[N, width]`` with heads
concatenated (``H*F`` columns, head-major). The neighbours N(i) of node i are the sources of
its in-edges in the layer graph, with duplicates. Each step belongs to one convolution
layer, and a layer reads that layer's graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from embertide.primitives.graph import EdgeNeeds
from embertide.steps.base import Step


@dataclass(frozen=True, kw_only=True)
class Program:
    """Steps in order over tensors; ``input`` names the features, ``output`` the embeddings.

    ``widths`` gives the columns of every named tensor; ``params`` are float32 and contiguous.
    ``layers`` is the number of layer graphs; ``outputs`` names the result of each layer of
    ``model.yaml``, also of those that read no edges.
    """

    steps: tuple[Step, ...]
    params: dict[str, torch.Tensor]
    widths: dict[str, int]
    layers: int
    input: str = "x"
    output: str = "out"
    digest: str = ""
    outputs: tuple[str, ...] = ()

    @property
    def input_width(self) -> int:
        """Columns the features must have."""
        return self.widths[self.input]

    @property
    def output_width(self) -> int:
        """Columns of the embeddings."""
        return self.widths[self.output]

    @property
    def sliced_widths(self) -> list[int]:
        """Widths of the tensors whose columns a grid may slice: all but attention's scores."""
        scores = {step.out for step in self.steps if not step.sliced}
        return [width for name, width in self.widths.items() if name not in scores]

    def feeds_only(self, first: Step, second: Step) -> bool:
        """Whether a step's result is read by the next one, once, and by nothing else."""
        reads = [name for step in self.steps for name in step.reads()]
        wanted = first.out == self.output or first.out in self.outputs
        return first.out in second.reads() and reads.count(first.out) == 1 and not wanted

    def last_reads(self) -> dict[str, int]:
        """Name of a tensor -> the number of the last step that reads it; the output's is beyond."""
        last = {name: at for at, step in enumerate(self.steps) for name in step.reads()}
        return last | {self.output: len(self.steps)}

    def wants_rows(self, name: str) -> bool:
        """Whether a step that reads the tensor needs whole rows, or it is the output."""
        return name == self.output or any(
            step.wants_rows(name) for step in self.steps if name in step.reads()
        )

    def edge_needs(self) -> EdgeNeeds:
        """What the steps need of layer graphs beside the tile pattern."""
        pairs = any(step.pairs for step in self.steps)
        over_edges = [(step, step.edges) for step in self.steps if step.edges is not None]
        kinds = {view[1:] if view.loops != "keep" else view.loops for _, view in over_edges}
        from_files = any(self.input in step.reads() for step, _ in over_edges)
        positions = any(step.pairs and step.tiles for step in self.steps)
        return EdgeNeeds(positions, pairs or len(kinds) > 1 or from_files)
