"""What the edges of the whole graph add up to at the nodes that they lead from.

Each rank adds up what its own non-zeros have, and sends the sums of remote sources to their
holders: one number per unique remote row.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from embertide.graph.exchange import Channel
from embertide.graph.in_place import WindowRows, shared
from embertide.graph.sources import Sources
from embertide.kernels.counting import count_values
from embertide.kernels.spilled_csr import AnyBlock

Add = Callable[[AnyBlock, torch.Tensor], None]
"""Adds what a block's non-zeros have to their sources."""


def count_sources(block: AnyBlock, to: torch.Tensor) -> None:
    """Add one for each non-zero."""
    for _, part in block.each():
        count_values(part.indices, to)


def add_at_sources(
    channel: Channel, sources: Sources, rows: int, kind: torch.dtype, add: Add
) -> torch.Tensor:
    """[rows] what the edges to anywhere add up to at each of our rows as a source.

    Collective: every rank of the sources' axis must call.

    Args:
        rows: of ours.
        kind: of a sum, 4 bytes.
    """
    if sources.window is not None:
        return _in_place(channel, sources, sources.window, kind, add)
    degree = torch.zeros(rows, dtype=kind, device=channel.device)
    add(sources.local, degree)
    by_slot = degree.new_zeros(sources.unique)
    sent: dict[int, list[torch.Tensor]] = {i: [] for i in sources.requests}
    for number in range(len(sources.remote)):
        of_group = by_slot[slice(*sources.group(number))]
        add(sources.non_zeros(number), of_group)
        for i, start, stop in sources.incoming(number, number + 1):
            sent[i].append(of_group[start:stop])
    received = {i: degree.new_empty(len(r.rows)) for i, r in sources.requests.items()}
    channel.start(
        [(i, torch.cat([degree.new_empty(0), *parts])) for i, parts in sent.items()],
        list(received.items()),
    ).wait()
    for i, request in sources.requests.items():
        degree.index_add_(0, request.rows, received[i])
    return degree


def _in_place(
    channel: Channel, sources: Sources, window: WindowRows, kind: torch.dtype, add: Add
) -> torch.Tensor:
    """As :func:`add_at_sources`, of what the ranks of one host have added up themselves."""
    own = torch.zeros((window.end, 1), dtype=kind)
    add(sources.local, own[:, 0])
    rows, others = window.slice(channel.axis.index), channel.axis.size - 1
    channel.read_in_place((rows.stop - rows.start) * others * own.element_size())
    with shared(channel, [own]) as (seen,):
        parts = [seen.of(i, 1)[rows, 0] for i in range(channel.axis.size)]
        return torch.stack(parts).sum(0, dtype=kind)
