"""Names of results: what a model gives for the nodes of one type.

Most models give one tensor for each node type, which has no name of its own. A model with several
results names each: ``hidden``, ``logits``. A *key* identifies a result among all of a model by node
type and name: ``author`` or ``author/logits``, in a graph of one type ``""`` or ``/logits``. A
*label* is the same for people and paths: ``author``, ``author/logits``, ``logits``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

UNNAMED = "embedding"
"""What ``output.results`` calls the result of a model that names none."""
RESULT_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9_])?$"
"""The form of a result's name, which is also the name of a folder."""
_BETWEEN = "/"
"""No name of a node type or of a result has it."""


def result_key(node_type: str, name: str = "") -> str:
    """The key of a result; the node type is "" in a graph of one."""
    return f"{node_type}{_BETWEEN}{name}" if name else node_type


def node_type_of(key: str) -> str:
    """The node type that a result belongs to."""
    return key.partition(_BETWEEN)[0]


def name_of(key: str) -> str:
    """The name of a result; "" where the model does not name it."""
    return key.partition(_BETWEEN)[2]


def label_of(key: str) -> str:
    """The result as messages and paths have it; "" for the only one of the only node type."""
    return key.lstrip(_BETWEEN)


def names_in(keys: Iterable[str]) -> list[str]:
    """The names of some results, each once, in their order; [] where they have none."""
    return [name for name in dict.fromkeys(map(name_of, keys)) if name]


def manifest_results(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Key -> what a version's manifest has of the result: rows, dim, parts and more.

    Raises:
        KeyError, AttributeError, TypeError: the manifest is damaged.
    """
    found = {}
    for node_type, entry in manifest.get("types", {"": manifest}).items():
        for name, result in entry.get("results", {"": entry}).items():
            found[result_key(node_type, name)] = result
    return found
