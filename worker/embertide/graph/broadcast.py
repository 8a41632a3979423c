"""Files of rank 0 on every rank, passed on along a binary tree."""

from __future__ import annotations

import torch

from embertide.graph.exchange import Channel


def broadcast_files(channel: Channel, files: dict[str, bytes]) -> dict[str, bytes]:
    """Rank 0's files, on every rank. Collective: every rank must call.

    Each rank but rank 0 receives all bytes once, and sends them to at most two others.

    Args:
        channel: of the world axis.
        files: name -> content; of rank 0, others' are not looked at.
    """
    own = [[name, len(content)] for name, content in files.items()]
    listed, *_ = channel.exchange.all_objects(own if channel.axis.index == 0 else [])
    if channel.axis.size == 1:
        return files
    sizes = [size for _, size in listed]
    if channel.axis.index == 0:
        data = torch.frombuffer(
            bytearray(b"".join(files.values())) or bytearray(1), dtype=torch.uint8
        )
        data = data[: sum(sizes)]
    else:
        data = torch.empty(sum(sizes), dtype=torch.uint8)
    _pass_on(channel, data)
    if channel.axis.index == 0:
        return files
    contents = (part.numpy().tobytes() for part in data.split(sizes))
    return {name: content for (name, _), content in zip(listed, contents, strict=True)}


def _pass_on(channel: Channel, data: torch.Tensor) -> None:
    """Receive from the rank above in the tree, then send to those below."""
    index = channel.axis.index
    if index:
        channel.start([], [((index - 1) // 2, data)]).wait()
    below = [peer for peer in (2 * index + 1, 2 * index + 2) if peer < channel.axis.size]
    channel.start([(peer, data) for peer in below], []).wait()
