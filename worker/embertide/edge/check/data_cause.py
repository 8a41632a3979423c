"""Why the embeddings of a proven model differ: which change of the manifest makes them agree.

An exported model was proved to be the module, so the data is the first suspect. Each change that
people get wrong is tried; where none is enough, those on top of the one that helps most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from embertide.edge.check.alternatives import Change
from embertide.edge.check.data_changes import DataChange, data_changes
from embertide.edge.check.data_files import DataFiles
from embertide.edge.check.diagnose import Difference, Tried
from embertide.errors import EmbertideError
from embertide.spec.manifest import EmbeddingJob

VectorsOf = Callable[[EmbeddingJob], torch.Tensor]
"""A job's vectors [n, D'] of the rows that are compared."""


def find_cause(
    job: EmbeddingJob,
    rows: VectorsOf,
    expected: torch.Tensor,
    worst: float,
    tolerance: float,
    files: DataFiles,
) -> Difference:
    """Try changes of a job's data.

    Args:
        expected: [n, D'] float64, what the user's own forward gave.
        worst: largest difference without a change, as a share of the largest magnitude.
        tolerance: largest error that counts as agreement.
        files: see :func:`data_changes`.
    """  # fmt: skip
    search = _Search(rows, expected)
    tried = list(search.tried(job, files))
    fixes = _fixing(tried, tolerance)
    nearest = min(tried, key=lambda pair: pair[0].error, default=None)
    if not fixes and nearest is not None and nearest[0].error < worst:
        first, changed = nearest
        both = list(search.tried(changed, replace(files, spread={}), first.change))
        fixes = _fixing(both, tolerance)
    shown = None if fixes or nearest is None or nearest[0].error >= worst else nearest[0]
    kinds = tuple(dict.fromkeys(search.kinds))
    return Difference(error=worst, row=0, fixes=fixes, nearest=shown, of_data=True, tried=kinds)


def _fixing(tried: list[tuple[Tried, EmbeddingJob]], tolerance: float) -> tuple[Tried, ...]:
    return tuple(change for change, _ in tried if change.error <= tolerance)


class _Search:
    """Changes that are computed and compared."""

    def __init__(self, rows: VectorsOf, expected: torch.Tensor) -> None:
        self._rows, self._expected = rows, expected
        self._largest = expected.abs().max()
        self.kinds: list[str] = []

    def tried(
        self, job: EmbeddingJob, files: DataFiles, first: Change | DataChange | None = None
    ) -> Iterator[tuple[Tried, EmbeddingJob]]:
        """Every change that the data allows, with what it leaves of the difference.

        Args:
            first: a change that the job has already.
        """
        for change, changed in data_changes(job, files):
            if isinstance(first, DataChange) and change.field == first.field:
                continue
            try:
                vectors = self._rows(changed).double()
            except EmbertideError:
                continue  # The data rules it out.
            self.kinds.append(change.kind)
            error = ((vectors - self._expected).abs().max() / self._largest).nan_to_num(torch.inf)
            both = change if first is None else _together(first, change)
            yield Tried(change=both, error=float(error)), changed


def _together(first: Change | DataChange, second: DataChange) -> DataChange:
    return DataChange(field=second.field, text=f"{first.text}, and {second.text}")
