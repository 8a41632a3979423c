"""While a module is traced, its convolutions are called as a whole.

Known ones become one node. PyG's others, and known ones between two node types, run as they are but
for `propagate` (`pyg.propagation`), whose message is recorded; DGL's meet a recording graph
(`dgl.graph`). What no record of the whole can follow has an equivalent in `replacements`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from embertide.models.known_modules import KnownModule
from embertide.tracing.dgl.graph import RecordingGraph
from embertide.tracing.dgl.homogeneous import TogetherGraph
from embertide.tracing.forward.known import has_other_parts, known
from embertide.tracing.forward.library_functions import standing_in
from embertide.tracing.forward.relations import watch_relations
from embertide.tracing.forward.replacements import PARTS, key_of, respelled
from embertide.tracing.pyg.graph_norms import NormCall, graph_norm_of
from embertide.tracing.pyg.propagation import Propagate
from embertide.tracing.record.counts import counted_lengths
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.roles import ALL, edges_of, is_features, is_weight, other_edges
from embertide.tracing.record.scopes import Called
from embertide.tracing.record.traced import Traced, plain
from embertide.tracing.record.user_code import here, refuse


@contextmanager
def recorded(module: nn.Module, recording: Recording) -> Iterator[None]:
    """Within it, calls of convolutions are recorded on the recording's tape."""
    patched: list[tuple[nn.Module, str]] = []
    handles: list[Any] = []
    own = {id(part) for part in module.modules()}

    def record_new(part: nn.Module, _args: Any) -> None:
        """A convolution that ``forward`` itself makes, by what it does."""
        if id(part) not in own and is_message_passing(part):
            _hook(part, recording)

    try:
        handles.append(register_module_forward_pre_hook(record_new))
        for path, part in module.named_modules():
            conv, instead = known(part), respelled(recording, part)
            if conv is not None:
                part.forward = _Call(path, part, conv, recording)
                patched.append((part, "forward"))
                continue
            norm = graph_norm_of(part)
            if norm is not None:
                part.forward = NormCall(path, part, norm, recording.tape)
                patched.append((part, "forward"))
                continue
            if key_of(part) not in PARTS:
                handles += recording.scopes.watch(path, part)
            handles += watch_relations(recording, part)
            if instead is not None:
                part.forward = instead
                patched.append((part, "forward"))
            elif is_message_passing(part):
                patched += _hook(part, recording)
        with standing_in(recording), counted_lengths():
            yield
    finally:
        for part, name in patched:
            del part.__dict__[name]
        for handle in handles:
            handle.remove()


def _hook(module: Any, recording: Recording) -> list[tuple[nn.Module, str]]:
    """Record what a module of PyG's propagates; returns what was replaced."""
    module.propagate = Propagate(module, recording)
    module.edge_updater = module.propagate.update_edges
    return [(module, "propagate"), (module, "edge_updater")]


def is_message_passing(module: nn.Module) -> bool:
    """Whether it is one of PyG's, by name, so that PyG need not be imported."""
    return any(
        kind.__name__ == "MessagePassing" and kind.__module__.startswith("torch_geometric.")
        for kind in type(module).__mro__
    )


class _Call:
    """In place of a known convolution's ``forward``."""

    def __init__(
        self, path: str, module: nn.Module, conv: KnownModule, recording: Recording
    ) -> None:
        self.path, self.module, self.conv, self.recording = path, module, conv, recording
        self.forward = type(module).forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        problem = self.conv.problem(self.module)
        if getattr(self.module, "flow", "source_to_target") != "source_to_target":
            problem = "flow='target_to_source' (turn the edges in the manifest instead)"
        if problem:
            raise self._refuse(f"has {problem}, which is not known here")
        bound = inspect.signature(self.forward).bind(self.module, *args, **kwargs).arguments
        xs = bound.get(self.conv.x)
        pair = xs if isinstance(xs, tuple) else (xs, xs)
        earlier = bound.get(self.conv.earlier)
        for x in (pair[0], *([earlier] if self.conv.earlier else [])):
            self._check_features(x)
        called = self.recording.scopes.called(self.path, self.module)
        matrix = bound.pop(self.conv.matrix, None)
        features = bound.get(self.conv.features)
        if (
            (pair[1] is not pair[0] and not self._knows(pair))
            or self._is_changed(bound)
            or (self.conv.one_frame and isinstance(xs, tuple) and self._is_within(pair))
            or (matrix is not None and self.conv.has_bias(self.module))
            or (features is not None and self._computes(features))
            or self.conv.by_messages(self.module)
            or has_other_parts(self.module)
        ):
            return self._traced(called, args, kwargs)
        relation, weighted, options = *self._check_edges(bound), self._call_options(bound)
        featured = features is not None and self.conv.projects(self.module)
        after = [getattr(self.module, name) for name in self.conv.after]
        del bound["self"]
        value = self._run((), plain_graphs(bound))
        tape, ends = self.recording.tape, self.recording.types.ends(relation)
        feature_ends = pair[0].node.of, pair[1].node.of
        if feature_ends != ends:
            raise self._refuse(
                f"is given features of {' and '.join(feature_ends)}, but {relation} leads from"
                f" {ends[0]} to {ends[1]}"
            )
        how = (self.path, self.module, self.conv, relation, called, weighted, featured)
        node = tape.add("conv", (*how, options, earlier, *pair), {}, value, ends[1])
        out: Any = tape.wrap(node)
        # Sums are linear, so that the matrix may come after them.
        out = out if matrix is None else out @ matrix
        for function in after:
            out = out if function is None else function(out)
        return out

    def _knows(self, pair: Any) -> bool:
        """Whether it is known as a whole with other rows at the destinations."""
        return self.conv.options.between_types and isinstance(pair[1], Traced)

    def _computes(self, features: Any) -> bool:
        """Whether features of edges differ from the graph's, so that messages must contain them.

        Raises:
            ModelError: they come from no edges, or new self-loops would be filled with them.
        """
        if not isinstance(features, Traced) or not features.node.edges:
            raise self._refuse("is given features of edges that do not come from the graph's edges")
        if not self.conv.projects(self.module):
            return False
        if self.conv.columns and is_features(features.node) and features.dim() <= 2:
            return False
        if getattr(self.module, "add_self_loops", False):
            raise self._refuse(
                "is given features of edges that were computed, and fills in those of new"
                " self-loops by them, which no step does; give it the graph's own features, or make"
                " it with add_self_loops=False"
            )
        return True

    def _is_within(self, pair: Any) -> bool:
        """Whether both ends are of one node type."""
        return isinstance(pair[1], Traced) and pair[0].node.of == pair[1].node.of

    def _is_changed(self, bound: dict[str, Any]) -> bool:
        """Whether edges have other self-loops than the graph, or weights that were computed."""
        passed = bound.get("edge_index"), bound.get(self.conv.weight)
        traced = [value.node for value in passed if isinstance(value, Traced)]
        name = edges_of(traced[0]) if traced else None
        graphs = [value for value in bound.values() if isinstance(value, RecordingGraph)]
        name = graphs[0].relation if graphs else name
        changed = name in self.recording.edges and name not in self.recording.types.relations
        weight = bound.get(self.conv.weight)
        return changed or (
            isinstance(weight, Traced) and weight.node.edges and not is_weight(weight.node)
        )

    def _check_features(self, x: Any) -> None:
        if x is None and self.recording.types.typed:
            raise self._refuse(
                "is given no features: its node type is not among the graph's, has no features, or"
                f" nothing was computed for it; the graph has {self.recording.types}"
            )
        if isinstance(x, Traced) and x.tape.beside is not None:
            x.tape.beside.check(x.node)
        if not isinstance(x, Traced):
            raise self._refuse(
                "is given features that do not come from the graph's (an embedding table?);"
                " name a table by --table, or give it as the job's features"
            )

    def _traced(self, called: Called, args: Any, kwargs: Any) -> Any:
        """The call recorded by what the module does."""
        instead = respelled(self.recording, self.module) or partial(self.forward, self.module)
        hooked = _hook(self.module, self.recording) if is_message_passing(self.module) else []
        try:
            with self.recording.scopes.within(called):
                return instead(*args, **kwargs)
        finally:
            for module, name in hooked:
                del module.__dict__[name]

    def _run(self, args: Any, kwargs: Any) -> Any:
        """What it gives without the functions that it would apply to the result."""
        saved = {name: getattr(self.module, name) for name in self.conv.after}
        try:
            for name in saved:
                setattr(self.module, name, None)
            return self.forward(self.module, *args, **kwargs)
        finally:
            for name, function in saved.items():
                setattr(self.module, name, function)

    def _check_edges(self, bound: dict[str, Any]) -> tuple[str, bool]:
        """The relation, and whether edge weights are passed; all else but features is refused."""
        relation, own = "", dict[str, str]()
        for name, value in bound.items():
            if name in ("self", self.conv.x, self.conv.earlier, *self.conv.call_options):
                continue
            if isinstance(value, RecordingGraph):
                relation = value.relation
            elif isinstance(value, TogetherGraph):
                raise self._refuse(
                    "is given a graph with all node types together; known on it are RelGraphConv"
                    " and HGTConv: give each relation its own convolution (HeteroGraphConv)"
                )
            elif name == "edge_index":
                relation = self._relation(value)
            elif value is None:
                continue
            elif name == self.conv.weight:
                if not isinstance(value, Traced) or not is_weight(value.node):
                    raise self._refuse("is given edge weights that are not the graph's own")
                own["weights"] = value.node.of
            elif name == self.conv.features:
                own["features"] = value.node.of
            elif isinstance(value, Traced) or value is not False:
                raise self._refuse(f"is given {name}, which is not known here; leave it out")
        for what, of in own.items():
            if of != relation:
                raise self._refuse(f"is given edge {what} of {of}, but edges of {relation}")
        return relation, "weights" in own

    def _relation(self, value: Any) -> str:
        if value is None:
            raise self._refuse(
                f"is given no edges: its relation is not among the graph's; it has"
                f" {self.recording.types}"
            )
        relation = edges_of(value.node) if isinstance(value, Traced) else None
        if relation is None:
            raise self._refuse(other_edges(value))
        if relation == ALL:
            raise self._refuse(
                "is given the edges of all relations together; known with them are RGCNConv and"
                " FastRGCNConv: give it those of one relation"
            )
        return relation

    def _call_options(self, bound: dict[str, Any]) -> dict[str, float]:
        """Options that the call gives: single numbers."""
        options = {}
        for name, reason in self.conv.call_options.items():
            value = bound.get(name)
            if value is None and reason:
                raise self._refuse(f"is not given {name}; {reason}")
            if value is not None:
                numbers = torch.as_tensor(plain(value)).flatten()
                if len(numbers) != 1:
                    raise self._refuse(f"is given {len(numbers)} numbers as {name}; give one")
                options[name] = float(numbers[0])
        return options

    def _refuse(self, what: str) -> Exception:
        return refuse(here(), f"{self.path} ({type(self.module).__name__}) {what}")


def plain_graphs(value: Any) -> Any:
    """Plain tensors and graphs in place of those that record."""
    if isinstance(value, RecordingGraph):
        return value.real
    if type(value) in (tuple, list):
        return type(value)(plain_graphs(item) for item in value)
    if type(value) is dict:
        return {key: plain_graphs(item) for key, item in value.items()}
    return plain(value)
