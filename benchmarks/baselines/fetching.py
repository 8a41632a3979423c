"""Asking the holders of some rows for them: ids first, then the rows; nothing overlaps."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.engine import Engine


def ask(
    engine: Engine, nodes: torch.Tensor, bounds: tuple[int, ...]
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Send every holder the rows that we need of it.

    Collective: every rank of the graph axis must call.

    Args:
        nodes: [k] ids in any order, the same one twice if need be.
        bounds: the holders' ranges of ids, one per rank of the axis.

    Returns:
        What each rank asks of us, as our row numbers; and [k] where each of ``nodes`` is among
        the rows that will come.
    """
    holder = np.searchsorted(np.array(bounds), nodes.numpy(), side="right") - 1
    order = torch.from_numpy(np.argsort(holder, kind="stable"))
    counts = np.bincount(holder, minlength=len(bounds) - 1).tolist()
    first = torch.tensor(bounds, dtype=torch.int64)[torch.from_numpy(holder)[order]]
    wanted = (nodes[order].long() - first).split(counts)
    place = torch.empty(len(nodes), dtype=torch.int64)
    place[order] = torch.arange(len(nodes))
    return engine.channel("graph").all_to_all(list(wanted)), place


def answer(engine: Engine, asked: list[torch.Tensor], tile: torch.Tensor) -> torch.Tensor:
    """[k, width] the rows that we asked for, by holder. Collective: as :func:`ask`."""
    return torch.cat(
        engine.channel("graph").all_to_all([engine.take(tile, rows) for rows in asked])
    )
