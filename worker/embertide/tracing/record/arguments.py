"""What ``forward`` is called with: each argument's role comes from its name, or from the user."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

from torch import nn

from embertide.errors import ModelError

ROLES = (
    *("x", "node_id", "edge_index", "edge_weight", "edge_features"),
    *("edge_type", "node_type", "norm", "graph", "blocks", "data", "adjacency", "batch"),
)
"""What an argument may be; ``data`` is PyG's, ``graph`` and ``blocks`` are DGL's.

``x`` and what edges have are dicts by type in a graph with types; ``node_id`` are the nodes'
numbers, which name the rows of an embedding table; ``edge_weight`` is one number for each edge,
``edge_features`` are several columns. Where all types come together ``edge_type`` is the number of
each edge's relation, ``node_type`` that of each node's type, and ``norm`` one divided by the
in-edges along the relation. ``adjacency`` is torch's sparse matrix of edges' weights.
``batch`` and ``batch_size`` are None, as PyG has them where all nodes are of one graph.
"""
_BY_TYPE = "_dict"
"""What PyG's examples add to the name of such an argument."""

PLAIN_WEIGHTS = ("edge_weight", "edge_weights", "eweight", "w", "weight", "weights")
"""Names that mean one number for each edge, whatever else edges have."""
_NAMES = {
    **dict.fromkeys(("x", "h", "feat", "feats", "feature", "features"), "x"),
    **dict.fromkeys(("in_feat", "in_feats", "input", "inputs", "n_feat"), "x"),
    **dict.fromkeys(("node_feat", "node_feats", "node_features", "nfeat", "nfeats"), "x"),
    **dict.fromkeys(("node_id", "node_ids", "n_id", "n_ids", "nid", "nids", "node_idx"), "node_id"),
    **dict.fromkeys(("edge_index", "adj", "adj_t", "edges"), "edge_index"),
    **dict.fromkeys(PLAIN_WEIGHTS, "edge_weight"),
    **dict.fromkeys(("edge_feat", "edge_feats", "edge_feature", "edge_features"), "edge_features"),
    **dict.fromkeys(("e_feat", "e_feats", "efeat", "efeats", "edge_attrs"), "edge_features"),
    "edge_attr": "edge_features",
    **dict.fromkeys(("g", "hg", "graph", "dgl_graph", "block"), "graph"),
    **dict.fromkeys(("blocks", "mfgs", "bipartites"), "blocks"),
    **dict.fromkeys(("edge_type", "edge_types", "rel_type", "etype", "etypes"), "edge_type"),
    **dict.fromkeys(("node_type", "node_types", "ntype", "ntypes"), "node_type"),
    **dict.fromkeys(("batch", "batch_size"), "batch"),
    "norm": "norm",
    "data": "data",
}


def roles_of(
    module: nn.Module,
    stated: Mapping[str, str],
    *,
    tables: bool = False,
    edge_features: bool = False,
) -> dict[str, str]:
    """Name of each argument of ``forward`` that is passed -> its role.

    A graph of DGL's that the module keeps is passed as well, in its attribute (``self.g``), where
    ``forward`` takes none. PyG's ``edge_attr`` are features where edges have some, else weights.

    Args:
        tables: the module has its own features, so that it need not take any.
        edge_features: the graph's edges have features.

    Raises:
        ModelError: an argument without a default has no known role, there is none for the
            features or none for the graph, or the module keeps several graphs.
    """
    kind = type(module).__name__
    parameters = arguments_of(module)
    for name, role in stated.items():
        if name not in parameters or role not in ROLES:
            raise ModelError(
                f"--inputs says {name}: {role}; {kind}.forward has {', '.join(parameters)}, and a"
                f" role is one of {', '.join(ROLES)}"
            )
    roles: dict[str, str] = {}
    suggested = suggested_roles(module, stated, edge_features=edge_features)
    for name, required in parameters.items():
        known = suggested[name]
        if known == "batch" and not (required or name in stated):
            continue
        if known == "edge_features" and not edge_features:
            if required or name in stated:
                raise ModelError(
                    f"{kind}.forward takes {name}, but it is not known how many features"
                    " edges have; state it with --edge-features, or with --graph where the graph"
                    " has types"
                )
            continue
        if known == "norm" and name not in stated and not _numbers(parameters):
            known = None
        if known == "node_id" and not tables:
            if required or name in stated:
                raise ModelError(
                    f"{kind}.forward takes {name}, the nodes' numbers, but no embedding table whose"
                    " rows they name; name the nn.Embedding that reads them by --table"
                )
            continue
        if known is not None and (known not in roles.values() or known == "batch"):
            roles[name] = known
        elif known is not None and (required or name in stated):
            raise ModelError(_taken(kind, name, known, roles))
        elif required:
            raise ModelError(_unknown(kind, name))
    if not {"graph", "blocks"} & set(roles.values()):
        roles |= dict.fromkeys(kept_graphs(module), "graph")
    used = set(roles.values())
    features = tables or bool(used & {"x", "data", "graph"})
    graph = tables or bool(used & {"edge_index", "graph", "blocks", "data", "adjacency"})
    if type(module).forward is nn.Module.forward and "forward" not in vars(module):
        raise ModelError(
            f"{kind} has no forward; name a method of it that gives the embeddings, by"
            " FILE.py:NAME.METHOD, such as models.py:Net.encode"
        )
    if not parameters and list(_more(module)):
        raise ModelError(
            f"{kind}.forward takes {', '.join(_more(module))}, which do not show what they are;"
            " name the part or the method that it passes them to, by FILE.py:NAME.PART or"
            " FILE.py:NAME.METHOD, such as models.py:Net.encoder"
        )
    if not features or not graph:
        raise ModelError(
            f"{kind}.forward has {', '.join(parameters) or 'no arguments'}; it must take the"
            " features and the graph, such as forward(x, edge_index) or forward(g, x); an embedding"
            f" table that takes the features' place is named by --table{_such_as(module)}, a method"
            " that does it by FILE.py:NAME.METHOD"
        )
    return roles


def suggested_roles(
    module: nn.Module, stated: Mapping[str, str], *, edge_features: bool = False
) -> dict[str, str | None]:
    """Name of each argument of ``forward`` -> the role that the user or its name states, or None.

    Two arguments may have one role, and one that is required may have none; `roles_of` checks that.
    """
    names = arguments_of(module)
    roles = {name: stated.get(name) or _role(name, edge_features) for name in names}
    return {name: role if role in ROLES else None for name, role in roles.items()}


KEPT = "self."
"""How the name of an attribute begins."""


def kept_graphs(module: nn.Module) -> list[str]:
    """The attributes that hold a graph of DGL's, as ``self.g = g`` in a constructor makes.

    Raises:
        ModelError: they hold different graphs, such as a graph and its line graph.
    """
    kept = {
        f"{KEPT}{path}{'.' if path else ''}{name}": value
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if _is_graph(value)
    }
    if len({id(graph) for graph in kept.values()}) > 1:
        raise ModelError(
            f"{type(module).__name__} keeps different graphs, {' and '.join(kept)}; a job has one:"
            " make them of it in forward, or keep that one alone"
        )
    return list(kept)


@contextmanager
def keeping(module: nn.Module, kept: Mapping[str, Any]) -> Iterator[None]:
    """A module with other values in attributes, by their names: ``self.g``, ``self.conv.g``."""
    before = []
    for name, value in kept.items():
        path, _, attribute = name.removeprefix(KEPT).rpartition(".")
        attributes = vars(module.get_submodule(path))
        before.append((attributes, attribute, attributes[attribute]))
        attributes[attribute] = value
    try:
        yield
    finally:
        for attributes, attribute, value in before:
            attributes[attribute] = value


def _is_graph(value: object) -> bool:
    return any(
        kind.__name__ == "DGLGraph" and kind.__module__.partition(".")[0] == "dgl"
        for kind in type(value).__mro__
    )


def _such_as(module: nn.Module) -> str:
    """An example of a table of the module's own, if it has one."""
    names = [
        name for name, part in module.named_modules() if isinstance(part, nn.Embedding) and name
    ]
    return f" (--table {names[0]})" if names else ""


def _unknown(kind: str, name: str) -> str:
    """The message for an argument that must be passed and has no known role."""
    text = f"{kind}.forward needs {name}, "
    if name in _OF_PAIRS:
        return (
            f"{text}which are pairs of nodes to score; a model here gives embeddings of nodes: name"
            " the method that does by FILE.py:NAME.METHOD, such as models.py:Net.encode, and score"
            " pairs of what is published"
        )
    return (
        f"{text}and its name does not show what it is; state it with --inputs"
        f" '{{\"{name}\": ROLE}}', where ROLE is one of {', '.join(ROLES)}, or give it a default."
        " Further columns of the nodes belong to x: take them apart in forward (x[:, 16:])"
    )


_OF_PAIRS = (
    "edge_label_index",
    "pos_edge_index",
    "neg_edge_index",
    "pairs",
    "pos_edges",
    "neg_edges",
)


def _taken(kind: str, name: str, role: str, taken: Mapping[str, str]) -> str:
    """The message for a role that another argument has."""
    other = next(argument for argument, has in taken.items() if has == role)
    return (
        f"{kind}.forward takes {other} and {name}, and both are the job's {role}; a job has one"
        " such tensor: take the columns of both in one argument and cut them apart in forward"
        " (x[:, :16]), say with --inputs if one of them is something else, or give it a default"
    )


def left_out(module: nn.Module, roles: Mapping[str, str]) -> tuple[str, ...]:
    """Arguments of ``forward`` that are not passed, so that their defaults hold."""
    named = [name for name in arguments_of(module) if name not in roles]
    return (*named, *_more(module))


def _numbers(names: Iterable[str]) -> bool:
    """Whether one of some arguments has relations' numbers."""
    return any(_role(name, False) == "edge_type" for name in names)


def takes_edge_features(module: nn.Module, stated: Mapping[str, str]) -> bool:
    """Whether edges' features can reach ``forward``, by an argument or with the graph."""
    wanted = ("edge_features", "graph", "blocks", "data")
    names = arguments_of(module)
    return any((stated.get(name) or _role(name, True)) in wanted for name in names)


def _role(name: str, edge_features: bool) -> str | None:
    """What an argument is by its name."""
    plain = name.lower().removesuffix(_BY_TYPE)
    if plain == "edge_attr" and not edge_features:
        return "edge_weight"
    return _NAMES.get(plain)


def is_by_type(module: nn.Module) -> bool:
    """Whether names of arguments show that they are dicts by type."""
    return any(name.endswith(_BY_TYPE) for name in arguments_of(module))


def _more(module: nn.Module) -> Iterator[str]:
    """``*args`` and ``**kwargs`` of ``forward``, which get nothing."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    for name, parameter in inspect.signature(module.forward).parameters.items():
        if parameter.kind in stars and not hasattr(
            getattr(module, "signature", None), "param_dict"
        ):
            yield stars[parameter.kind] + name


def as_called(
    module: nn.Module, given: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Arguments by position and by keyword, as hooks get them from code that calls a module.

    Those without a default are given by position.
    """
    if hasattr(getattr(module, "signature", None), "param_dict"):
        return list(given.values()), {}
    # Not that of the instance, whose place a record may have taken.
    _, *parameters = inspect.signature(type(module).forward).parameters.values()
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    first = takewhile(
        lambda one: one.kind is kind and one.default is one.empty and one.name in given, parameters
    )
    names = [one.name for one in first]
    return [given[name] for name in names], {
        name: value for name, value in given.items() if name not in names
    }


def arguments_of(module: nn.Module) -> dict[str, bool]:
    """Arguments of ``forward`` and whether each must be given."""
    # PyG's Sequential lists its arguments itself.
    signature: Any = getattr(module, "signature", None)
    if hasattr(signature, "param_dict"):
        return dict.fromkeys(signature.param_dict, True)
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {
        name: parameter.default is parameter.empty
        for name, parameter in inspect.signature(module.forward).parameters.items()
        if parameter.kind in kinds
    }
