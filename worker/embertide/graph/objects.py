"""Small objects between ranks, as JSON: what a peer sends is data, and never code that runs here.

torch's own collectives for objects pickle them, and to read a pickle is to run what it says. Any
process that reaches a worker's port could then run code with the worker's credentials.
"""

from __future__ import annotations

import json
from typing import Any

import torch
import torch.distributed as dist

from embertide.errors import WorkerFailed

MOST_BYTES = 1 << 28
"""The largest object of one rank: more is taken for damage. A work order of a million objects takes
half."""


def gather_objects(value: Any, rank: int, world: int) -> list[Any]:
    """Every rank's value, in rank order; tuples arrive as lists. Our own is passed through.

    Sends a length, then the text padded to the longest. Collective: every rank must call.

    Args:
        value: what JSON can hold.

    Raises:
        WorkerFailed: a peer sent something else.
    """
    data = _encode(value)
    lengths = [data.new_empty(1, dtype=torch.int64) for _ in range(world)]
    dist.all_gather(lengths, torch.tensor([len(data)]))
    sizes = [_checked(peer, int(length)) for peer, length in enumerate(lengths)]
    padded = data.new_zeros(max(sizes))
    padded[: len(data)] = data
    texts = [torch.empty_like(padded) for _ in range(world)]
    dist.all_gather(texts, padded)
    return [
        value if peer == rank else _decode(peer, text[:size])
        for peer, (text, size) in enumerate(zip(texts, sizes, strict=True))
    ]


def broadcast_object(value: Any, rank: int) -> Any:
    """Rank 0's value, on every rank. Collective: every rank must call.

    Args:
        value: what JSON can hold; of rank 0, others' is not looked at.

    Raises:
        WorkerFailed: rank 0 sent something else.
    """
    data = _encode(value if rank == 0 else None)
    length = torch.tensor([len(data)])
    dist.broadcast(length, src=0)
    if rank > 0:
        data = data.new_empty(_checked(0, int(length)))
    dist.broadcast(data, src=0)
    return value if rank == 0 else _decode(0, data)


def _encode(value: Any) -> torch.Tensor:
    data = bytearray(json.dumps(value, separators=(",", ":")).encode())
    return torch.frombuffer(data, dtype=torch.uint8)


def _checked(peer: int, size: int) -> int:
    if not 0 < size <= MOST_BYTES:
        raise WorkerFailed(f"worker {peer} announced an object of {size} bytes; {_OTHERS}")
    return size


def _decode(peer: int, data: torch.Tensor) -> Any:
    try:
        return json.loads(data.numpy().tobytes())
    except (ValueError, RecursionError) as error:
        raise WorkerFailed(f"worker {peer} sent what is no JSON ({error}); {_OTHERS}") from error


_OTHERS = "see that all workers run the same image, and that nothing else reaches their ports"
