"""Which parameters belong to which layer, inferred from their names.

Training scripts call their layers ``layers.0``, ``convs.0``, ``conv1``, ``gcn1`` and more. Each
module is known by marks (``attn_l`` is GATConv's alone); the number in its prefix tells its
place. Where that leaves a choice, nothing is guessed: the error lists the candidates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Literal

import torch

from embertide.errors import ModelError
from embertide.models.layer import Layer
from embertide.models.shapes import shape_of
from embertide.models.weights import Scope, Weights

Kind = Literal["linear", "batch_norm", "layer_norm", "graph_norm"]
KINDS: tuple[Kind, ...] = ("linear", "batch_norm", "layer_norm")

_MARKS = {"batch_norm": "running_mean", "layer_norm": "weight [width]", "graph_norm": "mean_scale"}
"""What tells a kind of norm among the weights."""

# Linear layers inside DGL's modules, whose ``weight`` is not GraphConv's.
_INNER = re.compile(r"(^|\.)(fc|fc_\w+|res_fc|apply_func(\..+)?|norm|(batch|layer)_norm)$")


def find_prefixes(layers: tuple[Layer, ...], library: str, weights: Weights) -> list[str]:
    """The parameter prefix of every layer; raises ModelError where names leave a choice."""
    given = {layer.prefix for layer in layers if layer.prefix is not None}
    parts = {prefix for layer in layers for prefix in layer.part_prefixes()}
    parts |= {layer.prefix for layer in layers if layer.prefix and not layer.reads_edges}
    shapes = _unclaimed(weights.found, parts)
    wanted = [
        number
        for number, layer in enumerate(layers)
        if layer.prefix is None and layer.stores_parameters()
    ]
    per_layer = {
        number: _candidates(layers[number], library, shapes) - given - parts for number in wanted
    }
    found = _in_order(
        [per_layer[number] for number in wanted],
        lambda: _explain(layers, wanted, per_layer, weights),
    )
    chosen = dict(zip(wanted, found, strict=True))
    return [
        layer.prefix if layer.prefix is not None else chosen.get(number, "")
        for number, layer in enumerate(layers)
    ]


def _unclaimed(tensors: dict[str, torch.Tensor], prefixes: set[str]) -> dict[str, torch.Tensor]:
    """What does not lie below one of the prefixes; an empty one claims nothing."""
    heads = tuple(f"{prefix}." for prefix in prefixes if prefix)
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(heads)}


def stored_norm(prefix: str, tensors: dict[str, torch.Tensor]) -> str:
    """Where a norm's parameters are: PyG's BatchNorm keeps them in a submodule, ``module``."""
    inner = f"{prefix}.module"
    if f"{prefix}.running_mean" not in tensors and f"{inner}.running_mean" in tensors:
        return inner
    return prefix


def find_norms(
    kind: Kind, numbers: list[int], convs: list[str], weights: Weights, used: set[str]
) -> dict[int, str]:
    """The prefixes of the norms of layers ``numbers`` that do not give one.

    A norm may be the convolution's own (``layers.0.norm``) or stand beside it (``norms.0``).
    """
    free = _norms(kind, weights.found) - used
    own = {
        number: f"{convs[number]}.{name}"
        for number in numbers
        for name in ("norm", kind)
        if f"{convs[number]}.{name}" in free
    }
    rest = [number for number in numbers if number not in own]
    # Norms below a convolution belong to its function (GIN's).
    beside = {name for name in free if not any(c and name.startswith(c + ".") for c in convs)}

    def explain() -> str:
        places = ", ".join(map(str, rest))
        return (
            f"cannot tell which {kind} belongs to which layer: {_count(rest, 'layer')}"
            f" ({places}) with {kind}: true, and {weights.source} holds"
            f" {_count(beside, 'candidate')}: {', '.join(_sorted(beside)) or 'none'};"
            f" write {kind}: {{prefix: ...}}\n"
            f"expected: <prefix>.{_MARKS[kind]};"
            f" found in the weights:\n{_listing(weights)}"
        )

    return own | dict(zip(rest, _in_order([beside] * len(rest), explain), strict=True))


def _in_order(candidates: list[set[str]], explain: Callable[[], str]) -> list[str]:
    """One prefix for each layer: as many as layers, distinguished by their numbers."""
    names = _sorted(set().union(*candidates))
    numbers = {numbers_of(name) for name in names}
    clear = len(names) <= 1 or (len(numbers) == len(names) and len(set(map(len, numbers))) == 1)
    fits = len(names) == len(candidates) and all(
        name in allowed for name, allowed in zip(names, candidates, strict=True)
    )
    if not (clear and fits):
        raise ModelError(explain())
    return names


def _candidates(layer: Layer, library: str, tensors: dict[str, torch.Tensor]) -> set[str]:
    if getattr(layer, "weight", True) is False:
        return {n.removesuffix("bias").removesuffix(".") for n in tensors if _is_bias(n)}
    found = layer.found_in(tensors)
    if library == "dgl" and layer.conv == "gcn":
        return {p for p in found if not _INNER.search(p) and _is_graph_conv(p, tensors)}
    if library == "pyg" and layer.conv == "gcn":
        # A Linear called lin beside the convolutions; GCNConv's own has no bias.
        return {p for p in found if _join(p, "lin.bias") not in tensors}
    return found


def _is_bias(name: str) -> bool:
    return name == "bias" or name.endswith(".bias")


def _is_graph_conv(prefix: str, tensors: dict[str, torch.Tensor]) -> bool:
    """GraphConv's weight is [in, out], Linear's [out, in]: the bias tells them apart."""
    weight, bias = tensors[_join(prefix, "weight")], tensors.get(_join(prefix, "bias"))
    if weight.dim() != 2:
        return False
    rows, columns = weight.shape
    return bias is None or rows == columns or list(bias.shape) != [rows]


def _norms(kind: Kind, tensors: dict[str, torch.Tensor]) -> set[str]:
    batch = {n.removesuffix(".running_mean") for n in tensors if n.endswith(".running_mean")}
    graph = {name.removesuffix(".mean_scale") for name in tensors if name.endswith(".mean_scale")}
    if kind != "layer_norm":
        return batch if kind == "batch_norm" else graph
    flat = {
        name.removesuffix(".weight")
        for name, tensor in tensors.items()
        if name.endswith(".weight") and tensor.dim() == 1
    }
    return flat - batch - graph


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def modules_of(kind: Kind, s: Scope) -> list[str]:
    """Names below a scope's prefix that hold modules of this kind, by their numbers."""
    start = s.name("")
    below = {n.removeprefix(start): t for n, t in s.weights.found.items() if n.startswith(start)}
    if kind != "linear":
        return _sorted(_norms(kind, below))
    return _sorted(
        name.removesuffix(".weight")
        for name, tensor in below.items()
        if name.endswith(".weight") and tensor.dim() == 2
    )


def numbers_of(name: str) -> tuple[int, ...]:
    """All numbers in a name, which tell its place."""
    return tuple(int(digits) for digits in re.findall(r"\d+", name))


def _sorted(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (numbers_of(name), name))


def _count(things: list[int] | set[str], word: str) -> str:
    return f"{len(things)} {word}" + ("" if len(things) == 1 else "s")


def _explain(
    layers: tuple[Layer, ...],
    wanted: list[int],
    per_layer: dict[int, set[str]],
    weights: Weights,
) -> str:
    lines = [
        f"cannot tell which parameters of {weights.source} belong to which layer;"
        " give the layers a prefix (prefix: convs.0). A Linear that the embeddings pass through is"
        " a layer of its own ({conv: linear, prefix: ...}); what they do not pass through, such as"
        " a decoder, is left out by ignore: [decoder.*].",
        "expected by model.yaml:",
    ]
    for number in wanted:
        marks = " or ".join(f"<prefix>.{mark}" for mark in layers[number].known_by())
        names = ", ".join(name or "'' (no prefix)" for name in _sorted(per_layer[number]))
        lines.append(
            f"  layer {number} ({layers[number].conv}): {marks}; candidates: {names or 'none'}"
        )
    return "\n".join([*lines, "found in the weights:", _listing(weights)])


def _listing(weights: Weights) -> str:
    return "\n".join(f"  {name} {shape_of(tensor)}" for name, tensor in weights.found.items())
