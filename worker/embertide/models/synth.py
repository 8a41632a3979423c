"""Random models of any size, for benchmarks, examples and tests that need no training.

They are stored exactly as the library's modules save theirs, DGL's for one node type and PyG's for
several, so that the same files also load into these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import safetensors.torch
import torch

from embertide.errors import ModelError

if TYPE_CHECKING:
    from embertide.io.storage.protocol import Storage

Conv = Literal["gcn", "sage", "gat", "gatv2", "gin", "dotgat", "sg", "tag", "edge_gat"]


def write_random_model(
    storage: Storage,
    uri: str,
    conv: Conv,
    *,
    layers: int,
    width_in: int,
    hidden: int,
    out: int,
    heads: int = 1,
    edge_features: int = 0,
    seed: int = 0,
) -> None:
    """Write ``model.yaml`` and ``weights.safetensors`` of ``layers`` equal layers to ``uri``.

    ``hidden`` and ``out`` are the columns between and after the layers; with attention they are
    the heads' columns together.

    Raises:
        ModelError: the heads do not divide the columns, or edges have features that the
            convolution does not read, or none where it reads some.
    """
    if (conv == "edge_gat") != (edge_features > 0):
        raise ModelError(
            f"conv {conv} with {edge_features} features of each edge: edge_gat reads some, and no"
            " other convolution does"
        )
    widths = [width_in] + [hidden] * (layers - 1) + [out]
    attention = conv in ("gat", "gatv2", "dotgat", "edge_gat")
    wrong = [width for width in widths[1:] if attention and width % heads]
    if wrong:
        raise ModelError(f"{heads} heads do not divide a width of {wrong[0]} columns")
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}
    for number, (columns, rows) in enumerate(pairwise(widths)):
        for name, shape in _shapes(conv, columns, rows, heads, edge_features).items():
            tensors[f"layers.{number}.{name}"] = _glorot(shape, generator)
    folder = uri.rstrip("/")
    storage.write(f"{folder}/weights.safetensors", safetensors.torch.save(tensors))
    storage.write(f"{folder}/model.yaml", _description(conv, layers, heads).encode())


def write_random_typed_model(
    storage: Storage,
    uri: str,
    relations: Sequence[tuple[str, str, str]],
    widths_in: Mapping[str, int],
    *,
    layers: int,
    hidden: int,
    out: int,
    seed: int = 0,
) -> None:
    """Write a model of PyG's HeteroConv layers to ``uri``: a SAGEConv for every relation.

    Args:
        relations: (source type, name, destination type).
        widths_in: node type -> columns of its features; types without any are not among them, and
            are reached by the first layer.
    """
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}
    lines, have = [], dict(widths_in)
    for number, rows in enumerate([hidden] * (layers - 1) + [out]):
        over = [one for one in relations if one[0] in have]
        for one in over:
            name = f"convs.{number}.convs.<{'___'.join(one)}>"
            shapes = {"lin_l.weight": (rows, have[one[0]]), "lin_l.bias": (rows,)}
            if one[2] in have:
                shapes["lin_r.weight"] = (rows, have[one[2]])
            for part, shape in shapes.items():
                tensors[f"{name}.{part}"] = _glorot(shape, generator)
        activation = ", activation: relu" if number < layers - 1 else ""
        convs = ", ".join(f"{':'.join(one)}: {{conv: sage}}" for one in over)
        lines.append(
            f"  - {{conv: hetero, prefix: convs.{number}, convs: {{{convs}}}{activation}}}\n"
        )
        have = dict.fromkeys((one[2] for one in over), rows)
    text = (
        f"library: pyg\nrelations: [{', '.join(':'.join(one) for one in relations)}]\n"
        f"features: [{', '.join(widths_in)}]\nlayers:\n{''.join(lines)}"
    )
    folder = uri.rstrip("/")
    storage.write(f"{folder}/weights.safetensors", safetensors.torch.save(tensors))
    storage.write(f"{folder}/model.yaml", text.encode())


def _shapes(
    conv: Conv, columns: int, rows: int, heads: int, edge_features: int
) -> dict[str, tuple[int, ...]]:
    """Names and shapes of one layer's parameters, as DGL's module has them."""
    square, vector = (rows, columns), (1, heads, rows // heads)
    match conv:
        case "gcn":
            return {"weight": (columns, rows), "bias": (rows,)}
        case "sage":
            return {"fc_self.weight": square, "fc_self.bias": (rows,), "fc_neigh.weight": square}
        case "gat":
            return {"fc.weight": square, "attn_l": vector, "attn_r": vector, "bias": (rows,)}
        case "edge_gat":
            scores = dict.fromkeys(("attn_l", "attn_r", "attn_edge"), vector)
            moved = {"fc.weight": square, "res_fc.weight": square, "bias": (rows,)}
            return moved | scores | {"fc_edge.weight": (rows, edge_features)}
        case "gatv2":
            ends = {f"fc_{end}.weight": square for end in ("src", "dst")}
            return ends | {"fc_src.bias": (rows,), "fc_dst.bias": (rows,), "attn": vector}
        case "gin":
            first = {"apply_func.0.weight": square, "apply_func.0.bias": (rows,)}
            second = {"apply_func.2.weight": (rows, rows), "apply_func.2.bias": (rows,)}
            return {"eps": (1,)} | first | second
        case "dotgat":
            return {"fc.weight": square}
        case "sg":
            return {"fc.weight": square, "fc.bias": (rows,)}
        case "tag":
            return {"lin.weight": (rows, 3 * columns), "lin.bias": (rows,)}


def _glorot(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Uniform with Glorot's bound; biases are small but not zero, so that they are tested."""
    bound = math.sqrt(6 / sum(shape[-2:])) if len(shape) > 1 else 0.1
    return (torch.rand(shape, generator=generator) * 2 - 1) * bound


def _description(conv: Conv, layers: int, heads: int) -> str:
    options = {
        "gin": ", mlp: [linear, relu, linear]",
        "dotgat": f", num_heads: {heads}",
        "sage": ", aggregator_type: mean",
        "sg": ", k: 2",
    }.get(conv, "")
    attention = ("gat", "gatv2", "dotgat", "edge_gat")
    activation = "elu" if conv in attention else "relu"
    inner = f"  - {{conv: {conv}{options}, activation: {activation}}}\n"
    last = f"  - {{conv: {conv}{options}}}\n"
    return "library: dgl\nlayers:\n" + inner * (layers - 1) + last
