"""What a worker's container holds before and after its work, beside what is asked for it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from embertide.engine.planning.sizing import BESIDE_BYTES, IMPORTS_BYTES, container_bytes
from tests.support.commands import members, name_of
from tests.support.job_files import WIDTH, write_job
from tests.support.pods import Pod, local_pods
from tests.support.world import make_features, make_graph

pytestmark = pytest.mark.distributed

MIB = 1 << 20


def held_bytes(processes: list[int]) -> tuple[int, int]:
    """(anonymous pages, pages of files) as a control group counts them: each page once.

    Those of files can be dropped and read again, so they end no container.
    """
    anonymous, files = 0, defaultdict(int)
    for process in processes:
        path = ""
        for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
            name, *values = line.split()
            if not name.endswith(":"):
                path = line.split(maxsplit=5)[5] if len(values) >= 5 else ""
            elif name == "Rss:" and path.startswith("/"):
                files[process, path] += int(values[0]) << 10
            elif name == "Pss:" and not path.startswith("/"):
                anonymous += int(values[0]) << 10
            elif name == "Anonymous:" and path.startswith("/"):
                anonymous += int(values[0]) << 10
                files[process, path] -= int(values[0]) << 10
    most: dict[str, int] = defaultdict(int)
    for (_, path), size in files.items():
        most[path] = max(most[path], size)
    return anonymous, sum(most.values())


def is_waiting(pod: Pod) -> bool:
    """The worker process is there, and has nothing to do."""
    names = [name_of(process) for process in members(pod.process.pid)]
    return len(names) >= 5 and "waiting for 2 workers" in pod.log.read_text()


def test_what_is_asked_for_covers_an_idle_worker(tmp_path: Path) -> None:
    """Main process, fork server, launcher and worker, with imports, before there is any work."""
    job = write_job(tmp_path / "job", make_graph(), make_features(WIDTH), ids="string")
    with local_pods(tmp_path / "pods", job.job, new=True) as made:
        (pod,) = made.attempt("2x1", [0])
        pod.until(lambda _status: is_waiting(pod))
        anonymous, files = held_bytes(members(pod.process.pid))
    # A worker that waits has yet to touch what it inherited, so the plan may be above, not below.
    assert 100 * MIB < anonymous < IMPORTS_BYTES + BESIDE_BYTES
    assert anonymous + files < container_bytes(0), f"{anonymous >> 20} and {files >> 20} MiB"
