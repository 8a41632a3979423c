"""Transfers that were started and are to be waited for."""

from __future__ import annotations

import time
from typing import Any

import torch

from embertide.facts.telemetry.recorder import Label, Recorder


class Pending:
    """Transfers in flight; what is sent stays alive until it has left."""

    def __init__(
        self,
        sends: list[Any],
        receives: list[Any],
        buffers: list[torch.Tensor],
        recorder: Recorder,
        label: Label,
    ) -> None:
        self._sends, self._receives, self._buffers = sends, receives, buffers
        self._recorder, self._label = recorder, label

    def received(self) -> None:
        """Block until everything has been received. What is sent must still not change."""
        arriving, self._receives = self._receives, self._wait_for(self._receives)
        self._count_arrival(arriving)

    def wait(self) -> None:
        """Block until everything has been received and sent."""
        arriving, both = self._receives, [*self._receives, *self._sends]
        self._receives = self._sends = self._wait_for(both)
        self._count_arrival(arriving)
        self._buffers = []

    def _count_arrival(self, receives: list[Any]) -> None:
        if receives:
            self._recorder.arrived(self._label)

    def _wait_for(self, works: list[Any]) -> list[Any]:
        start = time.perf_counter()
        for work in works:
            work.wait()
        if works:
            self._recorder.waited(self._label, time.perf_counter() - start)
        return []
