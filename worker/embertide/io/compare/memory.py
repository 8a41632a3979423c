"""What comparing holds beside the embeddings: bounded batches, and a little for each row."""

from __future__ import annotations

from embertide.io.compare.sample import sample_rows

_ROW_BYTES = 13
"""Bytes of a row: its norm, its fingerprint, and its share of the directory of keys."""
_SORTING_BYTES = 3
"""Bytes of a row while fingerprints are counted: which are zero, and which are like the next."""
_KEY_BYTES = {"dense": 0, "int64": 8, "string": 16}
_BATCH_BYTES = 8 << 20
_BATCHES = 5
"""Batches of a thread: one of the previous version as it is read, decoded and put together, and
what is computed of it. Measured."""
_COPIES = 4
"""Copies of the sample: as drawn, in order, and what is computed of it. Measured."""
_TEXTS = 8 / 3
"""The sample as text that workers send each other: as sent and as received, four thirds of it each.
"""


_PATH_BYTES = 14
"""Bytes of a row while its delta is measured and written: its path, and what the delta has."""


def noting_bytes(rows: float, kind: str) -> float:
    """Bytes of one worker for what the delta of a result has, with the keys that find its rows."""
    return rows * (_PATH_BYTES + _KEY_BYTES[kind])


def comparing_bytes(rows: float, kind: str, width: int, total: int, threads: int) -> float:
    """Bytes of one worker while it compares a node type.

    Args:
        rows: of ours.
        kind: of the ids.
        width: D, the length of an embedding.
        total: rows of all workers.
    """
    of_rows = rows * (_KEY_BYTES[kind] + _ROW_BYTES + _SORTING_BYTES)
    batches = min(float(_BATCH_BYTES), 4.0 * width * total) * _BATCHES * threads
    sample = 2 * 4.0 * width * min(total, sample_rows(width))
    sent = _TEXTS if rows < total else 0.0
    return of_rows + batches + sample * (_COPIES + sent)
