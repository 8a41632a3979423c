"""What an earlier run has kept of some nodes: their places, and digests of their features."""

from __future__ import annotations

import numpy as np
import torch

from embertide.engine.stages.changes.comparing import Dense, match_ids, tensor_name
from embertide.engine.stages.changes.digests import (
    DIGEST_WORDS,
    FEATURES,
    IDS,
    Rows32,
    digest_values,
)
from embertide.io.versions.layers.seals import Damaged, KeptTensor, Seal
from embertide.io.versions.layers.some_rows import read_some
from embertide.io.versions.layers.store import LayerStore
from embertide.kernels.hashing import Words


def find_before(store: LayerStore, seal: Seal, of_type: str, ids: Words) -> Dense:
    """[n] the dense id that each of some nodes had when ids were kept; -1: it is new.

    Takes 16 bytes for each node that was there.

    Args:
        seal: of the digests.
        ids: [n, 2] digests of the ids of these nodes.

    Raises:
        Damaged: the ids are not there, or are not what was written.
    """
    tensor = kept_tensor(store, seal, tensor_name(IDS, of_type))
    kept = read_rows(store, tensor, np.arange(tensor.rows), DIGEST_WORDS)
    return match_ids(kept.view(np.uint64), ids)


def kept_ids(seal: Seal, of_type: str) -> int:
    """How many nodes of a type there were; 0: their ids were not kept."""
    name = tensor_name(IDS, of_type)
    return next((tensor.rows for tensor in seal.tensors if tensor.name == name), 0)


def count_newer(
    store: LayerStore, seal: Seal, of_type: str, values: torch.Tensor, places: Dense
) -> int:
    """How many rows of features are others than when their digests were kept.

    Args:
        seal: of the digests.
        values: [k, D] the rows.
        places: [k] the dense ids of their nodes then.

    Raises:
        Damaged: the digests are not there, or are not what was written.
    """
    tensor = kept_tensor(store, seal, tensor_name(FEATURES, of_type))
    kept = read_rows(store, tensor, places, DIGEST_WORDS)
    return int((kept != digest_values(values).view(np.int32)).any(axis=1).sum())


def kept_tensor(store: LayerStore, seal: Seal, name: str) -> KeptTensor:
    """A tensor of a record.

    Raises:
        Damaged: it has none of this name.
    """
    for tensor in seal.tensors:
        if tensor.name == name:
            return tensor
    raise Damaged(f"{store.uri}: {name} was not kept")


def read_rows(store: LayerStore, tensor: KeptTensor, places: Dense, width: int) -> Rows32:
    """[k, width] some rows of what was kept as words.

    Args:
        places: [k] dense ids as they were then.

    Raises:
        Damaged: they are not what was written.
    """
    if tensor.dtype != "int32" or tensor.width != width:
        raise Damaged(f"{store.uri}: {tensor.name} is not of such rows")
    out = np.empty((len(places), width), np.int32)
    read_some(store, tensor, places, out)
    return out
