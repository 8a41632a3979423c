"""Calls of layers over several relations that are known as a whole.

A call becomes a node for each node type of its result; their steps are those of ``model.yaml``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from embertide.models.kinds import KNOWN_TYPED
from embertide.models.layer import Library
from embertide.tracing.record.recording import Recording


def record_whole(
    recording: Recording,
    m: Any,
    library: Library,
    relations: Sequence[str],
    x: Mapping[str, Any],
    values: Mapping[str, Tensor],
    *,
    weighted: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """A call of a module, recorded; node type -> its result.

    Args:
        relations: in the order of weights that are numbered by relation.
        x: node type -> the rows that the module is given.
        values: node type -> what the module gives.
        weighted: whether it is given edge weights.
        options: those that the call has, not the module.
    """
    layer = KNOWN_TYPED[library][type(m).__name__].options_of(m, weighted, False, **options)
    tape, scope, types = recording.tape, recording.scopes.current(), recording.types
    results = {}
    for name, value in values.items():
        read = {
            name,
            *(types.ends(along)[0] for along in relations if types.ends(along)[1] == name),
        }
        # Of the others, which this result does not need, the columns alone.
        rows = {of: own if of in read else own.shape[1] for of, own in x.items()}
        args = scope, m, layer, tuple(relations), rows, name
        results[name] = tape.wrap(tape.add("layer", args, {}, value, name))
    return results
