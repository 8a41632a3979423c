"""Peaks of memory that runs take, compared with their plans from both sides."""

from __future__ import annotations

from collections.abc import Callable, Mapping

RUNS = 3
"""At most, until the least is taken."""


def hold_peaks(run: Callable[[], Mapping[str, float]], least: float, most: float) -> None:
    """No run takes more of its plan than ``most``, and together they take ``least`` in each stage.

    A plan is of the most that threads may hold at one moment. Of a run on a busy machine they may
    never meet, and then it takes less: it is run again.

    Args:
        run: stage -> what the fullest worker of a run took in it, as a share of its plan.
    """
    runs: list[Mapping[str, float]] = []
    for _ in range(RUNS):
        runs.append(run())
        peaks = {stage: max(shares[stage] for shares in runs) for stage in runs[0]}
        assert max(peaks.values()) <= most, runs
        if min(peaks.values()) >= least:
            return
    raise AssertionError(runs)
