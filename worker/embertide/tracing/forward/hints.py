"""What an error of a module's own ``forward`` may come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from embertide.tracing.categories import form_of_categories
from embertide.tracing.dgl.frames import Field
from embertide.tracing.record.arguments import PLAIN_WEIGHTS
from embertide.tracing.record.graphs import GraphTypes
from embertide.tracing.record.tables import Tables, columns_of


def hint(
    module: nn.Module,
    roles: Mapping[str, str],
    tables: Tables,
    types: GraphTypes,
    graph: Any,
    error: Exception,
) -> str:
    """A remark in brackets for the error's message, or "".

    Args:
        roles: argument of ``forward`` -> role.
        tables: of each node type that has some.
        graph: of DGL's, which records.
    """
    if not types.edge_features and "data" in roles.values() and "NoneType" in str(error):
        return " (edge_attr is None; --edge-features says how many features edges have)"
    if "batch" in roles.values() and "NoneType" in str(error):
        return (
            " (batch is None, as PyG has it where all nodes are of one graph; where forward needs"
            " it otherwise, do without: a method without it, named by FILE.py:NAME.METHOD)"
        )
    if any(word in str(error) for word in _OF_CATEGORIES):
        form = form_of_categories(list(types.nodes))
        edges = form_of_categories(types.relations)
        return (
            " (features are random numbers here, of any size and sign; where a column has"
            " categories, whole numbers from 0, say how many, by the number of the column, with"
            f" --categories '{form}', or --edge-categories '{edges}')"
        )
    if tables and "x" in roles.values() and not types.typed:
        names = ", ".join(table.name for table in tables[""])
        if types.nodes[""] == columns_of(tables[""]):
            return f" (x are the nodes' numbers here, since {names} takes the features' place)"
    if isinstance(error, AttributeError) and not types.typed and _asks_a_dict(str(error)):
        return (
            " (x is one tensor here; where it is a dict by node type, name the node types and"
            " relations with --graph)"
        )
    if isinstance(error, AttributeError) and str(error).endswith(("'node_id'", "'n_id'")):
        return " (the nodes' numbers name the rows of an embedding table; name it by --table)"
    if not isinstance(error, RuntimeError | ValueError | AssertionError):
        return ""
    rows = _with_rows(module, str(error))
    if rows:
        return (
            f" ({rows} has as many rows; if they are those of one graph's nodes, an embedding table"
            " is named by --table, and all else belongs to the features)"
        )
    if "split_with_sizes" in str(error):
        return (
            " (how many rows a split gives differs by graph; return the rows of all nodes in one"
            " tensor, of which the users of a recommender are the first)"
        )
    if types.typed:
        return f" (--graph gives {types})"
    return _of_edges(roles, types, graph)


def _asks_a_dict(text: str) -> bool:
    return any(text.endswith(f"'Tensor' object has no attribute '{name}'") for name in _OF_DICTS)


_OF_CATEGORIES = (
    *("index out of range in self", "Class values must be"),
    *("to have one of the following scalar types: Long", "one_hot is only applicable to index"),
)
_OF_DICTS = ("items", "keys", "values", "get")


def _with_rows(module: nn.Module, text: str) -> str:
    """A parameter or buffer whose rows an error says to be too many or too few."""
    if "non-singleton dimension 0" not in text and "Sizes of tensors must match" not in text:
        return ""
    both: tuple[tuple[str, Tensor], ...] = (*module.named_parameters(), *module.named_buffers())
    words = text.replace("(", " ").replace(")", " ").replace(".", " ").split()
    return next((name for name, tensor in both if tensor.dim() and str(len(tensor)) in words), "")


def _of_edges(roles: Mapping[str, str], types: GraphTypes, graph: Any) -> str:
    if types.edge_features:
        return (
            f" (each edge has {types.edge_features['']} features; --edge-features says another"
            " number)"
        )
    fields: Mapping[Field, str] = getattr(graph, "fields", {})
    read = [name for (kind, _), name in fields.items() if kind == "edge_weight"]
    named = [name for name, role in roles.items() if role == "edge_weight"]
    known = [name for name in (*read, *named) if name not in PLAIN_WEIGHTS]
    if not known:
        return ""
    return (
        f" ({known[0]} is one number for each edge; --edge-features says how many features edges"
        " have)"
    )
