"""What to say to fields and convolutions of ``model.yaml`` that do not exist.

The writer of the file has the training script at hand and copies its arguments. Some of those
change nothing at inference, some are in the weights, some are written in another way, and some
are not supported; a suggestion names only what would be accepted at that place.
"""

from __future__ import annotations

import difflib
from typing import Any

from embertide.models.layer import Layer, Library
from embertide.spec.problems import Loc

_EDGE_FEATURES = (
    "is no field of this layer: features of edges are read by PyG's gat, gatv2, transformer and"
    " gine and by DGL's edge_gat and gine"
)
_NO_EFFECT = "has no effect on inference; remove it"
_IN_WEIGHTS = "is read from the weights; remove it"
ARGUMENTS = {
    **dict.fromkeys(("edge_dim", "edge_attr", "edge_feats", "fill_value"), _EDGE_FEATURES),
    **dict.fromkeys(
        ("dropout", "feat_drop", "attn_drop", "edge_drop", "cached", "allow_zero_in_degree"),
        _NO_EFFECT,
    ),
    **dict.fromkeys(
        ("in_channels", "out_channels", "hidden_channels", "in_feats", "out_feats"), _IN_WEIGHTS
    ),
    **dict.fromkeys(
        ("in_features", "out_features", "train_eps", "learn_eps", "init_eps"), _IN_WEIGHTS
    ),
    **dict.fromkeys(
        ("channels", "requires_grad", "init_beta", "learn_beta", "project_initial_features"),
        _IN_WEIGHTS,
    ),
    **dict.fromkeys(
        ("num_relations", "num_rels", "num_blocks", "num_ntypes", "num_etypes"), _IN_WEIGHTS
    ),
    **dict.fromkeys(("in_feat", "out_feat", "in_size", "out_size", "head_size"), _IN_WEIGHTS),
    "is_sorted": _NO_EFFECT,
    "metadata": "is written as relations: [user:buys:item, ...], beside layers",
    **dict.fromkeys(("shared_weights", "num_stacks", "num_nodes", "embedding_dim"), _IN_WEIGHTS),
    "flow": "is set in the job: spec.input.edges has the columns of source and destination",
    "num_layers": "is not a field: every layer is an item of layers; repeat it",
    "act": "is written as activation: relu",
    "act_first": "is written as order: [activation, batch_norm]",
    "v2": "is written as conv: gatv2",
    "jk": "is written as a layer after the last one: {conv: jumping_knowledge, mode: cat}",
}
_CONVS = {
    "sgc": "sg",
    "ssgc": "ssg",
    "gcnii": "gcn2",
    "unimp": "transformer",
    "chebnet": "cheb",
    "jk": "jumping_knowledge",
    "lin": "linear",
    "heterograph": "hetero",
    "to_hetero": "hetero",
    "relgraph": "rgcn",
    "fastrgcn": "rgcn",
}
"""Other names of convolutions, in lower case and without ``conv``."""


def explain_field(kind: type[Layer], name: str) -> str:
    """What is wrong with a field that ``kind`` does not have."""
    if name in ARGUMENTS:
        return ARGUMENTS[name]
    fields = [field for field in kind.model_fields if field not in kind.fixed_fields()]
    near = _near(name, fields, cutoff=0.6)
    hint = f"; did you mean {near!r}? Allowed" if near else "; allowed"
    return f"unknown field{hint}: {', '.join(fields)}"


def explain_value(kind: type[Layer], given: dict[str, Any], place: Loc) -> str:
    """Why an option does not have a value that it has in the library, as an addition; or nothing.

    Args:
        given: the layer as it is in the file.
        place: where in it the problem is.
    """
    if len(place) != 1:
        return ""
    reasons, value = kind.refused.get(str(place[0]), {}), given.get(str(place[0]))
    # Of several aggregators, as PyG takes them, the first that is refused.
    words = map(str, value if isinstance(value, list) else [value])
    why = next((reasons[word] for word in words if word in reasons), "")
    return f" ({why})" if why else ""


def explain_conv(value: object, library: Library, kinds: list[str]) -> str:
    """What is wrong with the value of ``conv``, None where it is missing; ``kinds`` may be."""
    supported = f"for {library} Embertide supports {', '.join(kinds)}"
    if value is None:
        return f"is required; {supported}"
    word = str(value).lower().replace("conv", "").strip("_")
    if library == "dgl" and word == "graph":
        word = "gcn"  # DGL's GraphConv is Kipf's; PyG's is another.
    near = _near(_CONVS.get(word, word), kinds, cutoff=0.7)
    return f"is {value!r}; {supported}" + (f" (did you mean {near!r}?)" if near else "")


def _near(name: str, allowed: list[str], *, cutoff: float) -> str:
    """The allowed word that ``name`` is meant for, or an empty text."""
    plain = {other.replace("_", "").lower(): other for other in allowed}
    same = plain.get(name.replace("_", "").replace("-", "").lower())
    close = difflib.get_close_matches(name, allowed, n=1, cutoff=cutoff)
    return same or next(iter(close), "")
