"""Worker containers that meet at an address of IPv6."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.commands import members
from tests.support.job_files import WIDTH, write_job
from tests.support.pods import Pod, local_pods
from tests.support.ports import free_port
from tests.support.world import make_features, make_graph

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the system has no IPv6"),
]


def test_workers_meet_over_ipv6(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", make_graph(), make_features(WIDTH), ids="string")
    with local_pods(tmp_path / "pods", job.job) as made:
        port = free_port()
        # The process group has an address of the interface, as in a pod that has one family.
        env = {"EMBERTIDE_RENDEZVOUS": f"[::1]:{port}", "GLOO_SOCKET_IFNAME": "lo"}
        # They stay in their rendezvous until the last one comes.
        pods = made.attempt("3x1", [0, 1], **env)
        met = pods[0].until(lambda status: peers(pods[1], port) if status.progress else set())
        assert met == {"::1"}
        made.replace(2)
        pods[0].until_state("succeeded")
        assert len(job.published())


def peers(pod: Pod, port: int) -> set[str]:
    """The addresses at which a pod's processes are connected to a port."""
    found = set()
    for process in members(pod.process.pid):
        with suppress(psutil.NoSuchProcess):  # it ended while we looked
            for connection in psutil.Process(process).net_connections("tcp"):
                if connection.raddr and connection.raddr.port == port:
                    found.add(connection.raddr.ip)
    return found
