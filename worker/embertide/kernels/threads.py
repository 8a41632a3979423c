"""The threads of the compiled kernels. Where there are none, torch has its own."""

from __future__ import annotations

from embertide.kernels import native


def set_threads(count: int) -> None:
    """Run the kernels on ``count`` threads, the caller's included; 0 for one on each core."""
    if native.lib is not None:
        native.lib.set_threads(count)


def work_alone() -> None:
    """From now on run kernels that the calling thread calls on it alone."""
    if native.lib is not None:
        native.lib.work_alone()


def work_done() -> tuple[int, int]:
    """Tasks and non-zeros that the kernels of this process have finished; zeros on torch.

    Any thread may ask, also while a loop runs.
    """
    if native.lib is None:
        return 0, 0
    tasks, entries = native.lib.done()
    return tasks, entries
