"""How old the inputs of a run are."""

from __future__ import annotations

import time

from embertide.engine.planning.inputs import Inputs
from embertide.errors import ObjectMissing
from embertide.io.storage.protocol import Storage

_KINDS = ("edges", "features", "ids", "nodes")


def input_age(storage: Storage, inputs: Inputs) -> float | None:
    """Seconds since the newest object of edges, features and nodes was written.

    None where that is not known.
    """
    read = {item["uri"] for item in inputs.objects() if item["kind"] in _KINDS}
    newest = 0.0
    for uri in inputs.listings:
        try:
            objects = storage.scan(uri).objects
        except ObjectMissing:
            continue  # An optional input.
        newest = max([newest, *(info.modified for info in objects if info.uri in read)])
    return max(0.0, time.time() - newest) if newest else None
