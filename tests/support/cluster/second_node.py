"""A second node beside the first one, in namespaces within its namespaces.

Started by node_main.py as one component. It has no orders to take: a test kills it as a whole, as
a machine loses power, and may start it again as an empty one.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

from tests.support.cluster import cgroups, machine, network
from tests.support.cluster.layout import SECOND, Settings
from tests.support.cluster.running import ComponentProcesses


def main() -> None:
    """Give it namespaces and control groups below the first node's."""
    settings = Settings.of_this_process()
    shutil.rmtree(settings.layout.of(SECOND), ignore_errors=True)
    first = os.open("/proc/self/ns/net", os.O_RDONLY)
    module = "tests.support.cluster.second_node"
    command = (*machine.ENTER, sys.executable, "-m", module, str(first))
    with cgroups.own_groups():
        subprocess.run(command, pass_fds=(first,))


def inside(first: int) -> None:
    """Start its components and wait for the end."""
    settings = Settings.of_this_process()
    running = ComponentProcesses(settings.layout.logs)
    machine.set_up_mounts()
    network.set_up_second(first)
    machine.start_containerd(running, settings, SECOND)
    machine.start_agents(running, settings, SECOND)
    signal.pause()


if __name__ == "__main__":
    inside(int(sys.argv[1])) if len(sys.argv) > 1 else main()
