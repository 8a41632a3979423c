"""What parameters that nothing asked for look like, and what leaving them out would mean.

`ignore` is the remedy that is always at hand and seldom the right one: leaving out a Linear or a
norm that the embeddings pass through publishes another tensor than the model's, and nothing tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import torch

from embertide.models.shapes import shape_of

Module = dict[str, torch.Tensor]
"""The parameters of one module, by their last names."""

_IGNORE = (
    "ignore: [pattern, ...] leaves parameters out: right for what the embeddings do not pass"
    " through (a decoder, a loss), wrong for anything else, as other embeddings than the model's"
    " would be published"
)
_TABLE_ROWS = 16
"""A matrix with this many times more rows than columns is an embedding table, not a Linear."""


@dataclass(frozen=True)
class ReadLayer:
    """A layer as far as it could be read: its prefix (or ""), label and columns (0: unknown).

    ``containers`` are the names below the prefix under which it has a module for each relation.
    """

    prefix: str
    label: str
    width: int
    containers: tuple[str, ...] = ()

    def owns(self, module: str) -> bool:
        """Whether a stored module lies below the layer's own."""
        return self.prefix != "" and module.startswith(f"{self.prefix}.")

    def relation_module(self, module: str) -> str:
        """The module of a relation that a stored module belongs to; empty for any other."""
        for container in self.containers:
            start = f"{self.prefix}.{container}." if self.prefix else f"{container}."
            if module.startswith(start):
                return start + module.removeprefix(start).partition(".")[0]
        return ""


def explain_leftovers(left: dict[str, torch.Tensor], layers: list[ReadLayer]) -> list[str]:
    """One sentence for each module that can be recognised, then what `ignore` means.

    ``left`` are the stored parameters that no layer asked for.
    """
    if not left:
        return []
    modules: dict[str, Module] = {}
    for name, tensor in left.items():
        prefix, _, short = name.rpartition(".")
        modules.setdefault(prefix, {})[short] = tensor
    hints = [
        _of_relation(prefix, layers) or _explain(prefix, module, layers)
        for prefix, module in modules.items()
    ]
    return [*dict.fromkeys(filter(None, hints)), _IGNORE]


def _of_relation(prefix: str, layers: list[ReadLayer]) -> str:
    """The relation that a layer has a module for and does not list."""
    for layer in layers:
        module = layer.relation_module(prefix)
        if module:
            return (
                f"{module} is the module of a relation that {layer.label} does not read as it is"
                " described: add the relation there, or correct its convolution"
            )
    return ""


def _explain(prefix: str, module: Module, layers: list[ReadLayer]) -> str:
    """What one module looks like and how it is written; empty where it looks like nothing known."""
    weight, bias = module.get("weight"), module.get("bias")
    if "running_mean" in module:
        return _norm(prefix, "batch_norm", len(module["running_mean"]))
    if "mean_scale" in module:
        return _norm(prefix, "graph_norm", len(module["mean_scale"]))
    if any(name.startswith("weight_hh") for name in module):
        inner = prefix.rpartition(".")[0]
        return (
            f"{prefix} looks like a recurrent network: JumpingKnowledge's is"
            f" {{conv: jumping_knowledge, mode: lstm, prefix: {inner}}}, SAGEConv's lstm is not"
            " supported, and without it the embeddings are not the model's"
        )
    if weight is None or prefix.endswith("lin_edge"):
        return ""
    if weight.dim() == 1:
        if bias is not None and bias.shape == weight.shape:
            return _norm(prefix, "layer_norm", len(weight)) + (
                " (with mode: graph if it is PyG's LayerNorm without mode: there it is the default)"
            )
        return (
            f"{prefix}.weight {shape_of(weight)} looks like the slopes of a PReLU; the layer before"
            f" it says activation: {{kind: prelu, prefix: {prefix}}}"
        )
    if weight.dim() != 2:
        return ""
    if bias is None and _is_table(prefix, weight):
        return _table(prefix, weight)
    if bias is None or list(bias.shape) == [len(weight)]:
        owner = next((layer for layer in layers if layer.owns(prefix)), None)
        if owner is not None:
            return f"{prefix} belongs to {owner.label}, which does not read it as it is described"
        return _linear(prefix, weight, bias, [layer.width for layer in layers])
    return ""


def _norm(prefix: str, kind: str, columns: int) -> str:
    shown = prefix.removesuffix(".module")
    return (
        f"{shown} looks like a {kind.replace('_', ' ')} over {columns} columns; the layer before it"
        f" says {kind}: {{prefix: {shown}}}. Left out, the embeddings are not the model's"
    )


def _is_table(prefix: str, weight: torch.Tensor) -> bool:
    rows, columns = weight.shape
    return "emb" in prefix.lower() or rows >= _TABLE_ROWS * columns


def _table(prefix: str, weight: torch.Tensor) -> str:
    rows, columns = weight.shape
    return (
        f"{prefix}.weight {shape_of(weight)} looks like an embedding table, {columns} columns for"
        f" each of {rows} nodes. Where the model takes it as features, give it as such: write the"
        f" table to a file that input.nodes.features names, and then ignore: [{prefix}.weight] is"
        " right. Added or joined within the model, it is not supported"
    )


def _linear(prefix: str, weight: torch.Tensor, bias: torch.Tensor | None, widths: list[int]) -> str:
    rows, columns = weight.shape
    bare = "" if bias is not None else ", bias: false"
    hint = (
        f"{prefix} looks like a Linear{'' if bias is not None else ' without bias'} from {columns}"
        f" to {rows} columns. If the embeddings pass through it, write it as a layer at its place:"
        f" {{conv: linear, prefix: {prefix}{bare}}}; if a layer adds its result, as"
        f" skip: {{linear: {prefix}}}"
    )
    joined = _joined(widths, columns)
    if joined:
        hint += (
            f". Its {columns} columns are those of {joined} together: before it stands"
            " {conv: jumping_knowledge, mode: cat}"
        )
    return hint


def _joined(widths: list[int], columns: int) -> str:
    """Which of the last layers have that many columns together, if it is more than one."""
    totals = list(accumulate(reversed(widths)))
    if all(widths) and columns in totals[1:]:
        first = len(widths) - 1 - totals.index(columns)
        return f"layers {first} to {len(widths) - 1}"
    return ""
