"""Nodes by the rank that owns them, and where their features are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from embertide.kernels import memory, native


def split_by_owner(
    nodes: torch.Tensor, bounds: tuple[int, ...]
) -> tuple[torch.Tensor, list[int], torch.Tensor]:
    """Order node ids by owning range.

    Args:
        nodes: [k] int64 or int32, on the CPU, within the ranges.
        bounds: range i is ``bounds[i]..bounds[i + 1]``.

    Returns:
        order [k] int64 (stable), how many each range owns, and the row within its owner [k] int64,
        ordered.
    """
    owners = len(bounds) - 1
    if owners == 1:
        return torch.arange(len(nodes)), [len(nodes)], nodes.to(torch.int64) - bounds[0]
    if native.lib is not None:
        order = torch.empty(len(nodes), dtype=torch.int64)
        rows = torch.empty_like(order)
        cuts = np.array(bounds, np.int64)
        counts = native.lib.split_by_owner(nodes.contiguous(), cuts, order, rows)
        return order, counts, rows
    owner = np.searchsorted(np.array(bounds), nodes.numpy(), side="right") - 1
    # numpy sorts 16-bit keys by radix.
    owner = owner.astype(np.uint16) if owners < 2**16 else owner
    order = torch.from_numpy(np.argsort(owner, kind="stable"))
    held = np.bincount(owner, minlength=owners)
    starts = torch.from_numpy(np.repeat(np.array(bounds[:-1]), held))
    return order, held.tolist(), nodes[order] - starts


def place_locations(locations: torch.Tensor, pairs: torch.Tensor, rank: int) -> None:
    """Set (rank, place) for every pair of a row and its place.

    Args:
        locations: [rows, 2]; the rank is -1 before a row's first pair and becomes -2 at its second.
        pairs: [k, 2] row and place, of the same integers, on the CPU.
    """
    if native.lib is not None:
        native.lib.place_locations(locations.view(-1), pairs.contiguous().view(-1), rank)
        return
    rows, places = pairs[:, 0].long(), pairs[:, 1]
    seen, repeats = torch.unique(rows, return_counts=True)
    twice = seen[(repeats > 1) | (locations[seen, 0] != -1)]
    locations[rows, 0], locations[rows, 1] = rank, places
    locations[twice, 0] = -2


def place_in_order(locations: torch.Tensor, nodes: torch.Tensor, rank: int) -> None:
    """Set (rank, i) for the i-th of some nodes, as :func:`place_locations` does but in any order.

    Args:
        nodes: [k] int64 rows of ``locations``, on the CPU.
    """
    if native.lib is not None:
        native.lib.place_in_order(locations.view(-1), nodes, rank)
        return
    pairs = torch.stack([nodes, torch.arange(len(nodes))], 1)
    place_locations(locations, pairs.to(locations.dtype), rank)


def place_sequence(locations: torch.Tensor, nodes: torch.Tensor, rank: int) -> bool:
    """Set (rank, i) in row i if the nodes are 0, 1, 2 and so on, one for each row.

    Unlike :func:`place_in_order` it needs no locations cleared before, nor looked through after.

    Args:
        locations: [rows, 2], anything before; afterwards, too, where the result is False.
        nodes: [k] int64, on the CPU.

    Returns:
        Whether they are.
    """
    if native.lib is not None:
        return bool(native.lib.place_sequence(locations.view(-1), nodes, rank))
    places = torch.arange(len(locations))
    if not torch.equal(nodes, places):
        return False
    locations[:, 0], locations[:, 1] = rank, places
    return True


def shift_nodes(
    nodes: torch.Tensor,
    bounds: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    dtype: torch.dtype,
) -> torch.Tensor:
    """[k] each node, moved from its range to where that begins in a window. Compiled kernels only.

    Args:
        nodes: [k] int32 or int64, ascending by range, on the CPU.
        bounds: [ranges + 1] the first node of each range, and one past the last.
        starts: [ranges] the first row of each range.
        dtype: of the result.
    """
    rows = memory.empty((len(nodes),), dtype)
    native.lib.shift_nodes(nodes, bounds, starts, rows)
    return rows
