"""Tensors of a recorded graph's nodes and edges by name, as DGL's modules see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from embertide.tracing.record.arguments import PLAIN_WEIGHTS
from embertide.tracing.record.traced import Traced
from embertide.tracing.record.user_code import here, refuse

NODE_ID = "_ID"
"""``dgl.NID``."""
Field = tuple[str, str]
"""``ndata`` or ``node_id``, or of edges ``edge_weight``, ``edge_features`` or ``norm``; and of
what."""
JobTensors = Mapping[str, Traced]
"""The job's own tensors of a node type or relation, by such a word."""
_WHAT = {
    "ndata": "features",
    "node_id": "nodes' numbers",
    "edge_weight": "edge weights",
    "edge_features": "features of the edges",
    "norm": "norm of the edges",
}


class Frame(dict[str, Any]):
    """Tensors by name; a name that was never set is one of the job's own.

    Attributes:
        job_tensors: the job's own tensors, by what they are.
        inputs: which of them were read, and by what name.
    """

    def __init__(self, of: str, job_tensors: JobTensors, values: dict[str, Any] | None = None):
        super().__init__(values or {})
        self.of, self.job_tensors = of, job_tensors
        self.inputs: dict[str, str] = {}

    def copy(self) -> Frame:
        """The same tensors and the same input."""
        frame = Frame(self.of, self.job_tensors, dict(self))
        frame.inputs = self.inputs
        return frame

    def __missing__(self, name: str) -> Any:
        kind = self._kind(name)
        if kind is None or self.inputs.setdefault(kind, name) != name:
            where = f" of {self.of}" if self.of else ""
            what = " or ".join(_WHAT[role] for role in self.job_tensors) or "an input"
            raise refuse(here(), f"{name!r}{where} was never set, and is not the {what}")
        return self.job_tensors[kind]

    def _kind(self, name: str) -> str | None:
        """What a name that was never set stands for: features of edges, unless it says weights."""
        if name == NODE_ID and "node_id" in self.job_tensors:
            return "node_id"
        if name == "norm" and name in self.job_tensors:
            return name
        if "edge_features" in self.job_tensors and name not in PLAIN_WEIGHTS:
            return "edge_features"
        return next(iter(self.job_tensors), None)

    @property
    def known(self) -> bool:
        """Whether the job gives it something."""
        return bool(self.job_tensors)


class Frames(dict[str, Frame]):
    """The frames of several node types or relations; a field of all is a dict by type."""

    def fields_called(self, name: str) -> dict[str, Any]:
        """The field of every type that has it; of the job's own, where none was set."""
        fields = {of: frame[name] for of, frame in self.items() if name in frame}
        return fields or {of: frame[name] for of, frame in self.items() if frame.known}


class Together:
    """``g.ndata`` of a graph with several node types."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames

    def __getitem__(self, name: str) -> dict[str, Any]:
        return self._frames.fields_called(name)

    def __setitem__(self, name: str, values: Any) -> None:
        if not isinstance(values, Mapping):
            raise refuse(
                here(),
                f"{name!r} is set for a graph of the types {', '.join(self._frames)}; give a dict"
                " of tensors by type",
            )
        for of, tensor in values.items():
            self._frames[of][name] = tensor


class View:
    """``g.nodes[ntype].data`` and ``g.edges[etype].data``."""

    def __init__(self, frames: Frames, key: Callable[[Any], str]) -> None:
        self._frames, self._key = frames, key

    def __getitem__(self, of: Any) -> SimpleNamespace:
        return SimpleNamespace(data=self._frames[self._key(of)])


class At:
    """``edges.src`` and ``edges.dst`` of a message function."""

    def __init__(self, frame: Frame, take: Any) -> None:
        self._frame, self._take = frame, take

    def __getitem__(self, name: str) -> Any:
        return self._take(self._frame[name])
