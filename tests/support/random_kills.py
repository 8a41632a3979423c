"""Runs that keep layers and are killed at random moments, and what a whole run then publishes."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest

from tests.support.commands import Running, await_nobody
from tests.support.patience import WAIT_SECONDS
from tests.support.resumed import Job

GRIDS = ("1x1", "2x1", "1x2", "2x2")


@dataclass
class RandomKills:
    """Kills of a worker or of the whole command, on any grid, from the start to the end of a run.

    Attributes:
        seconds: of a run to its end.
        killed: how many of what were killed; runs that were over before count as none.
        resumed: layer after which runs to the end went on -> how many did.
    """

    job: Job
    chance: random.Random
    seconds: float
    killed: Counter[str] = field(default_factory=Counter)
    resumed: Counter[int] = field(default_factory=Counter)

    @classmethod
    def of(cls, job: Job, config: pytest.Config) -> RandomKills:
        """With the seed of the test run; it is printed, for the next time."""
        seed = config.getoption("randomly_seed", None) or time.time_ns()
        print("seed", seed)
        begun = time.monotonic()
        job.again("2x1")
        return cls(job, random.Random(seed), time.monotonic() - begun)

    def kill(self, count: int) -> None:
        """Kill so many runs, and after one or two of them compare what a whole run publishes."""
        while self.killed.total() < count:
            for _ in range(self.chance.choice((1, 2))):
                self._kill_one()
            self._check()
            print(f"killed {dict(self.killed)}, resumed after layers {dict(self.resumed)}")

    def _check(self) -> None:
        report = self.job.again(self.chance.choice(GRIDS))
        self.resumed[report["kept"]["resumed"]] += 1
        assert self.job.rows() in self.job.bits.values()
        assert self.job.kept() == []

    def _kill_one(self) -> None:
        grid = self.chance.choice(GRIDS)
        run = self.job.run(grid, "--resume")
        self._wait(run)
        run.hold()  # those that are there are still there when they are killed
        workers = run.workers_there()
        if run.process.poll() is None:
            if workers and self.chance.random() < 0.5:
                os.kill(self.chance.choice(workers), signal.SIGKILL)
                self.killed[f"worker of {grid}"] += 1
            else:
                os.killpg(run.process.pid, signal.SIGKILL)
                self.killed[f"command of {grid}"] += 1
        run.go_on()
        run.process.wait(WAIT_SECONDS)
        await_nobody(run.process.pid)

    def _wait(self, run: Running) -> None:
        """Until a moment of the whole run, or shortly after a layer is begun to be kept."""
        until = time.monotonic() + self.chance.random() * self.seconds
        if self.chance.random() < 0.5:
            time.sleep(max(0.0, until - time.monotonic()))
            return
        blocks, deadline = self.chance.randint(1, 6), time.monotonic() + self.seconds
        while self._blocks() < blocks and time.monotonic() < deadline:
            if run.process.poll() is not None:
                return
            time.sleep(0.002)
        time.sleep(self.chance.random() * 0.05)

    def _blocks(self) -> int:
        """Objects that are kept, complete or not."""
        return len(self.job.kept_objects())
