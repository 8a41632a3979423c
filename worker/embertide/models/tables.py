"""Embedding tables of a model: npy files beside its program, a row for each node of a type.

They are read like features, a range of rows by each worker, so this only says which there are;
neither torch nor the rest of the model is loaded for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from embertide.storage.protocol import Storage

PROGRAM_NAME = "program.yaml"


def tables_of(storage: Storage, model: str) -> dict[str, str]:
    """Node type -> URI of its table; the type is "" in a model of one.

    What is wrong with the program is said by those who read all of it.

    Args:
        model: URI of the folder, or of the file in it that says the model.
    """
    file = model if model.endswith((".yaml", ".yml")) else f"{model.rstrip('/')}/{PROGRAM_NAME}"
    if not file.endswith(f"/{PROGRAM_NAME}") or storage.stat(file) is None:
        return {}
    try:
        found: Any = yaml.safe_load(storage.read(file))
        inputs = [one for one in found["inputs"] if one.get("table")]
        return {
            str(one.get("type", "")): f"{file.rsplit('/', 1)[0]}/{one['table']}" for one in inputs
        }
    except (yaml.YAMLError, UnicodeDecodeError, AttributeError, KeyError, TypeError):
        return {}
